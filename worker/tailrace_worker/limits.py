"""The limits of one queue: which tasks are limited alike, how many jobs of each may be claimed now, and when to ask again.

Tasks with a limit or rates of their own form classes with floors and rescans of their own, so that jobs behind a taken
limit are passed once and cost the others nothing. The database decides what is free (claim_limited_v1); here it is
only remembered what was taken, so that it is not asked in vain. limited.py sends; rates.py keeps the units of rates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from tailrace_worker.classes import Rest, TaskClass, own_limits, sort_out
from tailrace_worker.floors import Floors
from tailrace_worker.rates import Units
from tailrace_worker.rows import ID, TASK, Row

if TYPE_CHECKING:
    from tailrace_worker.rescan import Rescan
    from tailrace_worker.run import Lanes


class Limits:
    """The limits of one queue as this worker knows them.

    Args:
        tasks: What this worker can run of the queue.
        lanes: What runs and waits here.
        floors: The queue's floors, which are those of the first class.
        look_below: Starts the rescan of a class.

    Attributes:
        version: Which version of the limits is known.
        classes: The first has every task without a limit or rate of its own.
        queue_most: How many jobs of the queue run at a time; None for no limit.
        rest: When to ask again for slots of the queue's limit.
        units: Units of rates to give back.
        unsure: The database does not know all yet that runs under a new limit.
        waiting: Transactions that must end first.
        ask_beat_at: When to ask at the earliest for the settings again.
    """

    def __init__(
        self,
        *,
        tasks: Sequence[str],
        lanes: Lanes,
        floors: Floors,
        look_below: Callable[[TaskClass], Rescan],
    ) -> None:
        self._tasks, self._lanes, self._look_below = tuple(tasks), lanes, look_below
        self.version = 0
        self.classes = [TaskClass(self._tasks, floors=floors)]
        self.queue_most: int | None = None
        self.rest = Rest()
        self.units = Units()
        self.unsure = False
        self.waiting: list[str] | None = None
        self.ask_beat_at = 0.0
        self._of: dict[str, int] = dict.fromkeys(tasks, 0)
        self._in_hand: list[int] = [0]

    @property
    def on(self) -> bool:
        """Whether the queue has any limit or rate that concerns this worker."""
        return self.queue_most is not None or len(self.classes) > 1 or bool(self.classes[0].rates)

    @property
    def ahead(self) -> bool:
        """Whether jobs may be taken ahead of the free slots: not where the whole queue is limited."""
        return self.queue_most is None and not self.classes[0].rates and (bool(self.classes[0].tasks) or not self.on)

    @property
    def plain(self) -> bool:
        """Whether rates that count every task are all there is."""
        return self.queue_most is None and len(self.classes) == 1

    # ---- what the settings say ---------------------------------------------------------------------------------------
    def learn(self, settings: Mapping[str, Any], version: int) -> None:
        """Take the limits of the queue's settings.

        Args:
            settings: The settings.
            version: Of the limits in them.
        """
        self.version = version
        self.queue_most = (settings.get("limits") or {}).get("concurrency")
        alike, wide = sort_out(settings, self._tasks)
        own = own_limits(settings)
        before = {known.tasks: known for known in self.classes[1:]}
        first = self.classes[0]
        first.tasks, first.rates = tuple(alike.pop((None, ()))), wide
        self.classes = [first]
        for (name, narrow), names in alike.items():
            kept = before.pop(tuple(names), None) or TaskClass(tuple(names))
            kept.name, kept.most, kept.rates = name, own.get(name) if name else None, tuple(sorted((*wide, *narrow)))
            if kept.rescan is None:
                kept.rescan = self._look_below(kept)
            self.classes.append(kept)
        for gone in before.values():
            if gone.rescan is not None:
                gone.rescan.end()
        self._of = {task: number for number, each in enumerate(self.classes) for task in each.tasks}
        self._lanes.narrow = frozenset(task for each in self.classes[1:] for task in each.tasks)
        self._lanes.capped = frozenset(self._tasks if self.queue_most is not None else own.keys() & self._of.keys())
        self._in_hand = self._count()
        for each in self.classes:
            each.rest.end()
        self.rest.end()
        self.unsure, self.waiting = False, None

    def freed(self) -> None:
        """Jobs went back or ended elsewhere, so slots may be free."""
        for rest in (self.rest, *(known.rest for known in self.classes)):
            rest.freed()

    def limits_now(self, row: Row) -> bool:
        """Whether a job is under any limit or rate."""
        return self.queue_most is not None or bool(self.classes[self._of[row[TASK]]].rates) or row[TASK] in self._lanes.narrow

    def rates_of(self, task: str) -> tuple[str, ...]:
        """The rates that each job of a task needs a unit of."""
        return self.classes[self._of[task]].rates

    # ---- what to ask for ---------------------------------------------------------------------------------------------
    def room(self, now: float, room: int) -> int:
        """How much of the room here may be claimed for: none while all that could be taken is known to be taken."""
        if not self.on or not room:
            return room
        self._note_ends()
        return 0 if now < self.rest.until or not any(self.shares(now, room)) else room

    def again(self, now: float, room: int) -> bool:
        """Whether something that was taken may be free now."""
        if not self.on or now < self.rest.until:
            return False
        waited = zip(self.shares(now, room), self.classes, strict=True)
        return self.rest.until != 0.0 or any(share and known.rest.until != 0.0 for share, known in waited)

    def next_at(self, now: float) -> float:
        """When that is so without a job ending here; infinity for never."""
        if not self.on:
            return math.inf
        if now < self.rest.until:
            return self.rest.until
        return min((known.rest.until for known in self.classes if known.tasks and known.rest.until > now), default=math.inf)

    def shares(self, now: float, jobs: int) -> list[int]:
        """How many jobs to take of each class at most, when `jobs` are to be taken in all."""
        awake = [bool(c.tasks) and now >= c.rest.until for c in self.classes]
        count = sum(awake[1:])
        most = jobs
        if self.ahead and count:  # the first class may be taken ahead; the others only what starts at once, shared among them
            free = max(0, len(self._lanes.slots) - sum(self._in_hand[1:]))
            most = min(jobs, -(-free // count))
        return [0 if not ready else jobs if number == 0 else most for number, ready in enumerate(awake)]

    def found_of(self, known: TaskClass, ids: Iterable[int]) -> bool:
        """Keep jobs below the floors of a class; whether there are any."""
        seen = set(known.stragglers)
        known.stragglers.extend(i for i in ids if i not in seen)
        return bool(known.stragglers)

    def stragglers(self, now: float) -> list[tuple[TaskClass, list[int]]]:
        """Take the jobs below the floors of the classes that may be asked for."""
        found = []
        for known in self.classes:
            if known.stragglers and known.tasks and now >= known.rest.until:
                found.append((known, list(known.stragglers)))
                known.stragglers.clear()
        return found

    def waits_below(self, now: float) -> bool:
        """Whether there are such jobs."""
        return any(known.stragglers and now >= known.rest.until for known in self.classes)

    def params(self, now: float) -> dict[str, Any]:
        """The parameters of a limited claim."""
        tasks = list(self._of)
        floors: dict[str, list[Any]] = {"floor_classes": [], "priorities": [], "run_ats": [], "floor_ids": []}
        for number, known in enumerate(self.classes, 1):
            for priority in self.classes[0].floors.known:
                known.floors.add(priority, now=now)
            starts = known.floors.starts(now)
            floors["floor_classes"] += [number] * len(starts["priorities"])
            floors["priorities"] += starts["priorities"]
            floors["run_ats"] += starts["run_ats"]
            floors["floor_ids"] += starts["ids"]
        return {
            "tasks": tasks,
            "limits": self.version,
            "classes": [self._of[task] + 1 for task in tasks],
            "names": [known.name for known in self.classes],
            "mosts": [known.most for known in self.classes],
            "queue_most": self.queue_most,
            **floors,
        }

    # ---- what came back ----------------------------------------------------------------------------------------------
    def by_class(self, rows: Iterable[Row]) -> list[list[Row]]:
        """Rows sorted out by class, in their order."""
        sorted_out: list[list[Row]] = [[] for _ in self.classes]
        for row in rows:
            sorted_out[self._of[row[TASK]]].append(row)
        return sorted_out

    def took(self, told: Mapping[str, Any], asked: Sequence[int], rows: Iterable[Row], now: float, *, n: int) -> None:
        """Note what a claim, or a turn at groups, found taken.

        Args:
            told: What the last row says.
            asked: The shares that were sent.
            rows: The jobs it brought.
            now: The boot clock.
            n: How many were asked for in all.
        """
        counts = [len(of_class) for of_class in self.by_class(rows)]
        room = int(told["room"])
        if room < n and sum(counts) >= room:
            self.rest.taken(now, some=room > 0)
        else:
            self.rest.end()
        for known, share, cap, count in zip(self.classes, asked, told["caps"], counts, strict=True):
            if cap < min(share, room) and count >= cap:
                known.rest.taken(now, some=cap > 0)
            elif share:
                known.rest.end()
        self._in_hand = self._count()

    def refused(self, state: str, now: float) -> None:
        """A claim looked at nothing: the queue is held, or its limits are not those that are known here or not sure yet."""
        for known in self.classes:
            known.rest.end()
        self.unsure = state == "unsure"
        if self.unsure:
            self.rest.wait(now)
        else:
            self.rest.taken(now, some=False)

    def settled_ids(self, ids: Sequence[tuple[TaskClass, list[int]]], told: Mapping[str, Any], rows: Iterable[Row]) -> None:
        """Jobs that were asked for by id: those that had no slot wait here; the others were taken or locked by somebody."""
        taken = self.by_class(rows)
        for known, asked in ids:
            number = self.classes.index(known) if known in self.classes else -1
            if number >= 0 and len(taken[number]) >= min(told["caps"][number], told["room"]):
                got = {row[ID] for row in taken[number]}
                known.stragglers.extendleft(i for i in reversed(asked) if i not in got)

    def give_up_ids(self, ids: Sequence[tuple[TaskClass, list[int]]]) -> None:
        """Keep jobs that were to be asked for by id and were not."""
        for known, asked in ids:
            known.stragglers.extendleft(reversed(asked))

    def forget_ids(self, ids: Sequence[tuple[TaskClass, list[int]]]) -> None:
        """The same, whatever class they belong to now."""
        for _, asked in ids:
            self.classes[0].stragglers.extend(asked)

    # ---- rescans -----------------------------------------------------------------------------------------------------
    def each_rescan(self) -> list[Rescan]:
        """The rescans of all classes but the first."""
        return [known.rescan for known in self.classes if known.rescan is not None]

    def stop(self) -> None:
        """End them: the worker does."""
        for rescan in self.each_rescan():
            rescan.end()

    # ---- inside ------------------------------------------------------------------------------------------------------
    def _count(self) -> list[int]:
        """How many jobs of each class are in hand. Those of narrow classes stand first in the buffer."""
        lanes, counts = self._lanes, [0] * len(self.classes)
        rows = [slot.row for slot in lanes.slots if slot.row is not None]
        rows += islice(lanes.buffer, 2 * len(lanes.slots))
        for row in rows:
            counts[self._of.get(row[TASK], 0)] += 1
        return counts

    def _note_ends(self) -> None:
        """Jobs that ended here have left their slots to others, once their outcome is written: with the next claim."""
        counts = self._count()
        for known, now, before in zip(self.classes, counts, self._in_hand, strict=True):
            if now < before:
                known.rest.freed()
        if sum(counts) < sum(self._in_hand):
            self.rest.freed()
        self._in_hand = counts
