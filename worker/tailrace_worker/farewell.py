"""The last act of a process that cannot end in order: a handler runs on, or the event loop is blocked.

Writes what the database does not know yet, on a connection of its own and within a few seconds, from whatever thread:
what runs is over for us, since the process ends right after. drain.py ends in order.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any

from tailrace.clock import boot
from tailrace.db import Jsonb, errors, settled
from tailrace.errors import TailraceError
from tailrace.names.events import Event
from tailrace_worker import endings, results
from tailrace_worker.failures import describe, fingerprint, outcome
from tailrace_worker.rows import ATTEMPT, ID, TASK, TOKEN
from tailrace_worker.slots import Slot

if TYPE_CHECKING:
    from tailrace_worker.consumer import Consumer
    from tailrace_worker.parts import Parts

log = logging.getLogger("tailrace.worker")

SECONDS = 5.0
_SESSION = {"statement_timeout": "4s", "lock_timeout": "500ms"}


def last_words(parts: Parts) -> bool:
    """Write every outcome that is left, and those of the jobs that still run. The process must end right after.

    What a queue is just sending by itself is refused there or here: each outcome is guarded by its token.

    Args:
        parts: The worker's parts.

    Returns:
        Whether the database took them.
    """
    said = [one for consumer in parts.consumers for one in _left(consumer, parts.worker)]
    written = threading.Event()
    # A thread of its own, since neither a connect nor a statement can be bounded from outside.
    writer = threading.Thread(target=_write, args=(parts, said, written), name="tailrace-farewell", daemon=True)
    writer.start()
    writer.join(SECONDS)
    fields = {"event": Event.WORKER_STOPPED, "worker_id": parts.worker, "jobs": len(said), "written": written.is_set()}
    log.warning("wrote what was left in the last act", extra=fields)
    return written.is_set()


def _write(parts: Parts, said: list[dict[str, Any]], written: threading.Event) -> None:
    database = parts.database
    try:
        with database.connect(direct=True, role="heartbeat", options=_SESSION) as conn:
            with settled(conn, database.blocks, _SESSION):
                conn.execute(database.blocks["finish.settle"], {"worker": parts.worker, "outcomes": Jsonb(said)})
            written.set()
            conn.execute(database.blocks["lease.leave"], {"worker": parts.worker})
    except (TailraceError, errors.Error, OSError) as error:
        log.warning("the last outcomes could not be written: %s", type(error).__name__, extra={"event": Event.WORKER_STOPPED})


def _left(consumer: Consumer, worker: str) -> list[dict[str, Any]]:
    lanes, outbox = consumer.lanes, consumer.outbox
    said = [outcome(ident, token, "success") for token, ids in list(outbox.done.items()) for ident in list(ids)]
    said.extend(outbox.unsent())
    running = [_of(slot, consumer, worker) for slot in lanes.slots if slot.row is not None and slot.reason != "lease_lost"]
    said.extend(running)
    said.extend(endings.handback(row) for row in (*lanes.buffer, *lanes.groups.rest()))
    for one in said:
        saved = outbox.saved.get((one["id"], one["token"]))
        if saved is not None:
            one["saved"] = json.loads(saved)
    return results.ruled(consumer, [one for one in said if one["token"] not in outbox.lost])


def _of(slot: Slot, consumer: Consumer, worker: str) -> dict[str, Any]:
    row = slot.row
    if row is None:
        raise RuntimeError("an outcome without a running job")
    late = slot.reason == "timeout" or boot() > slot.deadline
    if slot.reason == "cancel":
        return outcome(row[ID], row[TOKEN], "cancelled")
    error = TimeoutError("could not be stopped")
    more: dict[str, Any] = {"error": describe(error, attempt=row[ATTEMPT], worker=worker)}
    if not late:
        return outcome(row[ID], row[TOKEN], "interrupted", error_type="unknown", **more)
    more |= {"delay": consumer.lanes.tasks[row[TASK]].delay(row[ATTEMPT], endings.own_backoff(row)), "error_type": "timeout"}
    return outcome(row[ID], row[TOKEN], "timeout", fingerprint=fingerprint(row[TASK], error), **more)
