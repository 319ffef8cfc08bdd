"""Options of an enqueue: checked here, in the words of Python, and written as the jsonb that the SQL functions take.

The SQL functions check the same again for producers in other languages; checking here first means that a refused job does
not break the caller's transaction. Neighbours: `new_job`, `statements`, `task` (the decorator's options).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from tailrace.errors import InvalidOption, duration_seconds
from tailrace.json_text import encode, text_fault
from tailrace.policy import ON_DUPLICATE, RetryPolicy, check_max_attempts, check_priority

NOT_YET: Final = frozenset({"aliases", "upgrade", "declare"})
"""Options and words of later releases: refused by name, so that no job is stored that nobody claims."""

QUEUE_BYTES: Final = 128
TASK_BYTES: Final = 200
TENANT_BYTES: Final = 128
KEY_BYTES: Final = 512
GROUP_BYTES: Final = 200
META_BYTES: Final = 8192


def check_names(options: Mapping[str, Any], *, known: Collection[str]) -> None:
    """Refuse an option that is unknown or of a later release.

    Raises:
        InvalidOption: It names the option.
    """
    for name in options:
        if name in NOT_YET:
            raise InvalidOption("is not in this release", field=name, hint="Leave it out")
        if name == "keep_result" and name not in known:
            raise InvalidOption("is an option of the task", field=name, hint="Give it there: @app.task(keep_result=3600)")
        if name not in known:
            raise InvalidOption("is no option", field=name, hint=f"Known: {', '.join(sorted(known))}")


def check_text(value: object, *, field: str, most: int, least: int = 1) -> str:
    """Return a name of `least` to `most` bytes of UTF-8, or refuse it with `InvalidOption`."""
    if not isinstance(value, str):
        raise InvalidOption(f"must be text, not {type(value).__name__}", field=field, hint="Give a str")
    fault = text_fault(value)
    if fault is not None:
        raise InvalidOption(fault[0], field=field, hint=fault[1])
    if not least <= len(value.encode()) <= most:
        raise InvalidOption(f"must be {least} to {most} bytes of UTF-8", field=field, hint="Use a digest of a long text")
    return value


def option_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check options and return them as the SQL functions take them.

    Args:
        options: By name; None values were not given.

    Raises:
        InvalidOption: It names the option, the problem and the remedy.
    """
    check_names(options, known=_KNOWN)
    values: dict[str, Any] = {}
    for name, value in options.items():
        if value is not None and name != "queue":
            _WRITERS[name](values, value)
    if "delay" in values and "run_at" in values:
        raise InvalidOption("excludes delay", field="run_at", hint="Give one of the two")
    expires = values.get("expires_in")
    if expires is not None and expires <= values.get("delay", 0):
        raise InvalidOption("ends before the job is due", field="expires_in", hint="It counts from now: give more than the delay")
    return values


def _run_at(value: object) -> str:
    if not isinstance(value, datetime):
        raise InvalidOption(f"must be a datetime, not {type(value).__name__}", field="run_at", hint="For a wait use delay")
    if value.utcoffset() is None:
        raise InvalidOption("must be aware of its time zone", field="run_at", hint="Such as datetime.now(UTC)")
    try:
        return value.astimezone(UTC).isoformat()
    except OverflowError:
        raise InvalidOption("must be in the years 1 to 9999", field="run_at", hint="Leave it out to run now") from None


def _on_duplicate(value: object) -> object:
    if value not in ON_DUPLICATE:
        raise InvalidOption("is no such mode", field="on_duplicate", hint=f"Use {', '.join(ON_DUPLICATE)}")
    return value


def _meta(value: object) -> object:
    if not isinstance(value, Mapping):
        raise InvalidOption(f"must be a mapping, not {type(value).__name__}", field="meta", hint="Such as {'request': rid}")
    plain = dict(value)
    return json.loads(encode(plain, limit=META_BYTES, root="meta", error=InvalidOption, hint="Keep only small facts in meta"))


def _writer(name: str, check: Callable[[Any], Any]) -> Callable[[dict[str, Any], Any], None]:
    def write(values: dict[str, Any], value: Any) -> None:
        values[name] = check(value)

    return write


def _retry(values: dict[str, Any], value: Any) -> None:
    if not isinstance(value, RetryPolicy):
        raise InvalidOption(
            f"must be a RetryPolicy, not {type(value).__name__}", field="retry", hint="Such as RetryPolicy(base=5)"
        )
    values["backoff"] = value.as_json()
    values.setdefault("max_attempts", value.max_attempts)


def _duration(name: str) -> Callable[[dict[str, Any], Any], None]:
    return _writer(name, lambda value: duration_seconds(value, field=name))


_WRITERS: Final[dict[str, Callable[[dict[str, Any], Any], None]]] = {
    "priority": _writer("priority", check_priority),
    "delay": _duration("delay"),
    "run_at": _writer("run_at", _run_at),
    "key": _writer("key", lambda value: check_text(value, field="key", most=KEY_BYTES)),
    "on_duplicate": _writer("on_duplicate", _on_duplicate),
    "serial_group": _writer("serial_group", lambda value: check_text(value, field="serial_group", most=GROUP_BYTES)),
    "tenant": _writer("tenant", lambda value: check_text(value, field="tenant", most=TENANT_BYTES, least=0)),
    "max_attempts": _writer("max_attempts", check_max_attempts),
    "retry": _retry,
    "timeout": _duration("timeout"),
    "expires_in": _duration("expires_in"),
    "meta": _writer("meta", _meta),
}
_KNOWN: Final = frozenset({*_WRITERS, "queue"})
