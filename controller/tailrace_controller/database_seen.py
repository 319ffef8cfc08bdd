"""What a database said, as a reconcile takes it: reached or not, and what stands in the way, as a sentence.

Pure; `settle` asks the database, `status` makes conditions of the result.
"""

from __future__ import annotations

from tailrace.db.allowed import Target
from tailrace.errors import DatabaseUnavailable, SchemaMissing, SchemaTooOld, TailraceError
from tailrace.names.annotations import Annotation
from tailrace.names.conditions import Reason
from tailrace.owners import Owner
from tailrace.queue_spec import JobQueue
from tailrace_controller.databases import DatabaseFacts
from tailrace_controller.observed import DatabaseSeen, Problem

__all__ = ["conflict", "reached", "refused"]


def conflict(resource: JobQueue, owner: Owner, *, cluster: str) -> str:
    """Say whose a queue is, and what to do about it.

    Args:
        resource: The JobQueue that wants it.
        owner: Who has it.
        cluster: The identity of this cluster.
    """
    where = "of this cluster" if owner.cluster == cluster else f"of another cluster ({owner.cluster})"
    return (
        f"the queue {resource.queue} belongs to the JobQueue {owner.namespace}/{owner.name} {where}: this one changes nothing "
        f"and runs no workers. Give it another queueName, delete the other, or take the queue over by the annotation "
        f'{Annotation.TAKE_OVER}: "{owner.uid}"'
    )


def refused(target: Target, error: TailraceError, *, manual: bool) -> DatabaseSeen:
    """Say what an error means: a database that does not answer is away; else its schema or our rights are wrong.

    Args:
        target: The database.
        error: What it said.
        manual: Whether only people may migrate.
    """
    reason = getattr(error, "reason", None) or Reason.PRIVILEGE_MISSING
    if manual and isinstance(error, SchemaMissing | SchemaTooOld):
        reason = Reason.MIGRATION_PENDING  # it waits for a person by the author's own wish
    reached = not isinstance(error, DatabaseUnavailable)
    return DatabaseSeen(address=target.address, reached=reached, problem=Problem(reason=reason, message=str(error)))


def reached(facts: DatabaseFacts) -> DatabaseSeen:
    """Say what a database is that can be worked with; migrations may wait all the same.

    Args:
        facts: What it said.
    """
    waits = facts.pending
    return DatabaseSeen(
        address=facts.address,
        reached=True,
        installation_id=facts.installation_id,
        schema_version=facts.schema_version,
        problem=None if waits is None else Problem(reason=waits.reason or Reason.MIGRATION_PENDING, message=str(waits)),
    )
