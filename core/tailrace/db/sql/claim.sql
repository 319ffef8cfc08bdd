-- Claims: the hot statements of a worker. They run on the dedicated work connection with pinned plans
-- (tailrace_worker/work.py). Moments travel as seconds since 1970 in float8, which holds microseconds exactly until the
-- year 2255 and -infinity too, and costs neither side a conversion.

-- name: claim_batch
-- purpose: take up to n due jobs of known tasks above the floors, high priority first, and write their lease
-- locks: the job rows taken (NO KEY UPDATE, SKIP LOCKED); inserts one lease row
-- index: job_ready, one tight range per priority from its floor on, so rows at the head that cannot be taken are passed once
with c as materialized (
  select j.id, j.spent, j.place
  from (select u.priority, to_timestamp(u.run_at) as run_at, u.id
        from unnest(%(priorities)s::int[], %(run_ats)s::float8[], %(ids)s::bigint[]) u(priority, run_at, id)) p
  cross join lateral (
    select s.id, s.attempts >= s.max_attempts as spent, s.ctid as place from tailrace.job s
    where s.queue = %(queue)s and s.serial_group is null and s.key_slot = 0 and s.lost = 0 and s.priority = p.priority
      and s.run_at <= now() and (s.run_at, s.id) > (p.run_at, p.id) and s.token is null and s.task = any(%(tasks)s)
    order by s.run_at, s.id limit %(n)s for no key update of s skip locked) j
  where not exists (select from tailrace.queue h where h.name = %(queue)s and (h.held or h.held_until > now() or h.limits <> %(limits)s))
  limit %(n)s),
l as (
  insert into tailrace.lease (token, worker, queue, ids)
  select %(token)s, %(worker)s, %(queue)s, array_agg(id) from c having count(*) > 0)
-- By place, not by id: the rows are locked by this statement, so they stand still, and a thousand index descents are saved.
update tailrace.job set token = %(token)s, attempts = attempts + (attempts < max_attempts)::int
where ctid = any(array(select place from c))
returning id, token, attempts, task, payload::text, date_part('epoch', timeout), priority,
  case when attempts < max_attempts and requeues = 0 and expires_at is null and key is null then 0
    else case when id = any(array(select id from c where spent)) then 1 else 0 end + case when expires_at <= now() then 2 else 0 end
      + case when requeues > 0 then 4 else 0 end + case when attempts >= max_attempts then 8 else 0 end
      + case when key is not null then 16 else 0 end end,
  date_part('epoch', run_at),
  case when task = any(%(context_tasks)s) or backoff is not null then jsonb_build_object(
    'tenant', tenant, 'key', key, 'meta', meta, 'saved', saved, 'max_attempts', max_attempts, 'backoff', backoff,
    'created_at', created_at, 'run_at', run_at, 'trace', trace)
  when key is not null then jsonb_build_object('tenant', tenant, 'key', key) end

-- name: claim_ids
-- purpose: take up to n of the given jobs, which a look or a rescan found below the floors
-- locks: the job rows taken (NO KEY UPDATE, SKIP LOCKED); inserts one lease row
-- index: the primary key
with c as materialized (
  select x.id, x.attempts >= x.max_attempts as spent from tailrace.job x
  where x.id = any(%(ids)s) and x.queue = %(queue)s and x.serial_group is null and x.lost = 0
    and x.key_slot + 0 = 0   -- so that no partial index offers itself: planned on an empty table, one would be read whole
    and x.token is null and x.run_at <= now() and x.task = any(%(tasks)s)
    and not exists (select from tailrace.queue h where h.name = %(queue)s and (h.held or h.held_until > now() or h.limits <> %(limits)s))
  order by x.priority desc, x.run_at, x.id limit %(n)s
  for no key update of x skip locked),
l as (
  insert into tailrace.lease (token, worker, queue, ids)
  select %(token)s, %(worker)s, %(queue)s, array_agg(id) from c having count(*) > 0)
update tailrace.job set token = %(token)s, attempts = attempts + (attempts < max_attempts)::int
where id = any(array(select id from c))
returning id, token, attempts, task, payload::text, date_part('epoch', timeout), priority,
  case when attempts < max_attempts and requeues = 0 and expires_at is null and key is null then 0
    else case when id = any(array(select id from c where spent)) then 1 else 0 end + case when expires_at <= now() then 2 else 0 end
      + case when requeues > 0 then 4 else 0 end + case when attempts >= max_attempts then 8 else 0 end
      + case when key is not null then 16 else 0 end end,
  date_part('epoch', run_at),
  case when task = any(%(context_tasks)s) or backoff is not null then jsonb_build_object(
    'tenant', tenant, 'key', key, 'meta', meta, 'saved', saved, 'max_attempts', max_attempts, 'backoff', backoff,
    'created_at', created_at, 'run_at', run_at, 'trace', trace)
  when key is not null then jsonb_build_object('tenant', tenant, 'key', key) end

