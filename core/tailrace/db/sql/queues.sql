-- Queues: what there is, and what people do to one. Changes are public functions, which check, audit and explain.

-- name: list
-- purpose: every queue that has a row, jobs or dead letters, with its last reading
-- locks: none
-- index: one entry of job_ready and of dead_letter_all per queue
select q.queue, q.held, q.held_until, q.workers, (q.reading ->> 'running')::bigint, (q.reading ->> 'dead')::bigint, q.managed_by, q.read_at
from tailrace.queues q order by q.queue

-- name: show
-- purpose: one queue with its settings, and how far its limits are used
-- locks: none
-- index: as the list; what runs is counted by lease and the primary key of job
select q.queue, q.held, q.held_until, q.workers, (q.reading ->> 'running')::bigint, (q.reading ->> 'dead')::bigint, q.managed_by, q.read_at,
  q.held_by_policy, q.settings, q.owner, q.generation, q.orphaned_at, q.reading,
  (select coalesce(jsonb_agg(to_jsonb(l) - 'queue' order by l.kind, l.name), '[]') from tailrace.limits l where l.queue = q.queue)
from tailrace.queues q where q.queue = %(queue)s

-- name: stats
-- purpose: counts of one queue's jobs now, see the function
-- locks: none
-- index: the queue's jobs are all read
select s.ready, s.scheduled, s.retrying, s.blocked, s.held, s.unclaimable, s.running, s.stale, s.total, s.oldest_ready_age, s.next_due_in,
  s.dead, s.oldest_dead_age, s.read_at
from tailrace.queue_stats(%(queue)s) s

-- name: readings
-- purpose: the last reading of some queues, with its age and its moments as seconds by the database's clock
-- locks: none
-- index: the primary key of queue
select q.name, q.reading, extract(epoch from clock_timestamp() - q.read_at)::double precision,
  extract(epoch from (q.reading ->> 'next_due_at')::timestamptz - q.read_at)::double precision,
  extract(epoch from clock_timestamp() - (q.reading ->> 'oldest_ready_at')::timestamptz)::double precision,
  q.held or coalesce(q.held_until > clock_timestamp(), false)
from tailrace.queue q where q.name = any (%(queues)s)

-- name: hold
-- purpose: stop claims, see the function
-- locks: the queue's row
-- index: the primary key of queue
select tailrace.hold_queue(%(queue)s, %(seconds)s)

-- name: resume
-- purpose: let claims go on, see the function
-- locks: the queue's row
-- index: the primary key of queue
select tailrace.resume_queue(%(queue)s)

-- name: apply
-- purpose: write the database part of a JobQueue, see the function
-- locks: the queue's row
-- index: the primary key of queue
select tailrace.apply_queue(%(queue)s, %(settings)s, 'cli')

-- name: purge
-- purpose: cancel every waiting job, see the function
-- locks: the waiting jobs (SKIP LOCKED)
-- index: job_ready
select tailrace.purge_queue(%(queue)s, %(force)s)
