"""The group functions: who gets which members, who is left alone, and what frees a group."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.engine.rows import Rows
from tests.rig.servers import Connection, RigDatabase

TURN = """
select * from tailrace.turn_groups_v1(
  'q', %(worker)s, %(token)s, %(tasks)s, %(strict)s, '{}', %(names)s::text[], %(tenants)s::text[], %(tokens)s::bigint[],
  %(unsettled)s::bigint[], %(n)s, %(k)s, %(walk)s, %(after)s, '', %(suspect)s)"""


@pytest.fixture
def rows(conn: Connection) -> Rows:
    made = Rows(conn)
    made.worker()
    return made


def turn(conn: Connection, token: int, *, ended: dict[str, int] | None = None, **given: Any) -> tuple[list[int], dict[str, Any]]:
    """Take a turn; returns the ids in the order of groups and runs, and what the turn says of itself."""
    mine = ended or {}
    values: dict[str, Any] = {
        "worker": "w",
        "token": token,
        "tasks": ["t", "s"],
        "strict": ["s"],
        "unsettled": [],
        "n": 10,
        "k": 10,
        "walk": 400,
        "after": "",
        "suspect": False,
        "names": list(mine),
        "tenants": [""] * len(mine),
        "tokens": list(mine.values()),
        **given,
    }
    found = conn.execute(TURN, values).fetchall()
    assert found[-1][0] is None
    members = sorted(found[:-1], key=lambda m: (m[10], m[11], -m[6], m[8], m[0]))
    return [m[0] for m in members], found[-1][9]


def finish(conn: Connection, ids: list[int]) -> None:
    conn.execute("delete from tailrace.job where id = any(%s)", [ids])


def group(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.execute("select name, token, head from tailrace.job_group order by name").fetchall()


def test_a_turn_takes_a_chain_of_each_group(conn: Connection, rows: Rows) -> None:
    a = [rows.job(serial_group="a") for _ in range(3)]
    b = [rows.job(serial_group="b", priority=p) for p in (0, 5, 1)]
    rows.job(serial_group="c", task="unknown")
    rows.job(serial_group="d", run_at="2999-01-01Z")
    other = rows.job(serial_group="a", tenant="acme")
    taken, told = turn(conn, 1, k=2)
    assert taken == [a[0], a[1], other, b[1], b[2]]
    assert (told["found"], told["walked"]) == (3, 5)
    assert conn.execute("select ids from tailrace.lease").fetchone() == ([a[0], a[1], other, b[1], b[2]],)
    assert turn(conn, 2)[0] == []


def test_the_walk_goes_on_from_its_cursor_and_round(conn: Connection, rows: Rows) -> None:
    jobs = {name: rows.job(serial_group=name) for name in "abcde"}
    assert turn(conn, 1, n=2)[0] == [jobs["a"], jobs["b"]]
    taken, told = turn(conn, 2, n=1, after="c")
    assert (taken, told["after"]) == ([jobs["d"]], ["d", ""])
    taken, told = turn(conn, 3, n=5, after="d")
    assert taken == [jobs["c"], jobs["e"]]
    taken, told = turn(conn, 4, walk=2)
    assert (taken, told["walked"], told["after"]) == ([], 2, ["b", ""])


def test_an_ended_group_goes_on_or_is_left(conn: Connection, rows: Rows) -> None:
    """GW-03: others have their turn before it."""
    a = [rows.job(serial_group="a") for _ in range(4)]
    assert turn(conn, 1, k=2)[0] == a[:2]
    finish(conn, a[:2])
    assert turn(conn, 2, ended={"a": 1}, k=1, walk=0)[0] == a[2:3]
    assert group(conn) == [("a", 2, None)]
    finish(conn, a[2:3])
    b = rows.job(serial_group="b")
    assert turn(conn, 3, ended={"a": 2}, n=1, k=1)[0] == [b]
    assert group(conn) == [("b", 3, None)]
    assert turn(conn, 4, ended={"b": 99}, n=0)[0] == []  # not its token
    assert group(conn) == [("b", 3, None)]
    finish(conn, [b])
    assert turn(conn, 5, ended={"b": 3}, walk=0)[0] == []
    assert group(conn) == []


def test_an_ended_group_whose_lease_went_with_the_outcome_goes_on_too(conn: Connection, rows: Rows) -> None:
    """Settling the last job of a lease frees its groups; in the same transaction they are taken again."""
    a = [rows.job(serial_group="a") for _ in range(2)]
    s = [rows.job(serial_group="s", task="s") for _ in range(2)]
    assert turn(conn, 1, k=1)[0] == [a[0], s[0]]
    errors = [{"id": i, "token": 1, "kind": "error", "delay": 60} for i in (a[0], s[0])]
    with conn.transaction():
        conn.execute("select * from tailrace.settle_v1('w', %s)", [Jsonb(errors)])
        assert group(conn) == [("s", None, s[0])]
        taken, told = turn(conn, 2, ended={"a": 1, "s": 1}, walk=0)
    assert (taken, told["kept"]) == ([a[1]], [])  # the other one is strict
    assert group(conn) == [("a", 2, None), ("s", None, s[0])]


def test_a_keyed_member_is_followed_by_its_successor_in_the_same_transaction(conn: Connection, rows: Rows) -> None:
    """The successor moves to slot 0 with the holder's end and is a member from then on."""
    after = '{"serial_group": "g", "key": "k", "on_duplicate": "after"}'
    enqueue = "select id from tailrace.enqueue('q', 't', jsonb_build_object('n', %s::int), %s)"
    holder = rows.value(enqueue, [1, after])
    assert turn(conn, 1)[0] == [holder]
    successor = rows.value(enqueue, [2, after])
    assert rows.value("select (key_slot, serial_group)::text from tailrace.job where id = %s", [successor]) == "(1,g)"
    assert turn(conn, 2)[0] == []
    with conn.transaction():
        done = conn.execute("select result from tailrace.finish_keyed_v1('w', %s, '{1}', '{1}')", [[holder]]).fetchall()
        assert done == [("succeeded",)]
        assert turn(conn, 3, ended={"g": 1}, walk=0)[0] == [successor]
    assert group(conn) == [("g", 3, None)]


