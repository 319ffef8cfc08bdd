-- Schedules: what there is, and what people do to one. Changes are public functions, which check, audit and explain.

-- name: list
-- purpose: the schedules of one queue or of all
-- locks: none
-- index: the table has a row per schedule
select s.queue, s.name, s.state, s.timing, s.time_zone, s.task, s.source, s.overlap, s.last_tick, s.next_tick, s.last_job, s.last_fired_at,
  s.fired, s.skipped, s.missed, s.failed, s.fault ->> 'problem'
from tailrace.schedules s where %(queue)s::text is null or s.queue = %(queue)s order by s.queue, s.name

-- name: show
-- purpose: one schedule with its definition
-- locks: none
-- index: the primary key of schedule
select s.queue, s.name, s.state, s.timing, s.time_zone, s.task, s.source, s.overlap, s.last_tick, s.next_tick, s.last_job, s.last_fired_at,
  s.fired, s.skipped, s.missed, s.failed, s.fault ->> 'problem', s.fault, s.suspended, s.absent_since, s.definition
from tailrace.schedules s where s.queue = %(queue)s and s.name = %(name)s

-- name: run_now
-- purpose: enqueue a schedule's job now, see the function
-- locks: the schedule's row, its last job, what an enqueue locks
-- index: the primary keys of schedule and job
select tailrace.run_schedule(%(queue)s, %(name)s)

-- name: suspend
-- purpose: let a schedule fire no more, see the function
-- locks: the schedule's row
-- index: the primary key of schedule
select tailrace.suspend_schedule(%(queue)s, %(name)s)

-- name: resume
-- purpose: let a schedule go on, see the function
-- locks: the schedule's row
-- index: the primary key of schedule
select tailrace.resume_schedule(%(queue)s, %(name)s)
