"""How a run ended, when it did not simply succeed: from the slot and the exception to an outcome in the outbox.

run.py calls it off the hot path; failures.py knows exceptions, settle_v1 in the database does the rest.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tailrace.clock import boot
from tailrace.errors import CompletionNotCommitted, InvalidPayload, NoRetry, RetryAfter, Snooze
from tailrace.job import Stop
from tailrace.names.events import Event
from tailrace.policy import RetryPolicy
from tailrace.results import plain_result
from tailrace_worker.bound import BoundTask
from tailrace_worker.failures import describe, error_type, fingerprint, kind_of, outcome
from tailrace_worker.finish import Outcome
from tailrace_worker.rows import (
    ATTEMPT,
    EXPIRED,
    EXTRA,
    GROUPED,
    ID,
    KEYED,
    LAST,
    MARK,
    PAYLOAD,
    REQUEUED,
    SPENT,
    TASK,
    TOKEN,
    Row,
)
from tailrace_worker.slots import Slot

if TYPE_CHECKING:
    from tailrace_worker.run import Lanes

log = logging.getLogger("tailrace.worker")


def succeeded(lanes: Lanes, slot: Slot, task: BoundTask) -> None:
    """A run returned that was told to stop, or whose job was requeued, has a key or a group, or was completed by the handler.

    Past its timeout it has failed all the same: nobody knows whether it returned because it was done or because it was told.
    """
    if slot.reason == "timeout":
        failed(lanes, slot, task, TimeoutError())
        return
    row = _row(slot)
    mark = row[MARK] & ~(LAST | GROUPED)
    _measure(lanes, slot, task, "success")
    requeued = bool(row[MARK] & REQUEUED)
    if slot.completed:
        made = {**_uncommitted(lanes, task, row), "requeued": requeued}
        _put(lanes, slot, made, raised=False, urgent=bool(row[MARK] & LAST))
    elif task.keeps is not None:
        kept = {"keep": task.keeps, "result": _result(slot, task, row), "requeued": requeued}
        made = outcome(row[ID], row[TOKEN], "success", task=row[TASK], **kept)
        lanes.outbox.add(made, urgent=slot.reason is not None)
    elif slot.reason is None and mark == KEYED:
        lanes.outbox.add(outcome(row[ID], row[TOKEN], "success", task=row[TASK], keyed=None if lanes.outbox.history else True))
        return
    elif slot.reason is None and not mark:
        lanes.outbox.succeeded(row[ID], row[TOKEN])
        return
    else:
        lanes.outbox.add(outcome(row[ID], row[TOKEN], "success", task=row[TASK], requeued=requeued), urgent=True)
    lanes.want.set()


def _result(slot: Slot, task: BoundTask, row: Row) -> Any:
    """What the handler returned, as it is kept. The job has succeeded, so a result that cannot be kept is none."""
    try:
        return plain_result(slot.result)
    except InvalidPayload as error:
        fields = {"event": Event.RESULT_DROPPED, "job_id": row[ID], "queue": slot.queue, "task": task.name}
        log.error("the result cannot be kept: %s", error, extra=fields)
        return None


def _uncommitted(lanes: Lanes, task: BoundTask, row: Row) -> Outcome:
    """What holds if the transaction that completed the job was rolled back; if it was committed, the row is gone."""
    error = CompletionNotCommitted("the transaction that completed the job was rolled back", hint="Commit it before returning")
    told = describe(error, attempt=row[ATTEMPT], worker=lanes.worker)
    more: dict[str, Any] = {"error_type": "unknown", "fingerprint": fingerprint(row[TASK], error), "task": row[TASK]}
    return outcome(row[ID], row[TOKEN], "error", error=told, delay=task.delay(row[ATTEMPT], own_backoff(row)), **more)


def _put(lanes: Lanes, slot: Slot, made: Outcome, *, raised: bool, urgent: bool) -> None:
    """Leave an outcome in the outbox; if the handler completed its job, the outcome counts only if that was not committed."""
    if slot.completed:
        made["completion"] = None if math.isinf(slot.deadline) else slot.deadline
        made["raised"] = raised
    lanes.outbox.add(made, urgent=urgent)


def failed(lanes: Lanes, slot: Slot, task: BoundTask, error: BaseException) -> None:
    """A run raised, was cancelled or timed out."""
    row, reason = _row(slot), slot.reason
    if reason == "lease_lost" and row[TOKEN] in lanes.outbox.lost:
        _measure(lanes, slot, task, "interrupted")
        lanes.interrupted["lease_lost"] = lanes.interrupted.get("lease_lost", 0) + 1
        lanes.fenced += 1
        return
    if reason in ("cancel", "shutdown", "lease_lost"):  # that lease may be ours still: then the run is given back
        kind = "cancelled" if reason == "cancel" else "interrupted"
        lanes.interrupted[reason] = lanes.interrupted.get(reason, 0) + 1
        _measure(lanes, slot, task, "interrupted")
        told = describe(error, attempt=row[ATTEMPT], worker=lanes.worker) if kind == "interrupted" else None
        made = outcome(row[ID], row[TOKEN], kind, error=told, error_type="unknown", task=row[TASK])
        _put(lanes, slot, made, raised=True, urgent=True)
    else:
        _add(lanes, slot, task, row, error)
    lanes.want.set()


def unclear(lanes: Lanes, slot: Slot) -> None:
    """A run failed in a way that cannot be described: an error as any other, with the default backoff."""
    row = _row(slot)
    error = describe(RuntimeError("the run failed; its exception could not be read"), attempt=row[ATTEMPT], worker=lanes.worker)
    delay = RetryPolicy().delay(row[ATTEMPT])
    made = outcome(row[ID], row[TOKEN], "error", error=error, error_type="unknown", delay=delay, task=row[TASK])
    _put(lanes, slot, made, raised=True, urgent=True)
    lanes.want.set()


def _add(lanes: Lanes, slot: Slot, task: BoundTask, row: Row, error: BaseException) -> None:
    delay: float | None = None
    if slot.reason == "timeout":
        kind = "timeout"
        error = TimeoutError(f"ran longer than {boot() - slot.since:.1f} s and was stopped")
    elif not slot.calling:
        kind, error = _misfit(task, row, error)
    else:
        error = _asked(lanes, slot, task, error)
        kind, delay = kind_of(error, no_retry=task.task.no_retry)
    if kind in ("error", "timeout"):
        delay = task.delay(row[ATTEMPT], own_backoff(row))
    _measure(lanes, slot, task, "snoozed" if kind == "snooze" else "failure")
    label = "timeout" if kind == "timeout" else "validation" if isinstance(error, InvalidPayload) else error_type(error)
    more: dict[str, Any] = {"delay": delay, "task": row[TASK]}
    if kind != "snooze":
        more |= {
            "error": describe(error, attempt=row[ATTEMPT], worker=lanes.worker),
            "error_type": label,
            "fingerprint": fingerprint(row[TASK], error),
        }
    urgent = bool(row[MARK] & LAST) or kind == "permanent"
    _put(lanes, slot, outcome(row[ID], row[TOKEN], kind, **more), raised=True, urgent=urgent)


def _misfit(task: BoundTask, row: Row, error: BaseException) -> tuple[str, BaseException]:
    """A payload that does not fit is retried: during a roll-out another worker may understand it. No object is permanent."""
    try:
        task.task.parse(row[PAYLOAD])
    except InvalidPayload as explained:
        error = explained
    return ("error" if str(row[PAYLOAD]).lstrip().startswith("{") else "corrupt"), error


def _asked(lanes: Lanes, slot: Slot, task: BoundTask, error: BaseException) -> BaseException:
    """What the task's on_error wants instead of the exception."""
    hook = task.task.on_error
    if hook is None or not isinstance(error, Exception) or isinstance(error, (NoRetry, RetryAfter, Snooze)):
        return error  # the handler itself has said what it wants
    slot.stop = slot.stop or Stop()
    try:
        instead = hook(error, lanes.calls.context(slot, _row(slot)))
    except Exception:  # a broken hook must not lose the outcome
        log.exception("on_error failed; its exception is ignored", extra={"event": Event.JOB_FAILED})
        return error
    if isinstance(instead, (NoRetry, RetryAfter)):
        if instead.__cause__ is None:
            instead.__cause__ = error
        return instead.with_traceback(error.__traceback__)
    return error


