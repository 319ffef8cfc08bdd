"""The settings of a controller process: from flags, environment and a file, with defaults and units for `--help`.

The layers are tailrace's own; no setting holds a secret. `service` hands them on.
"""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from tailrace.names.labels import DEFAULT_CONTROLLER, instance, is_default
from tailrace.settings import LayeredSettings, Names

__all__ = ["ControllerSettings"]

_SECONDS: Final[dict[str, JsonValue]] = {"unit": "s"}
_LEASE: Final = "tailrace-controller"
_LONGEST_WRITE_SECONDS: Final = 5.0


class ControllerSettings(LayeredSettings):
    """What a controller needs to know."""

    controller_name: str = Field(
        DEFAULT_CONTROLLER,
        min_length=1,
        max_length=253,
        description="Which JobQueues are its own: those with this spec.controllerName.",
    )
    kubeconfig: Path | None = Field(
        None,
        description="Kubeconfig file. Default: the one KUBECONFIG names, else the pod's service account, else ~/.kube/config.",
    )
    kube_context: str | None = Field(None, description="Context in the kubeconfig; default: its current one.")
    watch_namespaces: Names = Field(
        (), description="Look after this namespace only, with rights in it alone; may be given again. Default: all namespaces."
    )
    lease_namespace: str | None = Field(
        None, max_length=63, description="Namespace of the Lease that says who leads; default: the namespace it runs in."
    )
    lease_name: str | None = Field(
        None, max_length=253, description="Name of the Lease; default: tailrace-controller, with another controller name its end."
    )
    lease_seconds: float = Field(
        15, ge=1, le=300, json_schema_extra=_SECONDS, description="How long the Lease lasts when it is not renewed."
    )
    renew_deadline_seconds: float = Field(
        10, ge=0.5, le=295, json_schema_extra=_SECONDS, description="Without a renewal for so long the Lease counts as lost."
    )
    lease_retry_seconds: float = Field(
        2, ge=0.1, le=60, json_schema_extra=_SECONDS, description="How often the Lease is renewed, or tried to be had."
    )
    pod_name: str | None = Field(None, description="Name of the pod, for the Lease and for events; default: the host's name.")
    secret_seconds: float = Field(
        60, ge=1, le=3600, json_schema_extra=_SECONDS, description="How often Secrets are read again, give or take a fifth."
    )
    reading_seconds: float = Field(
        15, ge=0.2, le=300, json_schema_extra=_SECONDS, description="How often the figures of queues are looked at."
    )
    orphan_seconds: float = Field(
        60,
        ge=1,
        le=3600,
        json_schema_extra=_SECONDS,
        description="A queue is orphaned when its JobQueue was missing twice, so long apart.",
    )
    resync_seconds: float = Field(
        600,
        ge=10,
        le=86_400,
        json_schema_extra=_SECONDS,
        description="Each JobQueue is looked at again after half to whole of this time, with nothing changed.",
    )
    discovery_seconds: float = Field(
        60, ge=1, le=3600, json_schema_extra=_SECONDS, description="How often it looks whether CRDs came or went."
    )
    silence_seconds: float = Field(
        180,
        ge=5,
        le=3600,
        json_schema_extra=_SECONDS,
        description="A watch that heard nothing for so long, not even a bookmark, is begun anew.",
    )
    reconcile_workers: int = Field(10, ge=1, le=100, description="JobQueues that are looked at at the same time.")
    kube_threads: int = Field(8, ge=1, le=64, description="Requests to the API server at the same time, watches apart.")
    kube_timeout_seconds: float = Field(
        15, ge=1, le=120, json_schema_extra=_SECONDS, description="How long an answer to a read of the API server may take."
    )
    max_concurrent_rollouts: int = Field(
        10, ge=1, le=1000, description="Deployments that may roll at the same time when a new controller changes their pods."
    )
    allowed_database_hosts: Names = Field(
        (), description="Host that connection strings may name, such as *.db.example; may be given again. Default: any."
    )
    migration_credentials: Path | None = Field(
        None,
        description="Folder of files with connection strings that may migrate, one for each database; others are not migrated "
        "unless the workers' own may.",
    )
    reaper_seconds: float = Field(
        15, ge=1, le=3600, json_schema_extra=_SECONDS, description="How often the leases of dead workers are looked for."
    )
    metrics_port: int | None = Field(
        8080, ge=0, le=65_535, description="Port of /metrics, /livez and /readyz; 0 takes any free one, `none` opens none."
    )
    metrics_host: str = Field("0.0.0.0", description="Address to listen on for them.")
    log_format: Literal["text", "json"] = Field("text", description="Form of the log on stderr: text or json.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The lowest level that is logged: debug, info, warning, error."
    )

    @property
    def write_timeout_seconds(self) -> float:
        """How long a write to the API server may take: it has ended before another may hold the Lease."""
        return min(_LONGEST_WRITE_SECONDS, self.lease_seconds - self.renew_deadline_seconds)

    @property
    def instance(self) -> str:
        """The installation: the value of the label app.kubernetes.io/instance."""
        return instance(self.controller_name)

    @property
    def manager(self) -> str:
        """The field manager of children."""
        return "tailrace-controller" + self._addition

    @property
    def status_manager(self) -> str:
        """The field manager of status."""
        return "tailrace-controller-status" + self._addition

    @property
    def environment_secret(self) -> str:
        """The name of the Secret with the key of the fingerprints of environments."""
        return f"{self.manager}-environment".lower().replace("_", "-")

    @property
    def lease(self) -> str:
        """The name of the Lease."""
        return self.lease_name or (_LEASE + self._addition).lower().replace("_", "-")

    @property
    def _addition(self) -> str:
        return "" if is_default(self.controller_name) else f"-{self.instance}"

    def identity(self) -> str:
        """Make a name for this process in the Lease: the pod and a random part, unlike any other's."""
        return f"{self.pod_name or os.environ.get('HOSTNAME') or socket.gethostname()}_{secrets.token_hex(4)}"

    @field_validator("metrics_port", mode="before")
    @classmethod
    def _no_port(cls, value: object) -> object:
        return None if isinstance(value, str) and value.strip().lower() == "none" else value

    @field_validator("log_level", "log_format", mode="before")
    @classmethod
    def _any_case(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @model_validator(mode="after")
    def _lease_in_order(self) -> ControllerSettings:
        if not self.lease_retry_seconds < self.renew_deadline_seconds <= self.lease_seconds - 0.5:
            raise ValueError(
                "lease_retry_seconds must be below renew_deadline_seconds, and that at least half a second below lease_seconds"
            )
        return self
