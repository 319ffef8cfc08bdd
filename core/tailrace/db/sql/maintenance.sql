-- The maintenance routines. Each call is one batch and commits by itself; the functions hold the advisory lock. `queue` is
-- null for all queues.

-- name: reap
-- purpose: one batch of the reaper, see the function
-- locks: worker, lease, job by id, dead letter (all SKIP LOCKED); advisory lock of the routine
-- index: primary keys, lease_worker
select tailrace.reap_v1(%(interval_seconds)s::real, %(batch)s::int, %(after)s::bigint, %(queue)s::text)

-- name: walk
-- purpose: one slice of the sweep and audit, see the function
-- locks: job by id, dead letter (SKIP LOCKED); advisory lock of the routine
-- index: primary keys
select tailrace.walk_v1(%(after)s::bigint, %(slice)s::int, %(most)s::int, %(queue)s::text)

-- name: audit
-- purpose: requeued dead letters without a live job are dead again; one batch, behind the place that the one before returned
-- locks: dead letter (SKIP LOCKED); advisory lock of the sweep
-- index: dead_letter_all, the primary key of job
select tailrace.audit_requeued_v1(%(batch)s::int, %(queue)s::text, %(after)s::jsonb)

-- name: retain
-- purpose: one batch of the retention, see the function
-- locks: dead letters (SKIP LOCKED); advisory lock of the routine
-- index: dead_letter_all or dead_letter_page, dead_letter_resolved
select tailrace.retain_v1(%(queue)s::text, %(batch)s::int)

-- name: history
-- purpose: drop parts of the history that nobody needs, and make those of the time to come; see the function
-- locks: the default part (ACCESS EXCLUSIVE, not waited for longer than 50 ms); to drop a part, table finished in the same way
-- index: finished_result
select tailrace.history_v1()

-- name: auto_requeue
-- purpose: one batch of the automatic requeue, see the function
-- locks: dead letters (SKIP LOCKED), the inserted jobs; advisory lock of the routine
-- index: dead_letter_all or dead_letter_page, the primary key of job, job_key
select tailrace.auto_requeue_v1(%(queue)s::text, %(batch)s::int)

-- name: statistics
-- purpose: publish a reading of each queue, fold the counts of ends
-- locks: queue rows (SKIP LOCKED); advisory lock of the routine
-- index: those of job by queue, or the whole table in one pass; dead_letter_all by queue, the primary key of tally
select tailrace.statistics_v1(%(fold)s::int, %(queue)s::text, %(readings)s::boolean)

-- name: loads
-- purpose: what the demand of each queue is worked out from, as the last reading has it
-- locks: none
-- index: none; a row a queue
select jsonb_build_object('queues', coalesce(jsonb_agg(jsonb_build_object('queue', q.name, 'read_at', q.read_at,
  'claimable', coalesce(q.reading -> 'claimable', '0'), 'running', coalesce(q.reading -> 'running', '0'),
  'arrivals', coalesce(q.reading -> 'arrivals', '0'), 'run_seconds', q.reading -> 'run_seconds', 'settings',
  jsonb_build_object('worker', q.settings -> 'worker', 'latencyTargetSeconds', q.settings -> 'latencyTargetSeconds',
                     'autoscaling', q.settings -> 'autoscaling'))), '[]'))
from tailrace.queue q where q.reading is not null

-- name: publish_demand
-- purpose: put the demand into readings that are still the ones it was worked out from
-- locks: queue rows (SKIP LOCKED)
-- index: the primary key of queue
with d as (
  select o.queue, o.read_at, o.demand from jsonb_to_recordset(%(demands)s::jsonb) as o(queue text, read_at timestamptz, demand jsonb)),
l as (
  select q.name, d.demand from tailrace.queue q join d on d.queue = q.name and d.read_at = q.read_at order by q.name for no key update of q skip locked),
u as (
  update tailrace.queue q set reading = q.reading || jsonb_build_object('demand', l.demand) from l where q.name = l.name returning q.name)
select jsonb_build_object('published', count(*)) from u

-- name: housekeeping
-- purpose: remove rows that nobody needs any more
-- locks: the removed rows (SKIP LOCKED); advisory lock of the routine
-- index: primary keys
select tailrace.housekeeping_v1(%(queue)s::text)

-- name: seen
-- purpose: when each routine last succeeded, and how long ago by the database's clock; an overdue tick shows that nobody fires
-- locks: none
-- index: the table has a row per routine, and that of schedules one per schedule
select m.routine, m.last_success::text,
  extract(epoch from clock_timestamp() - m.last_success)::double precision
  + case when m.routine = 'cron' and exists (
      select from tailrace.schedule s where s.next_tick < clock_timestamp() - interval '5 seconds' and tailrace.schedule_active_v1(s))
    then 86400 else 0 end,
  date_part('epoch', m.last_success)
from tailrace.maintenance m where m.scope = '' and m.last_success is not null

-- name: reap_preview
-- purpose: what the reaper would take over now
-- locks: none
-- index: lease_worker
select json_build_object('leases', count(*), 'jobs', coalesce(sum(cardinality(l.ids)), 0), 'workers', count(distinct l.worker))
from tailrace.lease l left join tailrace.worker w on w.id = l.worker
where coalesce(w.until < clock_timestamp(), l.claimed_at < clock_timestamp() - interval '60 seconds')
  and (%(queue)s::text is null or l.queue = %(queue)s)

