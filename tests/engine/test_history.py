"""The history of jobs: in partitions by time, made ahead and dropped as a whole, and never the reason why a job cannot end."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.engine.aged_letters import settings
from tests.engine.rows import Rows

HOUR: dict[str, Any] = {"history": {"retentionSeconds": 3600}}
YEAR: dict[str, Any] = {"history": {"retentionSeconds": 365 * 86_400}}
WEEK: dict[str, Any] = {"history": {"retentionSeconds": 7 * 86_400}}


def upkeep(rows: Rows) -> dict[str, Any]:
    """Call history_v1."""
    return dict(rows.value("select tailrace.history_v1()"))


def parts(rows: Rows) -> list[tuple[str, datetime, datetime]]:
    """The partitions but the default one, in their order."""
    return rows.conn.execute(
        "select part::text, begins, ends from tailrace.partitions_v1() where ends is not null order by ends"
    ).fetchall()


def finished(rows: Rows, *, ago: float, until: float | None = None, queue: str = "q") -> int:
    """Insert a row of the history that ended `ago` seconds ago; `until`: its result is kept for so long from now."""
    return int(
        rows.value(
            """insert into tailrace.finished (id, queue, task, tenant, outcome, attempts, created_at, finished_at, result,
                 result_until)
               select nextval(pg_get_serial_sequence('tailrace.job', 'id')), %(queue)s, 't', '', 'succeeded', 1, x.at, x.at, '1',
                 clock_timestamp() + %(until)s * interval '1 s'
               from (select clock_timestamp() - %(ago)s * interval '1 s' as at) x returning id""",
            {"ago": ago, "until": until, "queue": queue},
        )
    )


def part_of(rows: Rows, ident: int) -> str:
    """Which partition a row is in."""
    return str(rows.value("select tableoid::regclass::text from tailrace.finished where id = %s", [ident])).split(".")[-1]


def age(rows: Rows, hours: int) -> None:
    """Let every partition be so much older, by attaching it again under older bounds."""
    for part, begins, ends in parts(rows):
        rows.conn.execute(f"alter table tailrace.finished detach partition {part}".encode())
        rows.conn.execute(f"update {part} set finished_at = finished_at - interval '{hours} h'".encode())
        bounds = [stamp - timedelta(hours=hours) for stamp in (begins, ends)]
        rows.conn.execute(
            f"alter table tailrace.finished attach partition {part} for values from ('{bounds[0]}') to ('{bounds[1]}')".encode()
        )


def test_without_a_history_there_is_nothing_to_keep(rows: Rows) -> None:
    """R9: off by default: no partition is made, no row is written."""
    settings(rows, jobDefaults={"maxAttempts": 3})
    token, [ident] = rows.running()
    rows.fail(ident, token, "permanent")
    assert upkeep(rows) == {"made": 0, "dropped": 0, "kept": 0}
    assert rows.count("finished") == 0


@pytest.mark.parametrize(
    ("rule", "step", "ahead"),
    [(HOUR, timedelta(hours=1), 6), (WEEK, timedelta(days=1), 3), (YEAR, timedelta(days=7), 2)],
)
def test_partitions_are_made_ahead_without_gaps(rows: Rows, rule: dict[str, Any], step: timedelta, ahead: int) -> None:
    settings(rows, **rule)
    made = upkeep(rows)["made"]
    found = parts(rows)
    assert made == len(found) >= ahead
    assert {ends - begins for _, begins, ends in found} == {step}
    assert all(one[2] == two[1] for one, two in itertools.pairwise(found))
    now = datetime.now(UTC)
    assert found[0][1] <= now < found[0][2]
    assert upkeep(rows) == {"made": 0, "dropped": 0, "kept": 0}
    assert part_of(rows, finished(rows, ago=0)) == found[0][0].split(".")[-1]


def test_the_unit_may_change(rows: Rows) -> None:
    settings(rows, **HOUR)
    upkeep(rows)
    settings(rows, **WEEK)
    upkeep(rows)
    found = parts(rows)
    assert all(one[2] == two[1] for one, two in itertools.pairwise(found))
    assert found[-1][2] - found[-1][1] == timedelta(days=1)


def test_a_missing_partition_keeps_no_job_from_its_end(rows: Rows) -> None:
    """What ends before its part is made goes to the default one, and moves when that is made."""
    settings(rows, **HOUR)
    token, ids = rows.running(3)
    rows.settle(*({"id": ident, "token": token, "kind": "success"} for ident in ids))
    assert {part_of(rows, ident) for ident in ids} == {"finished_default"}
    upkeep(rows)
    assert {part_of(rows, ident) for ident in ids} == {parts(rows)[0][0].split(".")[-1]}


def test_a_history_that_cannot_be_written_keeps_no_job_from_its_end(rows: Rows) -> None:
    """Somebody has dropped the default partition: the end counts, the history has a gap, the server's log says so."""
    settings(rows, **HOUR)
    rows.conn.execute("drop table tailrace.finished_default")
    token, [ident] = rows.running()
    assert rows.settle({"id": ident, "token": token, "kind": "success"}) == {ident: "succeeded"}
    assert (rows.count("job"), rows.count("finished"), rows.tally()) == (0, 0, {"succeeded": 1})
    assert upkeep(rows)["made"] >= 6


