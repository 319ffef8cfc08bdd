"""What applications and operators do in transactions of their own: enqueue, cancel, requeue, change, and keep locks.

Each word is one public SQL function; beside it stands what its answer must mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
from hypothesis import note
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from tests.machine.actions import action
from tests.machine.arena import PRODUCER, Arena
from tests.machine.clients import Client
from tests.machine.model import Effect, Job, Model, must
from tests.rig.servers import Connection

ANY = st.integers(0, 11)
"""Which of the jobs there are, by its place."""
PAUSE = st.sampled_from([False, False, True])
"""Whether the transaction stays open."""
CHANGES = st.sampled_from(
    ["cancel", "cancel by key", "cancel", "lower max_attempts", "lower max_attempts", "reschedule", "run_now"]
)
NEW_JOB = st.fixed_dictionaries(
    {
        "task": st.sampled_from(["t1", "t1", "t2"]),
        "key": st.sampled_from([None, "k1", "k1", "k2"]),
        "on_duplicate": st.sampled_from(["skip", "replace", "preserve_run_at"]),
        "n": st.integers(1, 3),
        "max_attempts": st.integers(1, 3),
        "priority": st.sampled_from([0, 5]),
    }
)
"""One job of an enqueue; groups, limits and mode after add their options here."""


def idle(machine: Producers) -> bool:
    """Whether the application's client waits for nobody."""
    return machine.app.idle


