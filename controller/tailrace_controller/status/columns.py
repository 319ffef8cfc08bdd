"""The figures of a queue that `kubectl get jq` prints: jobs by state and the ages of the oldest.

They are coarse. A busy queue changes them with each reading, and each write of a status goes to every watcher; so they are
written when they moved by more than a tenth and more than a minute has passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from tailrace_controller.observed import QueueSeen

__all__ = ["figures", "moment", "parsed"]

STATES: Final = ("ready", "scheduled", "retrying", "blocked", "held", "unclaimable", "running", "stale", "dead")
SHARE: Final = 0.1
SECONDS: Final = 60.0
_FIELDS: Final = ("jobs", "oldestReadyTime", "oldestDeadLetterTime", "statsTime")


def figures(queue: QueueSeen | None, previous: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields jobs, oldestReadyTime, oldestDeadLetterTime and statsTime of a status.

    Args:
        queue: The last reading; None when the database was not asked.
        previous: The status as it was.
    """
    kept = {name: previous[name] for name in _FIELDS if previous.get(name) is not None}
    if queue is None or queue.stats_time is None:
        return kept
    fresh: dict[str, Any] = {"jobs": {state: max(0, int(queue.counts.get(state, 0))) for state in STATES}}
    for name, value in (
        ("oldestReadyTime", queue.oldest_ready_time),
        ("oldestDeadLetterTime", queue.oldest_dead_letter_time),
        ("statsTime", queue.stats_time),
    ):
        if value is not None:
            fresh[name] = moment(value)
    return fresh if _worth_writing(kept, fresh, queue.stats_time) else kept


def moment(value: datetime) -> str:
    """Return a moment as Kubernetes writes it: UTC, whole seconds.

    Args:
        value: An aware datetime.
    """
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parsed(text: Any) -> datetime | None:
    """Return the moment that a field of a status holds; None for none.

    Args:
        text: The field.
    """
    try:
        value = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _worth_writing(kept: Mapping[str, Any], fresh: Mapping[str, Any], now: datetime) -> bool:
    before = parsed(kept.get("statsTime"))
    if before is None or "jobs" not in kept:
        return True
    passed = (now - before).total_seconds()
    if 0 <= passed <= SECONDS:
        return False
    if passed < 0:
        return True  # another server, whose clock is behind
    moved = any(_moved(kept["jobs"].get(state), fresh["jobs"][state]) for state in STATES)
    return moved or any(_aged(kept.get(name), fresh.get(name), now) for name in _FIELDS[1:3])


def _moved(before: Any, now: int) -> bool:
    old = int(before or 0)
    return old != now and (old == 0 or now == 0 or abs(now - old) > SHARE * old)


def _aged(before: Any, now: Any, at: datetime) -> bool:
    """The age that is shown counts on by itself; what matters is how far it is from the true one."""
    old, new = parsed(before), parsed(now)
    if old is None or new is None:
        return old is not new
    wrong = abs((new - old).total_seconds())
    return wrong > SECONDS and wrong > SHARE * (at - new).total_seconds()
