"""Who sees what really happened: the tables as they are committed, and a journal that no guard of ours protects.

The journal is written by triggers and has no constraint, so that a job that was taken, ended or written twice shows there,
whatever the model believes. Handlers' starts and ends stand in a ledger of the same kind.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from psycopg.rows import dict_row

from tests.machine.model import Model
from tests.machine.records import ENDS, MAX_INTERRUPTIONS, RATE, Held, Job, Lease, Letter, must
from tests.rig.servers import Connection

INSTALL = """
create schema machine;
create table machine.journal (n bigint generated always as identity, job bigint not null, what text not null, token bigint);
create table machine.ledger (
  n bigint generated always as identity, job bigint not null, token bigint not null, what text not null);
create function machine.note() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    insert into machine.journal (job, what, token) values (new.id, 'born', null);
  elsif tg_op = 'DELETE' then
    insert into machine.journal (job, what, token) values (old.id, 'ended', old.token);
  elsif old.token is null and new.token is not null then
    insert into machine.journal (job, what, token) values (new.id, 'taken', new.token);
  elsif old.token is not null and new.token is null then
    insert into machine.journal (job, what, token) values (new.id, 'returned', old.token);
  elsif old.token <> new.token then
    insert into machine.journal (job, what, token) values (new.id, 'stolen', new.token);
  end if;
  return null;
end $$;
create function machine.note_rate() returns trigger language plpgsql as $$
begin
  insert into machine.journal (job, what) values (0, 'rate');
  return null;
end $$;
create trigger machine_note_rate after insert on tailrace.rate for each row execute function machine.note_rate();
create trigger machine_note after insert or delete or update of token on tailrace.job
  for each row execute function machine.note();
"""

EMPTY = """
delete from tailrace.job; delete from tailrace.worker; delete from tailrace.lease; delete from tailrace.dead_letter;
delete from tailrace.queue; delete from tailrace.cancel_request; delete from tailrace.tally; delete from tailrace.total;
delete from tailrace.maintenance; delete from tailrace.audit; delete from machine.journal; delete from machine.ledger;
delete from tailrace.job_group; delete from tailrace.limit_slot; delete from tailrace.rate;
alter table tailrace.job alter column id restart with 1;
insert into tailrace.queue (name, settings) values ('q', '{"jobDefaults": {"maxInterruptions": %s}}');
"""

_LOOK = """
select
  (select coalesce(jsonb_agg(to_jsonb(j)), '[]') from (select id, task, key, (payload ->> 'n')::int as payload, max_attempts,
     attempts, lost, interrupted, snoozes, requeues, token::text, key_slot as slot, serial_group,
     coalesce(expires_at <= clock_timestamp(), false) as past
     from tailrace.job) j) as jobs,
  (select coalesce(jsonb_agg(to_jsonb(d)), '[]') from (select job_id as id, task, key, (payload ->> 'n')::int as payload,
     max_attempts, state, total_attempts, dead_count, requeued_count, serial_group from tailrace.dead_letter) d) as letters,
  (select coalesce(jsonb_agg(jsonb_build_array(token::text, worker, ids)), '[]') from tailrace.lease) as leases,
  (select coalesce(jsonb_agg(jsonb_build_array(name, token::text, head)), '[]') from tailrace.job_group) as groups,
  (select jsonb_build_object('version', q.limits, 'sure', q.limits_sure, 'most', coalesce(
     (select jsonb_object_agg(m.name, m.most) from tailrace.limits_v1(q.settings) m), '{}')) from tailrace.queue q) as limits,
  (select coalesce(jsonb_agg(jsonb_build_array(s.name, s.job)), '[]') from tailrace.limit_slot s
     join tailrace.job j on j.id = s.job and j.token = s.token) as slots,
  (select count(*) from machine.journal where what = 'rate') as rates,
  (select coalesce(jsonb_object_agg(what, n), '{}') from (select what, sum(n) as n from
     (select what, n from tailrace.tally union all select what, n from tailrace.total) t group by what) s) as counted,
  (select coalesce(jsonb_agg(jsonb_build_array(job, token::text, n)), '[]') from
     (select job, token, count(*) as n from machine.journal where token is not null and what in ('ended', 'returned')
      group by job, token having count(*) > 1) w) as written_twice,
  (select count(*) from machine.journal where what = 'stolen') as stolen,
  (select count(*) from machine.journal where what = 'ended') as ended,
  (select coalesce(jsonb_agg(jsonb_build_array(job, token::text)), '[]') from (select job, token from machine.ledger
     where what = 'start' group by job, token having count(*) > 1) s) as started_twice
