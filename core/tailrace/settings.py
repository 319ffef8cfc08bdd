"""Settings: one model for producers, one for workers, from flags, environment, a file and `App(...)`, in this order.

Every field has a description, a default and, where it measures something, a unit; `--help` and the reference page are made
from them. Neighbours: `app` (arguments of `App(...)`), the command line (flags).
"""

from __future__ import annotations

import json
import os
import socket
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypedDict

from pydantic import AliasChoices, BeforeValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, InitSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from tailrace.db.connection import Database
from tailrace.errors import InvalidOption

ENV_PREFIX: Final = "TAILRACE_"
FILE_VARIABLE: Final = "TAILRACE_SETTINGS_FILE"
_layers: ContextVar[tuple[Mapping[str, Any], Mapping[str, Any]]] = ContextVar("tailrace_settings_layers", default=({}, {}))


def _split(value: object) -> object:
    """Accept `a, b=2` as the list of its parts: that is how one variable holds several names. Odd names stand in a JSON list."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        return tuple(json.loads(value))
    if isinstance(value, str):
        return tuple(part for part in value.replace(",", " ").split() if part)
    return value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]


class AppSettings(TypedDict, total=False):
    """Settings as arguments of `App(...)`: the last to be asked."""

    database_url: str | SecretStr
    database_url_file: str | Path
    direct_database_url: str | SecretStr
    schema_name: str
    namespace: str


def checked_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that `App(...)` was given, or refuse an unknown one with `InvalidOption`."""
    unknown = sorted(arguments.keys() - AppSettings.__annotations__.keys())
    if unknown:
        known = ", ".join(sorted(AppSettings.__annotations__))
        raise InvalidOption("is no setting of an application", field=unknown[0], hint=f"Known: {known}")
    return dict(arguments)


class LayeredSettings(BaseSettings):
    """Settings from flags, environment, a file and `App(...)`; the models below, and the controller's, add the fields."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, extra="ignore", hide_input_in_errors=True, populate_by_name=True, env_ignore_empty=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then environment, then the file, then the arguments of `App(...)`."""
        from_file, from_app = _layers.get()
        below = (InitSettingsSource(settings_cls, init_kwargs=dict(layer)) for layer in (from_file, from_app))
        return (init_settings, env_settings, *below)

    @classmethod
    def load(
        cls,
        flags: Mapping[str, Any] | None = None,
        *,
        file: Path | None = None,
        app: Mapping[str, Any] | None = None,
    ) -> Self:
        """Read the settings.

        Args:
            flags: Values from the command line by field name; None values were not given.
            file: A TOML file with the fields as top-level names; default: what TAILRACE_SETTINGS_FILE names, else none.
            app: Arguments of `App(...)`, the last to be asked.

        Raises:
            InvalidOption: A value is out of range or the file cannot be read; secrets are not shown.
        """
        given = {name: value for name, value in (flags or {}).items() if value is not None}
        with _layered(cls, file, app or {}):
            try:
                settings = cls(**given)
            except ValidationError as problem:
                raise _invalid(cls, problem) from None
        return settings._settled(given)

    def _settled(self, given: Mapping[str, Any]) -> Self:
        """Settle what several fields say together; `given` are the values of flags."""
        return self


class ProducerSettings(LayeredSettings):
    """What a program needs that only enqueues and looks: where the database is."""

    database_url: SecretStr | None = Field(
        None, description="Connection string of the database (secret). Without it, libpq's PG* variables and service file."
    )
    database_url_file: Path | None = Field(
        None, description="File that holds the connection string; read again at each connect, so a rotated secret is picked up."
    )
    direct_database_url: SecretStr | None = Field(
        None, description="Connection string past a transaction pooler, for LISTEN, heartbeats and migrations (secret)."
    )
    schema_name: str = Field(
        "tailrace",
        min_length=1,
        validation_alias=AliasChoices("schema_name", "TAILRACE_SCHEMA", "schema"),
        description="Schema of Tailrace's tables and functions.",
    )
    namespace: str = Field("", description="Value of the metric label `namespace`.")

    def _settled(self, given: Mapping[str, Any]) -> Self:
        """Leave out a file with the connection string when a higher layer says the string itself."""
        names = ("database_url", "database_url_file")
        environment = {name for name in names if os.environ.get(_variable(name))}
        highest = {name for name in names if name in given} or environment
        return self.model_copy(update={"database_url_file": None}) if highest == {"database_url"} else self

    def database(self, application_name: str = "tailrace") -> Database:
        """Return where the database is; connects nothing.

        Args:
            application_name: The first word of the sessions' application_name.
        """
        return Database(
            url=self.database_url,
            url_file=self.database_url_file,
            direct_url=self.direct_database_url,
            schema=self.schema_name,
            application_name=application_name,
        )


