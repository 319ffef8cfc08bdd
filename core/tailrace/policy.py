"""Pure rules: how long a failed job waits, and the names of priorities.

The SQL function `backoff_v1` computes the same waits for jobs whose worker died; a test compares the two.
Neighbours: `task` (a decorator's policy), `enqueue` (a job's own policy), the worker's run of a job.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Literal

from tailrace.errors import InvalidOption, duration_seconds

Strategy = Literal["exponential", "fixed", "full_jitter"]
OnDuplicate = Literal["skip", "replace", "preserve_run_at", "after"]
GroupOrder = Literal["due", "strict"]

STRATEGIES: Final[tuple[Strategy, ...]] = ("exponential", "fixed", "full_jitter")
ON_DUPLICATE: Final[tuple[OnDuplicate, ...]] = ("skip", "replace", "preserve_run_at", "after")
LOWEST_PRIORITY: Final = -1000
HIGHEST_PRIORITY: Final = 1000
MOST_ATTEMPTS: Final = 2_147_483_647
# 2 ** 60 s is far beyond any cap; the bound keeps attempt 10,000 from overflowing.
_HIGHEST_EXPONENT: Final = 60
_FULL_JITTER_FLOOR_SECONDS: Final = 1.0


class Priority(IntEnum):
    """Named priorities; any int from -1000 to 1000 is one, and higher runs first."""

    EMERGENCY = 20
    """Before everything."""
    FAST_HIGH = 10
    """Somebody waits for it."""
    FAST_DEFAULT = 5
    """Soon."""
    BULK_DEFAULT = 0
    """The default."""
    BULK_LOW = -5
    """Behind the ordinary."""
    BULK_LOWEST = -10
    """When nothing else is left."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How often a job runs, and how long it waits after a failed run.

    Args:
        max_attempts: runs in total, those that end by error, timeout or crash; at least 1.
        base: seconds before the second run.
        cap: the longest wait in seconds, before jitter.
        strategy: `exponential` (base, 2 base, 4 base, ...), `fixed` (always base) or `full_jitter`
            (anything from 1 s up to the exponential wait).
        jitter: share by which a wait varies up and down, 0 to 1; `full_jitter` does not use it.

    Raises:
        InvalidOption: a field is out of its range.
    """

    max_attempts: int = 5
    base: float = 5
    cap: float = 900
    strategy: Strategy = "exponential"
    jitter: float = 0.2

    def __post_init__(self) -> None:
        check_max_attempts(self.max_attempts, field="retry.max_attempts")
        for name in ("base", "cap"):
            object.__setattr__(self, name, duration_seconds(getattr(self, name), field=f"retry.{name}"))
        if self.strategy not in STRATEGIES:
            raise InvalidOption(f"must be one of {', '.join(STRATEGIES)}", field="retry.strategy", hint="See RetryPolicy")
        jitter: object = self.jitter
        if not isinstance(jitter, (int, float)) or isinstance(jitter, bool) or not 0 <= jitter <= 1:
            raise InvalidOption("must be a share from 0 to 1", field="retry.jitter", hint="0.2 varies by 20 % up and down")

    def delay(self, n: int, *, random: Callable[[], float] = _random.random) -> float:
        """Seconds to wait after the n-th run has failed.

        Args:
            n: the number of the run that failed, counted from 1.
            random: gives a number from 0 up to 1.
        """
        exponent = 0 if self.strategy == "fixed" else min(max(n, 1) - 1, _HIGHEST_EXPONENT)
        wait = min(self.cap, self.base * 2.0**exponent)
        if self.strategy == "full_jitter":
            return max(_FULL_JITTER_FLOOR_SECONDS, wait * random())
        return wait * (1 + self.jitter * (2 * random() - 1))

    def as_json(self) -> dict[str, Any]:
        """The backoff as the column `backoff` keeps it (without max_attempts, which has a column of its own)."""
        return {"strategy": self.strategy, "base": self.base, "cap": self.cap, "jitter": self.jitter}

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None, *, max_attempts: int = 5) -> RetryPolicy:
        """Read what `as_json` wrote; None is the default policy, and a missing field its default."""
        known = {name: value[name] for name in ("strategy", "base", "cap", "jitter") if name in value} if value else {}
        return cls(max_attempts=max_attempts, **known)

    @classmethod
    def fast(cls) -> RetryPolicy:
        """Three runs within a second: for work that is worthless later."""
        return cls(max_attempts=3, base=0.1, cap=30, jitter=0.1)

    @classmethod
    def aggressive(cls) -> RetryPolicy:
        """Twelve runs, from half a second up to ten minutes apart."""
        return cls(max_attempts=12, base=0.5, cap=600, jitter=0.15)

    @classmethod
    def conservative(cls) -> RetryPolicy:
        """Five runs, up to half an hour apart: for receivers that must not be pressed."""
        return cls(max_attempts=5, base=5, cap=1800, jitter=0.2)


def check_max_attempts(value: object, *, field: str = "max_attempts") -> int:
    """Return a number of runs, or refuse it with `InvalidOption`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidOption(f"must be a whole number, not {type(value).__name__}", field=field, hint="Give 1 or more")
    if not 1 <= value <= MOST_ATTEMPTS:
        raise InvalidOption("must be at least 1", field=field, hint="It counts all runs, the first one too")
    return value


def check_priority(value: object, *, field: str = "priority") -> int:
    """Return a priority, or refuse it with `InvalidOption`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidOption(f"must be a whole number, not {type(value).__name__}", field=field, hint="Higher runs first")
    if not LOWEST_PRIORITY <= value <= HIGHEST_PRIORITY:
        raise InvalidOption("must be between -1000 and 1000", field=field, hint="Higher runs first")
    return int(value)


def check_group_order(value: object) -> GroupOrder:
    """Return the order of a group's members, or refuse it with `InvalidOption`.

    Args:
        value: `due`: what is due goes on while a failed member waits; `strict`: the group waits with it.
    """
    if value == "due":
        return "due"
    if value == "strict":
        return "strict"
    raise InvalidOption("must be due or strict", field="group_order", hint="strict waits for the retry of a failed member")