class Producers:
    """The rules of the client `app`."""

    arena: Arena

    @property
    def app(self) -> Client:
        return self.arena.clients[PRODUCER]

    def some_job(self, n: int) -> int:
        """A job that lives, or one that is over."""
        model = self.arena.model
        born = [*sorted(model.jobs), *sorted(model.born - model.jobs.keys())]
        return born[n % len(born)]

    def word(self, told: str, query: str, params: Any, effect: Callable[[list[Any], str | None], Effect], *, pause: bool) -> None:
        """Send a function's call; `effect` gets its first row or the SQLSTATE it was refused with."""

        def what(conn: Connection) -> tuple[list[Any], str | None]:
            conn.execute("savepoint word")
            try:
                rows = conn.execute(query, params).fetchall()
            except psycopg.Error as refused:
                if not (refused.sqlstate or "").startswith("TR"):
                    raise
                conn.execute("rollback to savepoint word")
                return [], refused.sqlstate
            conn.execute("release savepoint word")
            return rows, None

        def made(result: tuple[list[Any], str | None]) -> Effect:
            note(f"    app: {told} -> {result[1] or result[0]}")
            return effect(*result)

        note(f"app: {told}{', and stays in its transaction' * pause}")
        self.arena.do(self.app, told, what, made, commit=not pause)

    # ---- enqueue -----------------------------------------------------------------------------------------------------
    @action(
        4,
        when=lambda self: idle(self) and len(self.arena.model.jobs) < 8,
        jobs=st.lists(NEW_JOB, min_size=1, max_size=3),
        pause=PAUSE,
    )
    def enqueue(self, jobs: list[dict[str, Any]], pause: bool) -> None:
        if len(jobs) > 1:
            self._enqueue_many(jobs, pause)
            return
        job = jobs[0]
        options = {k: v for k, v in job.items() if k not in ("task", "n") and v is not None}
        query = "select id, outcome from tailrace.enqueue('q', %s, %s, %s)"
        params = [job["task"], Jsonb({"n": job["n"]}), Jsonb(options)]
        self.word(f"enqueue {_brief(job)}", query, params, lambda rows, error: stored([job], rows, error), pause=pause)

    def _enqueue_many(self, jobs: list[dict[str, Any]], pause: bool) -> None:
        sent = [
            {"queue": "q", "payload": {"n": j["n"]}, **{k: v for k, v in j.items() if k != "n" and v is not None}} for j in jobs
        ]
        query = "select id, outcome, ord from tailrace.enqueue_many(%s)"

        def effect(rows: list[Any], error: str | None) -> Effect:
            # what has a key is settled in the order of keys, after what has none
            order = sorted(rows, key=lambda r: ((j := jobs[r[2] - 1])["key"] is not None, j["task"], j["key"] or "", r[2]))
            return stored([jobs[r[2] - 1] for r in order], order, error)

        self.word(f"enqueue_many {[_brief(job) for job in jobs]}", query, [Jsonb(sent)], effect, pause=pause)

    # ---- single jobs -------------------------------------------------------------------------------------------------
    @action(3, when=lambda self: idle(self) and self.arena.model.jobs, n=ANY, what=CHANGES, pause=PAUSE)
    def change(self, n: int, what: str, pause: bool) -> None:
        tried = [j.id for j in self.arena.model.jobs.values() if j.attempts and j.token is None]
        ident = tried[n % len(tried)] if tried and what.startswith("lower") else self.some_job(n)
        job = self.arena.model.jobs.get(ident)
        if what == "cancel by key" and job is not None and job.key is not None:
            self._cancel_by_key(job.task, job.key, pause)
        elif what.startswith("cancel"):
            self.word(f"cancel {ident}", "select tailrace.cancel(%s)", [ident], cancelled(ident), pause=pause)
        elif what == "lower max_attempts":
            query, told = "select tailrace.update_job(%s, '{\"max_attempts\": 1}')::text", f"update_job {ident} max_attempts 1"
            self.word(told, query, [ident], lambda rows, error: changed(ident, error, max_attempts=1), pause=pause)
        else:
            later = "select tailrace.reschedule(%s, clock_timestamp() + interval '1 h')"
            query = later if what == "reschedule" else "select tailrace.run_now(%s)"
            self.word(f"{what} {ident}", query, [ident], lambda rows, error: changed(ident, error), pause=pause)

    def _cancel_by_key(self, task: str, key: str, pause: bool) -> None:
        def effect(rows: list[Any], error: str | None) -> Effect:
            seen: list[Effect] = []

            def happen(model: Model) -> None:
                if not seen:
                    holder = model.holder(task, key)
                    seen.append(cancelled(holder.id if holder else 404)(rows, error))
                seen[0](model)

            return happen

        query = "select tailrace.cancel_by_key('', 'q', %s, %s)"
        self.word(f"cancel_by_key {task} {key}", query, [task, key], effect, pause=pause)

    # ---- dead letters ------------------------------------------------------------------------------------------------
    def some_letter(self, n: int) -> int:
        """A dead letter, or a job that is none."""
        letters = sorted(self.arena.model.letters, key=lambda i: (self.arena.model.letters[i].state != "dead", i))
        return letters[n % len(letters)] if letters else self.some_job(n)

    @action(2, when=lambda self: idle(self) and self.arena.model.letters, n=ANY, force=st.booleans(), pause=PAUSE)
    def requeue(self, n: int, force: bool, pause: bool) -> None:
        ident = self.some_letter(n)

        def effect(rows: list[Any], error: str | None) -> Effect:
            def happen(model: Model) -> None:
                letter = model.letters.get(ident)
                holder = model.holder(letter.task, letter.key) if letter else None
                if letter is None:
                    must(error == "TR003", f"requeue of {ident} was {error or rows} though there is no dead letter")
                elif letter.state != "dead" or (holder and (holder.token is not None or not force)):
                    must(error == "TR004", f"requeue of {ident} was {error or rows}: {letter}, its key is held by {holder}")
                else:
                    must(error is None, f"requeue of {ident} was refused ({error}): {letter}, its key is held by {holder}")
                    model.requeue(ident, force=force)

            return once_seen(happen, error)

        told = f"requeue {ident}{', forced' * force}"
        self.word(told, "select tailrace.requeue_dead_letter(%s, %s)", [ident, force], effect, pause=pause)

    @action(2, when=lambda self: idle(self) and self.arena.model.letters, n=ANY)
    def note_on_dead_letter(self, n: int) -> None:
        """An operator writes a note on a dead letter in an open transaction: nobody who works may wait for that."""
        living = sorted(self.arena.model.letters.keys() & self.arena.model.jobs.keys())
        ident = living[n % len(living)] if living else self.some_letter(n)
        query = "update tailrace.dead_letter set notes = 'seen' where job_id = %s returning job_id"

        def effect(rows: list[Any], error: str | None) -> Effect:
            self.app.notes.add(ident)
            return once_seen(lambda model: None, error)

        self.word(f"note on dead letter {ident}", query, [ident], effect, pause=True)

    # ---- the transaction ---------------------------------------------------------------------------------------------
    @action(3, when=lambda self: idle(self) and self.app.open, keep=st.sampled_from([True, True, False]))
    def end_transaction(self, keep: bool) -> None:
        note(f"app: {'commits' if keep else 'rolls back'}")
        (self.arena.commit if keep else self.arena.rollback)(self.app)


