"""A change of many: its set is fixed when it begins, each batch is a transaction, and it goes on where it stopped."""

from __future__ import annotations

import pytest

from tailrace.db import Statement, run
from tailrace.errors import InvalidOption, NotFound
from tests.engine.letters import Letters
from tests.engine.rows import Rows


@pytest.fixture
def letters(rows: Rows) -> Letters:
    return Letters(rows)


def test_it_changes_all_in_batches_and_ends(letters: Letters, rows: Rows) -> None:
    """BF-17, BF-46: batch by batch until nothing is left, over queues; a second run has nothing to do."""
    letters.fill(50)
    conflict = rows.value("select job_id from tailrace.dead_letter where key is not null order by job_id limit 1")
    rows.conn.execute(
        "insert into tailrace.job (queue, task, tenant, key, payload)"
        " select queue, task, tenant, key, '{}' from tailrace.dead_letter where job_id = %s",
        [conflict],
    )
    report = letters.run(batch=7)
    assert (report["state"], report["done"], report["failed"]) == ("done", 49, 1)
    assert [(p["job_id"], p["outcome"]) for p in report["problems"]] == [(conflict, "conflict")]
    assert letters.states() == {"dead": 1, "requeued": 49}
    audits = rows.conn.execute("select verb, n, target -> 'filter' from tailrace.audit").fetchall()
    assert (len(audits) > 5, sum(n for _, n, _ in audits), audits[0][2]) == (True, 49, {"state": "dead"})
    assert letters.run(batch=7)["done"] == 0
    assert rows.tally()["requeued"] == 49


def test_what_dies_again_meanwhile_is_not_met_again(letters: Letters) -> None:
    """b1: jobs that fail faster than the change goes on do not keep it going; each is requeued once."""
    ids = [letters.bury() for _ in range(12)]
    operation = letters.begin()["id"]
    for _ in range(20):
        report = letters.step(operation, 4)
        for ident in ids:
            if letters.rows.row(ident) is not None:
                letters.kill(ident)
        if report["state"] == "done":
            break
    assert (report["state"], report["done"], report["failed"]) == ("done", 12, 0)
    assert [letters.of(ident, "dead_count, requeued_count, state") for ident in ids] == [(2, 1, "dead")] * 12


def test_what_comes_back_without_a_failure_is_not_met_either(letters: Letters, rows: Rows) -> None:
    """One that was requeued when it began and is cancelled meanwhile keeps its old failed_at; it was not in the set."""
    ids = [letters.bury() for _ in range(3)]
    letters.change("requeue", ids[2])
    operation = letters.begin()["id"]
    rows.conn.execute("select tailrace.cancel(%s)", [ids[2]])
    assert letters.of(ids[2], "state") == "dead"
    report = letters.step(operation)
    assert (report["done"], report["failed"]) == (2, 0)
    assert letters.of(ids[2], "state") == "dead"


def test_it_goes_on_where_it_was_broken_off(letters: Letters) -> None:
    """b2: whole batches were done; the same change takes up the rest with its old moment, another does not."""
    ids = [letters.bury() for _ in range(10)]
    begun = letters.begin(queue="q")
    letters.step(begun["id"], 4)
    for ident in ids[:4]:
        letters.kill(ident)
    late = letters.bury()
    again = letters.begin(queue="q")
    assert (again["id"], again["done"], again["resumed"], again["as_of"]) == (begun["id"], 4, True, begun["as_of"])
    assert letters.begin(queue="q", task="t")["id"] != begun["id"]
    report = letters.step(begun["id"])
    assert (report["done"], report["state"]) == (10, "done")
    assert letters.states() == {"dead": 5, "requeued": 6}
    assert letters.of(late, "state") == "dead"
    assert letters.begin(queue="q")["resumed"] is False


def test_begun_anew_it_takes_what_is_dead_now(letters: Letters) -> None:
    letters.bury()
    begun = letters.begin(queue="q")
    late = letters.bury()
    anew = letters.begin(queue="q", anew=True)
    assert (anew["id"] != begun["id"], letters.step(anew["id"])["done"]) == (True, 2)
    assert letters.of(late, "state") == "requeued"


def test_a_stop_is_heard_before_the_next_batch(letters: Letters, rows: Rows) -> None:
    """BF-42: cancel is honoured inside."""
    for _ in range(5):
        letters.bury()
    operation = letters.begin()["id"]
    letters.step(operation, 2)
    assert rows.value("select tailrace.stop_operation(%s)", [operation]) == "stopped"
    assert letters.step(operation)["state"] == "stopped"
    assert letters.states() == {"dead": 3, "requeued": 2}
    assert letters.begin()["resumed"] is True
    assert letters.step(operation)["done"] == 5


def test_two_runners_of_one_change_take_turns(letters: Letters, rows: Rows, other: Rows) -> None:
    for _ in range(6):
        letters.bury()
    operation = letters.begin()["id"]
    second = Letters(other)
    other.conn.commit()
    assert letters.step(operation, 2)["done"] == 2
    assert second.step(operation, 2)["done"] == 4
    other.conn.commit()
    assert letters.step(operation)["done"] == 6
    assert {ident for (ident,) in rows.conn.execute("select requeued_count from tailrace.dead_letter").fetchall()} == {1}


def test_the_most_is_kept_over_batches(letters: Letters) -> None:
    ids = [letters.bury() for _ in range(8)]
    report = letters.run(batch=3, options={"max_jobs": 5}, state="dead")
    assert (report["done"], report["state"]) == (5, "done")
    assert [letters.of(ident, "state") for ident in ids] == ["requeued"] * 5 + ["dead"] * 3


def test_other_verbs_work_alike(letters: Letters) -> None:
    letters.fill(40)
    assert letters.run("resolve", batch=9, options={"resolution": "bug 7"}, task="t1")["done"] == 10
    assert letters.run("note", batch=9, options={"note": "seen"}, state="all")["done"] == 40
    assert letters.run("delete", batch=9, state="resolved")["done"] == 10
    assert letters.run("delete", batch=9, text="hi")["done"] == 30
    assert letters.states() == {}


def test_a_wrong_one_does_not_begin(letters: Letters, rows: Rows) -> None:
    """BF-26, BF-45: what cannot be is told before anything is changed."""
    for verb, which, options in (
        ("requeue", '{"state": "resolved"}', "{}"),
        ("delete", '{"state": "all"}', "{}"),
        ("explode", "{}", "{}"),
        ("note", "{}", "{}"),
        ("delete", "{}", '{"force": true}'),
        ("requeue", "{}", '{"max_jobs": 0}'),
    ):
        text = "select tailrace.begin_operation_v1(%(v)s, %(w)s::jsonb, %(o)s::jsonb)"
        with pytest.raises(InvalidOption):
            run(rows.conn, Statement(text, {"v": verb, "w": which, "o": options}, list))
    with pytest.raises(NotFound):
        run(rows.conn, Statement("select tailrace.step_operation_v1(12345, 5)", {}, list))
    assert rows.count("operation") == 0
