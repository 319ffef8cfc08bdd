"""The statements behind the words on jobs: pure, one call each.

Lists read the view `jobs`; changes are the SQL functions that any language can call, so the rules and the audit are
theirs. `words` sends these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from tailrace.db import Blocks, Jsonb, Statement
from tailrace.errors import InvalidOption, NotFound
from tailrace.jobs.records import JOB_STATES, Change, JobDetails, JobInfo
from tailrace.pages import DEFAULT_LIMIT, Page, check_id, check_limit, page_reader, read_cursor

__all__ = ["JobFilter", "JobStatements", "seconds_of"]

_ERRORS = [field.name for field in fields(JobDetails)].index("errors")
_CHANGEABLE = ("priority", "max_attempts", "timeout", "meta")


@dataclass(frozen=True)
class JobFilter:
    """Which jobs; what is None does not narrow."""

    queue: str | None = None
    """Of this queue."""
    task: str | None = None
    """Of this task."""
    key: str | None = None
    """With this key."""
    tenant: str | None = None
    """Of this tenant; empty = of none."""
    state: str | None = None
    """One of the eight states, or `waiting` for all but running and stale."""

    def params(self) -> dict[str, Any]:
        """The values for a statement.

        Raises:
            InvalidOption: The state is none.
        """
        if self.state is not None and self.state != "waiting" and self.state not in JOB_STATES:
            raise InvalidOption("is unknown", field="state", hint=f"one of {', '.join(JOB_STATES)} or waiting")
        return {"queue": self.queue, "task": self.task, "key": self.key, "tenant": self.tenant, "state": self.state}


class JobStatements:
    """Builds statements for one schema."""

    def __init__(self, blocks: Blocks) -> None:
        """Take the SQL.

        Args:
            blocks: Of the database's schema.
        """
        self._blocks = blocks

    def get(self, job_id: int) -> Statement[JobDetails]:
        """One job.

        Args:
            job_id: Its id.
        """
        check_id(job_id)

        def read(rows: Any) -> JobDetails:
            if not rows:
                raise NotFound(f"no live job {job_id}", field="id", hint="it may have ended, or be among the dead letters")
            values = list(rows[0])
            values[_ERRORS] = tuple(values[_ERRORS] or ())
            return JobDetails(*values)

        return Statement(self._blocks["jobs.get"], {"id": job_id}, read)

    def list(self, which: JobFilter, *, limit: int = DEFAULT_LIMIT, after: str | None = None) -> Statement[Page[JobInfo]]:
        """A page of jobs in the order of their ids.

        Args:
            which: The filter.
            limit: 1 to 500.
            after: The cursor of the page before.
        """
        check_limit(limit)
        (last,) = read_cursor(after, int) or (0,)
        params = {**which.params(), "after": last, "n": limit + 1}
        return Statement(self._blocks["jobs.list"], params, page_reader(lambda row: JobInfo(*row), lambda job: (job.id,), limit))

    def count(self, which: JobFilter) -> Statement[int]:
        """How many jobs a list of this filter has in all.

        Args:
            which: The filter.
        """
        return Statement(self._blocks["jobs.count"], which.params(), lambda rows: int(rows[0][0]))

    def cancel(self, job_id: int) -> Statement[Change]:
        """Remove a waiting job, or ask for the end of a running one.

        Args:
            job_id: Its id.
        """
        return self._change("cancel", job_id, {"id": check_id(job_id)})

    def cancel_by_key(self, *, queue: str, task: str, key: str, tenant: str) -> Statement[Change]:
        """The same for the job that holds a key.

        Args:
            queue: Its queue.
            task: Its task.
            key: Its key.
            tenant: Its tenant; empty = none.
        """
        return self._change("cancel_by_key", key, {"queue": queue, "task": task, "key": key, "tenant": tenant})

    def run_now(self, job_id: int) -> Statement[Change]:
        """Make a waiting job due.

        Args:
            job_id: Its id.
        """
        return self._timed("run_now", job_id, {"id": check_id(job_id)}, outcome="due")

    def reschedule(
        self, job_id: int, *, run_at: datetime | None = None, delay: float | timedelta | None = None
    ) -> Statement[Change]:
        """Move a waiting job in time.

        Args:
            job_id: Its id.
            run_at: The new time, aware; or
            delay: Seconds or a timedelta from now, by the database's clock.
        """
        if (run_at is None) == (delay is None):
            raise InvalidOption("give exactly one of run_at and delay", field="run_at", hint="Say when, or how long from now")
        if run_at is not None and run_at.tzinfo is None:
            raise InvalidOption("must have a time zone", field="run_at", hint="Use an aware datetime")
        params = {
            "id": check_id(job_id),
            "run_at": None if run_at is None else run_at.astimezone(UTC).isoformat(),
            "delay": None if delay is None else seconds_of(delay, field="delay"),
        }
        return self._timed("reschedule", job_id, params, outcome="rescheduled")

    def update(self, job_id: int, changes: Mapping[str, Any]) -> Statement[Change]:
        """Change settings of a waiting job.

        Args:
            job_id: Its id.
            changes: Any of priority, max_attempts, timeout (seconds or a timedelta) and meta.
        """
        unknown = [name for name in changes if name not in _CHANGEABLE]
        if unknown or not changes:
            problem = "is no setting that can be changed" if unknown else "give at least one setting"
            raise InvalidOption(problem, field=unknown[0] if unknown else "changes", hint=f"one of {', '.join(_CHANGEABLE)}")
        values = dict(changes)
        if values.get("timeout") is not None:
            values["timeout"] = seconds_of(values["timeout"], field="timeout")
        params = {"id": check_id(job_id), "changes": Jsonb(values)}
        return Statement(self._blocks["jobs.update"], params, lambda _: Change(job_id, "updated"))

    def _change(self, block: str, target: int | str, params: Mapping[str, Any]) -> Statement[Change]:
        return Statement(self._blocks[f"jobs.{block}"], params, lambda rows: Change(target, str(rows[0][0])))

    def _timed(self, block: str, job_id: int, params: Mapping[str, Any], *, outcome: str) -> Statement[Change]:
        return Statement(self._blocks[f"jobs.{block}"], params, lambda rows: Change(job_id, outcome, rows[0][0]))


def seconds_of(value: float | timedelta, *, field: str) -> float:
    """Return a duration in seconds.

    Args:
        value: Seconds or a timedelta.
        field: Its name, for the message.

    Raises:
        InvalidOption: It is negative, longer than 366 days or no number.
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if type(seconds) not in (int, float) or not 0 <= seconds <= 366 * 86_400:
        raise InvalidOption("must be between 0 and 366 days", field=field, hint="Give seconds or a timedelta")
    return float(seconds)
