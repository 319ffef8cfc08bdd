"""The log events: what the field `event` of a log line can be.

Stable names for searches and alerts; the line's text may change, these may not. Whoever logs takes them from here.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Event"]


class Event(StrEnum):
    """One kind of log line."""

    # ---- migrations --------------------------------------------------------------------------------------------------
    MIGRATION_APPLIED = "migration_applied"
    """A migration has been committed; fields: version, name, schema."""

    MIGRATION_WAITING = "migration_waiting"
    """A migration could not get its locks and will be tried again; fields: version, name, schema, attempt."""

    MIGRATION_LOCKED = "migration_locked"
    """Another migrator is at work in this schema; we wait for it; field: schema."""

    # ---- dead letters ------------------------------------------------------------------------------------------------
    DEAD_LETTERS_REQUEUED = "dead_letters_requeued"
    """Somebody put dead letters back; fields: queue, task, jobs."""

    DEAD_LETTERS_DELETED = "dead_letters_deleted"
    """Somebody deleted dead letters; fields: queue, task, jobs."""

    DEAD_LETTERS_RESOLVED = "dead_letters_resolved"
    """Somebody said that dead letters are dealt with; fields: queue, task, jobs."""

    DEAD_LETTER_ADDED = "dead_letter_added"
    """Somebody added one by hand; fields: queue, task, jobs."""

    # ---- worker ------------------------------------------------------------------------------------------------------
    WORKER_STARTING = "worker_starting"
    """A worker process begins; fields: worker_id, queues, slots."""

    WORKER_READY = "worker_ready"
    """It is connected, its resources are open and it claims; field: worker_id."""

    WORKER_DRAINING = "worker_draining"
    """It claims nothing more and finishes what runs; fields: worker_id, reason, running."""

    WORKER_STOPPED = "worker_stopped"
    """It has ended; fields: worker_id, interrupted, finished."""

    METRICS_LISTENING = "metrics_listening"
    """Metrics and health are served; fields: host, port."""

    SCHEMA_UNFIT = "schema_unfit"
    """The schema is missing, too old or too new for this release; the text tells the command that mends it."""

    DATABASE_AWAY = "database_away"
    """The database does not answer; the worker starts nothing and tries again."""

    DATABASE_BACK = "database_back"
    """The database answers again."""

    LISTENER_BACK = "listener_back"
    """The connection that listens for wake-ups was made again."""

    LISTENER_POOLED = "listener_pooled"
    """Behind a pooler and without a direct address nothing can be heard: the worker finds its jobs by polling."""

    BEAT_FAILED = "beat_failed"
    """A heartbeat could not renew the lease; it is tried again."""

    LEASE_UNCERTAIN = "lease_uncertain"
    """The lease may have run out: nothing is started until a heartbeat has confirmed it."""

    LEASE_LOST = "lease_lost"
    """Leases of this worker were taken over; their jobs are cancelled and nothing of theirs is written; field: leases."""

    LEASE_RETURNED = "lease_returned"
    """A claim whose answer was lost was handed back uncharged; field: jobs."""

    CLAIM_FAILED = "claim_failed"
    """A claim or finish failed and is tried again; field: error."""

    WRITES_FENCED = "writes_fenced"
    """Outcomes were refused since their token was gone; field: jobs."""

    HANDED_BACK = "handed_back"
    """Jobs that had not started were given back; field: jobs."""

    JOB_STARTED = "job_started"
    """A job runs (debug only)."""

    JOB_FAILED = "job_failed"
    """A run ended by an error; fields: job_id, task, attempt, error_type, result."""

    JOB_DEAD = "job_dead"
    """A job was moved to the dead letters, after the commit; fields: job_id, task, reason."""

    JOB_TIMED_OUT = "job_timed_out"
    """A run passed its timeout and was told to stop; fields: job_id, task."""

    JOB_CANCELLED = "job_cancelled"
    """A run was cancelled by request; fields: job_id, task."""

    ERROR_AFTER_COMPLETION = "error_after_completion"
    """A handler raised after the transaction that completed its job had been committed; fields: job_id, task."""

    JOB_STUCK = "job_stuck"
    """A handler still runs 10 s after it was told to stop: the worker drains and exits; fields: job_id, task."""

    RESULT_DROPPED = "result_dropped"
    """What a handler returned is no JSON or too large, so it is not kept; the job has succeeded; fields: job_id, queue, task."""

    HOOK_FAILED = "hook_failed"
    """An on_dead hook raised or took too long, which changes nothing; fields: job_id, queue, task, hook, error."""

    HOOK_SKIPPED = "hook_skipped"
    """The on_dead hooks were not called for a dead letter; fields: job_id, queue."""

    # ---- maintenance -------------------------------------------------------------------------------------------------
    ROUTINE_RAN = "routine_ran"
    """A maintenance routine ran; info when it changed something, else debug; fields: routine, counts."""

    ROUTINE_FAILED = "routine_failed"
    """A run of a routine failed and is tried again; fields: routine, error."""

    STANDING_IN = "standing_in"
    """This worker begins to run a routine, since nobody else does, or leaves it again; fields: routine, standing_in."""

    LEASES_TAKEN_OVER = "leases_taken_over"
    """The reaper took the jobs of dead workers; fields: leases, jobs, skipped."""

    SESSIONS_ENDED = "sessions_ended"
    """The reaper ended sessions frozen in a transaction; field: sessions."""

    SCHEDULES_CHANGED = "schedules_changed"
    """Schedules came, changed, went silent or went, as JobQueues and workers say; fields: schedules_added and so on."""

    SCHEDULE_FIRED = "schedule_fired"
    """A schedule enqueued a job (debug only); fields: queue, schedule, job_id."""

    SCHEDULE_SKIPPED = "schedule_skipped"
    """A tick was passed over, since the job before still lived or another held the key; fields: queue, schedule, job_id."""

    SCHEDULE_MISSED = "schedule_missed"
    """Ticks were further back than is made up for, since no runner was there; fields: queue, schedule, missed."""

    SCHEDULE_FAILED = "schedule_failed"
    """A schedule cannot fire, told when the reason is new; fields: queue, schedule, error."""

    DEAD_LETTERS_BACK = "dead_letters_back"
    """Dead letters came back as jobs by their queue's rule; fields: queue, task, jobs."""

    ORPHANS_FOUND = "orphans_found"
    """The audit found what must not be and mended it; field: jobs or dead_letters."""

    # ---- controller --------------------------------------------------------------------------------------------------
    CONTROLLER_STARTING = "controller_starting"
    """A controller process begins; fields: holder, server, namespaces, version."""

    CONTROLLER_READY = "controller_ready"
    """It leads, and every JobQueue that there was at its start has been taken up; field: resources."""

    CONTROLLER_STOPPED = "controller_stopped"
    """It has ended; field: status."""

    LEADER_WON = "leader_won"
    """This process holds the Lease and writes from now on; field: holder."""

    LEADER_SEEN = "leader_seen"
    """Another process holds the Lease; this one runs maintenance and waits; field: holder."""

    LEADER_LOST = "leader_lost"
    """The Lease is lost or could not be renewed in time: nothing more is written; field: holder."""

    LEADER_UNKNOWN = "leader_unknown"
    """The Lease cannot be read or written; it is tried again; field: error."""

    WATCH_STARTED = "watch_started"
    """Watches of the API server began or began anew; field: resources."""

    WATCH_FAILED = "watch_failed"
    """The watches ended or fell silent and are begun anew; field: error."""

    KIND_MISSING = "kind_missing"
    """The API server does not know JobQueue: the CRD is to be installed."""

    RECONCILED = "reconciled"
    """A JobQueue was looked at (debug only); fields: namespace, name, seconds."""

    RECONCILE_FAILED = "reconcile_failed"
    """Looking at a JobQueue failed and is tried again; fields: namespace, name, error, again_seconds."""

    SECRET_CHANGED = "secret_changed"
    """A Secret or ConfigMap in use has changed; fields: namespace, object."""

    CREDENTIAL_UNREADABLE = "credential_unreadable"
    """A file among the controller's own credentials holds no connection string; field: file."""

    ENVIRONMENT_KEY_REFUSED = "environment_key_refused"
    """The key for fingerprints of environments may not be kept, so changed values roll no workers; fields: namespace, object."""

    WORKER_DEATH_PROVED = "worker_death_proved"
    """The kubelet said that a worker has ended; fields: resource_namespace, resource, worker_id, reason, jobs."""

    QUEUE_ORPHANED = "queue_orphaned"
    """A queue's JobQueue is gone; fields: queue, resource_namespace, resource."""

    GENERATION_STALE = "generation_stale"
    """The database has settings of a newer generation of a JobQueue; fields: resource_namespace, resource, generation."""

    DATABASE_KEPT = "database_kept"
    """This process begins to run maintenance on a database of a JobQueue, or leaves it; fields: database, keeping."""

    ROSTER_FAILED = "roster_failed"
    """JobQueues or Secrets could not be read to learn which databases there are; those that are known are kept; field: error."""
