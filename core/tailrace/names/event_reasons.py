"""The reasons of the Kubernetes events about a JobQueue, as `kubectl describe` and `kubectl events` show them.

One name for one thing that happened; the note of an event may be worded anew, these may not.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["EventReason"]


class EventReason(StrEnum):
    """What happened."""

    # ---- children ----------------------------------------------------------------------------------------------------
    CHILD_CREATED = "ChildCreated"
    """Normal: a Deployment or PodDisruptionBudget was made."""

    CHILD_CHANGED = "ChildChanged"
    """Normal: the resource or the controller changed, and with it a child."""

    CHILD_DELETED = "ChildDeleted"
    """Normal: a child that is no longer wanted was deleted."""

    DRIFT_RESTORED = "DriftRestored"
    """Normal: somebody changed or deleted a child, and it was put back."""

    NAME_TAKEN = "NameTaken"
    """Warning: an object of the child's name exists and is not ours."""

    POD_TEMPLATE_INVALID = "PodTemplateInvalid"
    """Warning: the template cannot be merged, or the API server refuses it."""

    CHILD_REFUSED = "ChildRefused"
    """Warning: the API server refuses a child."""

    ROLLOUT_STARTED = "RolloutStarted"
    """Normal: workers of a new template begin to take over."""

    ROLLOUT_WAITING = "RolloutWaiting"
    """Normal: a new template waits for its turn, or for workers that still finish jobs."""

    ROLLOUT_STUCK = "RolloutStuck"
    """Warning: the roll-out made no progress before its deadline."""

    # ---- replicas ----------------------------------------------------------------------------------------------------
    SCALED = "Scaled"
    """Normal: another number of workers is wanted."""

    REPLICAS_IGNORED = "ReplicasIgnored"
    """Warning: somebody scaled the JobQueue, whose workers follow the demand: spec.replicas counts for nothing."""

    AUTOSCALER_CONFLICT = "AutoscalerConflict"
    """Warning: an autoscaler points at the Deployment, or somebody writes its replicas; they were written back."""

    AUTOSCALING_UNSUPPORTED = "AutoscalingUnsupported"
    """Warning: the mode of autoscaling is not in this release."""

    LONG_DRAIN = "LongDrain"
    """Warning: drainTimeoutSeconds is above 570, and many tools that drain nodes stop waiting after 600 seconds."""

    # ---- database ----------------------------------------------------------------------------------------------------
    DATABASE_REACHABLE = "DatabaseReachable"
    """Normal: the database answers again."""

    DATABASE_PROBLEM = "DatabaseProblem"
    """Warning: the Secret or the database is not as it should be; the condition DatabaseReachable has the reason."""

    SCHEMA_PROBLEM = "SchemaProblem"
    """Warning: the schema does not fit; the condition SchemaCurrent has the reason."""

    SCHEMA_MIGRATED = "SchemaMigrated"
    """Normal: migrations were applied."""

    SETTINGS_STORED = "SettingsStored"
    """Normal: the queue's settings were written to the database."""

    QUEUE_ADOPTED = "QueueAdopted"
    """Normal: a queue that was in the database belongs to this JobQueue now."""

    CONFLICTED = "Conflicted"
    """Warning: another JobQueue owns the queue in the database."""

    QUEUE_ORPHANED = "QueueOrphaned"
    """Normal: the JobQueue is gone; its jobs stay, its schedules are off."""

    SECRET_CHANGED = "SecretChanged"
    """Normal: the connection string is another one; workers take it at their next connect."""

    INVALID_SPEC = "InvalidSpec"
    """Warning: a field is wrong in a way that the API server cannot see."""

    # ---- workers -----------------------------------------------------------------------------------------------------
    WORKER_DIED = "WorkerDied"
    """Warning: the kubelet reported the end of a worker that held jobs; they run elsewhere."""

    WORKERS_UNAVAILABLE = "WorkersUnavailable"
    """Warning: fewer workers are ready than wanted; the note has the commonest cause."""

    WORKERS_AVAILABLE = "WorkersAvailable"
    """Normal: as many workers are ready as wanted again."""

    # ---- controller --------------------------------------------------------------------------------------------------
    PAUSED = "Paused"
    """Normal: the annotation tailrace.dev/reconcile is "disabled"."""

    RESUMED = "Resumed"
    """Normal: the annotation is gone or "enabled" again."""
