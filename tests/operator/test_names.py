"""The names that people and machines rely on: each said once, explained, used, and valid where it goes."""

from __future__ import annotations

import re
from enum import StrEnum

import pytest

from docs import jobqueue
from docs.sources import ROOT, members
from tailrace.names.annotations import Annotation
from tailrace.names.conditions import ConditionType, Reason
from tailrace.names.event_reasons import EventReason
from tailrace.names.labels import Label

KINDS: list[type[StrEnum]] = [ConditionType, Reason, EventReason, Label, Annotation]
NAMES = ROOT / "core" / "tailrace" / "names"


def sources() -> str:
    folders = (ROOT / "core", ROOT / "worker", ROOT / "controller", ROOT / "cli")
    return "\n".join(path.read_text(encoding="utf-8") for folder in folders for path in sorted(folder.rglob("*.py")))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_name_is_explained_and_used(kind: type[StrEnum]) -> None:
    module = NAMES / f"{kind.__module__.rsplit('.', 1)[-1]}.py"
    silent = [name for name, said in members(module, kind.__name__) if not said.endswith(".")]
    assert silent == []
    text = sources()
    assert [name for name in kind.__members__ if not re.search(rf"\b{kind.__name__}\.{name}\b", text)] == []


@pytest.mark.parametrize("kind", [ConditionType, Reason, EventReason], ids=lambda kind: kind.__name__)
def test_reasons_are_words_that_the_api_takes(kind: type[StrEnum]) -> None:
    assert [str(name) for name in kind if not re.fullmatch(r"[A-Z][A-Za-z]{0,126}", str(name))] == []


@pytest.mark.parametrize("kind", [Label, Annotation], ids=lambda kind: kind.__name__)
def test_labels_and_annotations_have_a_prefix_and_a_name(kind: type[StrEnum]) -> None:
    assert [str(name) for name in kind if not re.fullmatch(r"[a-z0-9.-]+/[a-z0-9][a-z0-9.-]{0,62}", str(name))] == []


def test_names_are_spelled_in_one_place_only() -> None:
    """style.md 9. Texts for people may name them; code that compares or writes takes them from there."""
    ours = [str(name) for name in (*Label, *Annotation) if str(name).startswith("tailrace.dev/")]
    found = [
        str(path.relative_to(ROOT))
        for folder in ("core", "worker", "controller", "cli")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.parent != NAMES and any(f'"{name}"' in path.read_text(encoding="utf-8") for name in ours)
    ]
    assert found == []


def test_the_custom_resource_names_the_conditions_that_there_are() -> None:
    status = jobqueue.schema()["properties"]["status"]["properties"]["conditions"]["description"]
    assert [str(kind) for kind in ConditionType if str(kind) not in status] == []