def test_every_end_of_settle_is_remembered(rows: Rows) -> None:
    settings(rows, **HOUR)
    token, ids = rows.running(4, max_attempts=1)
    kinds = ["success", "permanent", "cancelled", "expired"]
    rows.settle(*({"id": i, "token": token, "kind": kind} for i, kind in zip(ids, kinds, strict=True)))
    waiting = rows.job()
    rows.value("select tailrace.cancel(%s)", [waiting])
    swept = rows.job(attempts=5)
    rows.walk()
    outcomes: dict[int, str] = dict(rows.conn.execute("select id, outcome from tailrace.history").fetchall())
    assert outcomes == {
        **dict(zip(ids, ["succeeded", "dead", "cancelled", "expired"], strict=True)),
        waiting: "cancelled",
        swept: "dead",
    }


def test_a_retry_is_no_end(rows: Rows) -> None:
    settings(rows, **HOUR)
    token, [ident] = rows.running()
    rows.fail(ident, token)
    assert rows.count("finished") == 0


def test_results_are_kept_without_a_history(rows: Rows) -> None:
    token, ids = rows.running(2)
    rows.settle(
        {"id": ids[0], "token": token, "kind": "success", "keep": 60, "result": {"n": 1}},
        {"id": ids[1], "token": token, "kind": "success"},
    )
    assert rows.conn.execute("select id, result from tailrace.history").fetchall() == [(ids[0], {"n": 1})]
    state = rows.conn.execute("select state, result from tailrace.job_result(%s)", [ids[0]]).fetchall()
    assert state == [("succeeded", {"n": 1})]
    assert rows.conn.execute("select state, result from tailrace.job_result(%s)", [ids[1]]).fetchall() == [("gone", None)]


def test_a_failed_run_keeps_no_result(rows: Rows) -> None:
    token, [ident] = rows.running(max_attempts=1)
    rows.settle({"id": ident, "token": token, "kind": "permanent", "keep": 60, "result": 1})
    assert rows.count("finished") == 0


def test_old_parts_are_dropped_as_a_whole(rows: Rows) -> None:
    """Not one row is deleted: a part goes when no queue keeps it, unless a result of it is kept longer."""
    settings(rows, **HOUR)
    settings(rows, "other", history={"retentionSeconds": 5 * 3600})
    upkeep(rows)
    old, kept = finished(rows, ago=0), finished(rows, ago=0, until=86_400)
    age(rows, 3)
    assert upkeep(rows)["dropped"] == 0, "the other queue keeps them"
    settings(rows, "other")
    upkeep(rows)
    assert rows.count("finished") == 2, "their part has a result that is kept"
    assert rows.conn.execute("select id from tailrace.history").fetchall() == [(kept,)]
    rows.conn.execute("update tailrace.finished set result_until = clock_timestamp()")
    with rows.conn.transaction():
        before = rows.value("select coalesce(sum(n_tup_del), 0) from pg_stat_xact_user_tables where relname like 'finished%'")
        assert upkeep(rows)["dropped"] >= 1
        after = rows.value("select coalesce(sum(n_tup_del), 0) from pg_stat_xact_user_tables where relname like 'finished%'")
    assert before == after
    assert not rows.count("finished", f"id in ({old}, {kept})")


def test_the_default_part_is_emptied_when_all_of_it_is_old(rows: Rows) -> None:
    settings(rows, **HOUR)
    finished(rows, ago=90_000)
    young = finished(rows, ago=5000)
    settings(rows, history={"retentionSeconds": 7200})
    assert upkeep(rows)["dropped"] == 0
    rows.conn.execute("delete from tailrace.finished where id = %s", [young])
    assert upkeep(rows)["dropped"] == 1
    assert rows.count("finished") == 0


def test_a_reader_of_the_history_is_not_waited_for(rows: Rows, other: Rows) -> None:
    """A long look keeps old parts for another minute; those who end jobs wait for at most a twentieth of a second."""
    settings(rows, **HOUR)
    upkeep(rows)
    age(rows, 30)
    rows.conn.execute("update tailrace.queue set settings = %s", [Jsonb(HOUR)])
    other.count("finished")
    report = upkeep(rows)
    assert report["dropped"] == 0
    assert report["kept"] >= 1
    other.conn.rollback()
    assert upkeep(rows)["dropped"] >= 1


def test_the_view_hides_what_is_past_its_time(rows: Rows) -> None:
    """A part outlives its rows: each queue's own time counts for what is shown."""
    settings(rows, history={"retentionSeconds": 60})
    settings(rows, "long", history={"retentionSeconds": 86_400})
    finished(rows, ago=120)
    shown = {finished(rows, ago=30), finished(rows, ago=120, queue="long")}
    assert {ident for (ident,) in rows.conn.execute("select id from tailrace.history").fetchall()} == shown
