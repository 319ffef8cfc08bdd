"""Every metric, declared once: name, kind, labels, help.

Dashboards, alerts and the reference page take them from here; a test compares them with what /metrics shows. Counters
end in _total, units are base units, and label values come from fixed sets: never a job id, a key or a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["ALL", "Metric"]


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        name: As it is exported.
        kind: counter, gauge or histogram.
        labels: Names of its labels.
        help: One sentence.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


_QUEUE: Final = ("namespace", "queue")
_TASK: Final = ("namespace", "queue", "task")

JOBS_ENQUEUED: Final = Metric(
    "tailrace_jobs_enqueued_total",
    "counter",
    (*_TASK, "outcome", "priority_band"),
    "Enqueues by this process: created, replaced, skipped, in_progress.",
)
JOBS_CLAIMED: Final = Metric(
    "tailrace_jobs_claimed_total", "counter", (*_TASK, "attempt"), "Jobs started, by first run or retry."
)
JOBS_COMPLETED: Final = Metric("tailrace_jobs_completed_total", "counter", _TASK, "Jobs whose success is committed.")
JOBS_FAILED: Final = Metric(
    "tailrace_jobs_failed_total",
    "counter",
    (*_TASK, "error_type", "final"),
    "Runs that ended by an error or timeout; final: the job is dead.",
)
AFTER_COMPLETION: Final = Metric(
    "tailrace_errors_after_completion_total",
    "counter",
    _TASK,
    "Errors raised by handlers whose completion was committed already; nothing is tried again.",
)
JOBS_INTERRUPTED: Final = Metric(
    "tailrace_jobs_interrupted_total",
    "counter",
    (*_QUEUE, "reason"),
    "Runs stopped by us and not by the handler: shutdown, cancel, lease_lost.",
)
JOB_ATTEMPTS: Final = Metric("tailrace_job_attempts", "histogram", (*_TASK, "outcome"), "The number of the run that ended.")
JOB_DURATION: Final = Metric("tailrace_job_duration_seconds", "histogram", (*_TASK, "outcome"), "How long runs took.")
JOB_WAIT: Final = Metric("tailrace_job_wait_seconds", "histogram", (*_TASK, "priority_band"), "From run_at to the claim.")
WORKER_SLOTS: Final = Metric("tailrace_worker_slots", "gauge", (*_QUEUE, "state"), "Slots of this worker, busy and free.")
WORKER_DRAINING: Final = Metric("tailrace_worker_draining", "gauge", _QUEUE, "1 while this worker claims nothing more.")
WORKER_POLLS: Final = Metric(
    "tailrace_worker_polls_total", "counter", (*_QUEUE, "result"), "Claim statements: jobs, empty, error."
)
CLAIM_DURATION: Final = Metric(
    "tailrace_claim_duration_seconds", "histogram", _QUEUE, "How long a claim took, with the finishes it carried."
)
CLAIM_BATCH: Final = Metric("tailrace_claim_batch_size", "histogram", _QUEUE, "Jobs that a claim brought.")
RENEW_FAILURES: Final = Metric(
    "tailrace_lease_renew_failures_total", "counter", _QUEUE, "Heartbeats that could not renew the lease."
)
FENCED_WRITES: Final = Metric("tailrace_fenced_writes_total", "counter", _QUEUE, "Outcomes refused since the token was gone.")
NOTIFY_RECONNECTS: Final = Metric(
    "tailrace_notify_reconnects_total", "counter", _QUEUE, "Times the listening connection was made again."
)
HANDED_BACK: Final = Metric(
    "tailrace_jobs_handed_back_total", "counter", _QUEUE, "Jobs taken and given back before they started."
)
DEAD_ADDED: Final = Metric(
    "tailrace_dead_letters_added_total", "counter", (*_TASK, "reason"), "Jobs moved to the dead letters by this process."
)
DEAD_REQUEUED: Final = Metric(
    "tailrace_dead_letters_requeued_total", "counter", _TASK, "Dead letters put back by this process, one job each."
)
DEAD_DELETED: Final = Metric("tailrace_dead_letters_deleted_total", "counter", _TASK, "Dead letters deleted by this process.")
DEAD_RESOLVED: Final = Metric(
    "tailrace_dead_letters_resolved_total",
    "counter",
    _TASK,
    "Dead letters resolved by this process: their job succeeded here, or somebody said so.",
)
DEAD_HOOKS: Final = Metric(
    "tailrace_dead_letter_hooks_total",
    "counter",
    (*_QUEUE, "result"),
    "Calls of on_dead hooks: ok, error; skipped: a dead letter that they were not told.",
)
DEAD_LETTERS: Final = Metric(
    "tailrace_dead_letters", "gauge", (*_QUEUE, "state"), "Dead letters by state; combine with max, never sum."
)
DEAD_OLDEST: Final = Metric(
    "tailrace_dead_letter_oldest_age_seconds", "gauge", _QUEUE, "Age of the oldest row in state dead; 0 when none."
)
STATS_TIMESTAMP: Final = Metric(
    "tailrace_stats_timestamp_seconds", "gauge", _QUEUE, "Database time of the reading behind the queue gauges."
)
MAINTENANCE_RUNS: Final = Metric(
    "tailrace_maintenance_runs_total", "counter", ("routine", "result"), "Runs of a routine by this process: ok, error, skipped."
)
MAINTENANCE_ERRORS: Final = Metric(
    "tailrace_maintenance_errors_total",
    "counter",
    ("routine", "error_type"),
    "Errors of routines of this process: the class of a database error, or row for rows that cannot be changed.",
)
MAINTENANCE_DURATION: Final = Metric(
    "tailrace_maintenance_duration_seconds", "histogram", ("routine",), "How long runs of a routine took."
)
MAINTENANCE_LAST_SUCCESS: Final = Metric(
    "tailrace_maintenance_last_success_timestamp_seconds",
    "gauge",
    ("routine",),
    "Database time at which a routine last succeeded, whoever ran it; combine with max.",
)
ORPHANED_JOBS: Final = Metric(
    "tailrace_orphaned_jobs_total", "counter", (), "Jobs with a token and without a lease, found by the audit of this process."
)
LEASES_RECLAIMED: Final = Metric(
    "tailrace_leases_reclaimed_total", "counter", (*_QUEUE, "result", "evidence"), "Jobs of dead workers that were taken over."
)
SCHEDULE_TICKS: Final = Metric(
    "tailrace_schedule_ticks_total",
    "counter",
    (*_QUEUE, "result"),
    "Ticks of schedules that this process dealt with: fired, skipped, missed, failed.",
)
DB_OPERATIONS: Final = Metric(
    "tailrace_db_operations_total", "counter", ("operation", "status"), "Named SQL blocks that ran: success, error."
)
DB_OPERATION_DURATION: Final = Metric(
    "tailrace_db_operation_duration_seconds",
    "histogram",
    ("operation", "status"),
    "How long they took; blocks that travel together share the duration of their transaction.",
)
EVENT_LOOP_LAG: Final = Metric("tailrace_event_loop_lag_seconds", "gauge", (), "How late the event loop's timer came last.")
BUILD_INFO: Final = Metric("tailrace_build_info", "gauge", ("version", "python"), "1.")

ALL: Final[tuple[Metric, ...]] = tuple(v for v in dict(globals()).values() if isinstance(v, Metric))


def priority_band(priority: int) -> str:
    """The label of a priority: emergency, fast_high, fast_default, bulk_default, bulk_low, bulk_lowest or other."""
    if priority >= 20:
        return "emergency"
    for floor, name in ((10, "fast_high"), (1, "fast_default"), (0, "bulk_default"), (-5, "bulk_low"), (-10, "bulk_lowest")):
        if priority >= floor:
            return name
    return "other"
