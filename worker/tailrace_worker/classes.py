"""Tasks that are limited alike, what is remembered of each such class, and how settings sort tasks into them.

limits.py keeps the classes of one queue.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tailrace_worker.floors import Floors

if TYPE_CHECKING:
    from tailrace_worker.rescan import Rescan

PAUSES: Final = (0.05, 1.0)
"""The first and the longest wait in seconds before a taken limit is asked for again, when no job ended here meanwhile."""
FREED: Final = -1.0
"""A moment that is over on any clock."""


class Rest:
    """When to ask again for what was taken: at once when a job ended here, else after a wait that grows."""

    __slots__ = ("_pause", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self._pause = PAUSES[0]

    def taken(self, now: float, *, some: bool) -> None:
        """It is taken; `some`: this claim still got a part of it."""
        if some:
            self._pause = PAUSES[0]
        self.until = now + self._pause * random.uniform(0.8, 1.2)
        self._pause = min(PAUSES[1], 2 * self._pause)

    def wait(self, until: float) -> None:
        """It is free again at a moment that is known."""
        self.until = until

    def freed(self) -> None:
        """A job ended here: if one is waited for, ask again now."""
        self._pause = PAUSES[0]
        if self.until:
            self.until = FREED

    def end(self) -> None:
        """It is not taken."""
        self._pause, self.until = PAUSES[0], 0.0


@dataclass(eq=False)
class TaskClass:
    """Tasks that are limited alike.

    Attributes:
        tasks: Their names.
        name: The limit that only they have; None for none.
        most: How many of them run at a time.
        rates: The rates that each of their jobs needs a unit of.
        floors: How far their jobs have been examined.
        stragglers: Their jobs below the floors.
        rest: When to ask for them again.
        rescan: Looks below the floors; None for the first class, whose rescan is the queue's.
        due_at: When more units of their rates are due than were granted last.
    """

    tasks: tuple[str, ...]
    name: str | None = None
    most: int | None = None
    rates: tuple[str, ...] = ()
    floors: Floors = field(default_factory=Floors)
    stragglers: deque[int] = field(default_factory=deque)
    rest: Rest = field(default_factory=Rest)
    rescan: Rescan | None = None
    due_at: float = 0.0


@dataclass
class Limited:
    """What one exchange may take of each class.

    Attributes:
        shares: Jobs without a group.
        members: Members of groups.
        ids: The jobs of `Ask.ids`, by class.
        took: Units of rates were taken for them.
        params: Of the statements, as they were when this was decided.
        version: Of the limits then.
        plain: Rates are all that limits the queue, and they count every task: the claim is any other's, of as many jobs as units.
    """

    shares: list[int] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    ids: list[tuple[TaskClass, list[int]]] = field(default_factory=list)
    took: bool = False
    params: dict[str, Any] = field(default_factory=dict)
    version: int = 0
    plain: bool = False


Kind = tuple[str | None, tuple[str, ...]]
"""What tasks that are limited alike have in common: a limit of their own, and rates that name them."""


def sort_out(settings: Mapping[str, Any], tasks: Sequence[str]) -> tuple[dict[Kind, list[str]], tuple[str, ...]]:
    """Sort tasks by what limits them.

    Args:
        settings: Of the queue.
        tasks: What the worker knows.

    Returns:
        Tasks by kind, first those without a limit of their own, and the rates that count every task.
    """
    own = own_limits(settings)
    rates = [(str(r["name"]), frozenset(r.get("tasks") or ())) for r in (settings.get("limits") or {}).get("rates") or ()]
    alike: dict[Kind, list[str]] = {(None, ()): []}
    for task in tasks:
        narrow = tuple(sorted(name for name, named in rates if task in named))
        alike.setdefault((task if task in own else None, narrow), []).append(task)
    return alike, tuple(sorted(name for name, named in rates if not named))


def own_limits(settings: Mapping[str, Any]) -> dict[str, int]:
    """How many jobs run at a time, by task, for the tasks that have a limit of their own.

    Args:
        settings: Of the queue.
    """
    tasks = settings.get("tasks") or {}
    named = tasks.items() if isinstance(tasks, Mapping) else ((t.get("name"), t) for t in tasks)
    return {str(name): int(own["concurrencyLimit"]) for name, own in named if own.get("concurrencyLimit")}
