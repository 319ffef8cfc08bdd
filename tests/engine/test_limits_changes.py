"""Changes of concurrency limits: raised, lowered, new while jobs run, and heard of too late."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb
from pydantic import SecretStr

from tailrace.db import Database
from tests.engine.limited import Claimer, apply, in_use, settled, slots
from tests.engine.rows import Rows, error_of


def _jobs(rows: Rows, n: int, **columns: Any) -> list[int]:
    return [rows.job(**columns) for _ in range(n)]


def test_a_raised_limit_holds_at_once_and_a_lowered_one_as_slots_free(rows: Rows) -> None:
    """I7: nothing is taken away; what runs above the new limit counts until it ends."""
    apply(rows, limits={"concurrency": 2})
    jobs = _jobs(rows, 12)
    worker = Claimer(rows).know()
    got = worker.claim()
    apply(rows, settle=False, limits={"concurrency": 6})
    assert rows.value("select limits_sure from tailrace.queue where name = 'q'")
    more = worker.know().claim()
    assert (got.jobs, more.jobs) == (jobs[:2], jobs[2:6])
    apply(rows, limits={"concurrency": 3})
    worker.know()
    running = {**dict.fromkeys(got.jobs, got.token), **dict.fromkeys(more.jobs, more.token)}
    for ended, job in enumerate(jobs[:4], 1):
        assert worker.claim().jobs == ([] if ended < 5 else [jobs[6]])
        rows.fail(job, running[job], "success")
    assert in_use(rows) == 2
    assert worker.claim().jobs == [jobs[6]]
    assert [n for n, _, _ in slots(rows)] == [1, 2, 3]


def test_a_long_job_above_a_lowered_limit_leaves_the_others_room(rows: Rows) -> None:
    """The job in the highest slot runs on for ever: it moves into a free one below, and the rest of the limit is used."""
    apply(rows, limits={"concurrency": 5})
    jobs = _jobs(rows, 8)
    worker = Claimer(rows).know()
    got = worker.claim(5)
    apply(rows, limits={"concurrency": 2})
    worker.know()
    highest = max(slots(rows))[1]
    for job in got.jobs:
        if job != highest:
            rows.fail(job, got.token, "success")
    assert worker.claim().jobs == [jobs[5]]
    assert in_use(rows) == 2


def test_leases_that_are_out_count_when_a_limit_comes(rows: Rows) -> None:
    """I7: what was claimed while the queue was not limited holds slots from the first limited claim on."""
    token, running = rows.running(3)
    waiting = rows.job()
    apply(rows, limits={"concurrency": 3}, tasks=[{"name": "t", "concurrencyLimit": 2}])
    worker = Claimer(rows).know()
    assert worker.claim().jobs == []
    rows.fail(running[0], token, "success")
    assert worker.claim().told["caps"] == [0]
    rows.fail(running[1], token, "success")
    assert worker.claim().jobs == [waiting]


def test_a_claim_in_flight_is_waited_for(rows: Rows, other: Rows) -> None:
    """I7: a claim that began before the limit counts, and nobody waits for it with a lock: the limit is unsure until it ends."""
    job = rows.job()
    free = rows.job()
    other.claim(job)  # as a worker that knows of no limit, not committed
    apply(rows, settle=False, limits={"concurrency": 1})
    worker = Claimer(rows).know()
    assert worker.claim().told["state"] == "unsure"
    waiting = rows.value("select tailrace.settle_limits_v1('q')")
    assert len(waiting) == 1
    assert rows.value("select tailrace.settle_limits_v1('q', %s)", [waiting]) == waiting
    other.conn.commit()
    assert rows.value("select tailrace.settle_limits_v1('q', %s)", [waiting]) == []
    told = worker.claim().told
    assert (told["state"], told["room"]) == (None, 0)
    assert rows.row(free)["token"] is None  # type: ignore[index]


def test_claims_that_know_older_limits_take_nothing(rows: Rows, dsn: str) -> None:
    """I7: the exactness of a limit does not depend on when workers hear of it."""
    job = rows.job()
    worker = Claimer(rows)
    apply(rows, limits={"concurrency": 1})
    assert worker.claim().told["state"] == "changed"
    blocks = Database(url=SecretStr(dsn)).blocks
    params: dict[str, Any] = {
        "queue": "q", "worker": "w", "token": 5, "limits": 0, "tasks": ["t"], "context_tasks": [], "n": 9, "priorities": [0],
        "run_ats": [float("-inf")], "ids": [0],
    }  # fmt: skip
    assert rows.conn.execute(blocks["claim.claim_batch"], params).fetchall() == []
    assert rows.conn.execute(blocks["claim.claim_ids"], {**params, "ids": [job]}).fetchall() == []
    assert worker.know().claim().jobs == [job]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"limits": {"concurrency": 0}}, "limits.concurrency"),
        ({"limits": {"concurrency": "3"}}, "limits.concurrency"),
        ({"tasks": [{"name": "t", "concurrencyLimit": 1.5}]}, "tasks.concurrencyLimit"),
        ({"limits": {"rates": [{"name": "r", "jobs": 1}]}}, "limits.rates.periodSeconds"),
        ({"limits": {"rates": [{"jobs": 1, "periodSeconds": 1}]}}, "limits.rates"),
        ({"limits": {"rates": {"jobs": 1}}}, "limits.rates"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(rows: Rows, settings: dict[str, Any], field: str) -> None:
    """BF-39: a setting does what it says or is refused, also from plain SQL."""
    with pytest.raises(errors.Error) as caught:
        rows.conn.execute("insert into tailrace.queue (name, settings) values ('q', %s)", [Jsonb(settings)])
    assert (caught.value.sqlstate, caught.value.diag.column_name) == ("TR002", field)


def test_settling_is_nothing_where_nothing_changed(rows: Rows) -> None:
    """It may be called at any time."""
    assert rows.value("select tailrace.settle_limits_v1('q')") == []
    apply(rows, limits={"concurrency": 1})
    assert settled(rows)
    rows.fail(1, 1, "error", error=error_of("X"))
