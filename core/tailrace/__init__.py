"""Tailrace: a job queue that lives in your PostgreSQL.

The public names, each re-exported once; importing them opens nothing.
"""

from tailrace.app import App, load_app
from tailrace.dead_letters import DeadLetter
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
