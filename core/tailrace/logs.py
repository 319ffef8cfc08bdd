"""Logging of Tailrace's own processes: text for people, JSON for clusters, and the running job on every line.

Inside a job each stdlib record, also of other libraries, carries job_id, queue, task and attempt. The worker sets `running`; the
command line calls `configure`. Applications that only enqueue configure logging themselves.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Protocol


class Running(Protocol):
    """What runs now: gives the fields that every line should carry, and knows its own key."""

    def log_fields(self) -> Mapping[str, Any]:
        """job_id, queue, task, attempt; empty while nothing runs."""
        ...

    def has_key(self, *, queue: str, task: str, tenant: str, key: str) -> bool:
        """Whether a job runs and has this key."""
        ...


running: ContextVar[Running | None] = ContextVar("tailrace_running", default=None)
"""What runs in this task or thread."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JobFilter(logging.Filter):
    """Adds the running job's fields to a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always lets the record pass."""
        slot = running.get()
        if slot is not None:
            for name, value in slot.log_fields().items():
                if not hasattr(record, name):
                    setattr(record, name, value)
        return True


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {k: v for k, v in vars(record).items() if k not in _STANDARD and not k.startswith("_")}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, event, message, then the record's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without a newline inside."""
        extras = _extras(record)
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": str(extras.pop("event", "")) or None,
            "message": record.getMessage(),
            **extras,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps({k: v for k, v in line.items() if v is not None}, default=str, ensure_ascii=True)


class TextFormatter(logging.Formatter):
    """Time, level, message, then the fields as key=value."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback follows on lines of its own."""
        at = (
            datetime.fromtimestamp(record.created, UTC)
            .astimezone()
            .replace(tzinfo=None)
            .isoformat(sep=" ", timespec="milliseconds")
        )
        extras = _extras(record)
        event = extras.pop("event", None)
        fields = " ".join([*([f"event={event}"] if event else []), *(f"{k}={v}" for k, v in extras.items())])
        text = f"{at} {record.levelname:<7} {record.getMessage()}{'  ' + fields if fields else ''}"
        return text + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


def configure(*, form: str = "text", level: str = "info") -> None:
    """Send all logging of this process to standard error.

    Args:
        form: `text` or `json`.
        level: debug, info, warning or error.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.addFilter(JobFilter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    if level != "debug":
        logging.getLogger("asyncio").setLevel(logging.WARNING)
        # The driver warns of each thing it could not tidy up on a broken connection; that it broke is told by ourselves.
        logging.getLogger("psycopg").setLevel(logging.ERROR)