-- name: claim_suspect
-- purpose: take one job whose process died before (lost > 0): such jobs are claimed alone, one at a time per worker
-- locks: one job row (NO KEY UPDATE, SKIP LOCKED); inserts one lease row
-- index: job_suspect
with c as materialized (
  select x.id, x.attempts >= x.max_attempts as spent from tailrace.job x
  where x.queue = %(queue)s and x.lost > 0 and x.serial_group is null and x.key_slot = 0
    and x.run_at <= now() and x.token is null and x.task = any(%(tasks)s)
    and not exists (select from tailrace.queue h where h.name = %(queue)s and (h.held or h.held_until > now() or h.limits <> %(limits)s))
  order by x.run_at, x.id limit 1
  for no key update of x skip locked),
l as (
  insert into tailrace.lease (token, worker, queue, ids)
  select %(token)s, %(worker)s, %(queue)s, array_agg(id) from c having count(*) > 0)
update tailrace.job set token = %(token)s, attempts = attempts + (attempts < max_attempts)::int
where id = any(array(select id from c))
returning id, token, attempts, task, payload::text, date_part('epoch', timeout), priority,
  case when attempts < max_attempts and requeues = 0 and expires_at is null and key is null then 0
    else case when id = any(array(select id from c where spent)) then 1 else 0 end + case when expires_at <= now() then 2 else 0 end
      + case when requeues > 0 then 4 else 0 end + case when attempts >= max_attempts then 8 else 0 end
      + case when key is not null then 16 else 0 end end,
  date_part('epoch', run_at),
  case when task = any(%(context_tasks)s) or backoff is not null then jsonb_build_object(
    'tenant', tenant, 'key', key, 'meta', meta, 'saved', saved, 'max_attempts', max_attempts, 'backoff', backoff,
    'created_at', created_at, 'run_at', run_at, 'trace', trace)
  when key is not null then jsonb_build_object('tenant', tenant, 'key', key) end

-- name: turn_groups
-- purpose: a turn at the groups of a queue: leave or continue those that ended here, take others, with the lease of all of them
-- locks: advisory locks by group (without waiting), rows of job_group, the member rows taken (NO KEY UPDATE, SKIP LOCKED); see the function
-- index: job_by_group, the primary keys of job_group and job
select id, token, attempts, task, payload, timeout, priority, mark, run_at, extra, serial_group, tenant
from tailrace.turn_groups_v1(%(queue)s, %(worker)s, %(token)s, %(tasks)s, %(strict_tasks)s, %(context_tasks)s,
  %(ended_names)s, %(ended_tenants)s, %(ended_tokens)s, %(unsettled)s,
  %(n)s, %(k)s, %(walk)s, %(after_name)s, %(after_tenant)s, %(suspect)s, %(limits)s, '{}')

-- name: claim_limited
-- purpose: take jobs of a queue that has limits or rates: as many as they allow; see the function
-- locks: slots, then job rows (all SKIP LOCKED); inserts one lease row
-- index: the primary key of limit_slot; job_ready from the floors of each class on, job_suspect, or the primary key
select id, token, attempts, task, payload, timeout, priority, mark, run_at, extra
from tailrace.claim_limited_v1(%(queue)s, %(worker)s, %(token)s, %(limits)s, %(tasks)s, %(classes)s::int[], %(context_tasks)s,
  %(names)s::text[], %(mosts)s::int[], %(shares)s::int[], %(queue_most)s::int, %(n)s,
  %(floor_classes)s::int[], %(priorities)s::int[], %(run_ats)s::float8[], %(floor_ids)s::bigint[], %(ids)s::bigint[], %(suspect)s)

-- name: turn_limited
-- purpose: a turn at the groups of a queue that has limits or rates: as many members as they allow; see the function
-- locks: slots (SKIP LOCKED), then as turn_groups
-- index: the primary key of limit_slot, job_by_group, the primary keys of job_group and job
select id, token, attempts, task, payload, timeout, priority, mark, run_at, extra, serial_group, tenant
from tailrace.turn_limited_v1(%(queue)s, %(worker)s, %(token)s, %(limits)s, %(tasks)s, %(classes)s::int[], %(strict_tasks)s, %(context_tasks)s,
  %(names)s::text[], %(mosts)s::int[], %(shares)s::int[], %(queue_most)s::int, %(ended_names)s, %(ended_tenants)s, %(ended_tokens)s,
  %(unsettled)s, %(n)s, %(walk)s, %(after_name)s, %(after_tenant)s, %(suspect)s)
