"""A task as this worker runs it: its function, its limits under the queue's settings, and plain counters.

The counters are attributes that the hot path adds to; metrics.py reads them when somebody scrapes, so a job never
pays for a label look-up (2 us each with bound children of the metrics library).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tailrace.histogram import Histogram
from tailrace.hooks import Middleware
from tailrace.policy import RetryPolicy
from tailrace.task import Task

DURATION_BOUNDS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
WAIT_BOUNDS: Final = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
ATTEMPT_BOUNDS: Final = (1, 2, 3, 5, 8, 13, 21)
DEFAULT_TIMEOUT_SECONDS: Final = 300.0


class BoundTask:
    """One task of one queue in this worker.

    Args:
        task: The task.
        middlewares: What the application puts around each run, outermost first.

    Attributes:
        parse: From JSON text to arguments; raises the validation library's error (`Task.parse` explains it).
        at_first: Successes at the first attempt; later ones are in `runs`.
        resolved: Successes of jobs that had come back from the dead letters.
        limit: Seconds a run may take when the job has no timeout of its own; infinity for none.
        policy: The backoff when the job has none of its own, as the column keeps it; None for the default.
        max_interruptions: How often its runs may be given back uncharged; None for the default.
        direct: Whether it is an async function without a context and without middleware, whose result nobody keeps: the hot
            path.
        keeps: Seconds that what it returns is kept; None = not at all.
        wants_context: Whether somebody looks at the context of its runs: the handler, a middleware or on_error.
    """

    __slots__ = (
        "after_completion",
        "at_first",
        "call",
        "completed",
        "dead",
        "direct",
        "durations",
        "failed",
        "first",
        "is_async",
        "keeps",
        "limit",
        "max_interruptions",
        "middlewares",
        "name",
        "parse",
        "policy",
        "resolved",
        "retries",
        "runs",
        "succeeded",
        "takes_context",
        "task",
        "waits",
        "wants_context",
    )

    def __init__(self, task: Task[..., Any], middlewares: Sequence[Middleware] = ()) -> None:
        self.task = task
        self.middlewares = middlewares
        self.name = task.name
        self.call: Callable[..., Any] = task.fn
        self.parse: Callable[[str], dict[str, Any]] = task.spec.shape.adapter.validator.validate_json
        self.is_async = task.is_async
        self.takes_context = task.takes_context
        self.keeps = task.keep_result
        self.direct = task.is_async and not task.takes_context and not middlewares and self.keeps is None
        self.wants_context = task.takes_context or task.on_error is not None or bool(middlewares)
        self.limit = DEFAULT_TIMEOUT_SECONDS
        self.policy: Mapping[str, Any] | None = None
        self.max_interruptions: int | None = None
        self.first = self.retries = self.completed = self.at_first = self.after_completion = self.resolved = 0
        self.failed: dict[tuple[str, bool], int] = {}
        self.dead: dict[str, int] = {}
        self.durations = {o: Histogram(DURATION_BOUNDS) for o in ("success", "failure", "interrupted", "snoozed")}
        self.runs = {o: Histogram(ATTEMPT_BOUNDS) for o in ("success", "failure", "interrupted", "snoozed")}
        self.succeeded = self.durations["success"]
        self.waits: dict[int, Histogram] = {}
        self.apply({})

    def apply(self, settings: Mapping[str, Any]) -> None:
        """Take the queue's settings: spec.tasks, then the decorator, then spec.jobDefaults, then the built-in numbers."""
        own = _task_settings(settings, self.name)
        defaults = settings.get("jobDefaults") or {}
        chosen = next(
            (v for v in (own.get("timeoutSeconds"), self.task.timeout, defaults.get("timeoutSeconds")) if v is not None),
            DEFAULT_TIMEOUT_SECONDS,
        )
        self.limit = float(chosen) or math.inf
        retry = self.task.retry
        self.policy = own.get("backoff") or (retry.as_json() if retry is not None else None) or defaults.get("backoff")
        self.max_interruptions = own.get("maxInterruptions", defaults.get("maxInterruptions"))

    def delay(self, attempt: int, own: Mapping[str, Any] | None) -> float:
        """Seconds until the next run after the failed run number `attempt`; `own` is the job's own backoff."""
        return policy_from(own or self.policy).delay(attempt)

    def claimed(self, priority: int, waits: list[float], *, first: bool) -> None:
        """Count claimed jobs of one priority.

        Args:
            priority: Theirs.
            waits: Seconds from their run_at to the claim, in rising order.
            first: Whether this is their first run.
        """
        if first:
            self.first += len(waits)
        else:
            self.retries += len(waits)
        histogram = self.waits.get(priority)
        if histogram is None:
            histogram = self.waits[priority] = Histogram(WAIT_BOUNDS)
        histogram.observe_sorted(waits)

    def fail(self, error_type: str, *, final: bool) -> None:
        """Count a failed run."""
        key = (error_type, final)
        self.failed[key] = self.failed.get(key, 0) + 1


def _task_settings(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    tasks = settings.get("tasks") or ()
    if isinstance(tasks, Mapping):
        found = tasks.get(name) or {}
        return found if isinstance(found, Mapping) else {}
    return next((t for t in tasks if t.get("name") == name), {})


_STRATEGIES: Final = {"Exponential": "exponential", "Fixed": "fixed", "FullJitter": "full_jitter"}


def policy_from(value: Mapping[str, Any] | None) -> RetryPolicy:
    """Read a backoff in the short form of the job's column or in the resource's form.

    Args:
        value: {"strategy", "base", "cap", "jitter"} or {"strategy", "baseSeconds", "maxSeconds", "jitterPercent"}; None: default.
    """
    if not value:
        return RetryPolicy()
    short = {
        "strategy": _STRATEGIES.get(value.get("strategy", ""), value.get("strategy", "exponential")),
        "base": value.get("base", value.get("baseSeconds", 5)),
        "cap": value.get("cap", value.get("maxSeconds", 900)),
        "jitter": value.get("jitter", value.get("jitterPercent", 20) / 100),
    }
    return RetryPolicy.from_json(short)
