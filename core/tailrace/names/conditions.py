"""The conditions of a JobQueue: their types, and the reasons that a machine can tell apart.

People read the sentence beside a reason; `kubectl wait`, alerts and scripts rely on the names, so they are spelled here
only. Errors that end as a condition carry their reason from this module.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["ConditionType", "Reason"]


class ConditionType(StrEnum):
    """One aspect of a JobQueue. All are present from the first reconcile."""

    READY = "Ready"
    """The queue is served as asked: settings stored, and as many workers ready as wanted; also at none, and on hold."""

    RECONCILING = "Reconciling"
    """The controller still works on the last change, or waits for something that may come by itself."""

    STALLED = "Stalled"
    """Nothing more will happen until somebody changes something; the sentence says what."""

    DATABASE_REACHABLE = "DatabaseReachable"
    """The Secret leads to a database that answers, and it is the one of before."""

    SCHEMA_CURRENT = "SchemaCurrent"
    """The database's schema is one that this controller and its workers can work with."""

    WORKERS_AVAILABLE = "WorkersAvailable"
    """As many workers are ready as wanted; if not, the commonest cause, with how many and an example."""

    AUTOSCALER_CONFLICT = "AutoscalerConflict"
    """Somebody else writes the replicas of the Deployment, which the controller then writes back."""

    PAUSED = "Paused"
    """The annotation tailrace.dev/reconcile is "disabled": the controller leaves the children alone."""


class Reason(StrEnum):
    """Why a condition is what it is."""

    # ---- it is well --------------------------------------------------------------------------------------------------
    READY = "Ready"
    """Ready: every worker that is wanted is ready."""

    SCALED_TO_ZERO = "ScaledToZero"
    """Ready: no worker is wanted now."""

    ON_HOLD = "OnHold"
    """Ready: the stop policy holds the queue; nothing new is claimed."""

    CURRENT = "Current"
    """Reconciling: nothing is left to do. SchemaCurrent: the schema fits."""

    PROGRESSING = "Progressing"
    """Stalled: no, the controller can go on."""

    CONNECTED = "Connected"
    """DatabaseReachable: the database answers."""

    AVAILABLE = "Available"
    """WorkersAvailable: as many workers are ready as wanted."""

    NO_CONFLICT = "NoConflict"
    """AutoscalerConflict: nobody else writes the replicas."""

    ENABLED = "Enabled"
    """Paused: no, the controller keeps the children as they should be."""

    # ---- it is on its way --------------------------------------------------------------------------------------------
    NOT_CHECKED = "NotChecked"
    """This was not looked at yet, or could not be, since something before it failed."""

    STARTING = "Starting"
    """Workers are on their way: created, pulled or started, and nothing is wrong so far."""

    DRAINING = "Draining"
    """Workers that are no longer wanted finish their jobs."""

    ROLLING_OUT = "RollingOut"
    """Workers of the last template take over from older ones."""

    ROLLOUT_WAITING = "RolloutWaiting"
    """A new template waits for its turn: other queues roll out, or workers that end still finish their jobs."""

    PAUSED = "Paused"
    """The annotation tailrace.dev/reconcile is "disabled"."""

    # ---- the Secret and the database ---------------------------------------------------------------------------------
    SECRET_NOT_FOUND = "SecretNotFound"
    """There is no Secret of the name in spec.database.secretRef."""

    SECRET_KEY_NOT_FOUND = "SecretKeyNotFound"
    """The Secret lacks the key in spec.database.secretRef."""

    SECRET_FORBIDDEN = "SecretForbidden"
    """The controller may not read Secrets in this namespace."""

    INVALID_DSN = "InvalidDSN"
    """The connection string is none, or has a keyword or host that is not allowed."""

    DATABASE_UNAVAILABLE = "DatabaseUnavailable"
    """The database does not answer."""

    AUTHENTICATION_FAILED = "AuthenticationFailed"
    """The database refuses the user or the password."""

    DATABASE_NOT_FOUND = "DatabaseNotFound"
    """The server answers, but has no such database."""

    PRIVILEGE_MISSING = "PrivilegeMissing"
    """The user of the connection string lacks a right that Tailrace needs."""

    DATABASE_CHANGED = "DatabaseChanged"
    """The Secret leads to another database than before: nothing is written to it."""

    SCHEMA_MISSING = "SchemaMissing"
    """Tailrace is not installed in the database, and could not be."""

    SCHEMA_TOO_OLD = "SchemaTooOld"
    """The schema is older than this controller can work with."""

    SCHEMA_TOO_NEW = "SchemaTooNew"
    """The schema is newer than this controller can work with."""

    MIGRATION_PENDING = "MigrationPending"
    """Migrations wait for a person, since spec.database.migrationPolicy is Manual."""

    MIGRATION_FAILED = "MigrationFailed"
    """A migration was tried and failed; it is tried again."""

    CONFLICTED = "Conflicted"
    """Another JobQueue owns the queue in the database; this one holds back."""

    # ---- the resource and its children -------------------------------------------------------------------------------
    INVALID_SPEC = "InvalidSpec"
    """A field is wrong in a way that the API server cannot see, such as a crontab line."""

    AUTOSCALING_UNSUPPORTED = "AutoscalingUnsupported"
    """The mode of autoscaling is not in this release; spec.replicas counts until it is another."""

    NAME_TAKEN = "NameTaken"
    """An object of the child's name exists and is not ours; it stays untouched."""

    POD_TEMPLATE_INVALID = "PodTemplateInvalid"
    """The pods' template cannot be merged, or the API server refuses it."""

    CHILD_REFUSED = "ChildRefused"
    """The API server refuses a child for a reason beside its template: a right, a webhook, a namespace that ends."""

    AUTOSCALER_ON_DEPLOYMENT = "AutoscalerOnDeployment"
    """An autoscaler points at the Deployment instead of the JobQueue."""

    ROLLOUT_STUCK = "RolloutStuck"
    """The roll-out made no progress for spec.rollout.progressDeadlineSeconds."""

    # ---- the pods ----------------------------------------------------------------------------------------------------
    QUOTA_EXCEEDED = "QuotaExceeded"
    """A ResourceQuota of the namespace refuses pods."""

    POD_SECURITY_REFUSED = "PodSecurityRefused"
    """The Pod Security level of the namespace refuses the pods."""

    PODS_REFUSED = "PodsRefused"
    """The API server refuses the pods for another reason."""

    UNSCHEDULABLE = "Unschedulable"
    """No node takes the pods."""

    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
    """The image cannot be pulled."""

    INVALID_IMAGE_NAME = "InvalidImageName"
    """The image's name is none."""

    CONTAINER_CONFIG_ERROR = "ContainerConfigError"
    """A container cannot be made: often a Secret, ConfigMap or key that does not exist."""

    CONTAINER_START_ERROR = "ContainerStartError"
    """A container cannot be started: often a command that the image does not have."""

    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
    """A container ends again and again soon after its start."""

    OOM_KILLED = "OOMKilled"
    """A container took more memory than its limit and was killed."""

    EVICTED = "Evicted"
    """Nodes threw pods out, for want of memory, disk or room for more urgent ones."""

    NOT_READY = "NotReady"
    """Workers run and do not report ready: no database, a lease in doubt, or cordoned."""

    NODE_LOST = "NodeLost"
    """The nodes of the pods do not answer."""
