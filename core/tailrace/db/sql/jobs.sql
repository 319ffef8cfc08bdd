-- Looks at live jobs and changes of single ones. Changes are public functions, which check, audit and explain.

-- name: get
-- purpose: one live job with everything
-- locks: none
-- index: the primary key of job
select j.id, j.state, j.queue, j.task, j.key, j.tenant, j.priority, j.run_at, j.attempts, j.max_attempts, j.worker, j.created_at,
  j.expires_at, j.timeout, j.lost, j.interrupted, j.snoozes, j.requeues, j.serial_group, j.payload, j.meta, j.saved, j.errors,
  j.backoff, j.trace, j.claimed_at, j.cancel_requested
from tailrace.jobs j where j.id = %(id)s

-- name: list
-- purpose: a page of live jobs by id
-- locks: none
-- index: the primary key of job, filters behind it
select j.id, j.state, j.queue, j.task, j.key, j.tenant, j.priority, j.run_at, j.attempts, j.max_attempts, j.worker, j.created_at,
  j.expires_at, j.timeout, j.lost, j.interrupted, j.snoozes, j.requeues, j.serial_group
from tailrace.jobs j
where j.id > %(after)s
  and (%(queue)s::text is null or j.queue = %(queue)s) and (%(task)s::text is null or j.task = %(task)s)
  and (%(key)s::text is null or j.key = %(key)s) and (%(tenant)s::text is null or j.tenant = %(tenant)s)
  and (%(state)s::text is null or j.state = %(state)s or (%(state)s = 'waiting' and j.state not in ('running', 'stale')))
order by j.id limit %(n)s

-- name: count
-- purpose: how many live jobs a filter matches
-- locks: none
-- index: job_key with a key; else the table, so it costs what the backlog costs
select count(*)
from tailrace.jobs j
where (%(queue)s::text is null or j.queue = %(queue)s) and (%(task)s::text is null or j.task = %(task)s)
  and (%(key)s::text is null or j.key = %(key)s) and (%(tenant)s::text is null or j.tenant = %(tenant)s)
  and (%(state)s::text is null or j.state = %(state)s or (%(state)s = 'waiting' and j.state not in ('running', 'stale')))

-- name: result
-- purpose: where a job stands, and its result while that is kept; see the function
-- locks: none
-- index: the primary keys of job and dead_letter, finished_id in each partition
select r.state, r.result, r.finished_at from tailrace.job_result(%(id)s) r

-- name: cancel
-- purpose: remove a waiting job or ask a running one to end, see the function
-- locks: the job row
-- index: primary keys
select tailrace.cancel(%(id)s)

-- name: cancel_by_key
-- purpose: the same for the holder of a key
-- locks: the job row
-- index: job_key
select tailrace.cancel_by_key(%(tenant)s, %(queue)s, %(task)s, %(key)s)

-- name: run_now
-- purpose: make a waiting job due, see the function
-- locks: the job row
-- index: the primary key of job
select tailrace.run_now(%(id)s)

-- name: reschedule
-- purpose: move a waiting job in time, see the function
-- locks: the job row
-- index: the primary key of job
select tailrace.reschedule(%(id)s, coalesce(%(run_at)s::timestamptz, clock_timestamp() + make_interval(secs => %(delay)s)))

-- name: update
-- purpose: change settings of a waiting job, see the function
-- locks: the job row
-- index: the primary key of job
select tailrace.update_job(%(id)s, %(changes)s)
