"""The application: one task that delivers an event to a customer's address.

Run it with `tailrace worker examples.webhooks.app:app --queue webhooks`. `producer` enqueues, `receiver` answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx

from tailrace import App, JobContext, NoRetry, RetryAfter, RetryPolicy

_GONE = 410
_TOO_MANY = 429
_WAIT_SECONDS = 60.0  # when a customer says "too many" and not for how long

app = App("webhooks")


@dataclass(frozen=True, slots=True)
class Resources:
    """What the handlers of one worker share.

    Attributes:
        http: A client with a pool of open connections.
    """

    http: httpx.AsyncClient


@app.lifespan
async def resources() -> AsyncIterator[Resources]:
    """Open the HTTP client before the first claim and close it after the last job."""
    async with httpx.AsyncClient(timeout=20) as http:
        yield Resources(http)


# The waits are short, so that the demo ends soon. Against real receivers keep the default of 5 seconds and more attempts.
@app.task(
    timeout=30,
    retry=RetryPolicy(max_attempts=4, base=0.5, cap=60),
    no_retry=(httpx.UnsupportedProtocol, httpx.InvalidURL),
)
async def deliver(ctx: JobContext[Resources], event_id: int, url: str) -> None:
    """Tell a customer's system about an event.

    The event's id goes along, so that the receiver can recognize a second delivery.

    Args:
        ctx: The run.
        event_id: Which event.
        url: Where the customer wants to hear of it.

    Raises:
        NoRetry: The receiver says that the address is gone for good.
        RetryAfter: The receiver asks us to wait.
        httpx.HTTPError: Anything else that is not a success; the retry policy decides.
    """
    message = {"id": event_id, "delivery": ctx.attempt}
    response = await ctx.resources.http.post(url, json=message, headers={"Idempotency-Key": f"event-{event_id}"})
    if response.status_code == _GONE:
        raise NoRetry("the receiver is gone")
    if response.status_code == _TOO_MANY:
        raise RetryAfter(_seconds(response.headers.get("Retry-After")))
    response.raise_for_status()


def _seconds(header: str | None) -> float:
    """Read a Retry-After header; one with a date or none at all means a minute."""
    return float(header) if header is not None and header.isdecimal() else _WAIT_SECONDS
