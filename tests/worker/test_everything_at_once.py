"""All kinds of jobs, ends and disturbances at once: the sums must be right afterwards, whatever happened in between."""

from __future__ import annotations

import random
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.rig.processes import StartWorker
from tests.rig.waiting import eventually
from tests.worker.board import Board

APP = "tests.worker.apps:app"
BACKOFF = {"strategy": "fixed", "base": 0.05, "cap": 0.05, "jitter": 0}


def some_job(dice: random.Random) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A task, its payload and options."""
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("mark", {}),
        ("noop", {}),
        ("fail", {"how": dice.choice(["error", "permanent", "later", "system exit", "cancelled"])}),
        ("fail_in_thread", {"how": dice.choice(["error", "iteration"])}),
        ("snooze", {"times": dice.randrange(4)}),
        ("nap", {"seconds": dice.choice([0.001, 0.05])}),
        ("nap_in_thread", {"seconds": 0.02}),
        ("remember", {}),
        ("hooked", {"how": dice.choice(["refused", "away"])}),
        ("needs_number", {"number": dice.choice([1, "one"])}),
        *([("hang", {})] if dice.random() < 0.1 else []),
    ]
    task, payload = dice.choice(kinds)
    options: dict[str, Any] = {
        "max_attempts": dice.randrange(1, 4),
        "backoff": BACKOFF,
        "priority": dice.choice([-7, 0, 0, 0, 3, 40]),
    }
    if dice.random() < 0.2:
        options["delay"] = dice.random()
    if dice.random() < 0.2:
        options |= {"key": f"key-{dice.randrange(40)}", "on_duplicate": dice.choice(["skip", "replace"])}
    return task, payload, options


def cancel_some_job(board: Board) -> None:
    """Cancel a random job, unless it ends just before."""
    try:
        board.conn.execute("select tailrace.cancel(id) from tailrace.job order by random() limit 1")
    except psycopg.Error as error:
        if error.sqlstate != "TR003":
            raise


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_each_job_ends_once_and_is_counted(worker_process: StartWorker, board: Board, seed: int) -> None:
    """Guarantees 1 to 4; GW-01, CJ-04, FQ-27: with retries, snoozes, cancels, replaced keys and a worker that comes and goes."""
    dice = random.Random(seed)
    workers = [worker_process(APP, "--slots", str(slots), "--queue", "work").wait_ready() for slots in (1, 4, 10)]
    most: dict[int, int] = {}
    created = 0
    for number in range(1500):
        task, payload, options = some_job(dice)
        job, outcome = board.conn.execute(
            "select id, outcome from tailrace.enqueue('work', %s, %s, %s)", [task, Jsonb(payload), Jsonb(options)]
        ).fetchone() or (0, "")
        created += outcome == "created"
        most[job] = max(most.get(job, 0), options["max_attempts"])
        if dice.random() < 0.05:
            cancel_some_job(board)
        if number == 700:
            workers[1].terminate()
            workers.append(worker_process(APP, "--slots", "4", "--queue", "work"))
    board.wait_gone(30)
    eventually(lambda: board.value("select count(*) from tailrace.lease") == 0, 10, what="no leases")
    ends = board.ends()
    assert sum(ends.values()) == created == len(most), ends
    assert ends.keys() <= {"succeeded", "dead", "cancelled"}
    dead = board.dead()
    assert ends["dead"] == len(dead)
    for job, (_, _, _, errors) in dead.items():
        assert [e["attempt"] for e in errors] == list(range(1, len(errors) + 1))
        assert 1 <= len(errors) <= most[job]
    # a later dead job of the same key takes over the counters of the earlier one
    assert sum(attempts for _, _, attempts, _ in dead.values()) == sum(len(errors) for *_, errors in dead.values())
    for job, highest in board.conn.execute("select job, max(attempt) from public.ledger group by job").fetchall():
        assert highest <= most[job]
    assert workers[1].wait(20) == 0
    alive = [w for w in workers if w.running]
    assert sum(w.metric("tailrace_fenced_writes_total") for w in alive) == 0
    for worker in workers:
        assert not [r for r in worker.events() if r["level"] == "error"], worker.output
