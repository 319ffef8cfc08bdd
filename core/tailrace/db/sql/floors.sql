-- Floors: how far a queue has been examined, and what lies below.

-- name: stored_floors
-- purpose: where a starting worker begins its scans
-- locks: none
-- index: the primary key of queue_floor
select priority, date_part('epoch', run_at), id from tailrace.queue_floor where queue = %(queue)s

-- name: store_floors
-- purpose: remember how far this worker has examined, for workers that start later; replaces, so that it can go back too
-- locks: the floor rows of the queue, for the length of this statement (asynchronous commit)
-- index: the primary key of queue_floor
insert into tailrace.queue_floor (queue, priority, run_at, id)
select %(queue)s, u.priority, to_timestamp(u.run_at), u.id
from unnest(%(priorities)s::int[], %(run_ats)s::float8[], %(ids)s::bigint[]) u(priority, run_at, id)
on conflict (queue, priority) do update set run_at = excluded.run_at, id = excluded.id

-- name: unstored_priorities
-- purpose: the distinct priorities of a queue that has no floors yet, by a loose index scan
-- locks: none
-- index: job_ready, one entry per priority; the primary key of queue_floor
with recursive p(priority) as (
  (select priority from tailrace.job
   where queue = %(queue)s and serial_group is null and key_slot = 0 and lost = 0
     and not exists (select from tailrace.queue_floor f where f.queue = %(queue)s)
   order by priority limit 1)
  union all
  select (select j.priority from tailrace.job j
          where j.queue = %(queue)s and j.serial_group is null and j.key_slot = 0 and j.lost = 0 and j.priority > p.priority
          order by j.priority limit 1)
  from p where p.priority is not null)
select priority from p where priority is not null

-- name: look
-- purpose: per known priority in how many seconds its next job falls due
-- locks: none
-- index: job_ready, one entry per priority
select p.priority,
  (select date_part('epoch', f.run_at - now()) from tailrace.job f
   where f.queue = %(queue)s and f.serial_group is null and f.key_slot = 0 and f.lost = 0 and f.priority = p.priority
     and f.run_at > now() order by f.run_at, f.id limit 1)
from unnest(%(priorities)s::int[]) p(priority)

-- name: gaps
-- purpose: a priority that this worker does not know yet (between the known ones no dead entries lie), the server's clock
--          a quarter of a second ago (what is older and visible was examined by a claim that came back short), in how many
--          seconds a job that was lost before falls due, whether the queue is held or has other limits than this worker knows,
--          in how many seconds a member of a group that was lost before falls due, and whether the limits are others
-- locks: none
-- index: job_ready, one entry per gap; job_suspect
select g.low,
  (select j.priority from tailrace.job j
   where j.queue = %(queue)s and j.serial_group is null and j.key_slot = 0 and j.lost = 0
     and j.priority > g.low and j.priority < g.high
   order by j.priority limit 1),
  date_part('epoch', now()) - 0.25,
  (select date_part('epoch', s.run_at - now()) from tailrace.job s
   where s.queue = %(queue)s and s.lost > 0 and s.serial_group is null and s.key_slot = 0 and s.token is null
     and s.task = any(%(tasks)s) order by s.run_at, s.id limit 1),
  exists (select from tailrace.queue h where h.name = %(queue)s and (h.held or h.held_until > now() or h.limits <> %(limits)s)),
  (select date_part('epoch', s.run_at - now()) from tailrace.job s
   where s.queue = %(queue)s and s.lost > 0 and s.key_slot = 0 and s.token is null
     and coalesce(s.serial_group, '') <> ''   -- so that job_by_group does not offer itself: it may be long
     and s.task = any(%(tasks)s) order by s.run_at, s.id limit 1),
  exists (select from tailrace.queue h where h.name = %(queue)s and h.limits <> %(limits)s)
from unnest(%(lows)s::int[], %(highs)s::int[]) g(low, high)

-- name: rescan
-- purpose: due jobs below the floors (late commits, rows that came back), as ids: before the time of the floor, and at it. A
--          bound by (run_at, id) does not end a scan inside a bulk insert of one run_at, and one by id alone is no better
-- locks: none
-- index: job_ready, two ranges per priority
select p.priority, date_part('epoch', j.run_at), j.id
from (select u.priority, to_timestamp(u.low_run_at) as low_run_at, u.low_id, to_timestamp(u.run_at) as run_at, u.id
      from unnest(%(priorities)s::int[], %(low_run_ats)s::float8[], %(low_ids)s::bigint[], %(run_ats)s::float8[], %(ids)s::bigint[])
        u(priority, low_run_at, low_id, run_at, id)) p
cross join lateral (
  (select s.run_at, s.id from tailrace.job s
   where s.queue = %(queue)s and s.serial_group is null and s.key_slot = 0 and s.lost = 0 and s.priority = p.priority
     and s.run_at < least(p.run_at, now()) and (s.run_at, s.id) > (p.low_run_at, p.low_id)
     and s.token is null and s.task = any(%(tasks)s)
   order by s.run_at, s.id limit 1001)
  union all
  select p.run_at, f.id
  from tailrace.free_at_floor_v1(%(queue)s, p.priority, p.run_at, case when p.low_run_at = p.run_at then p.low_id else 0 end, p.id, %(tasks)s) f(id)
  where p.run_at <= now()
  limit 1001) j

-- name: due
-- purpose: whether a job of the queue that this worker could run is due (`--until-empty`)
-- locks: none
-- index: job_ready, job_suspect and job_by_group
select not exists (select from tailrace.queue h where h.name = %(queue)s and (h.held or h.held_until > now()))
  and (exists (
    select from tailrace.job s
    where s.queue = %(queue)s and s.serial_group is null and s.key_slot = 0 and s.lost = 0 and s.token is null
      and s.run_at <= now() and s.task = any(%(tasks)s))
  or exists (
    select from tailrace.job s
    where s.queue = %(queue)s and s.serial_group is null and s.key_slot = 0 and s.lost > 0 and s.token is null
      and s.run_at <= now() and s.task = any(%(tasks)s))
  or exists (
    select from tailrace.job s
    where s.queue = %(queue)s and s.serial_group is not null and s.key_slot = 0 and s.token is null
      and s.run_at <= now() and s.task = any(%(tasks)s)))

-- name: clock
-- purpose: the server's clock, from which waits are measured
-- locks: none
-- index: none
select date_part('epoch', clock_timestamp())
