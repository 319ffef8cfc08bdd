"""Mode `after` with real workers: no accepted enqueue is without a run after it, and a handler may call itself again."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Literal

import pytest

from tailrace import App
from tests.rig.processes import StartWorker
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually
from tests.worker.board import Board

APP = "tests.worker.after_apps:app"
KEYS, PRODUCERS, EACH = 10, 4, 250


def put(board: Board, task: str, key: str, **payload: object) -> int:
    return board.enqueue(task, queue="after", options={"key": key}, **payload)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("mode", "answers"), [("after", {"created", "replaced"}), ("replace", {"created", "replaced", "in_progress"})]
)
def test_the_highest_accepted_number_is_seen(
    worker_process: StartWorker, board: Board, database: RigDatabase, mode: Literal["after", "replace"], answers: set[str]
) -> None:
    """Case a3: ten keys, four producers, two workers; `after` refuses nothing, `replace` says so, and no accepted one is lost."""
    producers = App("after", database_url=database.dsn)

    @producers.task(name="note")
    def note(number: int) -> None: ...

    numbers: dict[str, int] = dict.fromkeys((f"k{n}" for n in range(KEYS)), 0)
    highest = dict(numbers)
    turns = {key: threading.Lock() for key in numbers}  # the numbers of a key grow in the order of the commits
    outcomes: set[str] = set()

    def produce() -> None:
        with database.connect() as conn:
            for key in list(numbers) * EACH:
                with turns[key]:
                    numbers[key] += 1
                    receipt = note.using(conn, key=key, on_duplicate=mode).enqueue(numbers[key])
                    assert receipt.id
                    outcomes.add(receipt.outcome)
                    if receipt.outcome != "in_progress":
                        highest[key] = numbers[key]

    workers = [worker_process(APP).wait_ready() for _ in range(2)]
    threads = [threading.Thread(target=produce) for _ in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    board.wait_gone(60)
    seen: dict[str, int] = defaultdict(int)
    for line in board.lines(task="note"):
        key, number = str(line.note).split()
        seen[key] = max(seen[key], int(number))
    assert seen == highest
    assert {"created", "replaced"} <= outcomes <= answers
    assert all(worker.running for worker in workers)
    assert sum(worker.metric("tailrace_fenced_writes_total") for worker in workers) == 0


def test_a_handler_enqueues_its_own_key(worker_process: StartWorker, board: Board) -> None:
    """It is `after` unless said otherwise; other keys and tenants keep the default."""
    chain = put(board, "chain", "chain", left=3)
    put(board, "chain_in_thread", "thread-a", name="a", left=5)
    said = put(board, "said", "said")
    other = put(board, "other_key", "own")
    worker = worker_process(APP).wait_ready()
    board.wait_gone(left=2)
    assert [line.note for line in board.lines(task="chain")] == ["3", "created", "2", "created", "1", "created", "0"]
    assert board.notes(chain) == ["3", "created"]
    assert board.notes(said) == ["in_progress"]
    assert board.notes(other) == ["created", "skipped", "created", "skipped"]
    assert board.ends() == {"succeeded": 4 + 6 + 2}
    eventually(lambda: worker.metric("tailrace_jobs_completed_total", task="chain_in_thread") == 6, what="the counts")


def test_links_of_a_chain_do_not_wait_for_the_poll(worker_process: StartWorker, board: Board) -> None:
    put(board, "chain", "chain", left=20)
    worker_process(APP, env={"TAILRACE_POLL_SECONDS": "30"}).wait_ready()
    board.wait_gone(timeout=25)
    took = board.value("select max(at) - min(at) from public.ledger")
    assert took.total_seconds() < 20


def test_complete_and_enqueue_again_in_one_transaction(worker_process: StartWorker, board: Board, database: RigDatabase) -> None:
    """The place is free within the transaction: the next run is created in it."""
    put(board, "in_a_transaction", "tx", dsn=database.dsn, left=3)
    worker = worker_process(APP).wait_ready()
    board.wait_gone()
    assert [line.note for line in board.lines(task="in_a_transaction")] == ["created"] * 3
    eventually(lambda: worker.metric("tailrace_jobs_completed_total") == 4, what="the count")
    assert board.ends() == {"succeeded": 4}