class WorkerSettings(ProducerSettings):
    """What a worker process needs on top."""

    queues: Names = Field((), description="Queues to serve, NAME or NAME=SLOTS; none: those of the application's tasks.")
    slots: int = Field(10, ge=1, le=1000, description="Jobs that run at the same time, per queue.")
    worker_id: str | None = Field(
        None, max_length=200, description="Name of the worker; each start adds a random part. Default: the host's name."
    )
    termination_log: Path | None = Field(
        None, description="File that takes this worker's id, for whoever reports its end. Default: in a pod, the kubelet's."
    )
    lease_seconds: float = Field(
        60,
        ge=3,
        le=86_400,
        json_schema_extra={"unit": "s"},
        description="How long a worker that is not heard of keeps its jobs; the JobQueue's lease wins. Renewed each third.",
    )
    reaper_seconds: float = Field(
        15, ge=1, le=3600, json_schema_extra={"unit": "s"}, description="How often the leases of dead workers are looked for."
    )
    notify: bool = Field(default=True, description="Listen for new jobs; off means to poll only.")
    poll_seconds: float = Field(
        1, ge=0.01, le=3600, json_schema_extra={"unit": "s"}, description="How often an idle worker looks for jobs."
    )
    drain_timeout_seconds: float = Field(
        30, ge=0, le=86_400, json_schema_extra={"unit": "s"}, description="How long running jobs may go on after SIGTERM."
    )
    metrics_port: int | None = Field(
        9464, ge=0, le=65_535, description="Port of /metrics, /livez and /readyz; 0 takes any free one, `none` opens none."
    )
    metrics_host: str = Field("0.0.0.0", description="Address to listen on for them.")
    log_format: Literal["text", "json"] = Field("text", description="Form of the log on stderr: text or json.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The lowest level that is logged: debug, info, warning, error."
    )

    @property
    def heartbeat_seconds(self) -> float:
        """Seconds between two renewals of the lease."""
        return self.lease_seconds / 3

    @property
    def worker_name(self) -> str:
        """The part of a worker's id that people know: what was set, else the host's name."""
        return self.worker_id or socket.gethostname()

    @field_validator("metrics_port", mode="before")
    @classmethod
    def _no_port(cls, value: object) -> object:
        return None if isinstance(value, str) and value.strip().lower() == "none" else value

    @field_validator("log_level", "log_format", mode="before")
    @classmethod
    def _any_case(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @field_validator("queues")
    @classmethod
    def _queue_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            name, equals, slots = entry.partition("=")
            if not 1 <= len(name.encode()) <= 128:
                raise ValueError(f"{entry!r}: a queue's name has 1 to 128 bytes")
            if equals and not (slots.isascii() and slots.isdigit() and 1 <= int(slots) <= 1000):
                raise ValueError(f"{entry!r}: slots are a whole number from 1 to 1000")
        return value


@dataclass(frozen=True)
class SettingInfo:
    """One setting, for `--help` and the reference page.

    Attributes:
        field: Its name in the model, in a file and as a flag.
        variable: Its environment variable.
        default: The default as text.
        unit: What it measures, or an empty text.
        description: What it does.
        secret: Whether its value is never shown.
    """

    field: str
    variable: str
    default: str
    unit: str
    description: str
    secret: bool


def describe(model: type[LayeredSettings]) -> Iterator[SettingInfo]:
    """Yield the settings of a model in their order."""
    for name, info in model.model_fields.items():
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        default = ", ".join(info.default) if isinstance(info.default, tuple) else info.default
        yield SettingInfo(
            field=name,
            variable=_variable(name),
            default="none" if default in (None, "") else str(default).lower() if isinstance(default, bool) else str(default),
            unit=str(extra.get("unit", "")),
            description=info.description or "",
            secret="SecretStr" in str(info.annotation),
        )


def _variable(field: str) -> str:
    return ENV_PREFIX + ("SCHEMA" if field == "schema_name" else field.upper())


@contextmanager
def _layered(model: type[LayeredSettings], file: Path | None, app: Mapping[str, Any]) -> Iterator[None]:
    token = _layers.set((_read(model, file), dict(app)))
    try:
        yield
    finally:
        _layers.reset(token)


class _FileName(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="ignore", env_ignore_empty=True)

    settings_file: Path | None = None


def _read(model: type[LayeredSettings], file: Path | None) -> Mapping[str, Any]:
    path = file or _FileName().settings_file
    if path is None:
        return {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise InvalidOption(f"{path} cannot be read: {problem}", field="settings_file", hint="It is a TOML file") from None
    # Fields of the other models may stand in the same file; a name of no model is a mistake.
    known = {*WorkerSettings.model_fields, *model.model_fields, "schema"}
    if unknown := sorted(set(values) - known):
        raise InvalidOption(f"{path}: unknown setting", field=unknown[0], hint=f"Known: {', '.join(sorted(known))}")
    return {name: value for name, value in values.items() if name in model.model_fields or name == "schema"}


def _invalid(model: type[LayeredSettings], problem: ValidationError) -> InvalidOption:
    first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
    field = str(first["loc"][0]) if first["loc"] else "settings"
    name = "schema_name" if field in ("TAILRACE_SCHEMA", "schema") else field
    hint = f"Set {_variable(name)}, or the flag of this name" if name in model.model_fields else None
    return InvalidOption(first["msg"].removeprefix("Value error, "), field=name, hint=hint)
