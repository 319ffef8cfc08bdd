"""Tailrace: a job queue that lives in your PostgreSQL.

The public names, each re-exported once; importing them opens nothing.
"""

from typing import TYPE_CHECKING

from tailrace.app import App, load_app
from tailrace.enqueue.new_job import JobOptions, NewJob, Outcome, Receipt
from tailrace.errors import (
    CompletionNotCommitted,
    Conflict,
    DatabaseUnavailable,
    InvalidOption,
    InvalidPayload,
    LeaseLost,
    NoRetry,
    NotFound,
    RetryAfter,
    SchemaTooNew,
    SchemaTooOld,
    Snooze,
    TailraceError,
    UnknownApp,
    UnknownTask,
)
from tailrace.hooks import Call
from tailrace.job import Job, JobContext, Stop
from tailrace.policy import Priority, RetryPolicy
from tailrace.task import Task

if TYPE_CHECKING:
    from tailrace.dead_letters import DeadLetter
else:

    def __getattr__(name: str) -> object:
        # only programs that look at dead letters pay for the import
        if name != "DeadLetter":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from tailrace.dead_letters import DeadLetter

        return DeadLetter


__version__ = "0.1.0"

__all__ = [
    "App",
    "Call",
    "CompletionNotCommitted",
    "Conflict",
    "DatabaseUnavailable",
    "DeadLetter",
    "InvalidOption",
    "InvalidPayload",
    "Job",
    "JobContext",
    "JobOptions",
    "LeaseLost",
    "NewJob",
    "NoRetry",
    "NotFound",
    "Outcome",
    "Priority",
    "Receipt",
    "RetryAfter",
    "RetryPolicy",
    "SchemaTooNew",
    "SchemaTooOld",
    "Snooze",
    "Stop",
    "TailraceError",
    "Task",
    "UnknownApp",
    "UnknownTask",
    "__version__",
    "load_app",
]