-- name: walk_preview
-- purpose: what a full walk would find now
-- locks: none
-- index: none: it reads the table once
select json_build_object(
  'exhausted', count(*) filter (where j.token is null and j.attempts >= j.max_attempts),
  'expired', count(*) filter (where j.token is null and j.attempts < j.max_attempts and j.expires_at <= clock_timestamp()),
  'orphaned', count(*) filter (where j.token is not null and l.token is null),
  'followed', count(*) filter (where j.key_slot = 1 and not exists (
     select from tailrace.job h where h.tenant = j.tenant and h.queue = j.queue and h.task = j.task and h.key = j.key and h.key_slot = 0)),
  'restored', (select count(*) from tailrace.dead_letter d
               where d.state = 'requeued' and (%(queue)s::text is null or d.queue = %(queue)s)
                 and not exists (select from tailrace.job o where o.id = d.job_id)))
from tailrace.job j left join tailrace.lease l on l.token = j.token
where %(queue)s::text is null or j.queue = %(queue)s

-- name: retain_preview
-- purpose: how many dead letters are too old, by state
-- locks: none
-- index: dead_letter_all, dead_letter_resolved: what is too old is read, in each queue
select json_build_object('dead', coalesce(sum(c.dead), 0), 'resolved', coalesce(sum(c.resolved), 0),
  'dropped', case when %(queue)s::text is null then (select count(*) from tailrace.partitions_v1() p
     where tailrace.outlived_v1(p.part, p.ends, tailrace.history_kept_v1())) else 0 end)
from tailrace.dead_letter_queues_v1() n left join tailrace.queue q on q.name = n.queue
cross join lateral (select
  (select count(*) from tailrace.dead_letter d where d.queue = n.queue and d.queue <> '' and d.state = 'dead'
     and d.failed_at < tailrace.retention_cutoff_v1(q.settings, 'dead', clock_timestamp())) as dead,
  (select count(*) from tailrace.dead_letter d where d.queue = n.queue and d.state = 'resolved'
     and coalesce(d.resolved_at, d.failed_at) < tailrace.retention_cutoff_v1(q.settings, 'resolved', clock_timestamp())) as resolved) c
where %(queue)s::text is null or n.queue = %(queue)s

-- name: auto_requeue_preview
-- purpose: how many dead letters may come back by their queue's rule, and how many of these cannot since a live job has their key
-- locks: none
-- index: dead_letter_all: the dead letters of queues with a rule are read
select json_build_object('requeued', count(*) filter (where not x.held), 'conflict', count(*) filter (where x.held))
from tailrace.queue q cross join lateral (select q.settings #> '{deadLetters,autoRequeue}' as rule) r
cross join lateral (
  select exists (select from tailrace.job j where j.id = d.job_id or (j.tenant = d.tenant and j.queue = d.queue and j.task = d.task
                 and j.key = d.key and j.key_slot = 0)) as held
  from tailrace.dead_letter d
  where d.queue = q.name and d.queue <> '' and d.state = 'dead' and tailrace.comes_back_v1(r.rule, d.error_type, d.reason, d.auto_requeued)
    and d.failed_at <= clock_timestamp() - tailrace.setting_number_v1(r.rule, 'afterSeconds', 1e9) * interval '1 second') x
where jsonb_typeof(r.rule) = 'object' and (%(queue)s::text is null or q.name = %(queue)s)

-- name: statistics_preview
-- purpose: how many counts are left to fold
-- locks: none
-- index: the primary key of tally
select json_build_object('folded', count(*)) from tailrace.tally where %(queue)s::text is null

-- name: housekeeping_preview
-- purpose: what housekeeping would remove now
-- locks: none
-- index: primary keys
select json_build_object(
  'waiters', (select count(*) from tailrace.waiter w
               where w.until < clock_timestamp() and (%(queue)s::text is null or w.queue = %(queue)s)),
  'workers', (select count(*) from tailrace.worker w where %(queue)s::text is null and w.until < clock_timestamp() - interval '7 days'
              and not exists (select from tailrace.lease l where l.worker = w.id)),
  'cancel_requests', (select count(*) from tailrace.cancel_request c
                       where %(queue)s::text is null and not exists (select from tailrace.job j where j.id = c.job_id)))

-- name: cron_due
-- purpose: read the schedules that are due, now and then after bringing them in line with JobQueues and workers
-- locks: schedule rows that are due or change (SKIP LOCKED); advisory lock of the routine
-- index: the tables of schedules, queues and workers are small and read whole
select tailrace.cron_due_v1(%(batch)s::int, %(sync)s::boolean, %(queue)s)

-- name: fire_schedules
-- purpose: fire the ticks of a plan: move last_tick and enqueue, each schedule for itself
-- locks: schedule rows, the last job of an overlap Replace (SKIP LOCKED), what an enqueue locks; advisory lock of the routine
-- index: primary keys
select tailrace.fire_schedules_v1(%(plans)s::jsonb, %(queue)s)

-- name: cron_preview
-- purpose: how many schedules are due now
-- locks: none
-- index: the table has a row per schedule
select json_build_object('due', count(*)) from tailrace.schedule s
where tailrace.schedule_active_v1(s) and s.next_tick <= clock_timestamp() and (%(queue)s::text is null or s.queue = %(queue)s)
