"""A worker's connection as limited.py sees it: what it sends in a transaction of its own goes to the machine's client at once.

So the machine plays the real decisions about limits and rates. Only what they remember of time is left out: process.py makes
the worker forget it, or an example would not be the same twice.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

Send = Callable[[str, Any], list[Any]]
"""Sends one statement, committed by itself, and returns its rows."""


class Wire:
    """The work connection.

    Args:
        blocks: The SQL blocks.

    Attributes:
        send: Who sends the statements just now.
    """

    pooled = False

    def __init__(self, blocks: Mapping[str, str]) -> None:
        self.database = SimpleNamespace(blocks=blocks)
        self.operations = SimpleNamespace(note=lambda sent, seconds, *, ok: None)
        self.conn = self
        self.send: Send

    def pipeline(self) -> nullcontext[None]:
        """Nothing: each statement is answered before the next one."""
        return nullcontext()

    transaction = pipeline

    async def execute(self, text: str, params: Any, *, prepare: bool) -> Any:
        """Send a statement; settings of the transaction are left out."""
        rows = [] if text == self.database.blocks["session.set_local"] else self.send(text, params)

        async def fetchall() -> list[Any]:
            return rows

        return SimpleNamespace(fetchall=fetchall)

    def run(self, work: Coroutine[Any, Any, None], send: Send) -> None:
        """Run something that sends statements here and waits for nothing else."""
        self.send = send
        try:
            work.send(None)
        except StopIteration:
            return
        raise AssertionError("a coroutine of the worker waits for something")
