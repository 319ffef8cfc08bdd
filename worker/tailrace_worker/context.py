"""From a claimed row to what a handler sees of it.

Built only for handlers that ask for a context: the rows of others do not even carry the columns.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tailrace.completion import Completion
from tailrace.job import Job, JobContext, Stop
from tailrace_worker.rows import ATTEMPT, EXTRA, ID, TASK, Row


def build(
    row: Row,
    *,
    queue: str,
    resources: Any,
    seconds: float,
    stop: Stop,
    save: Callable[[str], None],
    completion: Completion | None = None,
) -> JobContext[Any]:
    """Make the context of one run.

    Args:
        row: The job as it was claimed.
        queue: Its queue.
        resources: What the application's lifespan yielded.
        seconds: How long this run may take; infinity for no limit.
        stop: The signal that the worker gives.
        save: Takes the state that the handler wants kept, as JSON text.
        completion: The run's right to complete its job in a transaction of its own.
    """
    extra = row[EXTRA] or {}
    if isinstance(extra, str):
        extra = json.loads(extra)
    meta = extra.get("meta") or {}
    job = Job(
        id=row[ID],
        queue=queue,
        task=row[TASK],
        key=extra.get("key"),
        serial_group=extra.get("serial_group"),
        tenant=extra.get("tenant") or "",
        meta=meta,
        created_at=_time(extra.get("created_at")),
        run_at=_time(extra.get("run_at")),
        scheduled_for=_tick(meta),
    )
    return JobContext(
        resources=resources,
        job=job,
        attempt=row[ATTEMPT],
        max_attempts=int(extra.get("max_attempts") or row[ATTEMPT]),
        deadline=None if math.isinf(seconds) else datetime.now(UTC) + timedelta(seconds=seconds),
        log=logging.getLogger(f"tailrace.task.{row[TASK]}"),
        stop=stop,
        saved=extra.get("saved"),
        save=save,
        completion=completion,
    )


def _tick(meta: dict[str, Any]) -> datetime | None:
    """The tick of the schedule that made a job; its meta tells."""
    tick = meta.get("tick") if "schedule" in meta else None
    try:
        return datetime.fromisoformat(tick).astimezone(UTC) if isinstance(tick, str) else None
    except ValueError:  # somebody else's words in meta
        return None


def _time(text: str | None) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC) if text else datetime.now(UTC)
