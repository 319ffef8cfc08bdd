"""Payloads: what fits goes to JSON and back, what does not is refused by its path (cases e1, e2, e4)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from tailrace import App, InvalidOption, InvalidPayload, JobContext
from tailrace.payload import PayloadShape

if TYPE_CHECKING:
    from collections.abc import Sequence as OnlyForCheckers

app = App("q", database_url="postgresql://nowhere.invalid/db")


class Colour(Enum):
    RED = "red"


class Order(BaseModel):
    id: int
    total: Decimal


@dataclass
class Point:
    x: float
    y: float


@app.task
async def typed(
    ctx: JobContext[Any],
    when: datetime,
    path: Path,
    colour: Colour,
    order: Order,
    point: Point,
    *,
    key: UUID | None = None,
    days: list[date] = [],  # noqa: B006 - as people write it
) -> None: ...


@app.task
def loose(name: str, value: Any = None, numbers: dict[str, float] | None = None) -> None: ...


@app.task
def late(value: OnlyForCheckers[int]) -> None: ...


def shape(task: Any) -> PayloadShape:
    found: PayloadShape = task.spec.shape
    return found


def test_values_survive_json() -> None:
    given = {
        "when": datetime(2027, 1, 1, tzinfo=UTC),
        "path": Path("/a/ü"),
        "colour": Colour.RED,
        "order": Order(id=2**60, total=Decimal("1.10")),
        "point": Point(1.5, -0.0),
        "key": UUID(int=5),
        "days": [date(2027, 2, 28)],
    }
    assert typed.parse(shape(typed).text(given)) == given


def test_a_default_that_was_not_given_is_not_stored() -> None:
    """A worker with a newer default uses that."""
    assert json.loads(shape(loose).text({"name": "n"})) == {"name": "n"}
    assert loose.job("n").payload == {"name": "n"}
    assert loose.job("n", None).payload == {"name": "n", "value": None}


@pytest.mark.parametrize(
    ("args", "kwargs", "field", "problem"),
    [
        ((), {}, "payload.name", "missing"),
        (("a", 1, None, 4), {}, "loose", "positional"),
        (("a",), {"name": "b"}, "payload.name", "twice"),
        (("a",), {"vlaue": 1}, "payload.vlaue", "no parameter"),
        ((1,), {}, "payload.name", "string"),
        (("a",), {"numbers": {"x": "y"}}, "payload.numbers.x", "number"),
        (("a",), {"numbers": {"x": math.nan}}, "payload.numbers.x", "finite"),
        (("a",), {"value": math.nan}, "payload.value", "nan"),
        (("a",), {"value": [1, {"deep": math.inf}]}, "payload.value[1].deep", "inf"),
        (("a",), {"value": float("1e400")}, "payload.value", "inf"),
        (("a",), {"value": Decimal("NaN")}, "payload.value", "NaN"),
        (("a\0",), {}, "payload.name", "NUL"),
        (("a",), {"value": {"b": ["x", "y\0"]}}, "payload.value.b[1]", "NUL"),
        (("a",), {"value": {"b\0": 1}}, 'payload.value["b\\u0000"]', "NUL"),
        (("\ud800",), {}, "payload.name", "surrogate"),
        (("a",), {"value": {"\udc80 x": 1}}, None, "surrogate"),
        (("a",), {"value": ["\udfff"]}, "payload.value[0]", "surrogate"),
        (("a",), {"value": object()}, "payload.value", "object"),
        (("a",), {"value": 10**5000}, "payload.value", "digits"),
        (("x" * 262_144,), {}, "payload", "bytes"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_path(args: Any, kwargs: Any, field: str | None, problem: str) -> None:
    for refuse in (loose.job, loose.enqueue):  # both before any database is asked
        with pytest.raises(InvalidPayload, match=problem) as refused:
            refuse(*args, **kwargs)
        assert field is None or refused.value.field == field
        str(refused.value).encode()  # a message can be logged


def test_six_harmless_characters_are_not_nul() -> None:
    text = shape(loose).text({"name": "\\u0000", "value": {"\\u0000": "NaN null Infinity"}})
    assert loose.parse(text) == {"name": "\\u0000", "value": {"\\u0000": "NaN null Infinity"}}


def test_big_integers_keep_their_digits() -> None:
    number = 10**399 + 7
    assert loose.parse(shape(loose).text({"name": "n", "value": number}))["value"] == number


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_deep_nesting_is_refused_and_does_not_kill_the_process() -> None:
    fits = shape(loose).text({"name": "n", "value": nested(99)})
    assert loose.parse(fits)["value"] == nested(99)
    for levels in (100, 10_000):
        with pytest.raises(InvalidPayload, match="nested deeper than 100"):
            loose.job("n", nested(levels))
    itself: list[Any] = []
    itself.append(itself)
    with pytest.raises(InvalidPayload):
        loose.job("n", itself)


def test_the_size_is_that_of_the_text_postgresql_prints() -> None:
    """e3."""
    room = 262_144 - len('{"name": ""}')
    assert shape(loose).text({"name": "x" * room})
    with pytest.raises(InvalidPayload, match="262,145 bytes"):
        shape(loose).text({"name": "x" * (room + 1)})
    with pytest.raises(InvalidPayload, match="bytes"):
        shape(loose).text({"name": "\N{PILE OF POO}" * 66_000})  # fewer characters than bytes
    with pytest.raises(InvalidPayload, match="bytes"):
        shape(loose).text({"name": "n", "value": [1e308] * 900})  # jsonb prints 309 digits


@pytest.mark.parametrize("raw", ["[]", "1", "null", '{"name": 1}', '{"name": "a", "x": 1}', "{", "\xff"])
def test_a_worker_refuses_what_does_not_fit(raw: str) -> None:
    with pytest.raises(InvalidPayload):
        loose.parse(raw)


def test_a_refused_value_is_not_repeated() -> None:
    """GW-07: it may be a secret."""
    with pytest.raises(InvalidPayload) as refused:
        loose.job("n", None, "hunter2")  # type: ignore[arg-type]
    assert "hunter2" not in str(refused.value)


def test_an_annotation_that_exists_for_checkers_only_is_named() -> None:
    with pytest.raises(InvalidOption, match="OnlyForCheckers") as refused:
        late.job([1])
    assert refused.value.field == "task late, parameter value"


def test_the_schema_is_for_producers_in_other_languages() -> None:
    schema = loose.schema()
    assert schema["required"] == ["name"]
    assert schema["additionalProperties"] is False
