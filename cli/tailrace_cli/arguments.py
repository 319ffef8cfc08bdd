"""Kinds of arguments: ids, durations, times, JSON objects, names.

Each refuses at the door what the database could only refuse later, with a sentence that says what was meant. Ids may be
given as `-`, which reads them from stdin, one or more a line.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

__all__ = ["DURATION", "ID", "JSON_OBJECT", "MOMENT", "NAME", "TIME", "read_ids", "read_text"]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|s|m|h|d)?")
_LONGEST_SECONDS = 366 * 86_400.0
_MAX_ID = 2**63 - 1


if TYPE_CHECKING:
    _Kind = click.ParamType[Any]  # generic since click 8.2
else:
    _Kind = click.ParamType


class _Name(_Kind):
    """Text that PostgreSQL can keep."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail("is not UTF-8; set a UTF-8 locale or type it anew", param, ctx)
        if "\0" in text:
            self.fail("holds the character NUL; remove it", param, ctx)
        return text


class _Id(_Kind):
    """A positive whole number of at most 63 bits."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value).strip()
        if text == "-":
            return text
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:20]) <= _MAX_ID and len(text) <= 20):
            self.fail(f"{text!r} is no id; take it from a list, or give - to read ids from stdin", param, ctx)
        return int(text)


class _Duration(_Kind):
    """A time span such as 90, 90s, 1.5h or 1h30m; a bare number is seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        text = str(value).strip().lower().replace(" ", "")
        parts = list(_DURATION.finditer(text))
        if not parts or "".join(part[0] for part in parts) != text:
            self.fail(f"{value!r} is no duration; write 90s, 10m, 2h or 1h30m", param, ctx)
        seconds = sum(float(part["number"]) * _UNITS[part["unit"] or "s"] for part in parts)
        if seconds > _LONGEST_SECONDS:
            self.fail(f"{value!r} is longer than 366 days", param, ctx)
        return timedelta(seconds=seconds)


class _Time(_Kind):
    """A time with its zone, in ISO 8601."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            time = datetime.fromisoformat(str(value).strip())
        except ValueError:
            time = None
        if time is None or time.tzinfo is None:
            self.fail(f"{value!r} is no time with a zone; write 2026-11-28T09:30:00Z", param, ctx)
        return time


class _Moment(_Kind):
    """A time with a zone, or a duration: so long ago."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        if "-" in str(value) or ":" in str(value):
            time = TIME.convert(value, param, ctx)
        else:
            ago = DURATION.convert(value, param, ctx)
            time = datetime.now(UTC) - ago
        return time


class _JsonObject(_Kind):
    """A JSON object."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        try:
            found = json.loads(str(value), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            self.fail(f"is no JSON: {error}", param, ctx)
        if not isinstance(found, dict):
            self.fail("must be a JSON object, such as '{\"event_id\": 1}'", param, ctx)
        return found


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


NAME = _Name()
ID = _Id()
DURATION = _Duration()
TIME = _Time()
MOMENT = _Moment()
JSON_OBJECT = _JsonObject()


def read_ids(given: Sequence[int | str]) -> list[int]:
    """Return the ids of the arguments; `-` stands for those on stdin, parted by white space. Each comes once.

    Args:
        given: What the ID arguments gave.

    Raises:
        click.UsageError: There is none, or stdin holds something else.
    """
    found: dict[int, None] = {}
    for item in given:
        if isinstance(item, int):
            found[item] = None
            continue
        for word in read_text().split():
            value = ID.convert(word, None, None)
            if isinstance(value, int):
                found[value] = None
    if not found:
        raise click.UsageError("no ids were given; name them, or give - and write them to stdin")
    return list(found)


def read_text() -> str:
    """Return stdin as text.

    Raises:
        click.UsageError: It is not UTF-8.
    """
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise click.UsageError("stdin is not UTF-8") from None
