"""An exchange that a worker process of the machine has begun: what it sends, what came back, and how it is told in a note."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tailrace_worker.ask import Ask, Got
from tailrace_worker.claim import Step
from tailrace_worker.rows import Row
from tests.machine.groups import Scene
from tests.machine.model import Model
from tests.machine.records import must


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


def settle(model: Model, sent: list[dict[str, Any]], rows: list[Row], *, first: bool) -> None:
    """Outcomes were sent to settle_v1 or finish_keyed_v1 and answered; `first` when it is told."""
    told: dict[int, list[str]] = {}
    for ident, result in rows:
        told.setdefault(ident, []).append(result)
    by_id: dict[int, list[dict[str, Any]]] = {}
    for one in {(o["id"], o["token"]): o for o in sent}.values():
        by_id.setdefault(one["id"], []).append(one)
    for ident, outcomes in by_id.items():
        answers = sorted(told.get(ident, []), key=lambda r: r == "fenced")
        must(len(answers) == len(outcomes), f"job {ident}: {outcomes} got {answers}")
        # two outcomes of one job have two tokens, of which one at most holds: that one comes first
        for one, result in zip(sorted(outcomes, key=lambda o: not model.owned(ident, o["token"])), answers, strict=True):
            model.settle(one, result, first=first)