def test_a_completion_leaves_the_group_to_the_worker(conn: Connection, rows: Rows) -> None:
    """Until it has looked, nobody else starts the next member; a reaper frees the group too."""
    jobs = [rows.job(serial_group="g") for _ in range(3)]
    turn(conn, 1, k=1)
    conn.execute("select tailrace.complete_v1(%s, 1, 'w')", [jobs[0]])
    assert turn(conn, 2)[0] == []
    assert turn(conn, 3, ended={"g": 1}, unsettled=[jobs[0]], k=1, walk=0)[0] == [jobs[1]]
    conn.execute("select tailrace.complete_v1(%s, 3, 'w')", [jobs[1]])
    conn.execute("select tailrace.take_over_v1('{3}', 0, 'died')")
    assert turn(conn, 4)[0] == [jobs[2]]


def test_a_group_with_an_unwritten_outcome_is_kept(conn: Connection, rows: Rows) -> None:
    first = rows.job(serial_group="a")
    rows.job(serial_group="a")
    turn(conn, 1, k=1)
    taken, told = turn(conn, 2, ended={"a": 1}, unsettled=[first])
    assert (taken, told["kept"]) == ([], [["a", ""]])
    assert group(conn) == [("a", 1, None)]


def test_a_chain_ends_before_a_member_that_could_be_charged_for_nothing(conn: Connection, rows: Rows) -> None:
    """CJ-05: one on its last attempt, or lost before, is never taken behind another one."""
    a = rows.job(serial_group="a")
    rows.job(serial_group="a", attempts=4)
    b = rows.job(serial_group="b", max_attempts=1)
    rows.job(serial_group="b")
    c = rows.job(serial_group="c")
    rows.job(serial_group="c", lost=1)
    lost = rows.job(serial_group="d", lost=1)
    rows.job(serial_group="d")
    assert turn(conn, 1)[0] == [a, b, c]
    assert turn(conn, 2)[0] == []
    assert turn(conn, 3, suspect=True)[0] == [lost]
    assert turn(conn, 4, suspect=True)[0] == []


