"""One schedule of a JobQueue: when, what, and what happens meanwhile.

It goes to the queue's row, so a change of it starts no pod anew; the routine `tailrace.maintenance.cron` fires it.
Neighbours: `job_rules`; `tailrace.schedules.times` reads crontab lines.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from tailrace.enqueue.options import KEY_BYTES, TASK_BYTES
from tailrace.errors import InvalidOption
from tailrace.json_text import encode
from tailrace.queue_spec.base import Count, DnsLabel, Part, Priority, TaskName, too_long
from tailrace.schedules.declared import PAYLOAD_BYTES
from tailrace.schedules.times import check_zone, timing_of

__all__ = ["Schedule"]


class Schedule(Part):
    """A job that is enqueued at given times."""

    name: DnsLabel
    """The schedule's name, unique in the queue."""
    cron: str | None = None
    """Minute, hour, day of month, month, day of week; or everySeconds."""
    every_seconds: Annotated[int, Field(ge=1, le=31_622_400)] | None = None
    """A fixed period in seconds, counted from 1970 in UTC; or cron."""
    time_zone: str = "UTC"
    """The zone that cron is read in, as in the IANA database."""
    task: TaskName
    """The task to enqueue."""
    payload: dict[str, Any] = Field(default_factory=dict)
    """Its payload, at most 2 KiB."""
    priority: Priority | None = None
    """High first; absent = the task's."""
    max_attempts: Count | None = None
    """Runs that may end by error, timeout or crash; absent = the task's."""
    key: Annotated[str, StringConstraints(min_length=1)] | None = None
    """A key that all its jobs share with others of the task; absent = each tick has a key of its own."""
    on_duplicate: Literal["Skip", "Replace", "PreserveRunAt", "After"] | None = None
    """What happens when a live job has that key; absent = Skip, and After with overlap Replace."""
    overlap: Literal["Allow", "Skip", "Replace"] = "Skip"
    """What happens while the last job of the schedule still lives."""
    catch_up_seconds: Annotated[int, Field(ge=0, le=31_622_400)] = 0
    """How far back missed times are made up for, in seconds; a minute in any case."""
    suspend: bool = False
    """No jobs while true."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.cron is None) == (self.every_seconds is None):
            raise ValueError("exactly one of cron and everySeconds must be set: remove one or add one")
        if self.on_duplicate is not None and self.key is None:
            raise ValueError("onDuplicate counts only with key: remove it or add key")
        return self

    @field_validator("cron")
    @classmethod
    def _crontab_line(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                timing_of(value, None, None)
            except InvalidOption as problem:
                raise ValueError(str(problem).replace("cron: ", "cron ", 1)) from None
        return value

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            return check_zone(value, field="timeZone")
        except InvalidOption as problem:
            raise ValueError(str(problem).replace("timeZone: ", "timeZone ", 1)) from None

    @field_validator("payload")
    @classmethod
    def _small_payload(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            encode(value, limit=PAYLOAD_BYTES, error=InvalidOption, hint="payload must be at most 2 KiB of JSON")
        except InvalidOption as problem:
            raise ValueError(str(problem)) from None
        return value

    @field_validator("task")
    @classmethod
    def _task_fits(cls, value: str) -> str:
        return _in_bytes(value, TASK_BYTES)

    @field_validator("key")
    @classmethod
    def _key_fits(cls, value: str | None) -> str | None:
        return None if value is None else _in_bytes(value, KEY_BYTES)


def _in_bytes(value: str, limit: int) -> str:
    if too_long(value, limit):
        raise ValueError(f"must be at most {limit} bytes of UTF-8: shorten it")
    return value