def once_seen(happen: Effect, error: str | None) -> Effect:
    """An effect whose refusal is true when it is told, and need not be so at the commit."""
    told = [False]

    def effect(model: Model) -> None:
        if error is None or not told[0]:
            told[0] = True
            happen(model)

    return effect


def changed(ident: int, error: str | None, **columns: Any) -> Effect:
    """A waiting job was changed; what runs or is gone must have been refused as such."""

    def happen(model: Model) -> None:
        job = model.jobs.get(ident)
        wanted = "TR003" if job is None else "TR004" if job.token is not None else None
        must(error == wanted, f"a change of job {ident} was {error or 'done'}: {job}")
        if job is not None and error is None:
            vars(job).update(columns)

    return once_seen(happen, error)


def cancelled(ident: int) -> Callable[[list[Any], str | None], Effect]:
    """What an answer of cancel means."""

    def effect(rows: list[Any], error: str | None) -> Effect:
        told = [False]

        def happen(model: Model) -> None:
            job = model.jobs.get(ident)
            answer = error or rows[0][0]
            if not told[0]:
                told[0] = True
                wanted = "TR003" if job is None else "cancelled" if job.token is None else "requested"
                must(answer == wanted, f"cancel of {ident} was {answer}, not {wanted}: {job}")
            if answer == "cancelled" and job is not None:
                model.end(job, "cancelled")
            elif answer == "requested" and job is not None:
                model.requested.add(ident)

        return happen

    return effect


def stored(jobs: list[dict[str, Any]], rows: list[Any], error: str | None) -> Effect:
    """What the answer of an enqueue means."""
    must(error is None, f"an enqueue was refused: {error}")
    told = [False]

    def happen(model: Model) -> None:
        first, told[0] = not told[0], True
        for job, (ident, outcome, *_) in zip(jobs, rows, strict=True):
            if first:
                _check(model, job, ident, outcome)
            if outcome == "created":
                holder = model.holder(job["task"], job["key"])
                if holder is not None and holder.past and holder.token is None and job["on_duplicate"] == "skip":
                    model.end(holder, "expired")
                model.store(Job(ident, job["task"], job["key"], job["n"], job["max_attempts"]))
            elif outcome == "replaced":
                model.replace(ident, job["n"], job["max_attempts"])

    return happen


def _check(model: Model, job: dict[str, Any], ident: int, outcome: str) -> None:
    """Whether an outcome is the one that the mode asks for."""
    holder = model.holder(job["task"], job["key"])
    if holder is None or (holder.past and holder.token is None and job["on_duplicate"] == "skip"):
        wanted = "created"
    elif holder.token is not None:
        wanted = "in_progress"
    else:
        wanted = "skipped" if job["on_duplicate"] == "skip" else "replaced"
    must(outcome == wanted, f"enqueue of {job} was {outcome}, not {wanted}: the key is held by {holder}")
    must(outcome == "created" or (holder is not None and holder.id == ident), f"enqueue of {job} told job {ident}, not {holder}")


def _brief(job: dict[str, Any]) -> str:
    key = f" key {job['key']} {job['on_duplicate']}" if job["key"] else ""
    return f"{job['task']} n={job['n']} max_attempts={job['max_attempts']} priority={job['priority']}{key}"
