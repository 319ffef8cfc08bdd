"""Dead letters under any order of events: two operators who stop before their COMMIT, a worker, an application, cancels, sweeps.

After each step what is committed must hold together: see `whole`. The worker and the sweep may never wait for an operator.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from psycopg.types.json import Jsonb

from tailrace.db import Statement, run
from tailrace.errors import Conflict, NotFound
from tests.engine.letters import Letters
from tests.engine.rows import Rows
from tests.rig.servers import RigDatabase

TABLES = "job lease worker dead_letter dead_letter_count dead_letter_change tally total cancel_request operation audit queue"
KEYS = st.sampled_from([None, None, "a", "b"])
ENDS = ("succeeded", "cancelled", "replaced", "dead", "expired", "dropped")


class Operator:
    """Somebody with an open transaction."""

    def __init__(self, database: RigDatabase, name: str) -> None:
        self.conn = database.connect(autocommit=False, application_name=name)
        self.conn.execute("set lock_timeout = '30ms'")
        self.conn.commit()
        self.rows = Rows(self.conn)
        self.letters = object.__new__(Letters)
        self.letters.rows = self.rows
        self.notes: set[str] = set()
        self.erased: set[str] = set()
        self.added = 0

    def end(self, *, commit: bool) -> tuple[set[str], set[str], int]:
        """Commit or roll back; what the transaction promised."""
        if commit:
            self.conn.commit()
        else:
            self.conn.rollback()
        kept = (self.notes, self.erased, self.added) if commit else (set[str](), set[str](), 0)
        self.notes, self.erased, self.added = set(), set(), 0
        return kept


class DeadLetterMachine(RuleBasedStateMachine):
    """The events; `database` is set by the test."""

    database: RigDatabase

    def __init__(self) -> None:
        super().__init__()
        self.watch = Rows(self.database.connect())
        tables = ", ".join(f"tailrace.{table}" for table in TABLES.split())
        self.watch.conn.execute(f"truncate {tables} restart identity".encode())
        self.letters = Letters(self.watch)
        self.worker, self.sweeper, self.application = (
            Rows(self.database.connect(application_name=n)) for n in ("work", "sweep", "app")
        )
        for rows, patience in ((self.worker, "100ms"), (self.sweeper, "100ms"), (self.application, "30ms")):
            rows.conn.execute("select set_config('lock_timeout', %s, false)", [patience])
        self.operators = [Operator(self.database, "first"), Operator(self.database, "second")]
        self.created = self.written = 0
        self.notes: set[str] = set()
        self.running: dict[int, int] = {}

    def teardown(self) -> None:
        for operator in self.operators:
            operator.conn.close()
        for rows in (self.watch, self.worker, self.sweeper, self.application):
            rows.conn.close()

    @initialize()
    def some_are_dead(self) -> None:
        """Without them most runs would only enqueue."""
        for key in (None, None, "a", "b"):
            self.letters.rows.value("select tailrace.add_dead_letter('q', 't', '{}', %s)", [Jsonb({"key": key})])
            self.created += 1

    # ---- the application and the worker ----------------------------------------------------------------------------------
    @rule(key=KEYS, mode=st.sampled_from(["skip", "replace", "after"]))
    def enqueue(self, key: str | None, mode: str) -> None:
        options = {"max_attempts": 1, **({"key": key, "on_duplicate": mode} if key else {})}
        try:
            outcome = self.application.value("select outcome from tailrace.enqueue('q', 't', '{}', %s)", [Jsonb(options)])
        except psycopg.errors.LockNotAvailable:
            return
        self.created += outcome == "created"

    @rule(pick=st.integers(0, 4))
    def claim(self, pick: int) -> None:
        text = "select id from tailrace.job where token is null and key_slot = 0 order by id for update skip locked"
        with self.worker.conn.transaction():
            found = [ident for (ident,) in self.worker.conn.execute(text).fetchall()]
            if found:
                ident = found[pick % len(found)]
                self.running[ident] = self.worker.claim(ident)

    @rule(pick=st.integers(0, 4), kind=st.sampled_from(["success", "permanent", "error"]))
    def finish(self, pick: int, kind: str) -> None:
        if self.running:
            ident = sorted(self.running)[pick % len(self.running)]
            result = self.worker.fail(ident, self.running[ident], kind)
            assert result in ("succeeded", "dead", "retried", "busy", "fenced", "cancelled"), result
            if result != "busy":
                del self.running[ident]

    @rule(pick=st.integers(0, 4))
    def cancel(self, pick: int) -> None:
        found = [ident for (ident,) in self.watch.conn.execute("select id from tailrace.job order by id").fetchall()]
        if found:
            with suppress(NotFound, Conflict, psycopg.errors.LockNotAvailable):
                run(self.application.conn, Statement("select tailrace.cancel(%(id)s)", {"id": found[pick % len(found)]}, list))

    @rule()
    def sweep(self) -> None:
        self.sweeper.walk()
        self.sweeper.conn.execute("select tailrace.audit_requeued_v1()")

    @rule(fold=st.integers(1, 30))
    def statistics(self, fold: int) -> None:
        self.sweeper.conn.execute("select tailrace.statistics_v1(%s)", [fold])

    # ---- the operators ---------------------------------------------------------------------------------------------------
    @rule(who=st.integers(0, 1), picks=st.lists(st.integers(0, 4), min_size=1, max_size=4), force=st.booleans())
    def requeue(self, who: int, picks: list[int], force: bool) -> None:
        self._operate(who, lambda op, ids: op.letters.each("requeue", *ids, force=force), picks)

    @rule(who=st.integers(0, 1), most=st.integers(1, 4))
    def requeue_all(self, who: int, most: int) -> None:
        self._operate(who, lambda op, _: op.letters.step(op.letters.begin(queue="q")["id"], most), [0])

    @rule(who=st.integers(0, 1), pick=st.integers(0, 4))
    def resolve(self, who: int, pick: int) -> None:
        self._operate(who, lambda op, ids: op.letters.each("resolve", *ids), [pick])

    @rule(who=st.integers(0, 1), pick=st.integers(0, 4))
    def note(self, who: int, pick: int) -> None:
        self.written += 1
        text = f"<{self.written}>"

        def write(op: Operator, ids: list[int]) -> None:
            for outcome, _ in op.letters.each("note", *ids, note=text).values():
                op.notes |= {text} if outcome == "noted" else set()

        self._operate(who, write, [pick])

    @rule(who=st.integers(0, 1), pick=st.integers(0, 4))
    def delete(self, who: int, pick: int) -> None:
        def erase(op: Operator, ids: list[int]) -> None:
            lost = op.rows.value(
                "select coalesce(string_agg(notes, ' '), '') from tailrace.dead_letter where job_id = any(%s)", [ids]
            )
            if {outcome for outcome, _ in op.letters.each("delete", *ids).values()} == {"deleted"}:
                op.erased |= {f"<{word.split('>')[0]}>" for word in lost.split("<")[1:]}

        self._operate(who, erase, [pick])

    @rule(who=st.integers(0, 1), key=KEYS)
    def add(self, who: int, key: str | None) -> None:
        def write(op: Operator, _: list[int]) -> None:
            op.rows.value("select tailrace.add_dead_letter('q', 't', '{}', %s)", [Jsonb({"key": key})])
            op.added += 1

        self._operate(who, write, [])

    @rule(who=st.integers(0, 1), commit=st.sampled_from([True, True, False]))
    def end(self, who: int, commit: bool) -> None:
        notes, erased, added = self.operators[who].end(commit=commit)
        self.notes = (self.notes | notes) - erased
        self.created += added

    def _operate(self, who: int, work: Any, picks: list[int]) -> None:
        found = [ident for (ident,) in self.watch.conn.execute("select job_id from tailrace.dead_letter order by 1").fetchall()]
        ids = sorted({found[pick % len(found)] for pick in picks}) if found else []
        if picks and not ids:
            return
        try:
            work(self.operators[who], ids)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.UniqueViolation):
            self.operators[who].end(commit=False)

    # ---- what must hold --------------------------------------------------------------------------------------------------
    @invariant()
    def whole(self) -> None:
        """Of what is committed: a requeued one has a live job and no other has, counts add up, nothing is forgotten.

        Counts are those of the rows and of the ends; histories tell every requeue and every death; no note is lost but by
        deleting its dead letter.
        """
        broken = self.watch.conn.execute(
            "select d.job_id, d.state, j.id from tailrace.dead_letter d left join tailrace.job j on j.id = d.job_id"
            " where (d.state = 'requeued') <> (j.id is not null)"
        ).fetchall()
        assert broken == []
        assert self.letters.stats() == self.letters.counted()
        told = self.watch.conn.execute(
            "select job_id, requeued_count, dead_count, history, notes, resolution from tailrace.dead_letter"
        ).fetchall()
        for ident, requeued, died, history, _, resolution in told:
            events = [event["event"] for event in history]
            assert events.count("requeued") == requeued, (ident, history)
            if resolution != "superseded":
                taken_over = sum(event["event"] == "superseded" and "job_id" in event for event in history)
                assert died == 1 + events.count("failed") + taken_over, (ident, died, history)
        written = " ".join(notes or "" for *_, notes, _ in told)
        assert [text for text in self.notes if text not in written] == []
        both = "select what, n from tailrace.tally union all select what, n from tailrace.total"
        n: dict[str, int] = dict(
            self.watch.conn.execute(f"select what, sum(n)::int from ({both}) t group by 1".encode()).fetchall()
        )
        assert self.watch.count("job") == self.created + n.get("requeued", 0) - sum(n.get(what, 0) for what in ENDS)


@pytest.mark.timeout(120)
def test_any_order_of_events_keeps_dead_letters_whole(database: RigDatabase) -> None:
    """BF-09, BF-19, BF-20, BF-22, BF-23, BF-29: the state machine dead, requeued, resolved, with superseding and force."""
    DeadLetterMachine.database = database
    run_state_machine_as_test(
        DeadLetterMachine,
        settings=settings(
            max_examples=10,
            stateful_step_count=40,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
