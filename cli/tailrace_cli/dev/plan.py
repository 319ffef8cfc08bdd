"""What a JobQueue file asks of this machine: one plan a queue, with the command and environment of its workers.

Secrets and ConfigMaps of the cluster are looked up in a `.env` file by the name of the variable. `queue_files` reads the
resources, `session` carries plans out and reads them again when a file changes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import InvalidOption
from tailrace.queue_spec import Container, JobQueue, Variable, expanded, worker_container, worker_environment
from tailrace_cli.dev.dotenv import read_dotenv
from tailrace_cli.queue_files import of_file, read_queues

__all__ = ["Plan", "Sources"]

TAILRACE = (sys.executable, "-m", "tailrace_cli")
"""The program of an image without a command of its own, as this Python has it."""

_APP = re.compile(r"[\w.]+:[\w.]+")


@dataclass(frozen=True)
class Plan:
    """How the workers of one queue are run.

    Attributes:
        resource: The JobQueue.
        command: Program and arguments of a worker.
        variables: Its environment, beside what this machine adds; may hold secrets.
    """

    resource: JobQueue
    command: tuple[str, ...]
    variables: Mapping[str, str]

    @property
    def name(self) -> str:
        """The resource's name, for people."""
        return self.resource.metadata.name

    @property
    def queue(self) -> str:
        """The queue's name in the database."""
        return self.resource.queue

    @property
    def app(self) -> str | None:
        """MODULE:APP, where the command is a `tailrace worker` of ours."""
        arguments = self.command[len(TAILRACE) :]
        if self.command[: len(TAILRACE)] != TAILRACE or arguments[:1] != ("worker",):
            return None
        return next((word for word in arguments[1:] if _APP.fullmatch(word)), None)

    def same_workers(self, other: Plan) -> bool:
        """Whether workers of another plan need not be replaced by those of this one."""
        return (self.command, dict(self.variables)) == (other.command, dict(other.variables))


class Sources:
    """The files that plans come from.

    Args:
        files: JobQueue files.
        env_file: The `.env`; None for the one beside the first file.
    """

    def __init__(self, files: Sequence[Path], env_file: Path | None = None) -> None:
        self.files = tuple(files)
        self.env_file = env_file or files[0].parent / ".env"
        self._seen = self._looks()

    def changed(self) -> bool:
        """Whether a file is another one than when this was asked last."""
        before, self._seen = self._seen, self._looks()
        return before != self._seen

    def variables(self) -> dict[str, str]:
        """What the `.env` says.

        Raises:
            InvalidOption: A line of it is wrong.
        """
        return read_dotenv(self.env_file)

    def plans(self) -> list[Plan]:
        """Read everything.

        Raises:
            InvalidOption: What is wrong, in which file and field, and what to do.
        """
        local = self.variables()
        found: list[Plan] = []
        for file in self.files:
            for resource in read_queues([str(file)]):
                try:
                    found.append(self._plan(resource, local))
                except InvalidOption as problem:
                    raise of_file(problem, str(file)) from None
        names = [plan.queue for plan in found]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InvalidOption(f"queue {twice!r} stands in two documents", field="file", hint="give each queue once")
        return found

    def _plan(self, resource: JobQueue, local: Mapping[str, str]) -> Plan:
        container = worker_container(resource)
        ours = worker_environment(resource)
        if "format" not in resource.spec.worker.logging.model_fields_set:
            ours["TAILRACE_LOG_FORMAT"] = "text"  # JSON is for clusters, unless somebody says it
        variables = {**local, **self._declared(container, resource, local)}
        program, arguments = (tuple(expanded(w, variables) for w in words) for words in (container.command, container.args))
        if not program and not arguments:
            raise InvalidOption(
                "of container 'worker' is empty",
                field="spec.template.spec.containers.args",
                hint='say what a worker runs: args: ["worker", "shop.jobs:app"]',
            )
        kept = {name: value for name, value in variables.items() if not name.startswith("TAILRACE_")}
        if program[:1] in ((), ("tailrace",)):
            program = (*TAILRACE, *program[1:])
        return Plan(resource, (*program, *arguments), {**kept, **ours})

    def _declared(self, container: Container, resource: JobQueue, local: Mapping[str, str]) -> dict[str, str]:
        known: dict[str, str] = dict(local)
        for variable in container.env:
            if variable.name in local:
                continue  # what differs on this machine stands in the .env
            value = self._value(variable, resource, known)
            if value is not None:
                known[variable.name] = value
        return known

    def _value(self, variable: Variable, resource: JobQueue, known: Mapping[str, str]) -> str | None:
        source = variable.value_from
        if source is None:
            return expanded(variable.value or "", known)
        if source.field_ref is not None and source.field_ref.field_path in ("metadata.name", "metadata.namespace"):
            metadata = resource.metadata
            return metadata.name if source.field_ref.field_path == "metadata.name" else metadata.namespace or "default"
        reference = source.secret_key_ref or source.config_map_key_ref
        if reference is not None and reference.optional:
            return None
        kept = "a field of the pod"
        if reference is not None:
            kept = f"key {reference.key!r} of {'Secret' if source.secret_key_ref else 'ConfigMap'} {reference.name!r}"
        raise InvalidOption(
            f"{variable.name} is {kept}, which this machine does not have",
            field="spec.template.spec.containers.env",
            hint=f"add a line {variable.name}=… to {self.env_file}",
        )

    def _looks(self) -> tuple[Any, ...]:
        return tuple(_look(path) for path in (*self.files, self.env_file))


def _look(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