"""


class Witness:
    """Reads the committed state by a connection of its own."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn

    def install(self) -> None:
        """Make the journal and the ledger, and let asynchronous commits spare the disk."""
        self.conn.execute(INSTALL)

    def empty(self) -> None:
        """Begin anew: no rows, ids from 1."""
        self.conn.execute(EMPTY % MAX_INTERRUPTIONS)

    def started(self, job: int, token: int) -> None:
        """A handler has been called."""
        self.conn.execute("insert into machine.ledger (job, token, what) values (%s, %s, 'start')", [job, token])

    def returned(self, job: int, token: int) -> None:
        """A handler has returned or raised."""
        self.conn.execute("insert into machine.ledger (job, token, what) values (%s, %s, 'end')", [job, token])

    def sure(self) -> bool:
        """Whether nothing runs that a limit does not count."""
        return self.conn.execute("select limits_sure from tailrace.queue").fetchone() == (True,)

    def held(self, jobs: set[int]) -> set[int]:
        """Those of these jobs that somebody has locked."""
        query = "select id from tailrace.job where id = any(%s) for no key update skip locked"
        return jobs - {ident for (ident,) in self.conn.execute(query, [list(jobs)])} if jobs else set()

    def look(self) -> dict[str, Any]:
        """Everything that is committed, as one snapshot."""
        with self.conn.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(_LOOK).fetchone()
        assert row is not None
        return row

    def compare(self, model: Model) -> None:
        """Fail where the tables are not what the model says, or the journal tells of something that may never be."""
        seen = self.look()
        must(not seen["stolen"], "a job was claimed while somebody held it")
        must(not seen["written_twice"], f"a token wrote twice: {seen['written_twice']}")
        must(not seen["started_twice"], f"a handler was called twice under one token: {seen['started_twice']}")
        _same("job", {j.id: j for j in jobs_of(seen)}, model.jobs)
        _same("dead letter", {x["id"]: Letter(**x) for x in seen["letters"]}, model.letters)
        _same("lease", leases_of(seen), model.leases)
        groups = {name: Held(None if token is None else int(token), head) for name, token, head in seen["groups"]}
        for name in [n for n, held in model.groups.items() if held.token is None and held.head not in model.jobs]:
            if name not in groups:  # nobody waits for a head that is gone; the row goes sooner or later
                del model.groups[name]
        _same("group", groups, model.groups)
        _limits(seen, model)
        counted = Counter({what: int(n) for what, n in seen["counted"].items()})
        must(counted == +model.counted, f"counted ends: {dict(counted)}, and should be {dict(model.counted)}")
        ends = sum(n for what, n in counted.items() if what in ENDS)
        must(ends == seen["ended"], f"{seen['ended']} rows were removed, {ends} ends were counted")


def _limits(seen: dict[str, Any], model: Model) -> None:
    limits = {name: most for name, most in model.limits.items() if not name.startswith("rate")}
    must(seen["limits"]["most"] == limits, f"the limits are {seen['limits']}, and should be {limits}")
    must(model.starts <= RATE * seen["rates"], f"{model.starts} jobs were started under a rate of {RATE}")
    model.version = seen["limits"]["version"]
    for name in limits if seen["limits"]["sure"] else ():
        taken = sorted(job for limit, job in seen["slots"] if limit == name)
        running = sorted(job.id for job in model.jobs.values() if job.token is not None and name in ("", job.task))
        must(taken == running, f"the slots of limit {name or 'of the queue'} are taken by {taken}, but {running} run")


def jobs_of(seen: dict[str, Any]) -> list[Job]:
    """The jobs of a look."""
    return [Job(**{**row, "token": None if row["token"] is None else int(row["token"])}) for row in seen["jobs"]]


def leases_of(seen: dict[str, Any]) -> dict[int, Lease]:
    """The leases of a look."""
    return {int(token): Lease(worker, tuple(ids)) for token, worker, ids in seen["leases"]}


def _same(kind: str, seen: dict[Any, Any], wanted: dict[Any, Any]) -> None:
    for ident in sorted(seen.keys() | wanted.keys()):
        a, b = seen.get(ident), wanted.get(ident)
        if isinstance(a, Lease) and isinstance(b, Lease):
            a, b = (a.worker, sorted(a.ids)), (b.worker, sorted(b.ids))
        must(a == b, f"{kind} {ident} is {a}, and should be {b}")
