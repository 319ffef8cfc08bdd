"""What must be true: every job, lease and dead letter, as the words of docs/explanation/guarantees.md have it.

Transitions check that they are legal and then carry them out; what the database answered is their argument. They know no
SQL. A feature that moves jobs adds its transitions here or in a module beside (takeover.py).
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.machine.records import ENDS, MAX_INTERRUPTIONS, Held, Job, Lease, Letter, must

_BACK = ("retried", "snoozed", "interrupted", "lost")


@dataclass
class Model:
    """The committed truth.

    Attributes:
        born: Every job that was ever stored.
        ended: Jobs that are over and left no dead letter in state dead.
        counted: Ends and requeues by kind.
        limits: How many jobs of a task, or of the queue (""), may run; how many may start ("rate", "rate t1").
        starts: Handlers that were called for a unit of a rate.
        version: Which version of the limits that is, when the tables were looked at last.
        requested: Running jobs that somebody wants cancelled.
        silent: Workers whose lease has passed.
        draining: Workers that said so.
    """

    jobs: dict[int, Job] = field(default_factory=dict)
    letters: dict[int, Letter] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)
    groups: dict[str, Held] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    version: int = 0
    starts: int = 0
    born: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    counted: Counter[str] = field(default_factory=Counter)
    requested: set[int] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    draining: set[str] = field(default_factory=set)

    def copy(self) -> Model:
        """A model of its own with the same content."""
        return copy.deepcopy(self)

    def holder(self, task: str, key: str | None, slot: int = 0) -> Job | None:
        """The live job that holds a key, or its successor (slot 1)."""
        same = (j for j in self.jobs.values() if key is not None and (j.task, j.key, j.slot) == (task, key, slot))
        return next(same, None)

    def owned(self, ident: int, token: int | None) -> Job | None:
        """The job if this token still holds it."""
        job = self.jobs.get(ident)
        return job if job is not None and token is not None and job.token == token else None

    # ---- producers ---------------------------------------------------------------------------------------------------
    def store(self, job: Job) -> None:
        """A new job."""
        must(job.id not in self.born, f"job {job.id} was made twice")
        must(self.holder(job.task, job.key, job.slot) is None, f"job {job.id} was made though its key {job.key} is held")
        self.jobs[job.id] = job
        self.born.add(job.id)

    def replace(self, ident: int, payload: int, max_attempts: int) -> None:
        """An enqueue has changed a waiting job in place."""
        job = self.jobs.get(ident)
        if job is None or job.token is not None:
            raise AssertionError(f"job {ident} was replaced, but does not wait")
        if job.payload != payload:
            job.attempts = job.lost = 0
        job.payload, job.max_attempts, job.past = payload, max_attempts, False

    def follow(self) -> None:
        """A successor whose holder ended before it was stored follows at once."""
        for job in [j for j in self.jobs.values() if j.slot and self.holder(j.task, j.key) is None]:
            job.slot = 0

    def requeue(self, ident: int, *, force: bool) -> None:
        """A dead letter has become a job again."""
        letter = self.letters[ident]
        must(letter.state == "dead", f"dead letter {ident} was requeued, but is {letter.state}")
        letter.state = "requeued"
        letter.requeued_count += 1
        holder = self.holder(letter.task, letter.key)
        if holder is not None:
            must(force and holder.token is None, f"requeue of {ident} replaced job {holder.id}, which it may not")
            self.end(holder, "replaced")
        self.requested.discard(ident)
        self.ended.discard(ident)
        must(ident not in self.jobs, f"job {ident} lives twice")
        job = self.jobs[ident] = Job(ident, letter.task, letter.key, letter.payload, letter.max_attempts)
        job.requeues, job.serial_group = letter.requeued_count, letter.serial_group
        self.counted["requeued"] += 1

    # ---- workers -----------------------------------------------------------------------------------------------------
    def claim(self, token: int, worker: str, rows: Sequence[tuple[int, int, int, int]], *, suspect: bool, grouped: bool) -> None:
        """A worker has taken jobs, all in groups or none; a row is id, attempts after the claim, payload and mark."""
        if not rows:
            return
        must(token not in self.leases, "a token was given twice")
        must(not suspect or len(rows) == 1, "a job that was lost before was not claimed alone")
        for ident, attempts, payload, mark in rows:
            job = self.jobs.get(ident)
            if job is None or job.token is not None:
                raise AssertionError(f"job {ident} was claimed, but does not wait: {job}")
            must(not job.slot, f"job {ident} was claimed before the holder of its key ended: {job}")
            must((job.serial_group is not None) == grouped == bool(mark & 32), f"job {ident} was claimed past its group: {job}")
            must((job.lost > 0) == suspect, f"job {ident} was claimed {'alone' if suspect else 'among others'}: {job}")
            must(bool(mark & 1) == job.spent, f"job {ident}: the claim says spent={bool(mark & 1)}: {job}")
            must(bool(mark & 2) == job.past, f"job {ident}: the claim says expired={bool(mark & 2)}: {job}")
            must(bool(mark & 4) == (job.requeues > 0), f"job {ident}: the claim says requeued={bool(mark & 4)}: {job}")
            must(payload == job.payload, f"job {ident} came with payload {payload}: {job}")
            must(attempts == job.attempts + (not job.spent), f"job {ident} was charged {attempts}: {job}")
            job.token, job.attempts = token, attempts
        self.leases[token] = Lease(worker, tuple(ident for ident, *_ in rows))

    def within_limits(self, tasks: set[str], known: dict[str, int], counted: list[dict[str, int]]) -> None:
        """A claim that took jobs of some tasks leaves no more running than allowed; what a lowered limit finds may go on.

        Args:
            tasks: What it took.
            known: The limits that its worker knows.
            counted: Remembers which held when it was told; they may have changed when it is committed.
        """
        if not tasks:
            return
        if not counted:
            must(known == self.limits, f"a claim under the limits {known} took jobs under {self.limits}")
            counted.append(self.limits)
        for name in self.limits.keys() & {"", *tasks} if counted[0] == self.limits else ():
            running = [job.id for job in self.jobs.values() if job.token is not None and name in ("", job.task)]
            must(len(running) <= self.limits[name], f"{running} run under limit {name or 'of the queue'} {self.limits[name]}")

    def drop(self, tokens: Iterable[int], *, leave: bool) -> None:
        """Leases are removed; `leave` when their groups become free with them."""
        for token in tokens:
            self.leases.pop(token, None)
            for name in [n for n, held in self.groups.items() if leave and held.token == token]:
                held = self.groups.pop(name)
                if held.head is not None:
                    self.groups[name] = Held(None, held.head)

    def finish(self, pairs: Iterable[tuple[int, int]], told: int) -> None:
        """Plain successes; `told` is how many the database counted."""
        mine = [job for ident, token in pairs if (job := self.owned(ident, token)) is not None]
        must(len(mine) == told, f"{told} jobs were finished; these could be: {mine}")
        for job in mine:
            must(job.requeues == 0, f"requeued job {job.id} was finished without its dead letter")
            must(job.key is None, f"job {job.id} was finished without a look at the successor of its key")
            self.end(job, "succeeded")

    def complete(self, ident: int, token: int) -> None:
        """A handler ends its job in a transaction of its own."""
        job = self.owned(ident, token)
        if job is None:
            raise AssertionError(f"job {ident} was completed though its token is gone")
        self.end(job, "succeeded")

    def settle(self, outcome: dict[str, Any], result: str, *, first: bool) -> None:
        """Any other outcome; `first` when it is told, not when it is committed: a cancel may have come in between."""
        ident, token, kind = outcome["id"], outcome["token"], outcome["kind"]
        job = self.owned(ident, token)
        if result == "busy" and not first:
            return  # who held it then may have ended it since
        if job is None:
            must(result == "fenced", f"{kind} of job {ident} was taken ({result}) though its token is gone")
            return
        if result == "busy":
            return  # arena.py knows whether somebody holds what must change with it
        wanted = self._verdict(job, kind)
        must(result == wanted or not first, f"{kind} of job {ident} was {result}, not {wanted}: {job}")
        self.carry_out(job, result)

    def _verdict(self, job: Job, kind: str) -> str:
        plain = {"success": "succeeded", "cancelled": "cancelled", "expired": "expired", "handback": "handback"}
        if kind in plain:
            return plain[kind]
        if kind == "snooze":
            result = "snoozed"
        elif kind == "interrupted" and job.interrupted < MAX_INTERRUPTIONS:
            result = "interrupted"
        elif kind in ("permanent", "corrupt", "exhausted") or job.spent:
            return "dead"
        else:
            result = "retried"
        return "cancelled" if job.id in self.requested else result

    def carry_out(self, job: Job, result: str) -> None:
        """A running job ends or goes back."""
        if result in ENDS:
            self.end(job, result)
            return
        must(result in (*_BACK, "handback"), f"job {job.id}: no such result {result}")
        if result in ("snoozed", "interrupted", "handback"):
            job.attempts = max(job.attempts - 1, 0)
        job.lost += result == "lost"
        job.interrupted += result == "interrupted"
        job.snoozes += result == "snoozed"
        job.token = None

    def end(self, job: Job, what: str) -> None:
        """A job ends, and its dead letter changes with it."""
        del self.jobs[job.id]
        self.requested.discard(job.id)
        self.counted[what] += 1
        successor = self.holder(job.task, job.key, 1)
        if successor is not None and not job.slot and what != "replaced":
            successor.slot = 0
        letter = self.letters.get(job.id)
        if what == "dead":
            self._die(job, letter)
            return
        self.ended.add(job.id)
        if job.requeues:
            must(
                letter is not None and letter.state == "requeued",
                f"requeued job {job.id} lived without its dead letter: {letter}",
            )
            assert letter is not None
            self.counted["resolved" if what == "succeeded" else "withdrawn"] += 1
            letter.state = "resolved" if what == "succeeded" else "dead"
            if what != "succeeded":
                self.ended.discard(job.id)
                letter.key, letter.payload, letter.max_attempts = job.key, job.payload, job.max_attempts
                letter.total_attempts += job.attempts
                self._supersede(letter)

    def _die(self, job: Job, letter: Letter | None) -> None:
        must((letter is not None) == (job.requeues > 0), f"job {job.id} died: {job}, {letter}")
        if letter is None:
            letter = self.letters[job.id] = Letter(job.id, job.task, job.key, job.payload, job.max_attempts)
            letter.serial_group = job.serial_group
        must(letter.dead_count == 0 or letter.state == "requeued", f"job {job.id} died though its dead letter is {letter}")
        letter.state, letter.key, letter.payload, letter.max_attempts = "dead", job.key, job.payload, job.max_attempts
        letter.total_attempts += job.attempts
        letter.dead_count += 1
        self._supersede(letter)

    def _supersede(self, newer: Letter) -> None:
        for older in self.letters.values():
            same = newer.key is not None and (older.task, older.key) == (newer.task, newer.key)
            if same and older.state == "dead" and older.id != newer.id:
                for count in ("total_attempts", "dead_count", "requeued_count"):
                    setattr(newer, count, getattr(newer, count) + getattr(older, count))
                    setattr(older, count, 0)
                older.state, older.key = "resolved", None
                self.ended.add(older.id)

    # ---- what always holds -------------------------------------------------------------------------------------------
    def check(self) -> None:
        """The guarantees that can be read from one state."""
        dead = {letter.id for letter in self.letters.values() if letter.state == "dead"}
        for place in ((self.jobs, dead), (self.jobs, self.ended), (dead, self.ended)):
            must(not set(place[0]) & set(place[1]), f"in two places at once: {place}")
        must(self.born == set(self.jobs) | dead | self.ended, f"a job was lost: {self.born - set(self.jobs) - dead - self.ended}")
        keys: Counter[Any] = Counter((j.task, j.key, j.slot) for j in self.jobs.values() if j.key is not None)
        must(all(n == 1 for n in keys.values()), f"a key has two live holders: {keys}")
        keys = Counter((x.task, x.key) for x in self.letters.values() if x.key is not None and x.state == "dead")
        must(all(n == 1 for n in keys.values()), f"a key has two dead letters: {keys}")
        for letter in self.letters.values():
            if letter.state == "requeued":
                must(letter.id in self.jobs, f"dead letter {letter.id} is requeued without a live job")
        for job in self.jobs.values():
            must(not job.slot or (job.token is None and self.holder(job.task, job.key)), f"a successor without a holder: {job}")
            must(job.interrupted <= MAX_INTERRUPTIONS, f"interrupted too often: {job}")
            must(job.token is None or job.token in self.leases, f"a token without a lease: {job}")
            held = self.groups.get(job.serial_group or "")
            if job.serial_group is not None and job.token is not None:
                must(held is not None and held.token == job.token, f"a leased member whose group is {held}: {job}")
        for name, held in self.groups.items():
            must(held.token is None or held.token in self.leases, f"group {name} is held by no lease: {held}")


Effect = Callable[[Model], None]
"""A change of the truth by a transaction, which happens with its commit."""
