"""One request to the API server: a thread of the official client, a deadline, the fence, and what the answer means.

`client` knows the verbs and calls this. Nothing is tried again here.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final

from kubernetes.client import ApiClient, ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from tailrace_controller.kube.errors import KubeUnavailable, NotLeading, from_answer
from tailrace_controller.kube.place import Place
from tailrace_controller.version import VERSION

__all__ = ["Transport"]

Object = dict[str, Any]
_JSON: Final = "application/json"
_SLACK_SECONDS: Final = 2.0
"""What a request may wait for a thread, beyond its own time."""
_LARGE: Final = 100_000
"""Bytes of an answer that is decoded in a thread, so that it does not hold up the event loop."""


class Transport:
    """Threads and connections to one API server.

    Attributes:
        requests: Requests by (verb, status); status 0 = no answer.
    """

    def __init__(
        self, place: Place, *, threads: int, timeout: float, write_timeout: float, may_write: Callable[[], bool] | None
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            place: Where the API server is.
            threads: Requests at a time.
            timeout: Seconds for one request that reads.
            write_timeout: Seconds for one that writes.
            may_write: Asked right before each write; None allows all.
        """
        place.configuration.connection_pool_maxsize = threads
        self._timeout, self._write_timeout, self._may_write = timeout, write_timeout, may_write
        self._api = ApiClient(place.configuration)
        self._api.user_agent = f"tailrace-controller/{VERSION}"
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tailrace-kube")
        self._under_way: set[Future[Any]] = set()
        self.requests: Counter[tuple[str, int]] = Counter()

    def close(self) -> None:
        """Close the connections; requests under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._api.close()

    async def settle(self, seconds: float) -> None:
        """Wait until no request is under way; a request goes on when nobody waits for it any more.

        Args:
            seconds: How long at most.
        """
        if under_way := set(self._under_way):
            await asyncio.to_thread(wait, under_way, seconds)

    async def call(
        self,
        verb: str,
        path: str,
        *,
        query: Mapping[str, str | None] | None = None,
        body: Object | None = None,
        content: str | None = None,
    ) -> Object:
        """Send a request and return the object that came back.

        Args:
            verb: The HTTP method.
            path: The path.
            query: Parameters; those that are None are left out.
            body: An object.
            content: Its content type.

        Raises:
            KubeError: No answer, or one that is no success.
        """
        loop = asyncio.get_running_loop()
        given = [(name, value) for name, value in (query or {}).items() if value is not None]
        seconds, status = self._timeout if verb == "GET" else self._write_timeout, 0
        work = self._threads.submit(self._request, verb, path, given, body, content, seconds)
        self._under_way.add(work)
        work.add_done_callback(self._under_way.discard)
        try:
            async with asyncio.timeout(seconds + _SLACK_SECONDS):
                status, headers, answer = await asyncio.wrap_future(work)
            if status >= 300:
                raise from_answer(status, headers, answer)
            if len(answer) < _LARGE:
                return _decoded(answer)
            return await loop.run_in_executor(self._threads, _decoded, answer)
        except TimeoutError:
            raise KubeUnavailable(f"the API server did not answer within {seconds:g} s") from None
        finally:
            self.requests[verb, status] += 1

    def _request(
        self,
        verb: str,
        path: str,
        query: list[tuple[str, str]],
        body: Object | None,
        content: str | None,
        seconds: float,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send one request; runs in a thread. The fence is asked here, at the last moment before it leaves."""
        if verb != "GET" and self._may_write is not None and not self._may_write():
            raise NotLeading("the Lease is not held any more, so nothing is written")
        try:
            headers = {"Accept": _JSON, **({} if content is None else {"Content-Type": content})}
            request = self._api.param_serialize(
                verb, path, query_params=query, header_params=headers, body=body, auth_settings=["BearerToken"]
            )
            answer = self._api.call_api(*request, _request_timeout=seconds)
            return int(answer.status), answer.headers, answer.read()
        except (HTTPError, OSError, ConfigException, ApiException) as error:
            # The client's own exception here is its word for a TLS connection that broke; answers raise nothing.
            raise KubeUnavailable(f"the API server cannot be reached: {_said(error)}") from error


def _decoded(answer: bytes) -> Object:
    try:
        found = json.loads(answer)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise KubeUnavailable("what answered is no API server: it sent no JSON object")
    return found


def _said(error: Exception) -> str:
    text = str(getattr(error, "reason", "") or error).strip()
    return (text.splitlines()[0] if text else type(error).__name__)[:300]
