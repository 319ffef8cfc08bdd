"""When schedules fire: crontab lines in time zones, through both changes of the clock, and periods."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import InvalidOption
from tailrace.schedules.times import Cron, Every, Timing, timing_of

BERLIN = "Europe/Berlin"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def first(timing: Timing, after: str, n: int) -> list[str]:
    found = itertools.islice(timing.ticks(utc(after)), n)
    return [tick.strftime("%Y-%m-%d %H:%M") for tick in found]


# ---- the clock leaps over an hour: Berlin, 2026-03-29, 02:00 CET is 03:00 CEST (01:00 UTC) --------------------------
def test_a_fixed_time_in_the_gap_fires_right_after_it() -> None:
    """CJ-21: the day's run is neither lost nor doubled."""
    daily = Cron("30 2 * * *", BERLIN)
    assert first(daily, "2026-03-28 00:00", 4) == ["2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30", "2026-03-31 00:30"]
    assert first(daily, "2026-03-29 00:59:59", 2) == ["2026-03-29 01:00", "2026-03-30 00:30"]
    assert first(daily, "2026-03-29 01:00", 1) == ["2026-03-30 00:30"], "it has fired; the same tick does not come again"


def test_lines_that_go_by_elapsed_time_know_no_gap() -> None:
    assert first(Cron("0 * * * *", BERLIN), "2026-03-29 00:00", 3) == ["2026-03-29 01:00", "2026-03-29 02:00", "2026-03-29 03:00"]
    assert first(Cron("*/30 * * * *", BERLIN), "2026-03-29 00:15", 3) == [
        "2026-03-29 00:30",
        "2026-03-29 01:00",
        "2026-03-29 01:30",
    ]
    assert first(Every(3600), "2026-03-29 00:00", 2) == ["2026-03-29 01:00", "2026-03-29 02:00"]


def test_an_hour_that_is_not_there_is_left_out_by_such_a_line() -> None:
    """As in Debian's cron: `*/30 2` goes by elapsed time, and there is no hour 2 that day."""
    assert first(Cron("*/30 2 * * *", BERLIN), "2026-03-28 02:00", 2) == ["2026-03-30 00:00", "2026-03-30 00:30"]


# ---- the clock repeats an hour: Berlin, 2026-10-25, 03:00 CEST is 02:00 CET (01:00 UTC) -----------------------------
def test_a_fixed_time_in_the_repeated_hour_fires_once() -> None:
    """CJ-21: 02:30 comes twice that night; the first one counts, wherever the search begins."""
    daily = Cron("30 2 * * *", BERLIN)
    assert first(daily, "2026-10-24 12:00", 3) == ["2026-10-25 00:30", "2026-10-26 01:30", "2026-10-27 01:30"]
    for after in ("2026-10-25 00:30", "2026-10-25 00:45", "2026-10-25 01:00", "2026-10-25 01:10", "2026-10-25 01:29:59"):
        assert first(daily, after, 1) == ["2026-10-26 01:30"], after


def test_lines_that_go_by_elapsed_time_fire_in_both_hours() -> None:
    hourly = ["2026-10-25 00:00", "2026-10-25 01:00", "2026-10-25 02:00"]
    assert first(Cron("0 * * * *", BERLIN), "2026-10-24 23:30", 3) == hourly
    assert first(Every(3600), "2026-10-24 23:30", 3) == hourly
    assert first(Cron("*/30 2 * * *", BERLIN), "2026-10-24 23:30", 5)[:4] == [
        "2026-10-25 00:00", "2026-10-25 00:30", "2026-10-25 01:00", "2026-10-25 01:30",
    ]  # fmt: skip


def test_a_change_of_half_an_hour() -> None:
    """Lord Howe Island: on 2026-04-05 02:00 is 01:30 again; 01:45 fires once."""
    found = first(Cron("45 1 * * *", "Australia/Lord_Howe"), "2026-04-03 15:00", 3)
    assert found == ["2026-04-04 14:45", "2026-04-05 15:15", "2026-04-06 15:15"]


