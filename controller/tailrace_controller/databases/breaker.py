"""A breaker: what has just failed is not tried again at once, by nobody.

Pure, with clock and random number given. `pool` has one for each database and one for each login, so that a database that
is away costs the reconciles of its queues an instant instead of a connect timeout, and those of others nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Final

from tailrace.errors import DatabaseUnavailable

__all__ = ["Breaker"]

_MOST_DOUBLINGS: Final = 10


class Breaker:
    """Refuses for a while after a failure; the pause doubles with each further one."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        jitter: Callable[[], float],
        first_seconds: float,
        longest_seconds: float,
        trial_seconds: float,
    ) -> None:
        """Begin closed: everything may be tried.

        Args:
            clock: Seconds that only go forward.
            jitter: A random number in [0, 1).
            first_seconds: The pause after the first failure.
            longest_seconds: The longest pause.
            trial_seconds: After a pause one may try; the others wait for him so long at most.
        """
        self._clock, self._jitter = clock, jitter
        self._first, self._longest, self._trial = first_seconds, longest_seconds, trial_seconds
        self._error: DatabaseUnavailable | None = None
        self._until = 0.0
        self.failures = 0
        """Failures since the last success."""

    @property
    def error(self) -> DatabaseUnavailable | None:
        """The last failure; None when the last try succeeded."""
        return self._error

    def peek(self) -> None:
        """Pass, or refuse with the last failure; for those who will wait for their turn and `check` then.

        Raises:
            DatabaseUnavailable: It failed a moment ago.
        """
        if self._error is not None and self._clock() < self._until:
            raise copy.copy(self._error)

    def check(self) -> None:
        """Pass or refuse as `peek`; who passes after a pause is the one that tries, and must report what came of it.

        Raises:
            DatabaseUnavailable: It failed a moment ago, or somebody is just trying.
        """
        self.peek()
        if self._error is not None:
            self._until = self._clock() + self._trial

    def failed(self, error: DatabaseUnavailable) -> None:
        """Note a failure.

        Args:
            error: What it was; whoever is refused is told the same.
        """
        self.failures += 1
        pause = min(self._longest, self._first * 2.0 ** min(self.failures - 1, _MOST_DOUBLINGS))
        self._error = copy.copy(error)  # without its traceback, which would keep frames alive
        self._until = self._clock() + pause * (0.75 + 0.5 * self._jitter())

    def worked(self) -> None:
        """Note a success: everything may be tried again."""
        self._error, self.failures = None, 0