def test_a_held_queue_gives_nothing(conn: Connection, rows: Rows) -> None:
    rows.job(serial_group="a")
    conn.execute("select tailrace.hold_queue('q')")
    assert turn(conn, 1)[0] == []
    assert group(conn) == []


def test_a_take_over_frees_the_groups_of_the_lease(conn: Connection, rows: Rows) -> None:
    """BF-06: only the end of a lease frees a group."""
    taken = [rows.job(serial_group="a") for _ in range(2)]
    turn(conn, 1)
    conn.execute("select tailrace.take_over_v1('{1}', 0, 'died')")
    assert group(conn) == []
    assert turn(conn, 2, suspect=True)[0] == [taken[0]]


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_take_over_does_not_wait_for_a_worker_that_is_frozen_in_its_turn(
    conn: Connection, rows: Rows, database: RigDatabase, ends: str
) -> None:
    """BF-06: its lease stays until the turn is over, so the group is never without one."""
    ended, running = (rows.job(serial_group=name) for name in "ab")
    turn(conn, 1)
    finish(conn, [ended])  # its handler has completed it
    conn.execute("set lock_timeout = '2s'")
    with database.connect(autocommit=False) as frozen:
        turn(frozen, 2, ended={"a": 1}, n=0)
        conn.execute("select tailrace.take_over_v1('{1}', 0, 'died')")
        assert rows.value("select token from tailrace.job where id = %s", [running]) is None
        assert [name for name, *_ in group(conn)] == ["a", "b"]
        getattr(frozen, ends)()
    conn.execute("select tailrace.take_over_v1('{1}', 0, 'died')")
    assert group(conn) == []
    assert conn.execute("select from tailrace.lease").fetchall() == []


def test_handing_back_and_settling_free_the_groups_of_the_lease(conn: Connection, rows: Rows) -> None:
    ids = [rows.job(serial_group=name) for name in "ab"]
    turn(conn, 1)
    back = [f'{{"id": {i}, "token": 1, "kind": "handback"}}' for i in ids]
    conn.execute("select * from tailrace.settle_v1('w', %s)", [f"[{back[0]}]"])
    assert len(group(conn)) == 2  # its worker leaves it by name
    conn.execute("select * from tailrace.settle_v1('w', %s)", [f"[{back[1]}]"])
    assert group(conn) == []
    assert turn(conn, 2)[0] == ids


def test_a_strict_group_waits_for_its_head_whatever_happened_to_it(conn: Connection, rows: Rows) -> None:
    first = rows.job(serial_group="a", task="s")
    second = rows.job(serial_group="a", task="s")
    assert turn(conn, 1)[0] == [first]
    assert group(conn) == [("a", 1, first)]
    conn.execute("select * from tailrace.settle_v1('w', %s)", [f'[{{"id": {first}, "token": 1, "kind": "error", "delay": 60}}]'])
    assert group(conn) == [("a", None, first)]
    assert turn(conn, 2)[0] == []
    conn.execute("update tailrace.job set run_at = now() where id = %s", [first])
    assert turn(conn, 3)[0] == [first]
    conn.execute("select tailrace.take_over_v1('{3}', 0, 'died')")
    assert group(conn) == [("a", None, first)]
    assert turn(conn, 4)[0] == []
    assert turn(conn, 5, suspect=True)[0] == [first]
    finish(conn, [first])
    assert turn(conn, 6, ended={"a": 5}, walk=0)[0] == [second]
    assert group(conn) == [("a", 6, second)]