# ---- both together --------------------------------------------------------------------------------------------------
ZONES = ["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Kathmandu", "Africa/Casablanca"]
LINES = ["30 2 * * *", "0 0 * * *", "0,30 1-3 * * *", "*/7 * * * *", "0 */2 * * *", "*/20 2 * * *", "15 2 * * SUN", "59 23 L * *"]


@settings(deadline=None, max_examples=150)
@given(
    line=st.sampled_from(LINES),
    zone=st.sampled_from(ZONES),
    start=st.datetimes(min_value=datetime(2025, 1, 1), max_value=datetime(2027, 12, 31)),  # noqa: DTZ001 - made aware below
)
def test_ticks_always_go_on(line: str, zone: str, start: datetime) -> None:
    """Each is later than the one before and than the moment asked for, and asking again from any of them gives the next."""
    after = start.replace(tzinfo=UTC)
    found = list(itertools.islice(Cron(line, zone).ticks(after), 40))
    assert all(early < late for early, late in itertools.pairwise([after, *found]))
    assert next(Cron(line, zone).ticks(found[10])) == found[11]
    assert next(Cron(line, zone).ticks(found[10] + timedelta(microseconds=1))) == found[11]


def test_a_fixed_daily_time_fires_once_a_day_all_year() -> None:
    """365 days, 365 runs, each on its own day, in zones with and without changes of the clock."""
    for zone in ZONES:
        found = list(itertools.islice(Cron("30 2 * * *", zone).ticks(utc("2026-01-01 00:00")), 365))
        days = {tick.astimezone(ZoneInfo(zone)).date() for tick in found}
        assert len(days) == 365, zone


def test_periods_are_counted_from_1970_whoever_restarts_when() -> None:
    assert first(Every(86_400), "2026-11-28 13:07", 2) == ["2026-11-29 00:00", "2026-11-30 00:00"]
    assert first(Every(7), "1970-01-01 00:00:13.999999", 1) == ["1970-01-01 00:00"]
    assert next(Every(7).ticks(utc("1970-01-01 00:00:14"))) == utc("1970-01-01 00:00:21")


# ---- what is refused ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("cron", "every", "zone", "field", "problem"),
    [
        (None, None, None, "cron", "exactly one"),
        ("* * * * *", 5, None, "cron", "exactly one"),
        ("* * * *", None, None, "cron", "five fields"),
        ("* * * * * *", None, None, "cron", "five fields"),
        ("@daily", None, None, "cron", "five fields"),
        (5, None, None, "cron", "five fields"),
        ("60 * * * *", None, None, "cron", "no crontab line: bad minute"),
        ("* 24 * * *", None, None, "cron", "bad hour"),
        ("* * * JANUARY *", None, None, "cron", "bad month"),
        ("*/0 * * * *", None, None, "cron", "bad minute"),
        ("0 0 31 2 *", None, None, "cron", "bad day"),
        ("* * * * *", None, "Mars/Olympus", "timeZone", "IANA"),
        ("* * * * *", None, "", "timeZone", "IANA"),
        ("* * * * *", None, "../../etc/passwd", "timeZone", "IANA"),
        ("* * * * *", None, "localtime", "timeZone", "IANA"),
        ("* * * * *", None, 3, "timeZone", "IANA"),
        (None, 0, None, "everySeconds", "whole number"),
        (None, 1.5, None, "everySeconds", "whole number"),
        (None, True, None, "everySeconds", "whole number"),
        (None, 31_622_401, None, "everySeconds", "whole number"),
    ],
)
def test_what_cannot_fire_is_refused_by_field(cron: object, every: object, zone: object, field: str, problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem) as refused:
        timing_of(cron, every, zone)
    assert refused.value.field == field


def test_blanks_do_not_count() -> None:
    assert timing_of(" 0  2 * *   * ", None, None) == Cron("0 2 * * *")
