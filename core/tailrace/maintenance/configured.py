"""What all routines have alike: settings that are checked, and the name and period that come from them.

A routine is a file with a `RoutineConfig` and a `ConfiguredRoutine` of its own; `routine` says what the loop asks of it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Final, Generic, TypeVar

from tailrace.errors import InvalidOption

__all__ = ["ConfiguredRoutine", "RoutineConfig"]

MIN_INTERVAL_SECONDS: Final = 1.0
LONGEST_INTERVAL_SECONDS: Final = 86_400.0


def check_interval(routine: str, seconds: float) -> None:
    """Refuse a period that would stop or spin the loop.

    Args:
        routine: For the message.
        seconds: The period.

    Raises:
        InvalidOption: It is not between 1 s and a day.
    """
    if not MIN_INTERVAL_SECONDS <= seconds <= LONGEST_INTERVAL_SECONDS:
        raise InvalidOption(
            f"{seconds:g} is not between 1 and 86400 seconds",
            field=f"{routine}.interval_seconds",
            hint="Give a period of 1 s or more",
        )


def check_positive(routine: str, **numbers: float) -> None:
    """Refuse sizes and budgets that are not above 0.

    Args:
        routine: For the message.
        numbers: Fields by name.

    Raises:
        InvalidOption: One of them is 0 or less.
    """
    for name, value in numbers.items():
        if not value > 0:
            raise InvalidOption(f"{value:g} is not above 0", field=f"{routine}.{name}", hint="Leave it out for the default")


@dataclass(frozen=True, kw_only=True)
class RoutineConfig:
    """Settings of a routine: its period, and numbers above 0.

    Raises:
        InvalidOption: A field is out of its range.
    """

    routine: ClassVar[str]
    interval_seconds: float = 60.0
    """Seconds between two runs."""

    def __post_init__(self) -> None:
        """Check the fields."""
        numbers = {field.name: getattr(self, field.name) for field in fields(self)}
        check_interval(self.routine, numbers.pop("interval_seconds"))
        check_positive(self.routine, **numbers)


C = TypeVar("C", bound=RoutineConfig)


class ConfiguredRoutine(Generic[C]):
    """What all routines have: their settings, and the name and period in them."""

    config_type: type[C]

    def __init__(self, config: C | None = None) -> None:
        """Keep the settings.

        Args:
            config: Default: those of its type.
        """
        self.config = config or self.config_type()

    @property
    def name(self) -> str:
        """Its name, as `Routine` says."""
        return self.config.routine

    @property
    def interval_seconds(self) -> float:
        """Its period, in seconds."""
        return self.config.interval_seconds
