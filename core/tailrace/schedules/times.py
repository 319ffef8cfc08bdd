"""When a schedule fires: a crontab line in a time zone, or a period. Pure; nothing here knows the present.

Crontab lines are read by cronsim, which follows Debian's cron through changes of the clock. Whoever accepts a schedule checks
it here, and the runner finds its ticks here. Neighbours: `plan`, `queue_spec.schedule`, `declared`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from tailrace.errors import InvalidOption

__all__ = ["LONGEST_PERIOD_SECONDS", "Cron", "Every", "Timing", "check_zone", "timing_of"]

LONGEST_PERIOD_SECONDS: Final = 31_622_400
"""A leap year."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXAMPLE: Final = "such as '30 2 * * *'"


@dataclass(frozen=True, slots=True)
class Cron:
    """A crontab line: minute, hour, day of month, month, day of week.

    As in Debian's cron: a line with a fixed hour and minute fires once a day, also when the clock repeats the hour, and right
    after the gap when the clock leaps over it; a line whose minute or hour begins with * goes by elapsed time.

    Attributes:
        line: The five fields.
        zone: The time zone's name in the IANA database.
    """

    line: str
    zone: str = "UTC"

    def ticks(self, after: datetime) -> Iterator[datetime]:
        """Yield its ticks after a moment, in order and in UTC, without end.

        Args:
            after: An aware time; a tick at this very time is not yielded.
        """
        last = after
        for tick in CronSim(self.line, after.astimezone(_zone(self.zone))):
            moment = tick.astimezone(UTC)
            if moment > last:  # in the repeated hour of autumn the line's own time can be one that has passed
                last = moment
                yield moment


@dataclass(frozen=True, slots=True)
class Every:
    """A period. Its ticks are the multiples of it since 1970 in UTC, so restarts do not move them.

    Attributes:
        seconds: The period.
    """

    seconds: int

    def ticks(self, after: datetime) -> Iterator[datetime]:
        """Yield its ticks after a moment, in order and in UTC, without end.

        Args:
            after: An aware time; a tick at this very time is not yielded.
        """
        period = timedelta(seconds=self.seconds)
        tick = _EPOCH + ((after - _EPOCH) // period + 1) * period
        while True:
            yield tick
            tick += period


Timing = Cron | Every


def timing_of(cron: object, every_seconds: object, time_zone: object, *, field: str = "") -> Timing:
    """Return when a schedule fires, or say what is wrong with it.

    Args:
        cron: A crontab line or None.
        every_seconds: A period or None.
        time_zone: Its zone; None is UTC.
        field: Put before the names of fields.

    Raises:
        InvalidOption: It names the field: cron, everySeconds or timeZone.
    """
    if (cron is None) == (every_seconds is None):
        raise InvalidOption(
            "exactly one of cron and everySeconds must be set", field=field + "cron", hint="remove one or add one"
        )
    zone = check_zone("UTC" if time_zone is None else time_zone, field=field + "timeZone")
    if every_seconds is not None:
        return Every(_check_period(every_seconds, field=field + "everySeconds"))
    return Cron(_check_line(cron, field=field + "cron"), zone)


def check_zone(name: object, *, field: str) -> str:
    """Return the name of a time zone.

    Args:
        name: Such as Europe/Berlin.
        field: For the message.

    Raises:
        InvalidOption: There is no such zone.
    """
    try:
        if isinstance(name, str) and name != "localtime":  # that one is another on each machine
            _zone(name)
            return name
    except (KeyError, ValueError, OSError):
        pass
    raise InvalidOption("must be a name of the IANA database", field=field, hint="such as Europe/Berlin")


def _check_line(line: object, *, field: str) -> str:
    if not isinstance(line, str) or len(line.split()) != 5:
        raise InvalidOption("must have five fields (minute, hour, day of month, month, day of week)", field=field, hint=_EXAMPLE)
    text = " ".join(line.split())
    try:
        if next(CronSim(text, datetime.now(UTC)), None) is not None:
            return text
    except CronSimError as problem:
        raise InvalidOption(f"is no crontab line: {str(problem).lower()}", field=field, hint=_EXAMPLE) from None
    raise InvalidOption("names a date that does not come within 50 years", field=field, hint=_EXAMPLE)


def _check_period(seconds: object, *, field: str) -> int:
    if isinstance(seconds, int) and not isinstance(seconds, bool) and 1 <= seconds <= LONGEST_PERIOD_SECONDS:
        return seconds
    raise InvalidOption(f"must be a whole number from 1 to {LONGEST_PERIOD_SECONDS}", field=field, hint="give seconds")


@functools.cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
