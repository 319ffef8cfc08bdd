"""JobQueue files: read and checked alike for `queues apply` and `dev`.

An error says which file it is about, then which field. `tailrace.queue_spec` knows the fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tailrace.errors import InvalidOption
from tailrace.queue_spec import JobQueue, read_resources, refuse_unsupported
from tailrace_cli.arguments import read_text

__all__ = ["of_file", "read_queues"]


def read_queues(names: Iterable[str]) -> list[JobQueue]:
    """Read the JobQueues of files in their order; each queue may come once.

    Args:
        names: Files with one or more documents; - is stdin.

    Raises:
        InvalidOption: A file cannot be read, is no YAML, or has a wrong field or one that this release would not honour.
    """
    found = [resource for name in names for resource in _read(name)]
    queues = [resource.queue for resource in found]
    if len(set(queues)) != len(queues):
        raise InvalidOption("two of the JobQueues are for the same queue", field="file", hint="give each queue once")
    return found


def of_file(problem: InvalidOption, name: str) -> InvalidOption:
    """Word a problem as one of a file.

    Args:
        problem: What is wrong with its text.
        name: The file; - is stdin and goes without saying.
    """
    if name == "-":
        return problem
    return InvalidOption(str(problem).removeprefix("file: "), field=name)


def _read(name: str) -> Sequence[JobQueue]:
    try:
        text = read_text() if name == "-" else Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidOption(f"{name} cannot be read: {error.strerror}", field="file", hint="check its path and rights") from None
    except UnicodeDecodeError:
        raise InvalidOption(f"{name} is not UTF-8", field="file", hint="save it as UTF-8") from None
    try:
        found = read_resources(text)
        for resource in found:
            refuse_unsupported(resource.spec)
    except InvalidOption as problem:
        raise of_file(problem, name) from None
    return found
