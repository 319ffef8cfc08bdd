"""Serial groups in a queue with limits: a member needs its group and its slots."""

from __future__ import annotations

from tests.engine.limited import Claimer, apply, in_use, slots
from tests.engine.rows import Rows


def test_members_need_slots_of_the_queue(rows: Rows) -> None:
    """I7, I8: as many groups as slots are free, one member of each; the next member follows when its slot and group are free."""
    apply(rows, limits={"concurrency": 2})
    a, b, c = ([rows.job(serial_group=name) for _ in range(2)] for name in "abc")
    worker = Claimer(rows).know()
    first = worker.turn()
    assert sorted(first.jobs) == sorted([a[0], b[0]])
    assert worker.turn().told["room"] == 0
    assert in_use(rows) == 2
    rows.fail(a[0], first.token, "success")
    following = worker.turn(ended=[("a", first.token)])
    assert len(following.jobs) == 1
    assert following.jobs[0] in (a[1], c[0])
    assert len(slots(rows)) == 2


def test_jobs_with_and_without_a_group_share_a_limit(rows: Rows) -> None:
    """I7: both kinds of claims count."""
    apply(rows, limits={"concurrency": 3})
    plain = [rows.job() for _ in range(2)]
    members = [rows.job(serial_group=name) for name in "ab"]
    worker = Claimer(rows).know()
    assert worker.claim(2).jobs == plain
    assert len(worker.turn().jobs) == 1
    assert worker.turn().jobs == []
    assert worker.claim().jobs == []
    assert in_use(rows) == 3
    assert sum(rows.row(job)["token"] is not None for job in members) == 1  # type: ignore[index]


def test_a_group_whose_next_member_has_no_slot_waits_in_order(rows: Rows) -> None:
    """CJ-10: the member behind it does not overtake it, and other groups go on."""
    apply(rows, tasks=[{"name": "t", "concurrencyLimit": 1}])
    first, waits = rows.job(serial_group="a"), rows.job(serial_group="b")
    behind, other = rows.job(serial_group="b", task="u"), rows.job(serial_group="c", task="u")
    worker = Claimer(rows, classes={"t": None, "u": None}).know()
    taken: dict[int, int] = {}
    for _ in range(200):  # a turn takes as many groups as one class has room for, drawn by lot
        done = len(taken) == 2
        got = worker.turn()
        taken |= dict.fromkeys(got.jobs, got.token)
        if done:  # and one turn more takes nothing
            break
    assert sorted(taken) in (sorted([first, other]), sorted([waits, other]))
    assert in_use(rows, "t") == 1
    assert behind not in taken


def test_a_turn_under_other_limits_takes_nothing_and_leaves_what_ended(rows: Rows) -> None:
    """I7: a group that ended here is left all the same, so that others may take it."""
    apply(rows, limits={"concurrency": 2})
    job = rows.job(serial_group="a")
    rows.job(serial_group="a")
    worker = Claimer(rows).know()
    held = worker.turn().token
    rows.conn.execute("delete from tailrace.job where id = %s", [job])
    apply(rows, limits={"concurrency": 1})
    assert worker.turn(ended=[("a", held)]).told["state"] == "changed"
    assert rows.count("job_group") == 0
    assert len(worker.know().turn().jobs) == 1


def test_a_member_that_was_lost_before_needs_a_slot(rows: Rows) -> None:
    """Poison members are taken alone, and under the limit."""
    apply(rows, limits={"concurrency": 1})
    lost = rows.job(serial_group="a", lost=1)
    plain = rows.job()
    worker = Claimer(rows).know()
    got = worker.turn(1, suspect=True)
    assert got.jobs == [lost]
    assert worker.claim().jobs == []
    rows.fail(lost, got.token, "success")
    assert worker.claim().jobs == [plain]


def test_a_plain_turn_that_knows_older_limits_takes_nothing(rows: Rows) -> None:
    """I7: as any other claim."""
    rows.job(serial_group="a")
    apply(rows, limits={"concurrency": 1})
    found = rows.conn.execute(
        """select id from tailrace.turn_groups_v1(
             'q', 'w', 5, '{t}', '{}', '{}', '{}', '{}', '{}', '{}', 5, 1, 400, '', '', false, 0, '{}')"""
    ).fetchall()
    assert found == [(None,)]
