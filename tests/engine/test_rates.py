"""Rate limits: a token bucket per rate, by the database's clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg.types.json import Jsonb

from tests.engine.limited import apply
from tests.engine.rows import Rows
from tests.rig.servers import RigDatabase
from tests.rig.waiting import eventually

HOUR = {"name": "all", "jobs": 3600, "periodSeconds": 3600, "burst": 5}


def take(
    rows: Rows,
    *wants: int,
    rates: Sequence[Sequence[str]] = (("all",),),
    back: dict[str, int] | None = None,
    limits: int | None = None,
) -> list[tuple[int, float]]:
    """Take units per class; returns what was granted and in how many seconds more is due."""
    known = limits if limits is not None else rows.value("select limits from tailrace.queue where name = 'q'")
    pairs = [(number, name) for number, names in enumerate(rates, 1) for name in names]
    found = rows.conn.execute(
        "select granted, wait from tailrace.take_rates_v1('q', %s, %s, %s, %s, %s::text[], %s::int[]) order by class",
        [known, list(wants), [n for n, _ in pairs], [name for _, name in pairs], list(back or {}), list((back or {}).values())],
    )
    return [(int(granted), float(wait)) for granted, wait in found.fetchall()]


def left(rows: Rows, name: str = "all") -> float:
    """Units in the bucket when it was last looked into."""
    return float(rows.value("select tokens from tailrace.rate where queue = 'q' and name = %s", [name]))


def age(rows: Rows, seconds: float) -> None:
    """Let the buckets be older."""
    rows.conn.execute("update tailrace.rate set at = at - %s * interval '1 s'", [seconds])


def test_a_bucket_begins_full_and_fills_with_time(rows: Rows) -> None:
    """A burst first, then a unit a second; what is not there is told as a wait."""
    apply(rows, limits={"rates": [HOUR]})
    [(granted, wait)] = take(rows, 8)
    assert granted == 5
    assert 0.9 < wait <= 1.0
    assert take(rows, 1)[0][0] == 0
    age(rows, 2.5)
    assert take(rows, 8)[0][0] == 2
    age(rows, 3600)
    assert take(rows, 8)[0][0] == 5


def test_units_that_were_not_used_come_back(rows: Rows) -> None:
    """Beside the next take; the bucket never holds more than its burst."""
    apply(rows, limits={"rates": [HOUR]})
    assert take(rows, 5) == [(5, 0.0)]
    assert take(rows, 3, back={"all": 3})[0][0] == 3
    assert take(rows, 0, back={"all": 99}, rates=((),)) == []
    assert left(rows) == 5
    assert take(rows, 2, back={"gone": 4}) == [(2, 0.0)]


def test_a_job_needs_a_unit_of_each_rate_that_names_it(rows: Rows) -> None:
    """The scarcest rate decides, and the others lose no more than that."""
    narrow = {"name": "few", "jobs": 2, "periodSeconds": 3600, "tasks": ["t"]}
    apply(rows, limits={"rates": [HOUR, narrow]})
    both = take(rows, 4, 4, rates=(("all", "few"), ("all",)))
    assert [granted for granted, _ in both] == [2, 3]
    assert both[0][1] > 1000
    assert both[1][1] < 1.1
    assert abs(left(rows)) < 0.2
    assert abs(left(rows, "few")) < 0.01


def test_nothing_is_granted_to_who_knows_other_limits(rows: Rows) -> None:
    """Exactness does not depend on when a worker hears of a change."""
    apply(rows, limits={"rates": [HOUR]})
    known = rows.value("select limits from tailrace.queue where name = 'q'")
    apply(rows, limits={"rates": [{**HOUR, "burst": 2}]})
    assert take(rows, 1, limits=known) == []
    assert take(rows, 5)[0][0] == 2


def test_a_changed_rate_keeps_what_the_bucket_holds(rows: Rows) -> None:
    """A lower burst cuts it, a higher one fills by the new rate."""
    apply(rows, limits={"rates": [HOUR]})
    take(rows, 1)
    apply(rows, limits={"rates": [{**HOUR, "burst": 100}]})
    assert take(rows, 50)[0][0] == 4


def test_a_clock_that_steps_back_gives_nothing_and_stops_nothing(rows: Rows) -> None:
    """f2, CJ-16: units come by the database's clock; after a step back they come at the rate again."""
    apply(rows, limits={"rates": [HOUR]})
    take(rows, 5)
    age(rows, -600)
    [(granted, wait)] = take(rows, 5)
    assert (granted, wait <= 1.0) == (0, True)
    age(rows, 1.1)
    assert take(rows, 5)[0][0] == 1


def test_a_fast_rate_does_not_make_workers_ask_each_millisecond(rows: Rows) -> None:
    """A wait is for some units of a fast rate, for one of a slow rate, and never past the burst."""
    apply(rows, limits={"rates": [{"name": "all", "jobs": 1000, "periodSeconds": 1, "burst": 50}]})
    take(rows, 50)
    assert 0.03 < take(rows, 100)[0][1] <= 0.05
    apply(rows, limits={"rates": [{"name": "all", "jobs": 1000, "periodSeconds": 1, "burst": 1}]})
    assert take(rows, 100)[0][1] <= 0.001


def test_takers_at_a_time_never_get_more_than_the_rate(rows: Rows, database: RigDatabase) -> None:
    """Cumulatively: what was granted is at most burst + rate x time, by the server's clock, with takers side by side."""
    apply(rows, limits={"rates": [{"name": "all", "jobs": 200, "periodSeconds": 1, "burst": 20}]})
    started = rows.value("select clock_timestamp()")
    granted = 0
    with database.connect() as second:
        takers = [rows, Rows(second)]

        def enough() -> bool:
            nonlocal granted
            for taker in takers:
                granted += take(taker, 7)[0][0]
                seconds = rows.value("select extract(epoch from clock_timestamp() - %s)::float8", [started])
                assert granted <= 20 + 200 * seconds
            return granted >= 300

        eventually(enough, 20, what="300 units")
    took = rows.value("select extract(epoch from clock_timestamp() - %s)::float8", [started])
    assert took >= (granted - 20) / 200


def test_taking_waits_for_no_application(rows: Rows, other: Rows) -> None:
    """An open apply changes no bucket, so a take goes on under the settings that are committed."""
    apply(rows, limits={"rates": [HOUR]})
    settings: dict[str, Any] = {"limits": {"rates": [{**HOUR, "burst": 1}]}}
    other.conn.execute("select tailrace.apply_queue('q', %s, 'cli')", [Jsonb(settings)])
    rows.conn.execute("set lock_timeout = '200ms'")
    assert take(rows, 3) == [(3, 0.0)]
