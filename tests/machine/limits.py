"""Limits of a queue and of its tasks: how many may run, who learns of a change when, and which slots are taken.

What must hold of a claim stands in model.py; witness.py compares the slots with what runs.
"""

from __future__ import annotations

from typing import Any

from hypothesis import note
from psycopg.types.json import Jsonb

from tests.machine.actions import action, one_of
from tests.machine.handlers import QUEUE
from tests.machine.hands import WORKER
from tests.machine.model import Effect, Model
from tests.machine.producers import PAUSE, Producers, idle
from tests.machine.records import MAX_INTERRUPTIONS, RATE, must

LIMITS = one_of({}, {}, {"": 2}, {"": 1}, {"t1": 1}, {"": 2, "t2": 1}, {"rate": RATE}, {"rate": RATE}, {"rate t1": RATE, "": 2})
"""How many jobs of a task, or of the queue (""), may run; how many may start in a long time, of all tasks or of one."""


class Limits(Producers):
    """The rules of limits."""

    @action(1, when=idle, limits=LIMITS, pause=PAUSE)
    def limit(self, limits: dict[str, int], pause: bool) -> None:
        """An operator changes the limits of the queue."""
        rates = [{"name": "r", "jobs": most, "periodSeconds": 1000000, "burst": most, **({"tasks": [task]} if task else {})}
                 for name, most in limits.items() for kind, _, task in [name.partition(" ")] if kind == "rate"]  # fmt: skip
        settings: dict[str, Any] = {
            "jobDefaults": {"maxInterruptions": MAX_INTERRUPTIONS},
            "limits": {"rates": rates, **({"concurrency": limits[""]} if "" in limits else {})},
            "tasks": [{"name": name, "concurrencyLimit": most} for name, most in limits.items() if name.startswith("t")],
        }

        def effect(rows: list[Any], error: str | None) -> Effect:
            must(error is None, f"limits were refused: {error}")

            def happen(model: Model) -> None:
                model.limits = dict(limits)

            return happen

        query = "select tailrace.apply_queue(%s, %s, 'cli')"
        self.word(f"limits {limits}", query, [QUEUE, Jsonb(settings)], effect, pause=pause)

    @action(2, when=lambda self: not self.arena.witness.sure(), name=WORKER)
    def settle_limits(self, name: str) -> None:
        """A worker tries to make limits sure that are new or lower."""
        if not self.arena.clients[name].open:
            note(f"{name}: settles limits")
            self.arena.settle_limits(name)
