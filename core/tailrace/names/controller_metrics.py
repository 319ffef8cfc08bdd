"""Every metric that the controller exports, declared once; the worker's are in `metrics`.

`namespace` and `queue` are the JobQueue's, `database` is namespace/Secret of a connection string. Gauges of queues come from
the one published reading, so every replica shows the same: combine them with max. Maintenance is told for each database.
"""

from __future__ import annotations

from typing import Final

from tailrace.names import metrics as shared
from tailrace.names.metrics import Metric

__all__ = ["ALL"]

_QUEUE: Final = ("namespace", "queue")

# ---- queues ----------------------------------------------------------------------------------------------------------
QUEUE_JOBS: Final = Metric(
    "tailrace_queue_jobs",
    "gauge",
    (*_QUEUE, "state"),
    "Jobs by state: ready, scheduled, retrying, blocked, held, unclaimable, running, stale; they add up to all jobs.",
)
OLDEST_READY: Final = Metric(
    "tailrace_queue_oldest_ready_age_seconds", "gauge", _QUEUE, "How long the oldest ready job waits; 0 when none does."
)
NEXT_DUE: Final = Metric(
    "tailrace_queue_next_due_seconds", "gauge", _QUEUE, "Time until the next scheduled or retrying job is due; absent for none."
)
LATENCY_TARGET: Final = Metric(
    "tailrace_queue_latency_target_seconds", "gauge", _QUEUE, "The JobQueue's spec.latencyTargetSeconds."
)
ARRIVALS: Final = Metric(
    "tailrace_queue_arrivals_per_second", "gauge", _QUEUE, "Jobs that become claimable in a second, as a moving average."
)
SERVICE_TIME: Final = Metric(
    "tailrace_queue_service_time_seconds", "gauge", _QUEUE, "How long a run takes, as a moving average; absent while unknown."
)
DESIRED_WORKERS: Final = Metric(
    "tailrace_queue_desired_workers", "gauge", _QUEUE, "Workers that the load asks for; a fraction, before any limit."
)
QUEUE_HELD: Final = Metric("tailrace_queue_held", "gauge", _QUEUE, "1 while nothing new is claimed, since the queue is on hold.")
QUEUE_REPLICAS: Final = Metric(
    "tailrace_queue_replicas",
    "gauge",
    (*_QUEUE, "kind"),
    "Workers: current and ready of the Deployment, min and max of the JobQueue.",
)
CONDITION: Final = Metric(
    "tailrace_jobqueue_condition", "gauge", (*_QUEUE, "condition"), "1 while the condition is True, 0 False, -1 Unknown."
)

# ---- maintenance -----------------------------------------------------------------------------------------------------
MAINTENANCE_RUNS: Final = Metric(
    "tailrace_maintenance_runs_total",
    "counter",
    ("database", "routine", "result"),
    "Runs of a routine by this process: ok, error, skipped.",
)
MAINTENANCE_ERRORS: Final = Metric(
    "tailrace_maintenance_errors_total",
    "counter",
    ("database", "routine", "error_type"),
    "Errors of routines of this process: the class of a database error, or row for rows that cannot be changed.",
)
MAINTENANCE_DURATION: Final = Metric(
    "tailrace_maintenance_duration_seconds", "histogram", ("database", "routine"), "How long runs of a routine took."
)
MAINTENANCE_LAST_SUCCESS: Final = Metric(
    "tailrace_maintenance_last_success_timestamp_seconds",
    "gauge",
    ("database", "routine"),
    "Database time at which a routine last succeeded, whoever ran it; combine with max.",
)
ORPHANED_JOBS: Final = Metric(
    "tailrace_orphaned_jobs_total",
    "counter",
    ("database",),
    "Jobs with a token and without a lease, found by the audit of this process.",
)

# ---- the controller itself -------------------------------------------------------------------------------------------
RECONCILES: Final = Metric(
    "tailrace_reconcile_total", "counter", ("result",), "Looks at a JobQueue: success, requeue (looks again soon), error."
)
RECONCILE_ERRORS: Final = Metric("tailrace_reconcile_errors_total", "counter", ("reason",), "Looks that failed, by the error.")
RECONCILE_DURATION: Final = Metric("tailrace_reconcile_duration_seconds", "histogram", (), "How long looks took.")
QUEUE_DEPTH: Final = Metric("tailrace_workqueue_depth", "gauge", (), "JobQueues that wait to be looked at.")
QUEUE_OLDEST: Final = Metric("tailrace_workqueue_oldest_age_seconds", "gauge", (), "How long the first of them has waited.")
LEADER: Final = Metric("tailrace_leader", "gauge", (), "1 while this process writes to the API server.")
WATCH_HEARD: Final = Metric(
    "tailrace_watch_last_event_timestamp_seconds",
    "gauge",
    ("resource",),
    "When the watch of a kind was heard last, bookmarks included; only while leading.",
)
WATCH_RESTARTS: Final = Metric(
    "tailrace_watch_restarts_total",
    "counter",
    ("reason",),
    "Times the watches were begun anew: ended, silent, gone (the CRD), missing, list.",
)
API_REQUESTS: Final = Metric(
    "tailrace_apiserver_requests_total",
    "counter",
    ("verb", "code"),
    "Requests to the API server, watches apart; code 0: no answer.",
)

_SHARED: Final = (
    shared.DEAD_LETTERS,
    shared.DEAD_OLDEST,
    shared.STATS_TIMESTAMP,
    shared.LEASES_RECLAIMED,
    shared.SCHEDULE_TICKS,
    shared.DEAD_ADDED,
    shared.DEAD_REQUEUED,
    shared.DEAD_DELETED,
    shared.EVENT_LOOP_LAG,
    shared.BUILD_INFO,
)
ALL: Final[tuple[Metric, ...]] = (*(v for v in dict(globals()).values() if isinstance(v, Metric)), *_SHARED)
"""All of them, with those that it shares with workers."""
