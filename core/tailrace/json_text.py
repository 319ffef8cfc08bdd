"""JSON as PostgreSQL will accept and print it: checked before a statement is sent.

jsonb refuses NUL and halves of surrogate pairs, JSON knows no NaN, and a deep nesting kills parsers: each is refused here
with the path to the value. The checks cost one scan of the text; only text that looks suspicious is walked value by value.
Neighbours: `payload` (typed payloads), `job` (saved state), `enqueue.options` (meta).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from decimal import Decimal
from typing import Any, Final

from tailrace.errors import InvalidPayload, TailraceError

PAYLOAD_LIMIT_BYTES: Final = 262_144
MOST_LEVELS: Final = 100
# A byte of JSON grows to at most 62 bytes when jsonb prints it (`1e308` becomes 309 digits), so text below this share of
# the limit needs no exact measure.
_GROWTH: Final = 64
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_EXPONENT: Final = re.compile(rb"-?\d+(?:\.\d+)?[eE][+-]?\d+")
_MANY_DIGITS: Final = 4000
_MANY_BITS: Final = 13_280
_LONG_NUMBER: Final = re.compile(rb"\d{4000}")
_NAME: Final = re.compile(r"[^\W\d]\w*\Z")
_HIGHEST_SURROGATE: Final = "\udfff"
_LOWEST_SURROGATE: Final = "\ud800"


def encode(
    value: Any,
    *,
    limit: int = PAYLOAD_LIMIT_BYTES,
    root: str = "payload",
    error: type[TailraceError] = InvalidPayload,
    hint: str = "Store large data elsewhere and pass a reference",
) -> str:
    """Turn plain JSON values into text.

    Args:
        value: dicts with text keys, lists, text, numbers, booleans and None.
        limit: the largest size in bytes, measured as PostgreSQL prints jsonb.
        root: the name of the value in errors.
        error: the class to raise.
        hint: what to do when it is too large.

    Raises:
        TailraceError: of class `error`, with the path to the value that is wrong.
    """
    try:
        raw = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as problem:
        raise explain(value, root=root, error=error, otherwise=problem) from None
    check(raw, value, limit=limit, root=root, error=error, hint=hint)
    return raw.decode()


def check(
    raw: bytes,
    value: Any,
    *,
    limit: int = PAYLOAD_LIMIT_BYTES,
    root: str = "payload",
    error: type[TailraceError] = InvalidPayload,
    hint: str = "Store large data elsewhere and pass a reference",
) -> None:
    """Refuse text that a serializer made and that PostgreSQL or a parser would refuse, or that has lost a value.

    Args:
        raw: JSON in UTF-8; serializers write NaN and Infinity as words or as null.
        value: what it was made of; walked only when the text looks suspicious.
        limit: see `encode`.
        root: see `encode`.
        error: see `encode`.
        hint: see `encode`.
    """
    suspicious = (
        b"\\u0000" in raw
        or b"null" in raw
        or b"NaN" in raw
        or b"Infinity" in raw
        or raw.count(b"[") + raw.count(b"{") > MOST_LEVELS
        or (len(raw) >= _MANY_DIGITS and _LONG_NUMBER.search(raw) is not None)
    )
    fault = find_fault(value, strict=False) if suspicious else None
    if fault is not None:
        path, problem, remedy = fault
        raise error(problem, field=root + path, hint=remedy)
    if len(raw) * _GROWTH > limit:
        size = printed_size(raw)
        if size > limit:
            raise error(f"{size:,} bytes as JSON, at most {limit:,} are kept", field=root, hint=hint)


def printed_size(raw: bytes) -> int:
    """Bytes of the text that PostgreSQL prints for this JSON as jsonb: blanks after separators, numbers without exponent."""
    skeleton = _STRING.sub(b"", raw)
    size = len(raw) + skeleton.count(b",") + skeleton.count(b":")
    for number in _EXPONENT.findall(skeleton):
        size += len(format(Decimal(number.decode()), "f")) - len(number)
    return size


def explain(value: Any, *, root: str, error: type[TailraceError], otherwise: Exception) -> TailraceError:
    """The error for a value that a serializer refused, with the path where we find the fault."""
    fault = find_fault(value)
    if fault is None:
        return error(f"cannot be written as JSON: {_printable(str(otherwise))}", field=root)
    path, problem, remedy = fault
    return error(problem, field=root + path, hint=remedy)


def find_fault(value: Any, *, strict: bool = True) -> tuple[str, str, str] | None:
    """The first value that PostgreSQL or JSON refuses: its path below the root, the problem and the remedy.

    Args:
        value: what to search.
        strict: objects that are no JSON are faults; else they pass, since a serializer has written them.
    """
    # An explicit stack: the value may be nested deeper than Python's own.
    stack: list[tuple[Any, str, int]] = [(value, "", 1)]
    while stack:
        item, path, level = stack.pop()
        problem = _fault_of(item, strict=strict)
        if problem is not None:
            return (_printable(path), *problem)
        if not strict and not isinstance(item, type) and (hasattr(item, "__pydantic_fields__") or is_dataclass(item)):
            item = getattr(item, "__dict__", None)
        if not isinstance(item, Mapping | list | tuple | set | frozenset):
            continue
        if level > MOST_LEVELS:
            return _printable(path)[:40] + "…", f"nested deeper than {MOST_LEVELS} levels", "Flatten it, or store it elsewhere"
        if isinstance(item, Mapping):
            fault = _fault_of_keys(item, path, strict=strict)
            if fault is not None:
                return fault
            children = [(child, path + _step(key), level + 1) for key, child in item.items()]
        else:
            children = [(child, f"{path}[{index}]", level + 1) for index, child in enumerate(item)]
        stack.extend(reversed(children))
    return None


def text_fault(text: str) -> tuple[str, str] | None:
    """Why PostgreSQL cannot store this text: problem and remedy, or None."""
    if "\0" in text:
        return "holds a NUL character (U+0000), which PostgreSQL cannot store", "Remove it, or send the bytes as base64"
    if not text.isascii() and any(_LOWEST_SURROGATE <= letter <= _HIGHEST_SURROGATE for letter in text):
        return "holds half of a surrogate pair, which is no character", "Decode the text properly, or send bytes as base64"
    return None


def _fault_of(item: Any, *, strict: bool) -> tuple[str, str] | None:
    if isinstance(item, str):
        return text_fault(item)
    if isinstance(item, float | Decimal) and not math.isfinite(item):
        return f"{item} is no JSON number", "Use None, or text"
    if isinstance(item, int):
        return None if item.bit_length() < _MANY_BITS else ("a number of about 4,000 digits or more", "Send it as text")
    if not strict or item is None or isinstance(item, float | Mapping | list | tuple):
        return None
    return f"{type(item).__name__} is no JSON value", "Convert it, or annotate the parameter with its type"


def _fault_of_keys(item: Mapping[Any, Any], path: str, *, strict: bool) -> tuple[str, str, str] | None:
    for key in item:
        if strict and not isinstance(key, str | int | float) and key is not None:
            return _printable(path), f"a key of type {type(key).__name__}", "Use text keys"
        problem = text_fault(key) if isinstance(key, str) else None
        if problem is not None:
            return _printable(path + _step(key)), f"the key {problem[0]}", problem[1]
    return None


def _step(key: Any) -> str:
    name = str(key)
    return f".{name}" if _NAME.match(name) else f"[{json.dumps(name)}]"


def _printable(text: str) -> str:
    """Text for a message: without halves of surrogate pairs, which no log or terminal takes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
