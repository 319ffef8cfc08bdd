-- The worker's own row and its leases.

-- name: beat
-- purpose: renew the lease of this worker and learn what the database knows of it, see the function
-- locks: the worker's own row
-- index: primary keys, lease_worker
select tailrace.beat_v1(%(worker)s, %(known)s::bigint[], %(changes)s)

-- name: know_queue
-- purpose: a starting worker makes its queue known to gauges, see the function
-- locks: the inserted row; somebody else's open insert of it is not waited for
-- index: the primary key of queue
select tailrace.know_queues_v1(array[%(queue)s::text])

-- name: leave
-- purpose: a worker that ended cleanly removes its own row, unless a lease of it is left
-- locks: the worker's own row
-- index: the primary key of worker, lease_worker
delete from tailrace.worker w where w.id = %(worker)s and not exists (select from tailrace.lease l where l.worker = w.id)

-- name: readings
-- purpose: the published statistics of some queues, for gauges
-- locks: none
-- index: the primary key of queue
select name, reading, date_part('epoch', read_at) from tailrace.queue where name = any(%(queues)s) and reading is not null
