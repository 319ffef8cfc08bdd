"""Requeue, resolve, delete, note and add: what each does to one and to a set, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.db import Statement, run
from tailrace.errors import Conflict, InvalidOption, InvalidPayload, NotFound, TailraceError
from tests.engine.letters import Letters
from tests.engine.rows import Rows


@pytest.fixture
def letters(rows: Rows) -> Letters:
    return Letters(rows)


def call(rows: Rows, expression: str, **params: Any) -> Any:
    return run(rows.conn, Statement(f"select * from tailrace.{expression}", params, lambda found: found[0][0]))


def audit(rows: Rows) -> list[tuple[Any, ...]]:
    return rows.conn.execute("select verb, target, n from tailrace.audit order by id").fetchall()


# ---- requeue -----------------------------------------------------------------------------------------------------------
def test_a_requeue_may_be_delayed_and_noted(letters: Letters, rows: Rows) -> None:
    """BF-22: notes are appended, never erased."""
    ident = letters.bury(serial_group=None)
    letters.change("note", ident, note="first")
    letters.change("requeue", ident, delay="10 minutes", note="after the repair")
    row = rows.row(ident)
    assert row is not None
    assert 590 < row["wait"] <= 600
    letters.kill(ident)
    letters.change("requeue", ident)
    notes = letters.of(ident, "notes").splitlines()
    assert [line.split("] ")[1] for line in notes] == ["first", "after the repair"]
    assert all(line.startswith("[20") for line in notes)
    assert letters.events(ident) == ["requeued", "failed", "requeued"]
    assert "run_at" in letters.of(ident, "history")[0]


def test_a_payload_is_repaired_on_the_way(letters: Letters, rows: Rows) -> None:
    """BF-11: the dead letter has the payload that runs; the old one is in the history."""
    ident = letters.bury(payload={"customer": {"id": 1}, "list": [1, 2]})
    letters.change("requeue", ident, set={"customer.id": 7, "new.deep.one": None, "list.1": "x", r"a\.b": True})
    wanted = {"customer": {"id": 7}, "list": [1, "x"], "new": {"deep": {"one": None}}, "a.b": True}
    row = rows.row(ident)
    assert row is not None
    assert row["payload"] == letters.of(ident, "payload") == wanted
    assert letters.of(ident, "history")[0]["was"] == {"customer": {"id": 1}, "list": [1, 2]}
    letters.kill(ident)
    letters.change("requeue", ident, payload={"whole": None})
    assert letters.of(ident, "payload") == {"whole": None}


@pytest.mark.parametrize(
    ("options", "error", "field"),
    [
        ({"payload": [1]}, InvalidPayload, "payload"),
        ({"payload": {"x": "y" * 262_144}}, InvalidOption, "job_id"),
        ({"set": {"n.deep": 1}}, InvalidOption, "job_id"),
        ({"set": []}, InvalidOption, "set"),
        ({"set": {"a": 1}, "payload": {}}, InvalidOption, "payload"),
        ({"delay": 5, "run_at": "2026-01-01T00:00:00Z"}, InvalidOption, "run_at"),
        ({"delay": "soon"}, InvalidOption, "delay"),
        ({"force": "yes"}, InvalidOption, "force"),
        ({"note": ""}, InvalidOption, "note"),
        ({"colour": 1}, InvalidOption, "colour"),
        ({"resolution": "x"}, InvalidOption, "resolution"),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_changes(
    letters: Letters, rows: Rows, options: dict[str, Any], error: type[TailraceError], field: str
) -> None:
    """BF-21: one transaction, so a refusal leaves nothing behind."""
    ident = letters.bury()
    with pytest.raises(error) as caught:
        call(rows, "requeue_dead_letter(%(id)s, false, %(o)s::jsonb)", id=ident, o=json.dumps(options))
    assert caught.value.field == field
    assert (rows.row(ident), letters.of(ident, "state, history")) == (None, ("dead", []))


def test_the_serial_group_is_kept_and_used_again(letters: Letters, rows: Rows) -> None:
    """The job comes back into its group, whoever put it to the dead letters."""
    died = letters.bury(serial_group="customer-7")
    options = '{"serial_group": "customer-7", "error": "lost"}'
    added = int(rows.value("select tailrace.add_dead_letter('q', 't', '{}', %s)", [options]))
    assert {letters.of(ident, "serial_group") for ident in (died, added)} == {"customer-7"}
    letters.change("requeue", died, added)
    members = rows.conn.execute("select id, serial_group from tailrace.job order by id").fetchall()
    assert members == [(died, "customer-7"), (added, "customer-7")]


def test_a_set_is_changed_but_for_the_rows_that_cannot(letters: Letters, rows: Rows) -> None:
    """b3, b4, BF-20: K1 is reported and still exists, the others move; an id that comes twice is one."""
    ids = [letters.bury(key=f"K{n}") for n in range(10)]
    holder = rows.job(key="K1")
    running = rows.job(key="K2")
    rows.claim(running)
    resolved = letters.bury()
    letters.change("resolve", resolved)
    done = letters.each("requeue", *ids, *ids, resolved, 999_999)
    assert {ident for ident, (outcome, _) in done.items() if outcome == "requeued"} == set(ids) - {ids[1], ids[2]}
    assert done[ids[1]] == ("conflict", f"job {holder} holds the key and waits")
    assert done[ids[2]] == ("conflict", f"job {running} holds the key and runs")
    assert done[resolved] == ("conflict", f"dead letter {resolved} is resolved")
    assert done[999_999] == ("missing", "there is no dead letter 999999")
    assert letters.of(ids[1], "state, requeued_count, history") == ("dead", 0, [])
    again = letters.each("requeue", *ids)
    assert {outcome for outcome, _ in again.values()} == {"conflict"}, "a second run does not spin"


def test_force_replaces_only_waiting_holders(letters: Letters, rows: Rows) -> None:
    """BF-02, BF-20: a running one is never touched; the payload of a replaced one goes to the history."""
    ids = [letters.bury(key=f"K{n}") for n in range(4)]
    waiting = rows.job(key="K1", payload={"newer": True})
    running = rows.job(key="K2")
    token = rows.claim(running)
    done = letters.each("requeue", *ids, force=True)
    assert done[ids[1]] == ("requeued", f"job {waiting} was replaced")
    assert done[ids[2]] == ("conflict", f"job {running} holds the key and runs")
    assert rows.row(waiting) is None
    assert letters.of(ids[1], "history")[0]["replaced"] == {"id": str(waiting), "payload": {"newer": True}}
    assert rows.settle({"id": running, "token": token, "kind": "success"}) == {running: "succeeded"}
    assert rows.tally()["replaced"] == 1


def test_a_forced_requeue_over_a_requeued_holder_sends_that_back(letters: Letters, rows: Rows) -> None:
    first = letters.bury(key="K")
    letters.change("requeue", first)
    second = int(rows.value("select tailrace.add_dead_letter('q', 't', '{\"by\": \"hand\"}', '{\"key\": \"K\"}')"))
    letters.change("requeue", second, force=True)
    assert (letters.of(first, "state"), letters.events(first)[-1]) == ("dead", "withdrawn")
    assert (rows.row(first), letters.of(second, "state")) == (None, "requeued")


def test_a_row_that_spoils_the_set_is_told_alone(letters: Letters, rows: Rows) -> None:
    """BF-16, BF-24: a priority that no job may have is refused for its row, and never narrowed."""
    ids = [letters.bury() for _ in range(9)]
    rows.conn.execute("update tailrace.dead_letter set priority = 40000 where job_id = %s", [ids[4]])
    done = letters.each("requeue", *ids)
    assert done.pop(ids[4]) == ("failed", "priority must be between -1000 and 1000")
    assert {outcome for outcome, _ in done.values()} == {"requeued"}


def test_what_somebody_holds_is_busy(letters: Letters, rows: Rows, other: Rows) -> None:
    """A set waits for nobody: neither for a dead letter that is held, nor for a key that is being taken."""
    ids = [letters.bury(key=f"K{n}") for n in range(6)]
    other.conn.execute("select tailrace.note_dead_letter(%s, 'I look at it')", [ids[1]])
    other.conn.execute("insert into tailrace.job (queue, task, payload, key) values ('q', 't', '{}', 'K3')")
    for verb in ("requeue", "note"):
        done = letters.each(verb, *ids, **({"note": "x"} if verb == "note" else {}))
        assert done.pop(ids[1])[0] == "busy"
        if verb == "requeue":
            assert done.pop(ids[3])[0] == "busy"
        assert {outcome for outcome, _ in done.values()} == {"requeued" if verb == "requeue" else "noted"}
    other.conn.rollback()
    assert {outcome for outcome, _ in letters.each("requeue", ids[1], ids[3]).values()} == {"requeued"}


# ---- resolve, delete, note ---------------------------------------------------------------------------------------------
def test_resolve_says_how_and_by_whom(letters: Letters, rows: Rows) -> None:
    ident = letters.bury()
    assert call(rows, "resolve_dead_letter(%(id)s, 'paid by hand')", id=ident) == "resolved"
    assert letters.of(ident, "state, resolution, resolved_at is not null") == ("resolved", "paid by hand", True)
    event = letters.of(ident, "history")[0]
    assert (event["event"], event["resolution"], event["by"]) == ("resolved", "paid by hand", rows.value("select session_user"))
    with pytest.raises(Conflict, match="is resolved"):
        call(rows, "resolve_dead_letter(%(id)s)", id=ident)
    assert rows.tally()["resolved"] == 1


def test_delete_takes_the_dead_and_the_resolved_but_none_whose_job_lives(letters: Letters, rows: Rows) -> None:
    dead, resolved, requeued = letters.bury(), letters.bury(), letters.bury()
    letters.change("resolve", resolved)
    letters.change("requeue", requeued)
    for ident in (dead, resolved):
        assert call(rows, "delete_dead_letter(%(id)s)", id=ident) == "deleted"
    with pytest.raises(Conflict, match="is requeued"):
        call(rows, "delete_dead_letter(%(id)s)", id=requeued)
    with pytest.raises(NotFound):
        call(rows, "delete_dead_letter(%(id)s)", id=dead)
    assert (letters.states(), rows.tally()["deleted"]) == ({"requeued": 1}, 2)


def test_each_change_is_audited(letters: Letters, rows: Rows) -> None:
    ids = [letters.bury() for _ in range(3)]
    letters.change("note", ids[0], note="x")
    letters.change("requeue", *ids[1:])
    letters.by_filter("delete")
    assert audit(rows) == [
        ("note", {"job_id": str(ids[0])}, 1),
        ("requeue", {"job_ids": [str(ident) for ident in ids[1:]]}, 2),
        ("delete", {"filter": {"queue": "q"}}, 1),
    ]


def test_given_ones_are_changed_all_or_none(letters: Letters, rows: Rows) -> None:
    ids = [letters.bury() for _ in range(3)]
    with pytest.raises(NotFound, match="there is no dead letter 999999"):
        run(rows.conn, Statement("select * from tailrace.change_dead_letters_v1('delete', %(i)s)", {"i": [*ids, 999_999]}, list))
    assert letters.states() == {"dead": 3}


# ---- add ---------------------------------------------------------------------------------------------------------------
def test_add_makes_one_like_any_other(letters: Letters, rows: Rows) -> None:
    """BF-30: a manual one is counted, has the next number of the jobs, and can be requeued."""
    before = rows.job()
    options = {
        "error": {"type": "Lost", "message": "by the old system"},
        "error_type": "network",
        "attempts": 4,
        "tenant": "acme",
        "priority": 3,
        "max_attempts": 9,
        "timeout": 30,
        "meta": {"m": 1},
        "note": "from the import",
    }
    ident = call(rows, "add_dead_letter('q', 't', '{\"n\": 5}', %(o)s::jsonb)", o=json.dumps(options))
    assert ident == before + 1
    assert letters.of(ident, "state, reason, error_type, total_attempts, dead_count, tenant, priority, max_attempts") == (
        "dead", "manual", "network", 4, 1, "acme", 3, 9)  # fmt: skip
    error = letters.of(ident, "errors")[0]
    assert (error["type"], error["message"], error["attempt"]) == ("Lost", "by the old system", 4)
    assert letters.events(ident) == ["added"]
    assert rows.tally()["dead"] == 1
    assert rows.row(ident) is None
    letters.change("requeue", ident)
    letters.succeed(ident)
    assert letters.of(ident, "state") == "resolved"


def test_a_manual_one_supersedes_one_of_its_key(letters: Letters, rows: Rows) -> None:
    """BF-12: within tenant, queue, task and key."""
    old = letters.bury(key="K")
    letters.change("note", old, note="do not lose me")
    elsewhere = letters.bury(key="K", task="another")
    holder = rows.job(key="K")
    new = call(rows, "add_dead_letter('q', 't', '{}', '{\"key\": \"K\"}')")
    assert letters.of(old, "state, resolution, key") == ("resolved", "superseded", None)
    assert letters.of(new, "state, key, dead_count") == ("dead", "K", 2)
    assert "do not lose me" in letters.of(new, "notes")
    assert letters.of(elsewhere, "state") == "dead"
    assert rows.row(holder) is not None


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"error_type": "bad luck"}, "error_type"),
        ({"attempts": -1}, "attempts"),
        ({"priority": 4000}, "priority"),
        ({"key": ""}, "key"),
        ({"colour": 1}, "colour"),
        ({"error": "x" * 20_000}, "error"),
    ],
)
def test_a_wrong_manual_one_is_refused(letters: Letters, rows: Rows, options: dict[str, Any], field: str) -> None:
    """BF-15, BF-24: it must be a job that could run."""
    with pytest.raises(InvalidOption) as caught:
        call(rows, "add_dead_letter('q', 't', '{}', %(o)s::jsonb)", o=json.dumps(options))
    assert caught.value.field == field
    assert letters.states() == {}


# ---- by filter, in one call --------------------------------------------------------------------------------------------
def test_the_functions_by_filter_take_the_oldest_first(letters: Letters, rows: Rows) -> None:
    """BF-45, BF-46: bounds are checked, one statement changes all, a dry run changes nothing."""
    ids = [letters.bury(task=f"t{n % 2}", key=f"K{n}") for n in range(8)]
    rows.job(task="t0", key="K0")
    assert letters.by_filter("requeue", task="t0", dry_run=True) == {
        ids[0]: ("conflict", f"job {max(ids) + 1} holds the key and waits"),
        **dict.fromkeys(ids[2::2], ("would be requeued", None)),
    }
    assert letters.states() == {"dead": 8}
    assert set(letters.by_filter("requeue", task="t1", max_jobs=2)) == set(ids[1:4:2])
    assert set(letters.by_filter("resolve", None, failed_before="2100-01-01T00:00:00Z", max_jobs=1)) == {ids[0]}
    assert {o for o, _ in letters.by_filter("delete", state="resolved").values()} == {"deleted"}
    noted = rows.conn.execute("select count(*) from tailrace.note_dead_letters('q', 'all of them', '{\"state\": \"all\"}')")
    assert noted.fetchall() == [(7,)]
    for wrong in ({"max_jobs": 0}, {"max_jobs": 1001}, {"state": "resolved"}, {"max_job": 5}):
        with pytest.raises(InvalidOption):
            call(rows, "requeue_dead_letters('q', %(f)s::jsonb)", f=json.dumps(wrong))
