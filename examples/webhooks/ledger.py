"""The ledger of a run: what the database and the receiver recorded, and whether the two agree.

Pure arithmetic over what `records` and `deliveries` read; `demo` prints it and takes the exit status from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from examples.webhooks.deliveries import OK, Delivery

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class DatabaseRecord:
    """What the database says at the end.

    Attributes:
        jobs: For each event with a business row, its job's id.
        live: Jobs that still wait or run.
        ends: How many jobs ended in each way, such as {"succeeded": 2000}.
        dead_letters: For each dead letter, by job id, its state: dead, requeued or resolved.
    """

    jobs: Mapping[int, int]
    live: int
    ends: Mapping[str, int]
    dead_letters: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Observed:
    """What the demo saw in the database on the way, since success removes the rows.

    Attributes:
        expected: How many events the producer committed, by its own count.
        held: Ids of the jobs that the killed worker held when it died.
        taken_over: Ids of the jobs that the reaper gave back.
        dead: Ids of the jobs in the dead letters before the requeue.
        requeued: Ids of the jobs that were put back.
    """

    expected: int
    held: Collection[int]
    taken_over: Collection[int]
    dead: Collection[int]
    requeued: Collection[int]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The balance of a run, in jobs.

    Attributes:
        enqueued: Business rows in the database, each with its job.
        delivered: Events that the receiver accepted at least once.
        retried: Events that it refused at first and accepted on a later attempt, without becoming a dead letter.
        recovered: Jobs that were given back because their worker was dead.
        dead: Jobs that became a dead letter.
        requeued: Dead letters that were put back.
        lost: Events that nobody delivered.
        repeated: Events that the receiver accepted more than once.
        problems: What does not add up, a sentence each; empty when all does.
    """

    enqueued: int
    delivered: int
    retried: int
    recovered: int
    dead: int
    requeued: int
    lost: int
    repeated: int
    problems: tuple[str, ...]

    @property
    def adds_up(self) -> bool:
        """Whether both records agree and nothing is missing."""
        return not self.problems


@dataclass(slots=True)
class _Findings:
    """Collects what does not add up."""

    problems: list[str] = field(default_factory=list)

    def equal(self, what: str, found: int, wanted: int) -> None:
        if found != wanted:
            self.problems.append(f"{what}: {found} instead of {wanted}")

    def none(self, what: str, ids: Collection[int]) -> None:
        if ids:
            first = ", ".join(str(number) for number in sorted(ids)[:_SHOWN])
            self.problems.append(f"{what}: {len(ids)} (first: {first})")


def reconcile(database: DatabaseRecord, deliveries: Collection[Delivery], observed: Observed) -> Ledger:
    """Compare the records and draw the balance.

    Args:
        database: What the database says at the end.
        deliveries: What the receiver recorded, in order of arrival.
        observed: What was seen on the way.
    """
    accepted = Counter(one.event_id for one in deliveries if one.status == OK)
    accepted_early = {one.event_id for one in deliveries if one.status == OK and not one.healed}
    refused = {one.event_id for one in deliveries if one.status != OK}
    events_of = {job: event for event, job in database.jobs.items()}
    dead_events = {events_of[job] for job in observed.dead if job in events_of}
    repeated = {event for event, times in accepted.items() if times > 1}
    findings = _Findings()
    _check_database(findings, database, observed)
    findings.none("events that nobody delivered", database.jobs.keys() - accepted.keys())
    findings.none("events delivered without a committed business row", accepted.keys() - database.jobs.keys())
    # A job may die although its delivery was accepted: when its worker was killed before it could say so.
    excusable = {event for event, job in database.jobs.items() if job in observed.held or job in observed.taken_over}
    findings.none("dead letters that the receiver had accepted", (dead_events & accepted_early) - excusable)
    findings.none("events refused until the healing, but no dead letter", database.jobs.keys() - accepted_early - dead_events)
    findings.none("events delivered more than once, though no worker died with their job", repeated - excusable)
    return Ledger(
        enqueued=len(database.jobs),
        delivered=len(database.jobs.keys() & accepted.keys()),
        retried=len((refused & accepted_early) - dead_events),
        recovered=len(observed.taken_over),
        dead=len(observed.dead),
        requeued=len(observed.requeued),
        lost=len(database.jobs.keys() - accepted.keys()),
        repeated=len(repeated),
        problems=tuple(findings.problems),
    )


def _check_database(findings: _Findings, database: DatabaseRecord, observed: Observed) -> None:
    """Check what the database says about itself."""
    jobs = set(database.jobs.values())
    findings.equal("business rows in the database", len(database.jobs), observed.expected)
    findings.equal("different jobs of the business rows", len(jobs), len(database.jobs))
    findings.equal("jobs that still wait or run", database.live, 0)
    findings.equal("jobs that succeeded, as the database counted", database.ends.get("succeeded", 0), len(jobs))
    for kind in ("cancelled", "expired", "replaced", "dropped"):
        findings.equal(f"jobs that were {kind}", database.ends.get(kind, 0), 0)
    findings.none("dead letters of unknown jobs", set(observed.dead) - jobs)
    findings.none("dead letters that were not requeued", set(observed.dead) - set(observed.requeued))
    findings.none("requeued jobs that were no dead letter", set(observed.requeued) - set(observed.dead))
    open_ones = {job for job, state in database.dead_letters.items() if state != "resolved"}
    findings.none("dead letters that are not resolved", open_ones)
    findings.none("requeued jobs whose dead letter is gone", set(observed.requeued) - database.dead_letters.keys())
    findings.none("dead letters that came after the listing", database.dead_letters.keys() - set(observed.dead))
    if not observed.held:
        findings.problems.append("the killed worker held no job, so nothing was shown")
    elif not observed.taken_over:
        findings.problems.append("no job of the killed worker was given back, so nothing was shown")
