"""An exchange that a worker process of the machine has begun: what it sends, what came back, and how it is told in a note."""

from __future__ import annotations

from dataclasses import dataclass, field

from tailrace_worker.ask import Ask, Got
from tailrace_worker.claim import Step
from tailrace_worker.rows import Row
from tests.machine.groups import Scene


@dataclass
class Order:
    """An exchange that was begun.

    Attributes:
        ask: What it is to do.
        got: Filled once its commit is confirmed.
        steps: What it sends.
        answers: The rows of each step, once it has answered.
        scene: What its turn at the groups met.
    """

    ask: Ask
    got: Got
    steps: list[Step]
    answers: list[list[Row]] = field(default_factory=list)
    scene: Scene = field(default_factory=Scene)

    @property
    def jobs_written(self) -> set[int]:
        """Jobs whose outcome it writes."""
        flush = self.ask.flush
        return {i for ids in flush.done.values() for i in ids} | {o["id"] for o in flush.outcomes}

    @property
    def busy(self) -> set[int]:
        """Jobs whose outcome was put off."""
        told = [row for step, rows in zip(self.steps, self.answers, strict=True) for row in rows if step.into is self.got.settled]
        return {int(ident) for ident, result in told if result == "busy"}

    @property
    def said(self) -> str:
        """In words."""
        ask, flush = self.ask, self.ask.flush
        done = [f"success of {ident}" for ids in flush.done.values() for ident in ids]
        other = [f"{o['kind']} of {o['id']}" for o in flush.outcomes]
        asks = ["claims a suspect"] * ask.suspect + [f"claims {ask.jobs}{f' of {list(ask.ids)}' * bool(ask.ids)}"] * bool(
            ask.jobs
        )
        if ask.turn is not None:
            asks.append(f"turn: ended {list(ask.turn.ended)}, {ask.turn.n} of {ask.turn.k}{', suspect' * ask.turn.suspect}")
        return ", ".join(["again:"] * flush.doubtful + done + other + asks) or "nothing"
