"""What applications and operators do in transactions of their own: enqueue, cancel, requeue, change, and keep locks.

Each word is one public SQL function; beside it stands what its answer must mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
from hypothesis import note
from psycopg.types.json import Jsonb

from tests.machine.actions import action, fields, number, one_of, some
from tests.machine.answers import brief, cancelled, changed, once_seen, stored
from tests.machine.arena import PRODUCER, Arena
from tests.machine.clients import Client
from tests.machine.handlers import GROUPS
from tests.machine.model import Effect, Model
from tests.machine.records import must
from tests.rig.servers import Connection

_SLOTS = "select id, key_slot from tailrace.job where id = any(%s)"
ANY = number(0, 11)
"""Which of the jobs there are, by its place."""
PAUSE = one_of(False, False, True)
"""Whether the transaction stays open."""
CHANGES = one_of("cancel", "cancel by key", "lower max_attempts", "lower max_attempts", "reschedule", "run_now")
MODES = one_of("after", "after", "skip", "replace", "preserve_run_at")
NEW_JOB = fields(
    task=one_of("t1", "t1", "t2"),
    key=one_of(None, "k1", "k1", "k2"),
    on_duplicate=MODES,
    n=number(1, 3),
    max_attempts=number(1, 3),
    priority=one_of(0, 5),
    serial_group=one_of(None, None, None, *GROUPS),
)
"""One job of an enqueue; limits add their options here."""


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

    def word(
        self,
        told: str,
        query: str,
        params: Any,
        effect: Callable[[list[Any], str | None], Effect],
        *,
        pause: bool,
        client: Client | None = None,
        slots: bool = False,
    ) -> None:
        """Send a function's call; `effect` gets its rows (with the jobs' slots if asked for) or the SQLSTATE of its refusal."""
        who = client or self.app

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
            if slots:
                at: dict[int, int] = dict(conn.execute(_SLOTS, [[row[0] for row in rows]]).fetchall())
                rows = [(*row, at.get(row[0])) for row in rows]
            return rows, None

        def made(result: tuple[list[Any], str | None]) -> Effect:
            note(f"    {who.name}: {told} -> {result[1] or result[0]}")
            return effect(*result)

        note(f"{who.name}: {told}{', and stays in its transaction' * pause}")
        self.arena.do(who, told, what, made, commit=not pause)

    # ---- enqueue -----------------------------------------------------------------------------------------------------
    @action(
        4,
        when=lambda self: idle(self) and len(self.arena.model.jobs) < 8,
        jobs=some(NEW_JOB, 1, 3),
        pause=PAUSE,
    )
    def enqueue(self, jobs: list[dict[str, Any]], pause: bool) -> None:
        if len(jobs) > 1:
            self._enqueue_many(jobs, pause)
            return
        self.enqueue_one(self.app, jobs[0], pause=pause)

    def enqueue_one(self, client: Client, job: dict[str, Any], *, pause: bool) -> None:
        """One job by a client."""
        options = {k: v for k, v in job.items() if k not in ("task", "n") and v is not None}
        query = "select id, outcome, 1 from tailrace.enqueue('q', %s, %s, %s)"
        params = [job["task"], Jsonb({"n": job["n"]}), Jsonb(options)]

        def effect(rows: list[Any], error: str | None) -> Effect:
            return stored(client, [job], rows, error)

        self.word(f"enqueue {brief(job)}", query, params, effect, pause=pause, client=client, slots=True)

    def _enqueue_many(self, jobs: list[dict[str, Any]], pause: bool) -> None:
        sent = [
            {"queue": "q", "payload": {"n": j["n"]}, **{k: v for k, v in j.items() if k != "n" and v is not None}} for j in jobs
        ]
        query = "select id, outcome, ord from tailrace.enqueue_many(%s)"

        def effect(rows: list[Any], error: str | None) -> Effect:
            # what has a key is settled in the order of keys, after what has none
            order = sorted(rows, key=lambda r: ((j := jobs[r[2] - 1])["key"] is not None, j["task"], j["key"] or "", r[2]))
            return stored(self.app, [jobs[r[2] - 1] for r in order], order, error)

        self.word(f"enqueue_many {[brief(job) for job in jobs]}", query, [Jsonb(sent)], effect, pause=pause, slots=True)

    # ---- single jobs -------------------------------------------------------------------------------------------------
    @action(3, when=lambda self: idle(self) and self.arena.model.jobs, n=ANY, what=CHANGES, pause=PAUSE)
    def change(self, n: int, what: str, pause: bool) -> None:
        tried = [j.id for j in self.arena.model.jobs.values() if j.attempts and j.token is None]
        ident = tried[n % len(tried)] if tried and what.startswith("lower") else self.some_job(n)
        job = self.arena.model.jobs.get(ident)
        if what == "cancel by key" and job is not None and job.key is not None:
            self._cancel_by_key(job.task, job.key, pause)
        elif what.startswith("cancel"):
            self.app.rows.add(ident)
            self.word(f"cancel {ident}", "select tailrace.cancel(%s)", [ident], cancelled(ident), pause=pause)
        elif what == "lower max_attempts":
            query, told = "select tailrace.update_job(%s, '{\"max_attempts\": 1}')::text", f"update_job {ident} max_attempts 1"
            self.app.rows.add(ident)
            self.word(told, query, [ident], lambda rows, error: changed(ident, error, max_attempts=1), pause=pause)
        else:
            later = "select tailrace.reschedule(%s, clock_timestamp() + interval '1 h')"
            self.app.rows.add(ident)
            query = later if what == "reschedule" else "select tailrace.run_now(%s)"
            self.word(f"{what} {ident}", query, [ident], lambda rows, error: changed(ident, error), pause=pause)

    def _cancel_by_key(self, task: str, key: str, pause: bool) -> None:
        def effect(rows: list[Any], error: str | None) -> Effect:
            seen: list[list[Effect]] = []

            def happen(model: Model) -> None:
                first = not seen
                if first:
                    holders = [job for slot in (1, 0) if (job := model.holder(task, key, slot)) is not None]
                    wanted = "requested" if any(j.token is not None for j in holders) else "cancelled" if holders else "TR003"
                    told = error or rows[0][0]
                    must(told == wanted, f"cancel of key {key} was {told}, not {wanted}: {holders}")
                    each = [(j.id, "cancelled" if j.token is None else "requested") for j in holders]
                    seen.append([cancelled(ident)([[result]], None) for ident, result in each])
                for one in seen[0]:
                    one(model)

            return once_seen(happen, error)

        query = "select tailrace.cancel_by_key('', 'q', %s, %s)"
        self.word(f"cancel_by_key {task} {key}", query, [task, key], effect, pause=pause)

    # ---- dead letters ------------------------------------------------------------------------------------------------
    def some_letter(self, n: int) -> int:
        """A dead letter, or a job that is none."""
        letters = sorted(self.arena.model.letters, key=lambda i: (self.arena.model.letters[i].state != "dead", i))
        return letters[n % len(letters)] if letters else self.some_job(n)

    @action(2, when=lambda self: idle(self) and self.arena.model.letters, n=ANY, force=one_of(False, True), pause=PAUSE)
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
                elif error == "TR004" and self.app.waited:
                    pass  # it gives up after a quarter of a second, which a busy machine may take to come to the end of a wait
                else:
                    must(error is None, f"requeue of {ident} was refused ({error}): {letter}, its key is held by {holder}")
                    model.requeue(ident, force=force)

            return once_seen(happen, error)

        told = f"requeue {ident}{', forced' * force}"
        self.word(told, "select tailrace.requeue_dead_letter(%s, %s)", [ident, force], effect, pause=pause)

    @action(1, when=lambda self: idle(self) and self.arena.model.letters, n=ANY)
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
    @action(4, when=lambda self: idle(self) and self.app.open, keep=one_of(True, True, False))
    def end_transaction(self, keep: bool) -> None:
        note(f"app: {'commits' if keep else 'rolls back'}")
        (self.arena.commit if keep else self.arena.rollback)(self.app)
