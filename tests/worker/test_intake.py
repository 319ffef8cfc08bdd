"""What becomes of claimed rows: which start first, which must not run, which go back at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tailrace import App
from tailrace.db import Blocks
from tailrace_worker import intake
from tailrace_worker.ask import Got
from tailrace_worker.bound import BoundTask
from tailrace_worker.finish import Outbox
from tailrace_worker.pace import Pace
from tailrace_worker.rows import EXPIRED, LAST, SPENT
from tailrace_worker.run import Lanes
from tailrace_worker.slots import Gate
from tests.worker.claimed import row

app = App("q")


@app.task
async def noop() -> None: ...


class FakeConsumer:
    """As much of a consumer as intake sees."""

    def __init__(self, slots: int = 2) -> None:
        self.outbox, self.pace, self.server_ahead = Outbox(), Pace(slots, 0.0), 0.0
        self.lanes = Lanes(
            queue="q",
            tasks={"noop": BoundTask(app.tasks["noop"])},
            slots=slots,
            outbox=self.outbox,
            pace=self.pace,
            gate=Gate(),
            want=asyncio.Event(),
            worker="w",
            blocks=Blocks("tailrace"),
        )
        self.share = type("Share", (), {"alone": intake.Alone()})()

    def take(self, **got: Any) -> int:
        """Take rows."""
        return intake.take(self, Got(**got))  # type: ignore[arg-type]

    @property
    def buffered(self) -> list[int]:
        """Ids in the order in which they will start."""
        return [r[0] for r in self.lanes.buffer]

    @property
    def outcomes(self) -> list[tuple[int, str]]:
        """What goes back without a run."""
        return [(o["id"], o["kind"]) for o in self.outbox.outcomes]


@pytest.fixture
def consumer() -> FakeConsumer:
    return FakeConsumer()


def test_rows_found_below_the_floors_take_their_place_in_the_order(consumer: FakeConsumer) -> None:
    """CJ-10: by priority, run_at, id, wherever a row was found."""
    consumer.take(
        rows=[row(1, priority=5, run_at=3.0), row(2, run_at=1.0), row(3, run_at=1.0)],
        by_id=[row(9, run_at=0.5), row(8, priority=9)],
    )
    assert consumer.buffered == [8, 1, 9, 2, 3]


def test_last_attempts_start_first_and_what_cannot_start_goes_back(consumer: FakeConsumer) -> None:
    """None may die unrun with this process (engine rule 3)."""
    back = consumer.take(rows=[row(1), row(2, mark=LAST), row(3, mark=LAST), row(4, mark=LAST)])
    assert back == 1
    assert consumer.buffered == [2, 3, 1]
    assert consumer.outcomes == [(4, "handback")]
    assert consumer.outbox.urgent


def test_last_attempts_that_wait_already_count_as_busy_slots(consumer: FakeConsumer) -> None:
    consumer.take(rows=[row(1, mark=LAST)])
    assert consumer.take(rows=[row(2, mark=LAST), row(3, mark=LAST)]) == 1
    assert sorted(consumer.buffered) == [1, 2]


def test_exhausted_and_expired_rows_do_not_run(consumer: FakeConsumer) -> None:
    """BF-03: an exhausted row becomes a dead letter, an expired one ends; the others run."""
    consumer.take(rows=[row(1, mark=SPENT | LAST), row(2, mark=EXPIRED), row(3, mark=SPENT | EXPIRED | LAST), row(4)])
    assert consumer.outcomes == [(1, "exhausted"), (2, "expired"), (3, "exhausted")]
    assert consumer.buffered == [4]


def test_a_job_that_was_lost_before_is_alone(consumer: FakeConsumer) -> None:
    """CJ-05: the next one is claimed when this one is done."""
    alone = consumer.share.alone
    assert alone.free(consumer)
    consumer.take(rows=[row(1)], suspects=[row(5, token=50)])
    assert consumer.buffered == [5, 1]
    assert not alone.free(consumer)
    consumer.lanes.buffer.clear()
    assert alone.free(consumer)


def test_claims_are_counted_by_kind(consumer: FakeConsumer) -> None:
    consumer.take(rows=[row(1), row(2, attempt=2), row(3, attempt=3, priority=5)])
    task = consumer.lanes.tasks["noop"]
    assert (task.first, task.retries) == (1, 2)
    assert set(task.waits) == {0, 5}


def test_what_will_not_start_soon_goes_back_newest_first(consumer: FakeConsumer) -> None:
    """FQ-04."""
    consumer.take(rows=[row(n) for n in range(100)])
    consumer.pace.slower(1.0)
    assert intake.too_many(consumer.lanes, consumer.pace)
    assert intake.give_back(consumer.lanes, consumer.pace) == 100
    assert consumer.outcomes[0] == (99, "handback")
    assert not intake.too_many(consumer.lanes, consumer.pace)


def test_a_worker_that_drains_gives_everything_back(consumer: FakeConsumer) -> None:
    """FQ-05."""
    consumer.take(rows=[row(n) for n in range(5)])
    assert intake.give_back_all(consumer.lanes) == 5
    assert len(consumer.outcomes) == 5
    assert consumer.buffered == []
