"""The demo's ledger: it adds up for a good run, and names each thing that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from examples.webhooks.deliveries import Delivery
from examples.webhooks.ledger import DatabaseRecord, Ledger, Observed, reconcile

# Five events with jobs 101 to 105. 1: plain. 2: refused once. 3: dead, then requeued.
# 4 and 5: held by the killed worker; 4 delivered twice.
JOBS = {event: 100 + event for event in range(1, 6)}
DATABASE = DatabaseRecord(jobs=JOBS, live=0, ends={"succeeded": 5}, dead_letters={103: "resolved"})
OBSERVED = Observed(expected=5, held={104, 105}, taken_over={104, 105}, dead={103}, requeued={103})
DELIVERIES = [
    Delivery(1, 1, 200, healed=False),
    Delivery(2, 1, 503, healed=False),
    Delivery(3, 1, 500, healed=False),
    Delivery(4, 1, 200, healed=False),
    Delivery(2, 2, 200, healed=False),
    Delivery(3, 2, 500, healed=False),
    Delivery(4, 2, 200, healed=False),
    Delivery(5, 2, 200, healed=False),
    Delivery(3, 1, 200, healed=True),
]


def test_a_good_run_adds_up():
    assert reconcile(DATABASE, DELIVERIES, OBSERVED) == Ledger(
        enqueued=5, delivered=5, retried=1, recovered=2, dead=1, requeued=1, lost=0, repeated=1, problems=()
    )
    assert reconcile(DATABASE, DELIVERIES, OBSERVED).adds_up


@pytest.mark.parametrize(
    ("database", "says"),
    [
        (replace(DATABASE, live=1), "jobs that still wait or run: 1 instead of 0"),
        (replace(DATABASE, ends={"succeeded": 4}), "jobs that succeeded, as the database counted: 4 instead of 5"),
        (replace(DATABASE, ends={"succeeded": 5, "expired": 1}), "jobs that were expired: 1 instead of 0"),
        (replace(DATABASE, jobs={**JOBS, 5: 104}), "different jobs of the business rows: 4 instead of 5"),
        (replace(DATABASE, jobs={k: v for k, v in JOBS.items() if k != 1}), "business rows in the database: 4 instead of 5"),
        (replace(DATABASE, dead_letters={103: "dead"}), "dead letters that are not resolved: 1 (first: 103)"),
        (replace(DATABASE, dead_letters={}), "requeued jobs whose dead letter is gone: 1 (first: 103)"),
        (
            replace(DATABASE, dead_letters={103: "resolved", 105: "resolved"}),
            "dead letters that came after the listing: 1 (first: 105)",
        ),
    ],
)
def test_a_database_that_disagrees_is_named(database: DatabaseRecord, says: str):
    ledger = reconcile(database, DELIVERIES, OBSERVED)
    assert not ledger.adds_up
    assert says in ledger.problems


def test_an_event_that_nobody_delivered_is_lost():
    ledger = reconcile(DATABASE, [one for one in DELIVERIES if one.event_id != 1], OBSERVED)
    assert ledger.lost == 1
    assert ledger.delivered == 4
    assert "events that nobody delivered: 1 (first: 1)" in ledger.problems


def test_a_rolled_back_event_that_arrives_is_a_problem():
    ledger = reconcile(DATABASE, [*DELIVERIES, Delivery(900_001, 1, 200, healed=False)], OBSERVED)
    assert ledger.problems == ("events delivered without a committed business row: 1 (first: 900001)",)


def test_a_second_delivery_needs_a_dead_worker_as_its_reason():
    ledger = reconcile(DATABASE, [*DELIVERIES, Delivery(1, 1, 200, healed=False)], OBSERVED)
    assert ledger.repeated == 2
    assert ledger.problems == ("events delivered more than once, though no worker died with their job: 1 (first: 1)",)


def test_an_event_that_was_never_accepted_must_have_been_dead():
    ledger = reconcile(replace(DATABASE, dead_letters={}), DELIVERIES, replace(OBSERVED, dead=frozenset(), requeued=frozenset()))
    assert ledger.problems == ("events refused until the healing, but no dead letter: 1 (first: 3)",)


def test_a_dead_letter_of_an_accepted_event_needs_a_dead_worker_as_its_reason():
    dead = {103, 101}
    database = replace(DATABASE, dead_letters=dict.fromkeys(dead, "resolved"))
    ledger = reconcile(database, DELIVERIES, replace(OBSERVED, dead=dead, requeued=dead))
    assert ledger.problems == ("dead letters that the receiver had accepted: 1 (first: 1)",)
    excused = {103, 104}
    database = replace(DATABASE, dead_letters=dict.fromkeys(excused, "resolved"))
    assert reconcile(database, DELIVERIES, replace(OBSERVED, dead=excused, requeued=excused)).adds_up


def test_all_dead_letters_must_be_requeued():
    ledger = reconcile(DATABASE, DELIVERIES, replace(OBSERVED, requeued=frozenset()))
    assert "dead letters that were not requeued: 1 (first: 103)" in ledger.problems


def test_a_kill_that_hit_an_idle_worker_shows_nothing():
    ledger = reconcile(DATABASE, DELIVERIES, replace(OBSERVED, held=frozenset()))
    assert ledger.problems == ("the killed worker held no job, so nothing was shown",)
    ledger = reconcile(DATABASE, DELIVERIES, replace(OBSERVED, taken_over=frozenset()))
    assert ledger.problems == ("no job of the killed worker was given back, so nothing was shown",)
