"""Queues and the JobQueue resources that own them, as a controller asks and changes them.

Pure statements over `db/sql/owners.sql`, each of which may be repeated. The rules of ownership stand in migration 0012; the
controller's `databases` send these, `queues` is for people without a resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from tailrace.db import Blocks, Jsonb, Statement
from tailrace.db.versions import Applied
from tailrace.readings import Reading, read_reading

__all__ = ["FUNCTIONS", "Death", "Glance", "Owned", "Owner", "OwnerStatements", "QueueFacts", "Settled"]

FUNCTIONS: Final = ("settle_queue_v1", "orphan_queue_v1", "worker_gone_v1")
"""What a controller calls; its user must be allowed to."""

Outcome = Literal["created", "changed", "unchanged", "conflicted", "stale"]


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A JobQueue resource.

    Attributes:
        cluster: The uid of the cluster's namespace kube-system.
        uid: The resource's own.
        namespace: Its namespace.
        name: Its name.
        generation: metadata.generation; of a recorded owner the one that was written last.
    """

    cluster: str
    uid: str
    namespace: str
    name: str
    generation: int

    def document(self) -> dict[str, str]:
        """Return what the queue's row keeps of it beside the generation."""
        return {"cluster": self.cluster, "uid": self.uid, "namespace": self.namespace, "name": self.name}

    def is_same(self, other: Owner) -> bool:
        """Tell whether both are one resource, of whatever generation.

        Args:
            other: Another owner.
        """
        return (self.cluster, self.uid) == (other.cluster, other.uid)


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What became of writing a queue's settings.

    Attributes:
        outcome: created, changed or unchanged: the row is as it should be. conflicted: another resource has the queue. stale: a
            newer generation of the same resource was written. The last two changed nothing.
        owner: The recorded owner.
        adopted: Whose the queue was before: cli, controller (nobody in particular), orphaned or taken-over; None when nobody
            else had it.
    """

    outcome: Outcome
    owner: Owner
    adopted: str | None = None


@dataclass(frozen=True, kw_only=True)
class Owned:
    """A queue that a resource owns, or owned when it was deleted.

    Attributes:
        queue: Its name.
        owner: The recorded owner.
        orphaned: Whether that was found to be gone.
    """

    queue: str
    owner: Owner
    orphaned: bool


@dataclass(frozen=True, kw_only=True)
class QueueFacts:
    """What is known of one queue. Moments are by the database's clock.

    Attributes:
        queue: Its name.
        reading: The last published reading, with counts, ages and demand.
        read_at: When that was taken; None before the first.
        oldest_ready_at: Since when the oldest ready job waits.
        oldest_dead_at: When the oldest open dead letter came.
        next_due_at: When the next scheduled or retrying job is due.
        held: Whether people or the stop policy hold it now.
        owner: The recorded owner; None for none.
        orphaned: Whether that was found to be gone.
        workers: Living workers by their version.
    """

    queue: str
    reading: Reading
    read_at: datetime | None
    oldest_ready_at: datetime | None
    oldest_dead_at: datetime | None
    next_due_at: datetime | None
    held: bool
    owner: Owner | None
    orphaned: bool
    workers: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Death:
    """What became of a worker's jobs when it was proved dead.

    Attributes:
        known: Whether the database knew the worker.
        jobs: How many of its jobs were taken over.
        skipped: How many somebody had locked just then; asked again they follow.
    """

    known: bool
    jobs: int
    skipped: int


@dataclass(frozen=True, kw_only=True)
class Glance:
    """A database that is as it should be, as one statement shows it.

    Attributes:
        applied: Its migrations.
        installation_id: Its identity marker.
        server_version: PostgreSQL's own.
    """

    applied: Sequence[Applied]
    installation_id: str
    server_version: str


class OwnerStatements:
    """Builds statements for one schema."""

    def __init__(self, blocks: Blocks, schema: str) -> None:
        """Take the SQL.

        Args:
            blocks: Of the database's schema.
            schema: Its bare name.
        """
        self._blocks, self._schema = blocks, schema

    def settle(self, owner: Owner, queue: str, settings: Mapping[str, Any], take_over: str | None) -> Statement[Settled]:
        """Write a queue's settings for its owner.

        Args:
            owner: The resource and the generation that says so.
            queue: The queue's name.
            settings: The database part of its spec.
            take_over: The uid of another recorded owner, to take the queue from it; its own uid, to go back to an older
                generation.
        """
        params = {
            "queue": queue,
            "settings": Jsonb(dict(settings)),
            "owner": Jsonb(owner.document()),
            "generation": owner.generation,
            "take_over": take_over,
        }

        def read(rows: Sequence[tuple[Any, ...]]) -> Settled:
            told = rows[0][0]
            return Settled(outcome=told["outcome"], owner=_owner(told["owner"], told["generation"]), adopted=told["adopted"])

        return Statement(self._blocks["owners.settle"], params, read)

    def orphan(self, queue: str, owner: Owner) -> Statement[bool]:
        """Say that a queue's owner is gone; false when it is not its owner, or was said before.

        Args:
            queue: The queue's name.
            owner: The owner that is gone.
        """
        params = {"queue": queue, "owner": Jsonb(owner.document())}
        return Statement(self._blocks["owners.orphan"], params, lambda rows: bool(rows[0][0]))

    def owned(self, cluster: str) -> Statement[list[Owned]]:
        """The queues of one cluster's resources, by name.

        Args:
            cluster: The uid of its namespace kube-system.
        """

        def read(rows: Sequence[tuple[Any, ...]]) -> list[Owned]:
            return [
                Owned(queue=name, owner=_owner(owner, generation), orphaned=orphaned)
                for name, owner, generation, orphaned in rows
            ]

        return Statement(self._blocks["owners.owned"], {"cluster": cluster}, read)

    def facts(self, queues: Sequence[str]) -> Statement[dict[str, QueueFacts]]:
        """What is known of some queues; one without a row is left out.

        Args:
            queues: Their names.
        """
        return Statement(
            self._blocks["owners.facts"], {"queues": list(queues)}, lambda rows: {row[0]: _facts(row) for row in rows}
        )

    def gone(self, worker: str, *, reason: str, interrupted: bool) -> Statement[Death]:
        """Proof of one worker's death: its jobs run elsewhere at once.

        Args:
            worker: Its whole id.
            reason: What the kubelet said, for the error history of its jobs.
            interrupted: Whether the platform ended it: its jobs get their attempt back.
        """

        def read(rows: Sequence[tuple[Any, ...]]) -> Death:
            told = rows[0][0]
            jobs = sum(int(ended["n"]) for ended in told["rows"])
            return Death(known=told["known"], jobs=jobs, skipped=int(told["skipped"]))

        params = {"worker": worker, "reason": reason, "interrupted": interrupted}
        return Statement(self._blocks["owners.gone"], params, read)

    def glance(self) -> Statement[Glance | None]:
        """Look at a database with one statement; None when something is amiss, which the other words tell."""

        def read(rows: Sequence[tuple[Any, ...]]) -> Glance | None:
            migrations, installation, version, denied = rows[0]
            if denied or not migrations or installation is None:
                return None
            applied = [
                Applied(number, name, checksum, datetime.fromisoformat(at), worker, controller)
                for number, name, checksum, at, worker, controller in migrations
            ]
            return Glance(applied=applied, installation_id=installation, server_version=version)

        params = {"schema": self._schema, "functions": list(FUNCTIONS)}
        return Statement(self._blocks["owners.glance"], params, read)

    def identity(self) -> Statement[tuple[str, str] | None]:
        """The installation's id and the server's version; None when the row is missing."""
        return Statement(self._blocks["owners.identity"], {}, lambda rows: (rows[0][0], rows[0][1]) if rows else None)

    def not_allowed(self) -> Statement[list[str]]:
        """The functions that this user may not call, by name."""
        params = {"schema": self._schema, "functions": list(FUNCTIONS)}
        return Statement(self._blocks["owners.not_allowed"], params, lambda rows: [row[0] for row in rows])

    def may_migrate(self) -> Statement[bool]:
        """Whether this user owns the schema, or may make it."""
        return Statement(self._blocks["owners.may_migrate"], {"schema": self._schema}, lambda rows: bool(rows[0][0]))

    def versions(self) -> Statement[list[str]]:
        """The releases of workers that were seen within a week."""
        return Statement(self._blocks["owners.versions"], {}, lambda rows: [row[0] for row in rows])


def _owner(document: Mapping[str, Any], generation: int | None) -> Owner:
    words = {name: str(document.get(name) or "") for name in ("cluster", "uid", "namespace", "name")}
    return Owner(**words, generation=generation or 0)


def _facts(row: tuple[Any, ...]) -> QueueFacts:
    read_at, oldest_ready_at, oldest_dead_at, next_due_at, owner, generation, orphaned, workers = row[6:]
    return QueueFacts(
        queue=row[0],
        reading=read_reading(row[:6]),
        read_at=read_at,
        oldest_ready_at=oldest_ready_at,
        oldest_dead_at=oldest_dead_at,
        next_due_at=next_due_at,
        held=bool(row[5]),
        owner=None if owner is None else _owner(owner, generation),
        orphaned=orphaned,
        workers=workers,
    )