def test_a_strict_group_whose_head_was_lost_before_waits_until_it_can_be_taken_alone(conn: Connection, rows: Rows) -> None:
    """CJ-05: it fails once more, and its group has ended here together with another one."""
    other = [rows.job(serial_group="a") for _ in range(2)]
    first = rows.job(serial_group="b", task="s", lost=1)
    assert turn(conn, 1, k=1)[0] == other[:1]
    assert turn(conn, 2, suspect=True)[0] == [first]
    with conn.transaction():
        finish(conn, other[:1])
        error = {"id": first, "token": 2, "kind": "error", "delay": 0}
        conn.execute("select * from tailrace.settle_v1('w', %s)", [Jsonb([error])])
        assert turn(conn, 3, ended={"a": 1, "b": 2}, k=1, walk=0)[0] == other[1:]
    assert group(conn) == [("a", 3, None), ("b", None, first)]
    assert turn(conn, 4, suspect=True)[0] == [first]


def test_a_strict_group_whose_head_is_cancelled_goes_on(conn: Connection, rows: Rows) -> None:
    first = rows.job(serial_group="a", task="s")
    second = rows.job(serial_group="a", task="s")
    turn(conn, 1)
    conn.execute("select * from tailrace.settle_v1('w', %s)", [f'[{{"id": {first}, "token": 1, "kind": "error", "delay": 60}}]'])
    conn.execute("select tailrace.cancel(%s)", [first])
    assert turn(conn, 2)[0] == [second]


def test_the_walk_frees_groups_without_a_lease_and_forgets_heads_that_are_gone(conn: Connection, rows: Rows) -> None:
    jobs = [rows.job(serial_group=name) for name in "ab"]
    conn.execute(
        "insert into tailrace.job_group values ('q', '', 'a', 99, null), ('q', '', 'b', null, 123456), ('q', '', 'c', null, null)"
    )
    assert turn(conn, 1)[0] == [jobs[1]]  # its head is gone
    conn.execute("select tailrace.walk_v1()")
    assert group(conn) == [("b", 1, None)]
    assert turn(conn, 2)[0] == [jobs[0]]


def test_a_lock_that_somebody_holds_on_a_member_stops_nobody(conn: Connection, rows: Rows, database: RigDatabase) -> None:
    """An application's transaction on a member, and a claim that is not committed yet."""
    locked, free = rows.job(serial_group="a"), rows.job(serial_group="a")
    rows.job(serial_group="b")
    with database.connect(autocommit=False) as holder, database.connect(autocommit=False) as claimer:
        holder.execute("select from tailrace.job where id = %s for update", [locked])
        assert turn(claimer, 1, n=1)[0] == [free]
        conn.execute("set lock_timeout = '2s'")
        assert len(turn(conn, 2)[0]) == 1  # group b; a is being taken
        claimer.rollback()
        assert turn(conn, 3)[0] == [free]


def test_enqueue_stores_the_group_and_refuses_a_wrong_one(conn: Connection, rows: Rows) -> None:
    ident = rows.value("select id from tailrace.enqueue('q', 't', '{}', '{\"serial_group\": \"customer-7\"}')")
    keyed = rows.value("select id from tailrace.enqueue('q', 't', '{}', '{\"serial_group\": \"g\", \"key\": \"k\"}')")
    head = {"queue": "q", "task": "t", "payload": {}}
    jobs = [{**head, "serial_group": "x"}, {**head, "serial_group": "y", "key": "l"}]
    many = conn.execute("select id from tailrace.enqueue_many(%s) order by ord", [Jsonb(jobs)]).fetchall()
    ids = [ident, keyed, *(i for (i,) in many)]
    stored = conn.execute("select serial_group from tailrace.job where id = any(%s) order by id", [ids]).fetchall()
    assert [name for (name,) in stored] == ["customer-7", "g", "x", "y"]
