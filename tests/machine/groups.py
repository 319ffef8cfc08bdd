"""Serial groups: which members a turn may take, in which order, and whose the group is afterwards.

The turn's choice is checked once, when it is told, against the rows that its own transaction could see just before; what it
makes true happens with the commit. model.py knows the jobs, process.py sends the turn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tailrace_worker.rows import EXTRA, GROUP, ID, MARK, PAYLOAD, PRIORITY, RUN_AT, Row
from tailrace_worker.turns import Turn
from tests.machine.handlers import GROUPS, STRICT
from tests.machine.model import Model
from tests.machine.records import Held, must

SEE = """
select id, serial_group, task, priority, run_at, lost, attempts, max_attempts from tailrace.job
where serial_group is not null and key_slot = 0 and token is null and run_at <= clock_timestamp()"""


@dataclass(frozen=True)
class Member:
    """A waiting member that is due."""

    id: int
    group: str
    task: str
    priority: int
    run_at: datetime
    lost: int
    attempts: int
    max_attempts: int

    @property
    def alone(self) -> bool:
        """Whether nothing may be taken behind it."""
        return self.lost > 0 or self.attempts + 1 >= self.max_attempts or self.task in STRICT


@dataclass
class Scene:
    """What a turn meets.

    Attributes:
        seen: The members that are due.
        locked: Jobs that somebody else has locked.
        hindered: Whether something may keep it from groups: another worker's transaction, or limits.
        left: Groups of the turn that it has left, with the member that they wait for.
    """

    seen: list[Member] = field(default_factory=list)
    locked: set[int] = field(default_factory=set)
    hindered: bool = False
    left: dict[str, int | None] = field(default_factory=dict)

    def chain(self, model: Model, name: str, turn: Turn) -> list[int]:
        """The members of a group that this turn would take."""
        due = [m for m in self.seen if m.group == name and m.id not in self.locked]
        due.sort(key=lambda m: (-m.priority, m.run_at, m.id))
        head = waits_for(model, name)
        due = [m for m in due if m.id == head] if head is not None else due[: turn.k]
        if not due or (due[0].lost > 0) != turn.suspect:
            return []
        stop = next((n for n, m in enumerate(due) if m.alone), len(due))
        return [m.id for m in due[: max(1, stop)]]


def waits_for(model: Model, name: str) -> int | None:
    """The member that a group of strict order waits for."""
    held = model.groups.get(name)
    return held.head if held is not None and held.head in model.jobs else None


def turned(model: Model, worker: str, token: int, turn: Turn, rows: Sequence[Row], scene: Scene, *, first: bool) -> None:
    """A worker has had its turn; `first` when it is told, not when it is committed."""
    *members, last = rows
    taken: dict[str, list[int]] = {}
    for row in sorted(members, key=lambda r: (-r[PRIORITY], r[RUN_AT], r[ID])):
        taken.setdefault(row[GROUP], []).append(row[ID])
    if first:
        _choice(model, turn, taken, scene)
        scene.left = _left(model, turn, taken, last[EXTRA])
    for name in taken:
        held = model.groups.get(name)
        must(held is None or held.token in (None, _mine(turn, name)), f"group {name} was taken from {held}")
        running = [j for j in model.jobs.values() if j.serial_group == name and j.token is not None]
        must(not running, f"group {name} was taken while some of it is leased: {running}")
    made = [(r[ID], r[2], int(json.loads(r[PAYLOAD])["n"]), r[MARK]) for r in members]
    model.claim(token, worker, made, suspect=turn.suspect, grouped=True)
    for name, ids in taken.items():
        model.groups[name] = Held(token, ids[0] if model.jobs[ids[0]].task in STRICT else None)
    for name, head in scene.left.items():
        model.groups.pop(name, None)
        if head is not None:
            model.groups[name] = Held(None, head)


def _mine(turn: Turn, name: str) -> int | None:
    return turn.ended.get((name, ""))


def _choice(model: Model, turn: Turn, taken: Mapping[str, list[int]], scene: Scene) -> None:
    """What was taken is what stood first, and nothing was overlooked."""
    for name, ids in taken.items():
        wanted = scene.chain(model, name, turn)
        must(ids == wanted, f"of group {name} {ids} was taken, not {wanted}: {scene}")
    if turn.n < len(GROUPS) or scene.hindered or any(m.id in scene.locked for m in scene.seen):
        return
    for name in {m.group for m in scene.seen} - taken.keys():
        held = model.groups.get(name)
        free = held is None or held.token is None
        mine = held is not None and held.token == _mine(turn, name) and not _unsettled(model, turn, name)
        chain = scene.chain(model, name, turn)
        must(not chain or not (free or (mine and not turn.suspect)), f"group {name} was passed over: {held}, {scene}")


def _unsettled(model: Model, turn: Turn, name: str) -> bool:
    mine = [j for j in model.jobs.values() if j.serial_group == name and j.token is not None]
    return any(j.id in turn.unsettled and j.token == _mine(turn, name) for j in mine)


def _left(model: Model, turn: Turn, taken: Mapping[str, list[int]], told: Mapping[str, Any]) -> dict[str, int | None]:
    """The groups that have ended here and do not go on here; those with an open outcome are kept instead."""
    ours = [n for n, _ in turn.ended if (held := model.groups.get(n)) is not None and held.token == _mine(turn, n)]
    kept = {name for name in ours if _unsettled(model, turn, name)}
    must({name for name, _ in told["kept"]} == kept, f"a turn kept {told['kept']}, and should keep {kept}")
    return {name: waits_for(model, name) for name in ours if name not in kept and name not in taken}
