-- Finishes: outcomes back to the database, guarded by (id, token).

-- name: drop_leases
-- purpose: remove the leases whose last job is in this flush (the worker counts down in memory)
-- locks: the lease rows; the reaper takes them for one short statement only
-- index: the primary key of lease
delete from tailrace.lease where token = any(%(tokens)s)

-- name: finish_batch
-- purpose: remove the succeeded jobs of one lease and count them; what is missing in the sum was fenced
-- locks: the job rows, which nobody else writes while the token holds
-- index: the primary key of job
with d as (delete from tailrace.job where id = any(%(ids)s) and token = %(token)s returning task)
insert into tailrace.tally (queue, task, what, n)
select %(queue)s, d.task, 'succeeded', count(*) from d group by d.task
returning task, n

-- name: finish_mixed
-- purpose: the same for succeeded jobs of several leases at once
-- locks: the job rows, in id order
-- index: the primary key of job
with d as (
  delete from tailrace.job j
  where j.id = any(%(ids)s::bigint[])   -- no join: planned on an empty table, it read all jobs first
    and ((j.id, j.token) in (select f.id, f.token from unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) f(id, token))) is true
  returning j.task)
insert into tailrace.tally (queue, task, what, n)
select %(queue)s, d.task, 'succeeded', count(*) from d group by d.task
returning task, n

-- name: finish_kept
-- purpose: the same as finish_mixed, with a row of the history for each job; see remember_v1 for all other ends
-- locks: the job rows, in id order
-- index: the primary key of job
with d as (
  delete from tailrace.job j
  where j.id = any(%(ids)s::bigint[])
    and ((j.id, j.token) in (select f.id, f.token from unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) f(id, token))) is true
  returning j.id, j.queue, j.task, j.tenant, j.key, j.attempts, j.created_at, j.meta),
h as (insert into tailrace.finished (id, queue, task, tenant, key, outcome, attempts, created_at, finished_at, meta)
      select d.id, d.queue, d.task, d.tenant, d.key, 'succeeded', d.attempts, d.created_at, clock_timestamp(), d.meta from d)
insert into tailrace.tally (queue, task, what, n)
select %(queue)s, d.task, 'succeeded', count(*) from d group by d.task
returning task, n

-- name: finish_keyed
-- purpose: remove succeeded jobs that hold keys, count them, and let the successors of the keys follow; see the function
-- locks: the job rows, the successors (SKIP LOCKED), the leases (SKIP LOCKED)
-- index: the primary key of job, job_key
select id, result from tailrace.finish_keyed_v1(%(worker)s, %(ids)s::bigint[], %(tokens)s::bigint[], %(emptied)s::bigint[])

-- name: complete
-- purpose: end a running job inside its handler's own transaction; raises when the job is no longer this run's
-- locks: the job row, its successor, its dead letter; held until the handler's transaction ends, and never the lease
-- index: the primary key of job, job_key
select tailrace.complete_v1(%(id)s, %(token)s, %(worker)s, %(kept)s)

-- name: settle
-- purpose: every other outcome, see the function
-- locks: lease, job by id, dead letter (SKIP LOCKED)
-- index: primary keys
select id, result from tailrace.settle_v1(%(worker)s, %(outcomes)s)

-- name: tasks_of
-- purpose: the tasks of succeeded jobs that are written one by one, since counters go by task
-- locks: none
-- index: the primary key of job
select id, task from tailrace.job where id = any(%(ids)s::bigint[])
