"""What the maintenance routines do, and time: leases pass, jobs fall due and expire, operators release leases.

A routine reports sums, not rows. So each candidate that the model knows is looked up afterwards: it must have become what
the rules say, or be untouched because somebody has it locked.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import note

from tests.machine.actions import action, number, one_of
from tests.machine.arena import Arena
from tests.machine.hands import WORKER
from tests.machine.records import MAX_INTERRUPTIONS, Job, must
from tests.machine.witness import jobs_of, leases_of

_STEADY = """
insert into tailrace.maintenance (routine, last_tick, last_success, steady_since)
values ('reaper', clock_timestamp(), clock_timestamp(), clock_timestamp() - interval '1 h')
on conflict (routine, scope) do update set last_tick = excluded.last_tick, steady_since = excluded.steady_since returning 1"""
_DUE = """
update tailrace.job set run_at = clock_timestamp() where id = any(array(select id from tailrace.job
where token is null and run_at > clock_timestamp() order by id for no key update skip locked)) returning id"""
_EXPIRE = """
update tailrace.job set expires_at = clock_timestamp() - interval '1 s' where id = any(array(select id from tailrace.job
where id = %s for no key update skip locked)) returning id"""
_SPEND = """
update tailrace.job set attempts = max_attempts where id = any(array(select id from tailrace.job
where id = %s and token is null and key_slot = 0 for no key update skip locked)) returning id"""
PASSING = one_of("due", "due", "expiry", "lease", "hand edit")
ROUTINES = one_of("reap", "reap", "walk", "release", "release by force", "proof of death", "rest")
_SILENCE = "update tailrace.worker set until = clock_timestamp() - interval '1 s' where id = %s returning id"


class Upkeep:
    """The rules of maintenance and of time."""

    arena: Arena
    bereft: set[str]

    # ---- time --------------------------------------------------------------------------------------------------------
    @action(3, when=lambda self: self.arena.model.jobs, n=number(0, 7), what=PASSING, name=WORKER)
    def time_passes(self, n: int, what: str, name: str) -> None:
        """Waiting jobs fall due, one expires, a lease ends without a heartbeat, or somebody edits a row."""
        passing = {"due": self.make_due, "expiry": lambda: self._pass_expiry(n), "lease": lambda: self._pass_lease(name)}
        passing.get(what, lambda: self._edit(n))()

    def make_due(self) -> None:
        """What waits for its time waits no longer."""
        note("time: waiting jobs fall due")
        self.arena.surgery(_DUE)

    def _pass_expiry(self, n: int) -> None:
        ids = sorted(self.arena.model.jobs)
        for (ident,) in self.arena.surgery(_EXPIRE, [ids[n % len(ids)]]):
            note(f"time: {ident} expires")
            self.arena.model.jobs[ident].past = True

    def _edit(self, n: int) -> None:
        """A waiting job has no attempt left: what an import or a hand edit may store, and a lowered max_attempts."""
        ids = sorted(self.arena.model.jobs)
        for (ident,) in self.arena.surgery(_SPEND, [ids[n % len(ids)]]):
            note(f"somebody sets the attempts of {ident} to its max_attempts")
            self.arena.model.jobs[ident].attempts = self.arena.model.jobs[ident].max_attempts

    def _pass_lease(self, name: str) -> None:
        worker = self.arena.processes[name].name
        note(f"time: the lease of {worker} passes")
        self.arena.surgery(_SILENCE, [worker])
        self.arena.model.silent.add(worker)

    # ---- take-overs --------------------------------------------------------------------------------------------------
    @action(2, when=lambda self: self.arena.model.born, n=number(0, 3), what=ROUTINES)
    def routine(self, n: int, what: str) -> None:
        """Maintenance does one thing; an operator releases a lease; the controller has proof that a worker is dead."""
        calls = {"reap": self.reap, "walk": self._walk, "rest": self._keep_house, "proof of death": lambda: self._prove_death(n)}
        calls.get(what, lambda: self._release(n, force=what.endswith("force")))()

    def reap(self) -> None:
        """A steady tick of the reaper."""
        note("upkeep: reaps")
        self.arena.surgery(_STEADY)
        report = self.arena.ask("maintenance.reap", {"interval_seconds": 15, "batch": 100, "after": None, "queue": None})
        model = self.arena.model
        self.took_over(t for t, lease in model.leases.items() if lease.worker in model.silent)
        must(not report.get("locked"), f"the reaper found its own lock taken: {report}")

    def _release(self, n: int, *, force: bool) -> None:
        tokens = sorted(self.arena.model.leases)
        if not tokens:
            return
        token = tokens[n % len(tokens)]
        lease = self.arena.model.leases[token]
        note(f"operator: releases the lease of {lease.worker} on {lease.ids}{', forced' * force}")
        self.arena.ask("leases.release", {"tokens": [token], "force": force})
        if force or lease.worker in self.arena.model.silent:
            self.took_over([token])

    def _prove_death(self, n: int) -> None:
        workers = sorted({lease.worker for lease in self.arena.model.leases.values()})
        if not workers:
            return
        worker = workers[n % len(workers)]
        note(f"controller: {worker} is dead")
        self.arena.worker_died(worker)
        self.arena.model.silent.add(worker)
        self.took_over(t for t, lease in self.arena.model.leases.items() if lease.worker == worker)

    def took_over(self, tokens: Iterable[int]) -> None:
        """Carry out what a take-over of these leases must have done."""
        model = self.arena.model
        seen = self.arena.witness.look()
        rows, leases = {j.id: j for j in jobs_of(seen)}, leases_of(seen)
        self.arena.touched()
        for token in list(tokens):
            lease = model.leases[token]
            for job in [j for i in lease.ids if (j := model.owned(i, token)) is not None]:
                if self._untouched(job, rows):
                    continue
                model.carry_out(job, self._lost_verdict(job, lease.worker))
                self.bereft.add(lease.worker)
            if token in leases:
                must(self.arena.others_open(), f"the lease of {lease.worker} on {lease.ids} was left though nobody holds it")
            else:
                model.drop([token], leave=True)

    def _lost_verdict(self, job: Job, worker: str) -> str:
        model = self.arena.model
        if worker in model.draining and worker in model.silent and job.interrupted < MAX_INTERRUPTIONS:
            result = "interrupted"
        elif not job.spent:
            result = "lost"
        else:
            return "dead"
        return "cancelled" if job.id in model.requested else result

    def _untouched(self, job: Job, rows: dict[int, Job]) -> bool:
        row = rows.get(job.id)
        same = row is not None and row.token == job.token and row.attempts == job.attempts
        must(not same or self.arena.others_open(), f"{job} was left though nobody holds it")
        return same

    # ---- the walk and the rest ---------------------------------------------------------------------------------------
    def _walk(self) -> None:
        note("upkeep: walks")
        report = self.arena.ask("maintenance.walk", {"after": -(2**63), "slice": 1000, "most": 1000, "queue": None})
        must(report["orphaned"] == 0, f"the walk found tokens without a lease: {report}")
        must(report["followed"] == 0, f"the walk found successors without a holder: {report}")
        model = self.arena.model
        rows = {j.id: j for j in jobs_of(self.arena.witness.look())}
        self.arena.touched()
        for job in [j for j in model.jobs.values() if j.token is None and (j.spent or j.past)]:
            if not self._untouched(job, rows):
                model.end(job, "dead" if job.spent else "expired")

    def _keep_house(self) -> None:
        note("upkeep: audits, counts and tidies")
        report = self.arena.ask("maintenance.audit", {"batch": 100, "queue": None, "after": None})
        must(report["restored"] == 0, f"the audit found requeued dead letters without a job: {report}")
        self.arena.ask("maintenance.statistics", {"fold": 1000, "queue": None, "readings": True})
        self.arena.ask("maintenance.housekeeping", {"queue": None})
        for block in ("retain", "auto_requeue"):  # nothing is old, and no queue has a rule
            report = self.arena.ask(f"maintenance.{block}", {"batch": 100, "queue": None})
            must(report["rows"] == [], f"{block} changed dead letters: {report}")
        self.arena.touched()

    def reap_the_dead(self) -> None:
        """At the end: every process but the two that live is silent by now."""
        alive = {process.name for process in self.arena.processes.values()}
        for worker in {lease.worker for lease in self.arena.model.leases.values()} - alive:
            self.arena.surgery(_SILENCE, [worker])
            self.arena.model.silent.add(worker)
        self.reap()
