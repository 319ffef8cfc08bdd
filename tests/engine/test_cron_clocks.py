"""Schedules while the server's clock is set, and through real changes of the clock in a time zone: only its time decides."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.chaos.clocks import Clock
from tests.engine.rows import Rows
from tests.engine.timetable import Timetable
from tests.rig.servers import Server
from tests.rig.waiting import eventually


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, private_server: Server) -> Clock:
    """The clock of the private server."""
    folder = Path(tempfile.mkdtemp(prefix="tailrace-clock-"))
    folder.chmod(0o755)
    made = Clock(folder / "offset")
    with monkeypatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        private_server.postgres.restart()
    return made


@pytest.fixture
def times(private_server: Server, clock: Clock) -> Iterator[Timetable]:
    """A database on that server."""
    database = private_server.migrated()
    with database.connect() as conn:
        yield Timetable(Rows(conn), database)


@pytest.fixture
def set_to(times: Timetable, clock: Clock) -> Callable[[str], None]:
    """Set the server's clock to a time in UTC, a moment ago."""

    def change(text: str) -> None:
        wanted = datetime.fromisoformat(text).replace(tzinfo=UTC)
        clock.set(int((wanted - datetime.now(UTC)).total_seconds()) + 1)
        shown = times.rows.value("select clock_timestamp()")
        assert abs((shown - wanted).total_seconds()) < 3, shown

    return change


def ticks(times: Timetable, name: str) -> list[str]:
    return [job["meta"]["tick"] for job in times.jobs(name)]


def test_a_clock_that_is_set_fires_nothing_twice(times: Timetable, clock: Clock) -> None:
    """FQ-10, CJ-21: forward by five minutes and back, and far ahead and back; then it goes on by the right time."""
    times.apply({"name": "a", "everySeconds": 1, "overlap": "Allow"})
    times.past("a", 5)
    assert times.run()["fired"] in range(5, 9)
    clock.set(300)
    counts = times.run()
    assert counts["fired"] in range(58, 66)
    assert counts["missed"] in range(235, 245)
    clock.set(0)
    assert times.run() == {}
    clock.set(86_400)
    assert times.run()["fired"] in range(58, 66)
    clock.set(0)
    counts = times.run()
    assert counts.pop("fired", 0) <= 2, "a second may have passed by the right time"
    assert counts == {"changed": 1}
    assert times.row("a")["ago"] < 5
    eventually(lambda: times.run().get("fired"), what="a tick by the right time")
    found = ticks(times, "a")
    assert len(set(found)) == len(found)


def test_the_hour_that_comes_twice(times: Timetable, set_to: Callable[[str], None]) -> None:
    """CJ-21: 02:30 in Berlin on 2026-10-25 is fired at its first coming only; what goes by elapsed time is fired in both."""
    set_to("2026-10-24 23:58:00")
    times.apply(
        {"name": "daily", "cron": "30 2 * * *", "timeZone": "Europe/Berlin", "overlap": "Allow"},
        {"name": "hourly", "cron": "5 * * * *", "timeZone": "Europe/Berlin", "overlap": "Allow"},
    )
    for now in (
        "2026-10-25 00:05:01",
        "2026-10-25 00:30:01",
        "2026-10-25 01:05:01",
        "2026-10-25 01:30:01",
        "2026-10-26 01:30:01",
    ):
        times.run()
        set_to(now)
        times.run()
    assert ticks(times, "daily") == ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
    assert ticks(times, "hourly") == ["2026-10-25T00:05:00Z", "2026-10-25T01:05:00Z"]


def test_the_hour_that_does_not_come(times: Timetable, set_to: Callable[[str], None]) -> None:
    """CJ-21: 02:30 in Berlin on 2027-03-28 is fired right after the gap, once."""
    set_to("2027-03-28 00:58:00")
    times.apply({"name": "daily", "cron": "30 2 * * *", "timeZone": "Europe/Berlin", "overlap": "Allow"})
    for now in ("2027-03-28 01:00:01", "2027-03-28 01:30:01", "2027-03-29 00:30:01"):
        times.run()
        set_to(now)
        times.run()
    assert ticks(times, "daily") == ["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]
