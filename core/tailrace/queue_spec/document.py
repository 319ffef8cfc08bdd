"""Reads JobQueues from YAML or JSON and words what is wrong with them.

A reader of its own since YAML has traps that a queue file must not fall into: a key given twice, a date where a string
was meant. Errors name the path of each field, as `kubectl` would.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml
from pydantic import ValidationError

from tailrace.errors import InvalidOption

__all__ = ["API_VERSION", "KIND", "documents", "wrong_fields"]

API_VERSION = "tailrace.dev/v1alpha1"
"""The version this release reads."""

KIND = "JobQueue"
"""The kind this release reads."""

_LARGEST_FILE_BYTES = 1_048_576
_REMEDIES = {
    "extra_forbidden": "unknown field: check its spelling and indentation",
    "missing": "is required: add it",
}


class _Reader(yaml.SafeLoader):
    """The safe loader, which also refuses a key given twice and reads dates as the strings they are."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the base declares it so
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        seen: set[object] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def documents(text: str) -> list[dict[str, Any]]:
    """Return the documents of a text, each a mapping of kind JobQueue; empty ones are left out.

    Args:
        text: YAML or JSON, at most 1 MiB; documents are parted by `---`.

    Raises:
        InvalidOption: It is no YAML, or a document is no JobQueue.
    """
    if len(text.encode("utf-8", "surrogatepass")) > _LARGEST_FILE_BYTES:
        raise InvalidOption("is larger than 1 MiB", field="file", hint="split it into one file per queue")
    try:
        found = [document for document in yaml.load_all(text, Loader=_Reader) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidOption(f"is not YAML: {_one_line(error)}", field="file", hint="correct the place named") from None
    if not found:
        raise InvalidOption("holds no JobQueue", field="file", hint=f"start it with apiVersion: {API_VERSION}, kind: {KIND}")
    for document in found:
        _check_kind(document)
    return found


def wrong_fields(error: ValidationError) -> InvalidOption:
    """Word a validation error as one that names every wrong field by its path.

    Args:
        error: What pydantic raised.
    """
    problems: dict[str, list[str]] = {}
    for detail in error.errors(include_url=False):
        field, text = _worded(detail["type"], detail["loc"], detail["msg"])
        problems.setdefault(field, []).append(text)
    first, *others = ((field, " or ".join(texts)) for field, texts in problems.items())
    return InvalidOption("; ".join([first[1], *(f"{field}: {text}" for field, text in others)]), field=first[0])


def _check_kind(document: Any) -> None:
    found = document.get("kind") if isinstance(document, dict) else None
    if found != KIND:
        problem = f"is {found!r}, not {KIND}" if found else "is missing"
        raise InvalidOption(problem, field="kind", hint=f"give a file with apiVersion: {API_VERSION} and kind: {KIND}")


def _worded(kind: str, place: tuple[int | str, ...], message: str) -> tuple[str, str]:
    path = ""
    for step in place:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not step.startswith(("constrained-", "function-")):  # branches of a union are no fields
            path += f".{step}" if path else step
    text = _REMEDIES.get(kind) or message.removeprefix("Value error, ")
    return path or "file", text.replace("Input should", "must").replace("String should", "must")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
