-- Waking up: NOTIFY is a hint, polling is the mechanism.

-- name: channel
-- purpose: the NOTIFY channel of this schema
-- locks: none
-- index: pg_namespace by name
select 'tailrace_' || oid::text from pg_namespace where nspname = %(schema)s

-- name: register_waiter
-- purpose: say that this worker is idle, so that enqueues notify; unlogged, expires by itself
-- locks: the worker's own waiter row
-- index: the primary key of waiter
insert into tailrace.waiter (queue, worker, until)
values (%(queue)s, %(worker)s, clock_timestamp() + interval '60 s')
on conflict (queue, worker) do update set until = excluded.until

-- name: drop_waiter
-- purpose: this worker is busy: enqueues need not notify it
-- locks: the worker's own waiter row
-- index: the primary key of waiter
delete from tailrace.waiter where queue = %(queue)s and worker = %(worker)s

-- name: snapshot
-- purpose: the transactions in progress: only they can have missed the waiter row
-- locks: none
-- index: none
select pg_current_snapshot()::text

-- name: notify
-- purpose: tell other workers that rows came back below their floors
-- locks: the database-wide notification lock at commit
-- index: none
select pg_notify(%(channel)s, %(payload)s)
