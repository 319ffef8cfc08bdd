"""Pages of lists: bounded, ordered by something unique, continued by a cursor.

A cursor is the key of the last row, so rows that come or go between two pages are neither skipped nor repeated. Every
list of the library and the command line uses these few functions.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from tailrace.errors import InvalidOption

__all__ = ["DEFAULT_LIMIT", "MAX_LIMIT", "Page", "check_id", "check_limit", "cursor", "frozen", "page_reader", "read_cursor"]

DEFAULT_LIMIT: Final = 50
"""Rows of a page when nothing is said."""

MAX_LIMIT: Final = 500
"""The most rows of a page."""

T = TypeVar("T")
_MAX_ID: Final = 2**63 - 1


@dataclass(frozen=True)
class Page(Generic[T]):
    """Some rows of a list, in its order; iterates over them."""

    items: tuple[T, ...]
    """The rows."""
    after: str | None
    """What `after=` takes for the next page; None at the end of the list."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> T:
        return self.items[index]


def check_limit(limit: int) -> int:
    """Return the limit of a page.

    Args:
        limit: 1 to 500.

    Raises:
        InvalidOption: It is no whole number in that range.
    """
    if type(limit) is not int or not 1 <= limit <= MAX_LIMIT:
        raise InvalidOption(f"must be a whole number from 1 to {MAX_LIMIT}", field="limit", hint="Read more pages with after")
    return limit


def check_id(value: int, *, field: str = "id") -> int:
    """Return the id of a job, a dead letter or a lease.

    Args:
        value: A positive number that fits a bigint.
        field: Its name, for the message.

    Raises:
        InvalidOption: It cannot be one.
    """
    if type(value) is not int or not 1 <= value <= _MAX_ID:
        raise InvalidOption("must be a positive whole number below 2^63", field=field, hint="Take it from a list")
    return value


def cursor(*key: str | int) -> str:
    """Return the key of a row as text for `after=`.

    Args:
        key: The values that order the list, the unique one last.
    """
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode().rstrip("=")


def read_cursor(text: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """Return the key in a cursor.

    Args:
        text: What a page gave as `after`, or None for the first page.
        kinds: The types of the key's values.

    Raises:
        InvalidOption: The cursor is not of this list.
    """
    if text is None:
        return None
    try:
        key = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        key = None
    if not isinstance(key, list) or [type(part) for part in key] != list(kinds):
        raise InvalidOption("is no cursor of this list", field="after", hint="Give the `after` of the page before, unchanged")
    return tuple(key)


def frozen(row: Sequence[Any]) -> list[Any]:
    """Return the values of a row with arrays as tuples, for a frozen record.

    Args:
        row: What the database gave.
    """
    return [tuple(value) if isinstance(value, list) else value for value in row]


def page_reader(
    row: Callable[[tuple[Any, ...]], T], key: Callable[[T], tuple[str | int, ...]], limit: int
) -> Callable[[Sequence[tuple[Any, ...]]], Page[T]]:
    """Return a reader that makes a page of rows; the statement asks for one row more than the limit.

    Args:
        row: Makes one item.
        key: Gives the values of an item that order the list.
        limit: The rows of the page.
    """

    def read(rows: Sequence[tuple[Any, ...]]) -> Page[T]:
        items = tuple(row(values) for values in rows[:limit])
        return Page(items, cursor(*key(items[-1])) if len(rows) > limit else None)

    return read