def unrun(row: Row) -> dict[str, Any] | None:
    """The outcome of a claimed row that must not run: exhausted before the claim, or expired.

    Returns:
        None when it may run.
    """
    if row[MARK] & SPENT:
        return outcome(row[ID], row[TOKEN], "exhausted", task=row[TASK])
    if row[MARK] & EXPIRED:
        return outcome(row[ID], row[TOKEN], "expired", task=row[TASK])
    return None


def handback(row: Row) -> dict[str, Any]:
    """The outcome of a job that was taken and never started."""
    return outcome(row[ID], row[TOKEN], "handback", task=row[TASK])


def own_backoff(row: Row) -> Mapping[str, Any] | None:
    """The job's own backoff, when it was enqueued with one."""
    extra = row[EXTRA]
    return extra.get("backoff") if isinstance(extra, Mapping) else None


def _row(slot: Slot) -> Row:
    if slot.row is None:
        raise RuntimeError("an outcome without a running job")
    return slot.row


def _measure(lanes: Lanes, slot: Slot, task: BoundTask, label: str) -> None:
    took = boot() - slot.since
    lanes.pace.run_seconds += took
    lanes.pace.runs += 1
    task.durations[label].observe(took)
    task.runs[label].observe(_row(slot)[ATTEMPT])
