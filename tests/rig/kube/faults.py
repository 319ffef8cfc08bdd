"""What may happen to a request on its way to the API server, and what came by; `fault_proxy` makes it happen."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

_REASONS = {410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}


@dataclass(kw_only=True)
class Fault:
    """What happens to the requests that it fits."""

    method: str = ""
    """Such as PATCH; any when empty."""

    path: str = ""
    """A pattern that is searched for in path and query."""

    delay: float = 0.0
    """Seconds before anything else."""

    status: int = 0
    """Answered instead of the API server."""

    retry_after: int | None = None
    """The header of that answer, in seconds."""

    cut: Literal["", "before", "after"] = ""
    """Breaks the connection before the API server hears of the request, or after it has done it."""

    times: int | None = None
    """How often; without end when None."""

    met: int = 0
    """How often it has happened."""

    def fits(self, request: web.Request) -> bool:
        """Tell whether it is due for a request."""
        spent = self.times is not None and self.met >= self.times
        return not spent and self.method in ("", request.method) and re.search(self.path, request.path_qs) is not None


@dataclass(kw_only=True)
class Seen:
    """One request that came by."""

    method: str
    path: str
    watch: bool
    at: float = field(default_factory=time.monotonic)
    status: int = 0
    """What the client was answered; 0 while it waits, or when it was cut off."""


def refusal(fault: Fault) -> web.Response:
    """Return the answer of a fault that has a status."""
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    return web.json_response(status_of(fault.status), status=fault.status, headers=headers)


def status_of(code: int) -> dict[str, Any]:
    """Return the body that the API server sends with a status."""
    reason = _REASONS.get(code, "Unknown")
    words = {"message": f"the fault proxy says {code}", "reason": reason, "code": code}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", **words}
