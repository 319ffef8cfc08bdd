"""What the database answered to outcomes: counters, log lines, and what has to be tried again."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tailrace.clock import boot
from tailrace.names.events import Event
from tailrace_worker.ask import Got
from tailrace_worker.failures import outcome
from tailrace_worker.finish import Flush, Outbox, Outcome

if TYPE_CHECKING:
    from tailrace_worker.consumer import Consumer
    from tailrace_worker.run import Lanes

log = logging.getLogger("tailrace.worker")

_ENDED = {"dead", "dropped"}


def take(lanes: Lanes, outbox: Outbox, flush: Flush, got: Got) -> None:
    """Count what a flush did.

    Args:
        lanes: Their tasks carry the counters.
        outbox: Takes back what was busy.
        flush: What was sent.
        got: What came back.
    """
    if not flush.size:
        return
    outbox.answered(flush)
    completed = 0
    for name, n in got.finished:
        completed += n
        task = lanes.tasks.get(name)
        if task is not None:
            task.completed += n
    missing = sum(len(ids) for ids in flush.done.values()) - completed
    missing += _settled(lanes, outbox, flush, got)
    if not flush.doubtful:
        fenced(lanes, missing)


def _settled(lanes: Lanes, outbox: Outbox, flush: Flush, got: Got) -> int:
    """Count the outcomes that are no plain success; returns how many were refused."""
    refused = 0
    by_id = {o["id"]: o for o in flush.outcomes}
    busy = []
    for ident, result in got.settled:
        sent = by_id.get(int(ident))
        if sent is None:
            continue
        if result == "busy":
            busy.append(_late(lanes, sent))
        elif result != "fenced":
            _count(lanes, sent, result)
        elif "completion" not in sent:
            refused += sent["kind"] != "handback"  # nothing of worth: it had not even started here
        elif not flush.doubtful:
            _completed(lanes, sent)
    if busy:
        outbox.busy(busy, boot())
    return refused


def _completed(lanes: Lanes, sent: Outcome) -> None:
    """The handler had completed the job and the transaction was committed: what was sent does not count."""
    task = lanes.tasks.get(sent.get("task", ""))
    if task is None:
        return
    task.completed += 1
    task.resolved += bool(sent.get("requeued"))
    if sent["raised"]:
        task.after_completion += 1
        fields = {"event": Event.ERROR_AFTER_COMPLETION, "job_id": sent["id"], "queue": lanes.queue, "task": task.name}
        log.warning("raised after its completion was committed: %s", sent.get("error", {}).get("type"), extra=fields)


def _late(lanes: Lanes, sent: Outcome) -> Outcome:
    """An outcome to be asked for again. A completion whose transaction is still open after the deadline is a timeout."""
    deadline = sent.get("completion")
    if deadline is None or boot() <= deadline or sent["raised"] or sent["kind"] == "timeout":
        return sent
    message = "the transaction that completed the job was still open at the deadline, and was then rolled back"
    fields = {"event": Event.JOB_TIMED_OUT, "job_id": sent["id"], "queue": lanes.queue, "task": sent.get("task")}
    log.warning("the transaction that completes a job is still open after its timeout", extra=fields)
    told = {**sent["error"], "type": "TimeoutError", "message": message}
    return {**sent, "kind": "timeout", "error": told, "error_type": "timeout"}


def fenced(lanes: Lanes, jobs: int) -> None:
    """Count outcomes that were not written since their token is gone."""
    if jobs > 0:
        lanes.fenced += jobs
        log.warning(
            "outcomes refused: their token was gone", extra={"event": Event.WRITES_FENCED, "jobs": jobs, "queue": lanes.queue}
        )


def ruled(consumer: Consumer, outcomes: list[Outcome]) -> list[Outcome]:
    """Outcomes with what the queue's settings say about exhausted and interrupted jobs."""
    for each in outcomes:
        if consumer.discard:
            each["discard"] = True
        if each["kind"] == "interrupted":
            task = consumer.lanes.tasks.get(each.get("task", ""))
            most = consumer.max_interruptions if task is None else task.max_interruptions
            if most is not None:
                each["max_interruptions"] = most
    return outcomes


def _count(lanes: Lanes, sent: Outcome, result: str) -> None:
    task = lanes.tasks.get(sent.get("task", ""))
    if task is None:
        return
    if result == "succeeded":
        task.completed += 1
        task.resolved += bool(sent.get("requeued"))
        return
    label = sent.get("error_type")
    final = result in _ENDED
    if sent["kind"] in ("error", "timeout", "retry_after", "permanent", "corrupt") and label:
        task.fail(label, final=final)
        fields = {"event": Event.JOB_FAILED, "job_id": sent["id"], "queue": lanes.queue, "task": task.name,
                  "attempt": sent.get("error", {}).get("attempt"), "error_type": label, "result": result}  # fmt: skip
        log.info("run failed: %s", sent.get("error", {}).get("type"), extra=fields)
    if result == "dead":
        reason = _reason(sent)
        task.dead[reason] = task.dead.get(reason, 0) + 1
        log.warning(
            "moved to the dead letters",
            extra={"event": Event.JOB_DEAD, "job_id": sent["id"], "queue": lanes.queue, "task": task.name, "reason": reason},
        )
        if lanes.on_dead is not None:
            lanes.on_dead(sent["id"], lanes.queue)


def _reason(sent: Outcome) -> str:
    return {"permanent": "permanent", "corrupt": "permanent", "timeout": "timeout", "interrupted": "interrupted"}.get(
        sent["kind"], "max_attempts"
    )


def as_outcomes(flush: Flush, tasks: Mapping[int, str]) -> Flush:
    """The same flush with each success as an outcome of its own, which settle_v1 can pass over when its row is locked.

    Args:
        flush: What is to be written.
        tasks: The task of each succeeded job, for its counter; a job that is not in it has ended already.
    """
    successes = [outcome(i, token, "success", task=tasks.get(i)) for token, ids in flush.done.items() for i in ids]
    return Flush({}, flush.outcomes + successes, [], flush.doubtful, flush.leases + flush.emptied)


def parts(flush: Flush) -> Iterator[Flush]:
    """A flush in pieces that can fail alone: one outcome each."""
    for each in flush.outcomes:
        yield Flush({}, [each], [], flush.doubtful, flush.emptied)


def brief(error: BaseException) -> str:
    """The first line of a database error; it names no values of ours."""
    return str(error).strip().split("\n", 1)[0][:300] or type(error).__name__
