"""A task under the queue's settings, and the plain histograms behind the metrics."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from tailrace import App, Call, JobContext, RetryPolicy
from tailrace.histogram import Histogram
from tailrace_worker.bound import DEFAULT_TIMEOUT_SECONDS, BoundTask, policy_from


def bound(settings: dict[str, Any] | None = None, **options: Any) -> BoundTask:
    """A bound task with these options of the decorator, under these settings of the queue."""
    app = App("q")

    @app.task(name="t", **options)
    async def handler() -> None: ...

    made = BoundTask(app.tasks["t"])
    made.apply(settings or {})
    return made


async def middleware(ctx: JobContext[Any], call: Call) -> object:
    return await call()


def test_only_a_task_that_nobody_looks_at_takes_the_shortest_way() -> None:
    """Without middleware nothing is paid for it: no context, no columns for one, no call in between."""
    app = App("q")

    @app.task
    async def short() -> None: ...

    @app.task
    async def asks(ctx: JobContext[Any]) -> None: ...

    @app.task
    def threaded() -> None: ...

    @app.task(on_error=lambda error, ctx: None)
    async def judged() -> None: ...

    without = {name: BoundTask(task) for name, task in app.tasks.items()}
    assert {name for name, task in without.items() if task.direct} == {"short", "judged"}
    assert {name for name, task in without.items() if task.wants_context} == {"asks", "judged"}
    wrapped = [BoundTask(task, (middleware,)) for task in app.tasks.values()]
    assert not any(task.direct for task in wrapped)
    assert all(task.wants_context for task in wrapped)


@pytest.mark.parametrize(
    ("settings", "options", "seconds"),
    [
        ({}, {}, DEFAULT_TIMEOUT_SECONDS),
        ({"jobDefaults": {"timeoutSeconds": 9}}, {}, 9.0),
        ({"jobDefaults": {"timeoutSeconds": 9}}, {"timeout": 4}, 4.0),
        ({"jobDefaults": {"timeoutSeconds": 9}, "tasks": [{"name": "t", "timeoutSeconds": 2}]}, {"timeout": 4}, 2.0),
        ({"tasks": [{"name": "other", "timeoutSeconds": 2}]}, {"timeout": 4}, 4.0),
        ({"jobDefaults": {"timeoutSeconds": 0}}, {}, math.inf),
        ({"jobDefaults": {"timeoutSeconds": 9}}, {"timeout": 0}, math.inf),
    ],
)
def test_the_timeout_of_a_job_without_its_own(settings: dict[str, Any], options: dict[str, Any], seconds: float) -> None:
    """The queue's tasks, then the decorator, then the queue's defaults, then five minutes; 0 is none."""
    assert bound(settings, **options).limit == seconds


def test_the_backoff_comes_from_the_job_the_queue_the_decorator_or_the_defaults() -> None:
    fixed = {"strategy": "fixed", "base": 1.0, "cap": 900.0, "jitter": 0.0}
    defaults = {"jobDefaults": {"backoff": {"strategy": "Fixed", "baseSeconds": 3, "jitterPercent": 0}}}
    assert bound(defaults).delay(4, None) == 3
    retry = RetryPolicy(base=2, jitter=0)
    assert bound(defaults, retry=retry).delay(2, None) == 4
    own = {**defaults, "tasks": [{"name": "t", "backoff": {"strategy": "Exponential", "baseSeconds": 7, "jitterPercent": 0}}]}
    assert bound(own, retry=retry).delay(1, None) == 7
    assert bound(own, retry=retry).delay(9, fixed) == 1


def test_settings_can_be_taken_back() -> None:
    one = bound({"jobDefaults": {"timeoutSeconds": 9, "backoff": {"strategy": "Fixed", "baseSeconds": 3}}})
    one.apply({})
    assert one.limit == DEFAULT_TIMEOUT_SECONDS
    assert one.policy is None


def test_the_delay_is_capped_and_spread() -> None:
    """CJ-08, CJ-09: attempt 10,000 keeps the cap; what fails together does not come back together."""
    one = bound()
    far = [one.delay(10_000, None) for _ in range(200)]
    assert max(far) <= 900 * 1.2
    assert min(far) >= 900 * 0.8
    assert len(set(far)) > 190
    assert max(far) - min(far) > 100


def test_a_delay_has_a_floor() -> None:
    """FQ-22: full jitter never means at once."""
    policy = policy_from({"strategy": "FullJitter", "baseSeconds": 5, "maxSeconds": 900})
    assert min(policy.delay(n) for n in range(1, 20) for _ in range(100)) >= 1.0


def test_a_histogram_counts_values_one_by_one_or_sorted_alike() -> None:
    dice = random.Random(1)
    values = sorted([dice.expovariate(1) for _ in range(500)] + [0.1, 1.0, 5.0, 100.0])
    single, many = Histogram((0.1, 1.0, 5.0)), Histogram((0.1, 1.0, 5.0))
    for value in values:
        single.observe(value)
    many.observe_sorted(values)
    assert single.counts == many.counts
    assert sum(many.counts) == len(values)
    assert many.sum == pytest.approx(single.sum)
    assert many.counts[-1] == 1 + sum(v > 5 for v in values[:-1])


def test_claims_are_counted_by_first_run_and_retry() -> None:
    one = bound()
    one.claimed(0, [0.1, 0.2], first=True)
    one.claimed(5, [0.3], first=False)
    assert (one.first, one.retries) == (2, 1)
    assert set(one.waits) == {0, 5}
