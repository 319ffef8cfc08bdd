"""What a row of each table is to the machine; model.py moves them, witness.py reads them from the database."""

from __future__ import annotations

from dataclasses import dataclass

MAX_INTERRUPTIONS = 2
"""What the queue allows here: small, so that examples reach it."""

RATE = 2
"""How many jobs start under a rate before its period is over, which is longer than any example."""

ENDS = ("succeeded", "dead", "dropped", "cancelled", "expired", "replaced")


def must(condition: object, text: str) -> None:
    """Fail an example with words."""
    if not condition:
        raise AssertionError(text)


@dataclass
class Job:
    """A row of the hot table; `past` says that its expires_at has passed, `slot` is 1 for the successor of a key's holder."""

    id: int
    task: str
    key: str | None
    payload: int
    max_attempts: int
    attempts: int = 0
    lost: int = 0
    interrupted: int = 0
    snoozes: int = 0
    requeues: int = 0
    token: int | None = None
    past: bool = False
    slot: int = 0
    serial_group: str | None = None

    @property
    def spent(self) -> bool:
        """Whether it has no attempt left."""
        return self.attempts >= self.max_attempts


@dataclass
class Letter:
    """A dead letter."""

    id: int
    task: str
    key: str | None
    payload: int
    max_attempts: int
    state: str = "dead"
    total_attempts: int = 0
    dead_count: int = 0
    requeued_count: int = 0
    serial_group: str | None = None


@dataclass
class Held:
    """A serial group that a lease holds, or that waits for the member `head` while its order is strict."""

    token: int | None
    head: int | None


@dataclass
class Lease:
    """A worker's right to the jobs it claimed together."""

    worker: str
    ids: tuple[int, ...]
