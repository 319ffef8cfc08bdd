"""The children that the builders make of the samples, as YAML: what `golden/` keeps.

A changed file there means that an upgrade of the controller rolls workers. When that is meant:
`python -m tests.operator.children`, and a line in CHANGELOG.md that says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tailrace.queue_spec import JobQueue, read_resources
from tailrace_controller.desired import Context, deployment, disruption_budget
from tests.operator.samples import VALID

GOLDEN = Path(__file__).parent / "golden"
CONTEXT = Context(uid="00000000-0000-4000-8000-000000000001", replicas=2)
REMEDY = "workers would be rolled; if that is meant: python -m tests.operator.children, and say so in CHANGELOG.md"


class _Plain(yaml.SafeDumper):
    """Lists are indented as people write them, and nothing is an alias."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def placed(resource: JobQueue, namespace: str = "team-a") -> JobQueue:
    """Return a resource as an API server sends it: with a namespace."""
    return resource.model_copy(update={"metadata": resource.metadata.model_copy(update={"namespace": namespace})})


def resources(path: Path) -> list[JobQueue]:
    """Return the JobQueues of a sample."""
    return [placed(resource) for resource in read_resources(path.read_text(encoding="utf-8"))]


def children(resource: JobQueue, context: Context = CONTEXT) -> list[dict[str, Any]]:
    """Return all children of a resource."""
    budget = disruption_budget(resource, context=context)
    return [deployment(resource, context=context), *([budget] if budget is not None else [])]


def rendered(path: Path) -> str:
    """Return the children of a sample as YAML."""
    bodies = [body for resource in resources(path) for body in children(resource)]
    return yaml.dump_all(bodies, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120)


def write() -> None:
    """Write every file of `golden/` anew."""
    for path in VALID:
        (GOLDEN / path.name).write_text(rendered(path), encoding="utf-8")


if __name__ == "__main__":
    write()
