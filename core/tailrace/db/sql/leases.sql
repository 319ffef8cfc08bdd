-- Who runs what: leases and workers.

-- name: list
-- purpose: a page of leases by token
-- locks: none
-- index: the primary key of lease, or lease_worker
select l.token, l.state, l.queue, l.worker, l.jobs, l.age, l.remaining, l.claimed_at, l.until, l.ids
from tailrace.leases l
where (%(after)s::bigint is null or l.token > %(after)s)
  and (%(queue)s::text is null or l.queue = %(queue)s) and (%(worker)s::text is null or l.worker = %(worker)s)
order by l.token limit %(n)s

-- name: release
-- purpose: take leases from their workers, see the function
-- locks: the leases and their jobs (SKIP LOCKED)
-- index: primary keys
select r.token, r.worker, r.queue, r.jobs, r.result
from tailrace.release_leases_v1(%(tokens)s::bigint[], %(force)s) r order by r.token

-- name: died
-- purpose: proof of death by a parent who saw the process end: every row of workers whose id begins so, see the function
-- locks: worker, lease, job by id, dead letter (SKIP LOCKED)
-- index: none for the few worker rows; lease_worker
select w.id, tailrace.worker_died_v1(w.id, %(reason)s::text)
from (select o.id from tailrace.worker o where starts_with(o.id, %(name)s::text || '/') and o.death is null order by o.id) w

-- name: workers
-- purpose: the processes that have a row
-- locks: none
-- index: none; one small row a process
select w.id, w.state, w.alive, w.queues, w.slots, w.jobs, w.leases, w.started, w.until, w.version, w.tasks, w.lease_seconds, w.pod, w.death
from tailrace.workers w where %(queue)s::text is null or %(queue)s = any (w.queues)
order by w.started, w.id
