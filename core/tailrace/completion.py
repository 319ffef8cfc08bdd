"""Completing a job inside its handler's own transaction: the job's end and the handler's effects commit together, or neither.

The statement raises in the server when the job is no longer this run's, so that the transaction cannot commit. Neighbours:
`job` (the words of the context), the worker's `endings`, which finds out whether the transaction was committed.
"""

from __future__ import annotations

from typing import Any, cast

from tailrace.db import AsyncConnection, Blocks, Connection, Jsonb, Statement, TransactionStatus, arun, run
from tailrace.enqueue.connections import is_async
from tailrace.errors import InvalidOption
from tailrace.results import plain_result


class Completion:
    """The right of one run to complete its job.

    Attributes:
        done: The statement has succeeded in some transaction; only the database knows whether that was committed.

    Args:
        blocks: The SQL of the schema.
        job: The job's id.
        token: The token that the worker holds it by.
        worker: The worker's id, for messages.
        keep: Seconds that the task keeps results; None = not at all.
    """

    __slots__ = ("_blocks", "_keep", "_params", "done")

    def __init__(self, blocks: Blocks, *, job: int, token: int, worker: str, keep: float | None = None) -> None:
        self._blocks = blocks
        self._keep = keep
        self._params = {"id": job, "token": token, "worker": worker}
        self.done = False

    def complete(self, conn: object, result: object) -> None:
        """Complete the job on a connection that blocks; errors as `JobContext.complete_in`."""
        checked = cast("Connection", _checked(conn, awaited=False))
        run(checked, self._statement(result))
        self.done = True

    async def acomplete(self, conn: object, result: object) -> None:
        """Complete the job on a connection that is awaited; errors as `JobContext.complete_in`."""
        checked = cast("AsyncConnection", _checked(conn, awaited=True))
        await arun(checked, self._statement(result))
        self.done = True

    def _statement(self, result: object) -> Statement[None]:
        if result is not None and self._keep is None:
            raise InvalidOption("the task keeps no results", field="result", hint="Give it keep_result=, or leave the result out")
        kept = None if self._keep is None else Jsonb({"result": plain_result(result), "keep": self._keep})
        return Statement(self._blocks["finish.complete"], {**self._params, "kept": kept}, lambda _: None)


def _checked(conn: Any, *, awaited: bool) -> Any:
    if is_async(conn) != awaited:
        kind, word = ("blocks", "complete_in") if awaited else ("is awaited", "await ctx.acomplete_in")
        raise InvalidOption(f"is a connection that {kind}", field="conn", hint=f"Use {word}(conn)")
    if conn.autocommit and conn.info.transaction_status == TransactionStatus.IDLE:
        raise InvalidOption(
            "is not in a transaction, so nothing would commit together", field="conn", hint="Use `with conn.transaction():`"
        )
    return conn
