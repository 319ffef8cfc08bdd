-- Looks at dead letters, and changes of them. What decides is in the functions.

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
-- purpose: a page of dead letters, newest failure first; a row without a job says only how far the walk came
-- locks: none
-- index: the one of the rarest field of the filter, see the function; then the primary key for each row
select f.until_time, f.until_id, d.job_id, d.state, d.queue, d.task, d.key, d.tenant, d.reason, d.error_type, d.last_error, d.fingerprint,
  d.total_attempts, d.dead_count, d.requeued_count, d.first_failed_at, d.failed_at, d.last_requeued_at, d.resolved_at, d.created_at, d.age
from tailrace.find_dead_letters_v1(%(filter)s, false, %(n)s, %(after_time)s, %(after_id)s, %(examine)s) f
left join lateral (select o.* from tailrace.dead_letters o where o.job_id = f.job_id offset 0) d on true
order by f.failed_at desc, f.job_id desc

-- name: export
-- purpose: the same with everything
-- locks: none
-- index: the one of the rarest field of the filter, see the function; then the primary key for each row
select f.until_time, f.until_id, d.job_id, d.state, d.queue, d.task, d.key, d.tenant, d.reason, d.error_type, d.last_error, d.fingerprint,
  d.total_attempts, d.dead_count, d.requeued_count, d.first_failed_at, d.failed_at, d.last_requeued_at, d.resolved_at, d.created_at, d.age,
  d.payload, d.errors, d.history, d.notes, d.resolution, d.priority, d.run_at, d.max_attempts, d.timeout, d.backoff, d.meta, d.saved,
  d.worker, d.serial_group, d.trace
from tailrace.find_dead_letters_v1(%(filter)s, false, %(n)s, %(after_time)s, %(after_id)s, %(examine)s) f
left join lateral (select o.* from tailrace.dead_letters o where o.job_id = f.job_id offset 0) d on true
order by f.failed_at desc, f.job_id desc

-- name: count
-- purpose: how many dead letters a filter selects, and the ten tasks with the most of them
-- locks: none
-- index: none of dead_letter for queue, task and state, which are kept as counts; else the table is read
select tailrace.count_dead_letters_v1(%(filter)s)

-- name: stats
-- purpose: counts of one queue or of all, see the function
-- locks: none
-- index: dead_letter_all, two entries for each queue
select s.dead, s.tasks, s.queues, s.average_attempts, s.requeues, s.oldest, s.newest, s.by_task, s.requeued, s.resolved
from tailrace.dead_letter_stats(%(queue)s) s

-- name: change
-- purpose: change given ones, all or none, see the function
-- locks: of a requeue the inserted jobs, then the dead letters; else the dead letters
-- index: primary keys, job_key
select c.job_id, c.outcome, c.queue, c.task from tailrace.change_dead_letters_v1(%(verb)s, %(ids)s::bigint[], %(options)s) c

-- name: add
-- purpose: a dead letter by hand, see the function
-- locks: the dead letter, and one of the same key
-- index: primary key, dead_letter_key
select tailrace.add_dead_letter(%(queue)s, %(task)s, %(payload)s, %(options)s)

-- name: begin
-- purpose: begin a change of many, or go on with one
-- locks: the row of the operation
-- index: the primary key of operation
select tailrace.begin_operation_v1(%(verb)s, %(filter)s, %(options)s, %(anew)s)

-- name: step
-- purpose: one batch of a change of many, see the function
-- locks: the row of the operation, then as change
-- index: as list, then as change
select tailrace.step_operation_v1(%(operation)s, %(batch)s)

-- name: stop
-- purpose: stop a change of many behind its present batch
-- locks: the row of the operation
-- index: the primary key of operation
select tailrace.stop_operation(%(operation)s)
