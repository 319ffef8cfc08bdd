-- The reference worker's whole SQL. Blocks are read by bench/ceil/statements.py.

-- name: schema
-- Lock columns stand in no index and pages are half empty, so a claim is a HOT update.
create table ceil_job (
  id         bigint generated always as identity primary key,
  queue      text not null default 'default',
  task       text not null,
  payload    jsonb not null,
  priority   smallint not null default 0,
  run_at     timestamptz not null default now(),
  attempts   smallint not null default 0,
  locked_by  int,
  locked_at  timestamptz
) with (fillfactor = 50);
create index ceil_job_ready on ceil_job (queue, priority, run_at, id);
create unlogged table ceil_waiter (worker int primary key);

-- name: priorities
-- Distinct priorities by jumping from one to the next in the index.
with recursive level as (
  (select priority from ceil_job where queue = 'default' order by priority limit 1)
  union all
  select (select job.priority from ceil_job job where job.queue = 'default' and job.priority > level.priority order by job.priority limit 1)
    from level where level.priority is not null
)
select priority from level where priority is not null;

-- name: claim
-- One tight index range per priority, from this worker's floor to now.
with ready as materialized (
  select found.id
    from unnest(%(priorities)s::smallint[], %(run_ats)s::timestamptz[], %(ids)s::bigint[]) as floor(priority, run_at, id)
   cross join lateral (
     select job.id from ceil_job job
      where job.queue = 'default' and job.locked_by is null and job.priority = floor.priority
        and job.run_at <= now() and (job.run_at, job.id) > (floor.run_at, floor.id)
      order by job.run_at, job.id limit %(batch)s for update skip locked) found
   limit %(batch)s
)
update ceil_job set locked_by = %(worker)s, locked_at = now(), attempts = attempts + 1
 where id = any(array(select id from ready))
returning id, task, payload, priority, run_at, attempts;

-- name: finish
delete from ceil_job where id = any(%(ids)s) and locked_by = %(worker)s;

-- name: idle
insert into ceil_waiter values (%(worker)s) on conflict do nothing;

-- name: busy
delete from ceil_waiter where worker = %(worker)s;

-- name: enqueue
-- Row and notification travel together; nobody is told while no worker is idle.
with stored as (
  insert into ceil_job (task, payload) values ('noop', %(payload)s::text::jsonb) returning id
), told as materialized (
  select count(pg_notify('ceil_job', '')) as n from (select from ceil_waiter limit 1) waiting
)
select stored.id, told.n from stored, told;

-- name: enqueue_many
insert into ceil_job (task, payload) select 'noop', unnest(%(payloads)s::text[])::jsonb returning id;

-- name: notify
select count(pg_notify('ceil_job', '')) from (select from ceil_waiter limit 1) waiting;
