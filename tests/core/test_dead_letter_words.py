"""The words on dead letters: of an application, sync and async, on a pool and on a borrowed connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import prometheus_client
import pytest
from pydantic import SecretStr

from tailrace.admin import Admin, AdminUsing, AsyncAdminUsing
from tailrace.db import Database
from tailrace.dead_letters import BulkChange
from tailrace.errors import Conflict, InvalidOption, NotFound
from tests.engine.letters import Letters
from tests.engine.rows import Rows
from tests.rig.servers import Connection, RigDatabase


@pytest.fixture
def place(database: RigDatabase) -> Database:
    return Database(url=SecretStr(database.dsn))


@pytest.fixture
def admin(place: Database) -> Iterator[Admin]:
    made = Admin(place, "shop")
    yield made
    place.pool().close()


@pytest.fixture
def letters(conn: Connection) -> Letters:
    return Letters(Rows(conn))


def test_given_ones(admin: Admin, letters: Letters) -> None:
    """BF-47: all or none, errors by their class."""
    ids = [letters.bury(payload={"a": {"b": 1}}) for _ in range(4)]
    words = admin.dead_letters
    assert [c.outcome for c in words.note(ids, "seen")] == ["noted"] * 4
    assert [c.outcome for c in words.requeue(ids[0], delay=timedelta(minutes=1), set={"a.b": 2}, note="repaired")] == ["requeued"]
    assert words.get(ids[0]).payload == {"a": {"b": 2}}
    assert words.resolve(ids[1], resolution="by phone")[0].outcome == "resolved"
    assert words.get(ids[1]).resolution == "by phone"
    with pytest.raises(Conflict):
        words.delete(ids)
    assert [c.target for c in words.delete([ids[2], ids[1]])] == ids[1:3]
    with pytest.raises(NotFound):
        words.resolve(ids[2])
    added = words.add("q", "t", {"n": 1}, key="K", error="lost", attempts=2, timeout=timedelta(seconds=5))
    assert (words.get(added).reason, words.get(added).timeout) == ("manual", 5.0)


def test_those_of_a_filter(admin: Admin, letters: Letters) -> None:
    letters.fill(60)
    words, told = admin.dead_letters, list[BulkChange]()
    look = words.requeue(task="t1", dry_run=True)
    assert (look.done, look.dry_run, [(t.task, t.dead) for t in look.tasks]) == (15, True, [("t1", 15)])
    done = words.requeue(task="t1", max_jobs=10, progress=told.append)
    assert (done.done, done.failed, done.finished, done.resumed) == (10, 0, True, False)
    assert told == [done]
    assert isinstance(done.as_of, datetime)
    assert words.resolve(task="t2", resolution="bug 7").done == 15
    assert words.note(None, "look here", text="hi", state="all").done == 60
    assert words.delete(state="resolved").done == 15
    assert words.requeue(failed_before=datetime(2020, 1, 1, tzinfo=UTC)).done == 0
    assert len(list(words.export(state="all"))) == 45
    assert {letter.notes is not None for letter in words.export(meta={"shard": 3})} == {True}
    assert letters.stats() == letters.counted()


def test_a_throttle_spreads_the_batches(admin: Admin, letters: Letters) -> None:
    """BF-46: so many a second, by waits between batches; a wish to stop is heard in them and leaves the rest for later."""
    letters.fill(12)
    told: list[BulkChange] = []
    began = time.monotonic()
    first = admin.dead_letters.requeue(state="dead", throttle=8, progress=told.append, stop=lambda: len(told) == 2)
    assert (first.done, first.finished, time.monotonic() - began >= 0.5) == (8, False, True)
    rest = admin.dead_letters.requeue(state="dead")
    assert (rest.done, rest.resumed, rest.operation) == (12, True, first.operation)


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({}, "requeue"),
        ({"queue": None}, "requeue"),
        ({"job_ids": 1, "task": "t"}, "task"),
        ({"job_ids": 1, "max_jobs": 5}, "max_jobs"),
        ({"job_ids": []}, "job_id"),
        ({"task": "t", "max_jobs": 0}, "max_jobs"),
        ({"task": "t", "throttle": 0}, "throttle"),
        ({"task": "t", "colour": 1}, "colour"),
        ({"task": "t", "delay": -1}, "delay"),
        ({"task": "t", "run_at": datetime(2030, 1, 1)}, "run_at"),  # noqa: DTZ001
        ({"state": "resolved"}, "state"),
    ],
)
def test_wrong_arguments_are_refused(admin: Admin, letters: Letters, words: dict[str, Any], field: str) -> None:
    """BF-26, BF-45: by name, before anything is changed; nothing is requeued because nothing was said."""
    letters.bury()
    with pytest.raises(InvalidOption) as caught:
        admin.dead_letters.requeue(**words)
    assert caught.value.field == field
    assert letters.states() == {"dead": 1}


def test_in_the_callers_transaction(place: Database, letters: Letters, database: RigDatabase) -> None:
    """A rollback undoes all of it: the words commit nothing."""
    letters.fill(30)
    with database.connect(autocommit=False) as own:
        words = AdminUsing(own, place).dead_letters
        assert words.requeue(queue="q1").done == 10
        assert words.stats().requeued == 10
        own.rollback()
        assert words.stats().requeued == 0
        words.delete(queue="q1")
        own.commit()
    assert letters.states() == {"dead": 20}


async def test_the_awaited_twins(place: Database, letters: Letters) -> None:
    letters.fill(30)
    ids = [letters.bury() for _ in range(3)]
    async with await place.aconnect() as own:
        words = AsyncAdminUsing(own, place).dead_letters
        assert (await words.arequeue(queue="q1", dry_run=True)).done == 10
        assert (await words.arequeue(queue="q1", throttle=1e6)).done == 10
        assert (await words.aresolve(task="t3", queue="q2")).finished
        assert (await words.anote(None, "x", state="all")).done == 33
        assert (await words.anote(ids[0], "y"))[0].outcome == "noted"
        assert (await words.arequeue(ids[0]))[0].outcome == "requeued"
        assert (await words.aresolve(ids[1], note="z"))[0].outcome == "resolved"
        assert (await words.adelete(ids[1]))[0].outcome == "deleted"
        added = await words.aadd("q", "t", {})
        assert added in [letter.job_id async for letter in words.aexport(queue="q")]
        assert (await words.adelete(queue="q2")).done > 0


def test_what_was_done_is_counted_and_told(admin: Admin, letters: Letters, caplog: pytest.LogCaptureFixture) -> None:
    """BF-30, BF-33: by as many as there were, with labels of fixed names; log lines have stable events and no payload."""
    caplog.set_level("INFO", "tailrace.dead_letters")
    ids = [letters.bury(queue="counted") for _ in range(5)]
    admin.dead_letters.requeue(ids[:3])
    admin.dead_letters.resolve(queue="counted", max_jobs=1)
    admin.dead_letters.delete(queue="counted")
    admin.dead_letters.add("counted", "t", {"secret": 1})
    labels = {"namespace": "shop", "queue": "counted", "task": "t"}
    added = prometheus_client.REGISTRY.get_sample_value("tailrace_dead_letters_added_total", {**labels, "reason": "manual"})
    assert added == 1
    told = [(record.event, record.queue, record.task, record.jobs) for record in caplog.records]  # type: ignore[attr-defined]
    assert told == [
        ("dead_letters_requeued", "counted", "t", 3),
        ("dead_letters_resolved", "counted", "t", 1),
        ("dead_letters_deleted", "counted", "t", 1),
        ("dead_letter_added", "counted", "t", 1),
    ]
    assert "secret" not in caplog.text
    for verb, n in (("requeued", 3), ("resolved", 1), ("deleted", 1)):
        assert prometheus_client.REGISTRY.get_sample_value(f"tailrace_dead_letters_{verb}_total", labels) == n


def test_a_list_is_short_where_the_rest_is_still_to_be_looked_at(admin: Admin, letters: Letters) -> None:
    letters.fill(3000)
    page = admin.dead_letters.list(text="to 10001.")
    assert (len(page), page.after is not None) == (0, True)
    found, after = list(page), page.after
    while after is not None:
        page = admin.dead_letters.list(text="to 10001.", after=after)
        found, after = found + list(page), page.after
    assert [item.job_id for item in found] == [10_001]


def test_threads_may_share_the_words(admin: Admin, letters: Letters) -> None:
    letters.fill(40)
    done: list[BulkChange] = []
    threads = [
        threading.Thread(target=lambda: done.append(admin.dead_letters.requeue(state="dead", anew=True))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(result.done for result in done) == 40
    assert letters.states() == {"requeued": 40}
    assert letters.rows.value("select max(requeued_count) from tailrace.dead_letter") == 1
