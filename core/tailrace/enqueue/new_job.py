"""A job before it is stored, and what storing it gave.

`NewJob` is a plain value: comparable, no I/O, the same for bulk, schedules and assertions. Its options are checked by
`options`, its payload by `json_text`; `statements` sends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from typing_extensions import TypedDict

from tailrace.policy import OnDuplicate, RetryPolicy

Outcome = Literal["created", "replaced", "skipped", "in_progress"]


class JobOptions(TypedDict, total=False):
    """The options of `using(...)`; durations are seconds or a timedelta."""

    queue: str
    priority: int
    delay: float | timedelta
    run_at: datetime
    key: str
    on_duplicate: OnDuplicate
    serial_group: str
    tenant: str
    max_attempts: int
    retry: RetryPolicy
    timeout: float | timedelta
    expires_in: float | timedelta
    meta: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an enqueue did.

    Attributes:
        id: The job's id; of the job that holds the key, if nothing was changed.
        outcome: `created` (in mode `after` perhaps as the successor of the job that runs); `replaced` (a waiting job of this
            key took over the payload); `skipped` (a job of this key waits) and `in_progress` (one runs): these two changed
            nothing.
    """

    id: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be stored.

    Attributes:
        task: The task's name.
        payload: Its parameters by name, as plain JSON values.
        queue: The queue; None is the task's, else the application's.
        priority: -1000 to 1000, high first.
        delay: Start this much later; seconds or a timedelta.
        run_at: Start not before this aware time; excludes delay.
        key: At most one live job of the task in its queue and tenant has this key.
        on_duplicate: What happens when a live job has the key: `skip`, `replace`, `preserve_run_at` or `after`. The default is
            `skip`, and `after` for a handler that enqueues the key of its own job.
        serial_group: At most one job of this name in its queue and tenant runs at a time, in order.
        tenant: Whose job it is.
        max_attempts: Runs in total.
        retry: Backoff, and max_attempts unless that is given too.
        timeout: The longest one run may take; 0 is without limit.
        expires_in: Start within this time from now or never.
        meta: Small facts beside the payload, at most 8 KiB as JSON.
    """

    task: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    queue: str | None = field(default=None, kw_only=True)
    priority: int | None = field(default=None, kw_only=True)
    delay: float | timedelta | None = field(default=None, kw_only=True)
    run_at: datetime | None = field(default=None, kw_only=True)
    key: str | None = field(default=None, kw_only=True)
    on_duplicate: OnDuplicate | None = field(default=None, kw_only=True)
    serial_group: str | None = field(default=None, kw_only=True)
    tenant: str | None = field(default=None, kw_only=True)
    max_attempts: int | None = field(default=None, kw_only=True)
    retry: RetryPolicy | None = field(default=None, kw_only=True)
    timeout: float | timedelta | None = field(default=None, kw_only=True)
    expires_in: float | timedelta | None = field(default=None, kw_only=True)
    meta: Mapping[str, Any] | None = field(default=None, kw_only=True)
    # what `task.job(...)` has checked and written already; a copy with a change (dataclasses.replace) is without it
    checked: Any = field(default=None, init=False, repr=False, compare=False)

    def options(self) -> dict[str, Any]:
        """The options that were given, by name."""
        return {name: value for name in _OPTION_FIELDS if (value := getattr(self, name)) is not None}


_OPTION_FIELDS: Final = tuple(f.name for f in fields(NewJob) if f.name not in ("task", "payload", "queue", "checked"))
