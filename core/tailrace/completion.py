"""Completing a job inside its handler's own transaction: the job's end and the handler's effects commit together, or neither.

The statement raises in the server when the job is no longer this run's, so that the transaction cannot commit. Neighbours:
`job` (the words of the context), the worker's `endings`, which finds out whether the transaction was committed.
"""

from __future__ import annotations

from typing import Any, cast

from tailrace.db import AsyncConnection, Blocks, Connection, Statement, TransactionStatus, arun, run
from tailrace.enqueue.connections import is_async
from tailrace.errors import InvalidOption


class Completion:
    """The right of one run to complete its job.

    Attributes:
        done: The statement has succeeded in some transaction; only the database knows whether that was committed.

    Args:
        blocks: The SQL of the schema.
        job: The job's id.
        token: The token that the worker holds it by.
        worker: The worker's id, for messages.
    """

    __slots__ = ("_blocks", "_params", "done")

    def __init__(self, blocks: Blocks, *, job: int, token: int, worker: str) -> None:
        self._blocks = blocks
        self._params = {"id": job, "token": token, "worker": worker}
        self.done = False

    def complete(self, conn: object, result: object) -> None:
        """Complete the job on a connection that blocks; errors as `JobContext.complete_in`."""
        checked = cast("Connection", _checked(conn, result, awaited=False))
        run(checked, self._statement())
        self.done = True

    async def acomplete(self, conn: object, result: object) -> None:
        """Complete the job on a connection that is awaited; errors as `JobContext.complete_in`."""
        checked = cast("AsyncConnection", _checked(conn, result, awaited=True))
        await arun(checked, self._statement())
        self.done = True

    def _statement(self) -> Statement[None]:
        return Statement(self._blocks["finish.complete"], self._params, lambda _: None)


def _checked(conn: Any, result: object, *, awaited: bool) -> Any:
    if result is not None:
        raise InvalidOption("is not in this release", field="result", hint="Leave it out; keep results in a table of your own")
    if is_async(conn) != awaited:
        kind, word = ("blocks", "complete_in") if awaited else ("is awaited", "await ctx.acomplete_in")
        raise InvalidOption(f"is a connection that {kind}", field="conn", hint=f"Use {word}(conn)")
    if conn.autocommit and conn.info.transaction_status == TransactionStatus.IDLE:
        raise InvalidOption(
            "is not in a transaction, so nothing would commit together", field="conn", hint="Use `with conn.transaction():`"
        )
    return conn
