"""Which resource a queue belongs to: adopted, kept, taken over, orphaned, and never written by anybody else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tailrace.admin import Admin
from tailrace.db import Blocks, Database, run, translate
from tailrace.errors import Conflict, InvalidOption
from tailrace.owners import Owner, OwnerStatements, Settled
from tests.engine.rows import Rows
from tests.rig.servers import RigDatabase

WORDS = OwnerStatements(Blocks("tailrace"), "tailrace")
HERE = Owner(cluster="c1", uid="u1", namespace="team-a", name="webhooks", generation=1)
NEIGHBOUR = Owner(cluster="c1", uid="u2", namespace="team-b", name="webhooks", generation=1)
FAR = Owner(cluster="c2", uid="u3", namespace="team-a", name="webhooks", generation=1)
NIGHTLY = {"name": "nightly", "cron": "30 2 * * *", "task": "report"}


def settle(rows: Rows, owner: Owner = HERE, take_over: str | None = None, **settings: Any) -> Settled:
    return run(rows.conn, WORDS.settle(owner, "q", settings, take_over))


def at(owner: Owner, generation: int) -> Owner:
    return Owner(cluster=owner.cluster, uid=owner.uid, namespace=owner.namespace, name=owner.name, generation=generation)


def apply(rows: Rows, settings: str = "{}", manager: str = "cli") -> str:
    return str(rows.value("select tailrace.apply_queue('q', %s, %s)", [settings, manager]))


def recorded(rows: Rows) -> tuple[Any, ...]:
    found = rows.conn.execute("select owner, generation, managed_by, settings, orphaned_at is not null from tailrace.queue")
    return found.fetchall()[0]


def verbs(rows: Rows) -> list[str]:
    return [verb for (verb,) in rows.conn.execute("select verb from tailrace.audit order by id").fetchall()]


# ---- one owner -------------------------------------------------------------------------------------------------------
def test_the_first_resource_has_the_queue(rows: Rows) -> None:
    assert settle(rows, slots=3) == Settled(outcome="created", owner=HERE)
    assert recorded(rows) == (HERE.document(), 1, "controller", {"slots": 3}, False)
    assert settle(rows, at(HERE, 2), slots=4) == Settled(outcome="changed", owner=at(HERE, 2))
    assert recorded(rows) == (HERE.document(), 2, "controller", {"slots": 4}, False)


def test_an_unchanged_reconcile_writes_nothing(rows: Rows) -> None:
    settle(rows, slots=3)
    before = rows.value("select (xmin::text, ctid) from tailrace.queue")
    assert settle(rows, slots=3).outcome == "unchanged"
    assert rows.value("select (xmin::text, ctid) from tailrace.queue") == before
    assert verbs(rows) == ["apply"]


def test_a_change_that_is_not_for_the_database_moves_the_generation_on(rows: Rows) -> None:
    settle(rows, slots=3)
    assert settle(rows, at(HERE, 5), slots=3).outcome == "unchanged"
    assert recorded(rows)[1] == 5


def test_a_row_that_a_worker_made_is_nobodys(rows: Rows) -> None:
    rows.conn.execute("insert into tailrace.queue (name) values ('q')")
    assert settle(rows) == Settled(outcome="created", owner=HERE)


def test_a_queue_of_the_command_line_goes_to_its_first_resource(rows: Rows) -> None:
    """And from then on the command line is refused, with the name of the resource."""
    apply(rows, '{"a": 1}')
    assert settle(rows, b=2) == Settled(outcome="changed", owner=HERE, adopted="cli")
    for manager in ("cli", "controller"):
        with pytest.raises(psycopg.Error, match="managed by a controller for JobQueue team-a/webhooks") as caught:
            apply(rows, manager=manager)
        assert isinstance(translate(caught.value, address=""), Conflict)
    assert recorded(rows)[3] == {"b": 2}
    assert verbs(rows) == ["apply", "apply", "adopt"]


def test_what_a_controller_without_an_owner_wrote_is_adopted(rows: Rows) -> None:
    apply(rows, manager="controller")
    assert settle(rows).adopted == "controller"


# ---- several resources -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("other", [NEIGHBOUR, FAR], ids=["same cluster", "other cluster"])
def test_another_resource_is_told_who_has_the_queue(rows: Rows, other: Owner) -> None:
    settle(rows, at(HERE, 4), slots=3)
    before = recorded(rows)
    assert settle(rows, at(other, 9), slots=7) == Settled(outcome="conflicted", owner=at(HERE, 4))
    assert recorded(rows) == before
    assert settle(rows, at(HERE, 5), slots=8).outcome == "changed", "the recorded owner works on"


def test_who_names_the_owner_takes_over(rows: Rows) -> None:
    settle(rows, at(HERE, 4), slots=3)
    assert settle(rows, FAR, take_over="somebody", slots=7).outcome == "conflicted"
    assert settle(rows, FAR, take_over="u1", slots=7) == Settled(outcome="changed", owner=FAR, adopted="taken-over")
    assert settle(rows, at(HERE, 5), slots=3) == Settled(outcome="conflicted", owner=FAR)
    assert settle(rows, FAR, take_over="u1", slots=7).outcome == "unchanged", "the annotation may stay"


def test_of_many_that_come_at_once_one_has_it(rows: Rows, database: RigDatabase) -> None:
    """g2: two controllers, or eight, and a row that is not there yet."""

    def come(number: int) -> str:
        owner = Owner(cluster="c1", uid=f"u{number}", namespace="n", name="x", generation=1)
        with database.connect() as own:
            return run(own, WORDS.settle(owner, "q", {"n": number}, None)).outcome

    with ThreadPoolExecutor(8) as pool:
        outcomes = sorted(pool.map(come, range(8)))
    assert outcomes == ["conflicted"] * 7 + ["created"]
    owner, _, _, settings, _ = recorded(rows)
    assert owner["uid"] == f"u{settings['n']}"


# ---- generations -----------------------------------------------------------------------------------------------------
def test_a_controller_that_slept_writes_nothing_old(rows: Rows) -> None:
    """A paused leader wakes with the resource of before."""
    settle(rows, at(HERE, 7), slots=7)
    assert settle(rows, at(HERE, 6), slots=6) == Settled(outcome="stale", owner=at(HERE, 7))
    assert recorded(rows)[3] == {"slots": 7}


def test_a_new_release_may_write_the_same_generation_anew(rows: Rows) -> None:
    settle(rows, at(HERE, 7), slots=7)
    assert settle(rows, at(HERE, 7), slots=7, more=1).outcome == "changed"


def test_after_a_restore_of_the_cluster_an_older_generation_can_be_told(rows: Rows) -> None:
    settle(rows, at(HERE, 9), slots=9)
    assert settle(rows, at(HERE, 7), take_over="u1", slots=7) == Settled(outcome="changed", owner=at(HERE, 7))


# ---- orphans ---------------------------------------------------------------------------------------------------------
def orphan(rows: Rows, owner: Owner = HERE) -> bool:
    return run(rows.conn, WORDS.orphan("q", owner))


def test_a_queue_without_its_resource_keeps_all_but_its_schedules(rows: Rows) -> None:
    settle(rows, schedules=[NIGHTLY], jobDefaults={"priority": 3}, stopPolicy="Hold")
    waiting = rows.job()
    dead = rows.value("select tailrace.add_dead_letter('q', 't', '{}')")
    assert rows.value("select count(*) from tailrace.schedule") == 1
    assert orphan(rows) is True
    assert rows.value("select count(*) from tailrace.schedule") == 0
    assert recorded(rows)[3:] == ({"jobDefaults": {"priority": 3}, "stopPolicy": "Hold"}, True)
    assert rows.row(waiting) is not None
    assert rows.dead(dead) is not None
    assert rows.value("select held from tailrace.queue"), "a hold is not ended by a deletion"
    rows.value("select tailrace.sync_schedules_v1()")
    assert rows.value("select count(*) from tailrace.schedule") == 0, "nobody brings them back"
    assert orphan(rows) is False, "once is enough"
    assert verbs(rows)[-1] == "orphan"


def test_people_see_whose_a_queue_is_and_that_its_owner_is_gone(rows: Rows, place: Database) -> None:
    settle(rows, at(HERE, 9))
    queues = Admin(place).queues
    shown = queues.show("q")
    assert (shown.owner, shown.generation, shown.orphaned_at, shown.managed_by) == (HERE.document(), 9, None, "controller")
    orphan(rows)
    assert queues.show("q").orphaned_at is not None


def test_only_the_recorded_owner_can_be_gone(rows: Rows) -> None:
    """The queue was taken over, or the resource made again, while somebody still looked for the old one."""
    settle(rows, schedules=[NIGHTLY])
    assert not orphan(rows, NEIGHBOUR)
    assert not run(rows.conn, WORDS.orphan("unheard of", HERE))
    assert rows.value("select count(*) from tailrace.schedule") == 1


def test_the_next_resource_has_an_orphaned_queue(rows: Rows) -> None:
    settle(rows, at(HERE, 9), schedules=[NIGHTLY])
    orphan(rows)
    assert settle(rows, FAR, schedules=[NIGHTLY]) == Settled(outcome="changed", owner=FAR, adopted="orphaned")
    assert recorded(rows)[4] is False
    assert rows.value("select count(*) from tailrace.schedule") == 1


def test_the_same_resource_comes_back(rows: Rows) -> None:
    settle(rows, schedules=[NIGHTLY])
    orphan(rows)
    assert settle(rows, schedules=[NIGHTLY]) == Settled(outcome="changed", owner=HERE)
    assert recorded(rows)[4] is False


def test_the_command_line_may_have_an_orphaned_queue(rows: Rows) -> None:
    """Whoever leaves Kubernetes is not locked out of his queue."""
    settle(rows, a=1)
    orphan(rows)
    assert apply(rows, '{"b": 2}') == "changed"
    assert recorded(rows) == (None, None, "cli", {"b": 2}, False)


# ---- refusals --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("owner", "settings", "field"),
    [
        (Owner(cluster="", uid="u", namespace="n", name="x", generation=1), {}, "owner"),
        (Owner(cluster="c", uid="u" * 254, namespace="n", name="x", generation=1), {}, "owner"),
        (at(HERE, -1), {}, "generation"),
        (HERE, {"stopPolicy": "Maybe"}, "stopPolicy"),
        (HERE, {"schedules": "never"}, "spec.schedules"),
    ],
)
def test_wrong_settings_are_refused_by_field(rows: Rows, owner: Owner, settings: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        settle(rows, owner, None, **settings)
    assert caught.value.field == field
    assert rows.value("select count(*) from tailrace.queue") == 0


@pytest.mark.parametrize("odd", ["q'; drop table tailrace.canary; --", '"', "' OR '1'='1", "tailrace.queue", "%s %(x)s"])
def test_odd_names_are_data(rows: Rows, odd: str) -> None:
    """l1: names of queues and owners, uids in annotations."""
    rows.conn.execute("create table tailrace.canary (n int)")
    owner = Owner(cluster=odd, uid=odd, namespace=odd, name=odd, generation=1)
    assert run(rows.conn, WORDS.settle(owner, odd, {odd: odd}, odd)).owner == owner
    assert [one.queue for one in run(rows.conn, WORDS.owned(odd))] == [odd]
    assert run(rows.conn, WORDS.facts([odd]))[odd].owner == owner
    assert run(rows.conn, WORDS.orphan(odd, owner))
    assert run(rows.conn, WORDS.gone(odd, reason=odd, interrupted=True)).known is False
    assert rows.value("select count(*) from tailrace.canary") == 0


# ---- what is asked ---------------------------------------------------------------------------------------------------
def test_the_queues_of_a_cluster_are_listed(rows: Rows) -> None:
    for name, owner in (("b", HERE), ("a", NEIGHBOUR), ("c", FAR)):
        run(rows.conn, WORDS.settle(owner, name, {}, None))
    rows.conn.execute("insert into tailrace.queue (name) values ('nobodys')")
    run(rows.conn, WORDS.orphan("b", HERE))
    found = run(rows.conn, WORDS.owned("c1"))
    assert [(one.queue, one.owner, one.orphaned) for one in found] == [("a", NEIGHBOUR, False), ("b", HERE, True)]


def test_facts_have_the_reading_the_owner_and_the_workers(rows: Rows) -> None:
    settle(rows, stopPolicy="Hold")
    rows.worker("one")
    rows.worker("two")
    rows.worker("gone", until=-1)
    rows.conn.execute("update tailrace.worker set version = '0.2' where id = 'two'")
    ready = rows.job()
    rows.conn.execute("select tailrace.add_dead_letter('q', 't', '{}')")
    rows.value("select tailrace.statistics_v1()")
    facts = run(rows.conn, WORDS.facts(["q", "unheard of"]))
    assert list(facts) == ["q"]
    found = facts["q"]
    assert (found.owner, found.orphaned, found.held) == (HERE, False, True)
    assert found.workers == {"1": 1, "0.2": 1}
    assert found.reading.counts["held"] == 1
    assert found.reading.counts["dead"] == 1
    assert found.oldest_dead_at is not None
    assert found.read_at is not None
    assert found.oldest_ready_at is None, "it is held"
    assert rows.row(ready) is not None


def test_facts_before_the_first_reading(rows: Rows) -> None:
    rows.conn.execute("insert into tailrace.queue (name, settings) values ('q', %s)", [Jsonb({})])
    found = run(rows.conn, WORDS.facts(["q"]))["q"]
    assert (found.owner, found.read_at, found.oldest_dead_at, found.workers) == (None, None, None, {})
    assert found.reading.load() is None
