-- Looks at dead letters, and the requeue of given ones.

-- name: get
-- purpose: one dead letter with everything
-- locks: none
-- index: the primary key of dead_letter
select d.job_id, d.state, d.queue, d.task, d.key, d.tenant, d.reason, d.error_type, d.last_error, d.fingerprint,
  d.total_attempts, d.dead_count, d.requeued_count, d.first_failed_at, d.failed_at, d.last_requeued_at, d.resolved_at, d.created_at, d.age,
  d.payload, d.errors, d.history, d.notes, d.resolution, d.priority, d.run_at, d.max_attempts, d.timeout, d.backoff, d.meta, d.saved,
  d.worker, d.serial_group, d.trace
from tailrace.dead_letters d where d.job_id = %(job_id)s

-- name: list
-- purpose: a page of dead letters, newest failure first. One walk per queue and state, merged: an order over all queues has
--          no index, and the planner would read every row for it
-- locks: none
-- index: dead_letter_all, backwards from the cursor in each queue and state; one entry per queue to find the queues
with recursive q(name) as (
  select coalesce(%(queue)s::text, (select min(d.queue) from tailrace.dead_letters d))
  union all
  select (select min(d.queue) from tailrace.dead_letters d where d.queue > q.name)
  from q where q.name is not null and %(queue)s::text is null)
select p.* from q cross join unnest(%(states)s::text[]) s(state) cross join lateral (
  select d.job_id, d.state, d.queue, d.task, d.key, d.tenant, d.reason, d.error_type, d.last_error, d.fingerprint,
    d.total_attempts, d.dead_count, d.requeued_count, d.first_failed_at, d.failed_at, d.last_requeued_at, d.resolved_at, d.created_at, d.age
  from tailrace.dead_letters d
  where d.queue = q.name and d.state = s.state
    and (%(task)s::text is null or d.task = %(task)s) and (%(key)s::text is null or d.key = %(key)s)
    and (%(tenant)s::text is null or d.tenant = %(tenant)s) and (%(reason)s::text is null or d.reason = %(reason)s)
    and (%(error_type)s::text is null or d.error_type = %(error_type)s)
    and (%(fingerprint)s::text is null or d.fingerprint = %(fingerprint)s)
    and (%(failed_after)s::timestamptz is null or d.failed_at >= %(failed_after)s)
    and (%(failed_before)s::timestamptz is null or d.failed_at <= %(failed_before)s)
    and (%(text)s::text is null or strpos(lower(d.errors::text), lower(%(text)s)) > 0
         or strpos(lower(coalesce(d.notes, '')), lower(%(text)s)) > 0)
    and (%(after_time)s::timestamptz is null or (d.failed_at, d.job_id) < (%(after_time)s, %(after_id)s::bigint))
  order by d.failed_at desc, d.job_id desc limit %(n)s) p
order by p.failed_at desc, p.job_id desc limit %(n)s

-- name: count
-- purpose: how many dead letters a filter matches
-- locks: none
-- index: dead_letter_all with a queue; else the table
select count(*) from tailrace.dead_letters d
where d.state = any(%(states)s::text[]) and (%(queue)s::text is null or d.queue = %(queue)s)
  and (%(task)s::text is null or d.task = %(task)s) and (%(key)s::text is null or d.key = %(key)s)
  and (%(tenant)s::text is null or d.tenant = %(tenant)s) and (%(reason)s::text is null or d.reason = %(reason)s)
  and (%(error_type)s::text is null or d.error_type = %(error_type)s)
  and (%(fingerprint)s::text is null or d.fingerprint = %(fingerprint)s)
  and (%(failed_after)s::timestamptz is null or d.failed_at >= %(failed_after)s)
  and (%(failed_before)s::timestamptz is null or d.failed_at <= %(failed_before)s)
  and (%(text)s::text is null or strpos(lower(d.errors::text), lower(%(text)s)) > 0
       or strpos(lower(coalesce(d.notes, '')), lower(%(text)s)) > 0)

-- name: requeue
-- purpose: put jobs back under their ids in one transaction, in id order; see the function
-- locks: the dead letters, the inserted jobs
-- index: primary keys, job_key
select i.id, tailrace.requeue_dead_letter(i.id, %(force)s) from (select unnest(%(ids)s::bigint[]) as id order by 1) i

-- name: stats
-- purpose: counts of one queue or of all, see the function
-- locks: none
-- index: dead_letter_all with a queue; else the table
select s.dead, s.tasks, s.queues, s.average_attempts, s.requeues, s.oldest, s.newest, s.by_task, s.requeued, s.resolved
from tailrace.dead_letter_stats(%(queue)s) s
