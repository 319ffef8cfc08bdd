"""Outcomes on their way back to the database.

Lanes put outcomes here; the consumer takes them as one flush with the next claim, in one transaction. A flush whose
answer was lost goes back and is sent again: then a missing row is unknown, not fenced. claim.py sends what `take`
gives.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Outcome = dict[str, Any]
"""One element of settle_v1: id, token, kind, delay, error, error_type, … (see the function)."""

BUSY_SECONDS = 1.0
"""How long an outcome waits whose dead letter somebody else holds."""


@dataclass
class Flush:
    """What one transaction writes.

    Attributes:
        done: Succeeded jobs by the token of their lease.
        outcomes: Every other outcome; with the state that its handler saved, if it did.
        leases: Tokens whose last job is in this flush, when that is a plain success.
        doubtful: An earlier try may have been committed.
        emptied: Tokens whose last job is in this flush, when that is any other outcome.
    """

    done: dict[int, list[int]]
    outcomes: list[Outcome]
    leases: list[int]
    doubtful: bool = False
    emptied: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Jobs in it."""
        return sum(len(ids) for ids in self.done.values()) + len(self.outcomes)


@dataclass
class Outbox:
    """The outcomes of one queue that the database does not know yet, and the leases this worker holds.

    Attributes:
        saved: Handlers' own states, JSON text by (id, token). They wait for the outcome: the row of a job that its handler
            completes belongs to the handler's transaction.
        held: Jobs by token that this worker holds and whose outcome is not confirmed.
        expected: Tokens of claims that are on their way.
        lost: Tokens that the database took away: nothing of theirs is written.
        unsure: Tokens of outcomes that may have been written: that their lease is gone says nothing.
        in_flight: Outcomes that were sent and are not answered.
        refused: Outcomes that were not even sent since their token is lost; the consumer counts them as fenced.
        history: The queue keeps a history of its jobs.
    """

    done: dict[int, list[int]] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    saved: dict[tuple[int, int], str] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)
    expected: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)
    count: int = 0
    urgent: bool = False
    in_flight: int = 0
    refused: int = 0
    history: bool = False
    _sent: list[int] = field(default_factory=list)
    _doubtful: bool = False
    _again: list[tuple[float, Outcome]] = field(default_factory=list)

    def add(self, outcome: Outcome, *, urgent: bool = False) -> None:
        """Take an outcome that is not a plain success.

        Args:
            outcome: The element for settle_v1.
            urgent: Write it at once: it was a last attempt, or something waits for it.
        """
        self.outcomes.append(outcome)
        self.count += 1
        self.urgent = self.urgent or urgent

    def succeeded(self, ident: int, token: int) -> None:
        """Take a plain success. The lanes do the same in place, once a job."""
        self.done.setdefault(token, []).append(ident)
        self.count += 1

    def save(self, ident: int, token: int, state: str) -> None:
        """Take a handler's own state, JSON text."""
        self.saved[ident, token] = state

    def known(self) -> list[int]:
        """Tokens that the heartbeat should not report as unknown."""
        return [*list(self.held), *list(self.expected), *self._sent]

    def took(self, token: int, jobs: int) -> None:
        """A claim came back with this many jobs."""
        self.expected.discard(token)
        if jobs:
            self.held[token] = jobs

    def take(self, now: float) -> Flush:
        """Everything that is ready to be written."""
        due = [o for at, o in self._again if at <= now]
        if due:
            self._again = [(at, o) for at, o in self._again if at > now]
        outcomes, self.outcomes = self.outcomes + due, []
        done, self.done = self.done, {}
        if self.saved:
            self._hand_over(done, outcomes)
        if self.lost:
            every = sum(map(len, done.values())) + len(outcomes)
            done = {t: ids for t, ids in done.items() if t not in self.lost}
            outcomes = [o for o in outcomes if o["token"] not in self.lost]
            self.refused += every - sum(map(len, done.values())) - len(outcomes)
        leases, emptied = self._count_down(done, outcomes)
        flush = Flush(done, outcomes, leases, self._doubtful, emptied)
        self.in_flight += flush.size
        self.count, self.urgent, self._doubtful = 0, False, False
        return flush

    def _hand_over(self, done: dict[int, list[int]], outcomes: list[Outcome]) -> None:
        """Saved states go with the outcomes of their runs; a success needs none, and a lost lease writes none."""
        for one in outcomes:
            state = self.saved.pop((one["id"], one["token"]), None)
            if state is not None:
                one["saved"] = json.loads(state)
        over = {(i, t) for t, ids in done.items() for i in ids}
        for key in list(self.saved):  # a handler in a thread may save at any moment
            if key in over or key[1] in self.lost:
                self.saved.pop(key, None)

    def _count_down(self, done: dict[int, list[int]], outcomes: list[Outcome]) -> tuple[list[int], list[int]]:
        ended: list[int] = []
        emptied: list[int] = []
        per_token: dict[int, int] = {t: len(ids) for t, ids in done.items()}
        settled = {o["token"] for o in outcomes}  # the functions remove their leases themselves: one of them may stay
        for outcome in outcomes:
            per_token[outcome["token"]] = per_token.get(outcome["token"], 0) + 1
        self._sent = list(per_token)
        for token, jobs in per_token.items():
            left = self.held.get(token, 0) - jobs
            if left > 0:
                self.held[token] = left
            else:
                self.held.pop(token, None)
                (emptied if token in settled else ended).append(token)
        return ended, emptied

    def restore(self, flush: Flush, *, doubtful: bool) -> None:
        """Take a flush back that failed.

        Args:
            flush: What `take` gave.
            doubtful: It may have been committed all the same.
        """
        for token, ids in flush.done.items():
            self.done.setdefault(token, []).extend(ids)
            self.held[token] = self.held.get(token, 0) + len(ids)
        for outcome in flush.outcomes:
            self.held[outcome["token"]] = self.held.get(outcome["token"], 0) + 1
        self.outcomes = flush.outcomes + self.outcomes
        self.count += flush.size
        self.in_flight -= flush.size
        if doubtful:
            self.unsure.update(flush.done, (outcome["token"] for outcome in flush.outcomes))
        self._doubtful = self._doubtful or doubtful or flush.doubtful

    def answered(self, flush: Flush) -> None:
        """The database has taken this flush, or a part of it that was sent alone."""
        self.in_flight -= flush.size
        if self.unsure:
            self.unsure.difference_update(flush.done, (outcome["token"] for outcome in flush.outcomes))

    def busy(self, outcomes: Iterable[Outcome], now: float) -> None:
        """Try these again in a second: their dead letter was locked, they keep their lease."""
        for outcome in outcomes:
            self.held[outcome["token"]] = self.held.get(outcome["token"], 0) + 1
            self._again.append((now + BUSY_SECONDS, outcome))

    def next_try(self) -> float | None:
        """When the next busy outcome is due, by this process's clock."""
        return min((at for at, _ in self._again), default=None)

    def unsent(self) -> list[Outcome]:
        """Every outcome but plain successes that waits to be written."""
        return [*self.outcomes, *(outcome for _, outcome in self._again)]

    def unsettled(self) -> list[int]:
        """Jobs whose outcome waits since something was locked."""
        return [outcome["id"] for _, outcome in self._again]

    @property
    def unwritten(self) -> int:
        """How many outcomes the database has not confirmed."""
        return self.count + len(self._again) + self.in_flight

    @property
    def empty(self) -> bool:
        """Whether nothing waits to be written."""
        return not (self.unwritten or self.outcomes or self.done)
