-- What the benchmark itself asks and prepares; nothing here belongs to a measured side.

-- name: ceil_last_id
select coalesce(pg_sequence_last_value(pg_get_serial_sequence('ceil_job', 'id')::regclass), 0);

-- name: ours_last_id
select coalesce(pg_sequence_last_value(pg_get_serial_sequence('tailrace.job', 'id')::regclass), 0);

-- name: ceil_left
-- By primary key and above the rows that a scenario put there before: cheap whatever stands below. (In the form of an `exists`
-- the planner would read the table from its beginning.)
select (select id from ceil_job where id > %s order by id limit 1) is not null;

-- name: ours_left
select (select id from tailrace.job where id > %s order by id limit 1) is not null;

-- name: ours_running
select count(*) from tailrace.job where token is not null;

-- name: ours_future
-- Jobs of a known task that are due next month.
insert into tailrace.job (queue, task, payload, run_at)
select 'default', 'noop', '{"seq": -1}'::jsonb, clock_timestamp() + interval '30 days' from generate_series(1, %s);

-- name: ours_unknown
-- Due jobs of a task that no worker knows.
insert into tailrace.job (queue, task, payload)
select 'default', 'nobody', '{"seq": -1}'::jsonb from generate_series(1, %s);

-- name: ours_held_open
-- Due jobs of a queue whose handler never returns.
insert into tailrace.job (queue, task, payload)
select %s, 'wait_for_ever', '{}'::jsonb from generate_series(1, %s);

-- name: snapshot
select count(*) from pg_class;

-- name: ours_grouped
-- Due members of so many groups, interleaved.
insert into tailrace.job (queue, task, payload, serial_group)
select 'default', 'noop', jsonb_build_object('seq', n), 'group-' || (n %% %s::int) from generate_series(1, %s) n;

-- name: ours_stuck
-- Due members of two groups.
insert into tailrace.job (queue, task, payload, serial_group)
select 'default', 'noop', '{"seq": -1}', 'busy-' || n %% 2 from generate_series(1, %s) n;

-- name: ours_busy
-- A living worker elsewhere holds these two groups.
with w as (
  insert into tailrace.worker (id, until, version, queues, tasks, slots)
  values ('elsewhere', clock_timestamp() + interval '1 hour', '1', '{default}', '{noop}', 2)),
l as (
  insert into tailrace.lease (token, worker, queue, ids)
  select 7, 'elsewhere', 'default', array_agg(j.id) from (select id from tailrace.job order by id limit 2) j),
g as (insert into tailrace.job_group (queue, tenant, name, token) values ('default', '', 'busy-0', 7), ('default', '', 'busy-1', 7))
update tailrace.job set token = 7, attempts = 1 where id in (select id from tailrace.job order by id limit 2);

-- name: ours_settings
-- Settings of the queue.
select tailrace.apply_queue('default', %s, 'cli');

-- name: ours_exhausted
-- Waiting jobs without attempts left, of a task that no worker knows: only the sweep meets them.
insert into tailrace.job (queue, task, payload, attempts)
select 'default', 'nobody', '{"event_id": 1, "url": "https://shop.example/hook"}'::jsonb, 5 from generate_series(1, %s);

-- name: ours_ready
-- Due jobs of a known task.
insert into tailrace.job (queue, task, payload)
select 'default', 'noop', '{"event_id": 1, "url": "https://shop.example/hook"}'::jsonb from generate_series(1, %s);

-- name: ours_dead_letters
-- Dead letters of mixed kinds, twelve queues, forty tasks; each failed a second and a half after the one before.
insert into tailrace.dead_letter (job_id, state, queue, task, tenant, key, payload, priority, run_at, max_attempts, reason, error_type,
  fingerprint, errors, meta, total_attempts, first_failed_at, failed_at, created_at)
select g, case when g %% 20 = 0 then 'resolved' else 'dead' end, 'queue-' || h %% 12, 'task-' || h / 12 %% 40,
  case when g %% 3 = 0 then 'tenant-' || h / 480 %% 200 else '' end, case when g %% 4 = 0 then 'key-' || g end,
  jsonb_build_object('event_id', g, 'url', 'https://example.org/hook/' || g), 0, t, 5,
  (array['max_attempts', 'max_attempts', 'timeout', 'permanent', 'lease_expired', 'interrupted'])[1 + h / 7 %% 6],
  (array['network', 'timeout', 'unknown', 'validation', 'rate_limit', 'unavailable', 'not_found', 'forbidden'])[1 + h / 11 %% 8],
  md5((h / 13 %% 500)::text), jsonb_build_array(jsonb_build_object('type', 'ConnectError', 'message', 'no route to host ' || g,
  'traceback', repeat('  File "handlers.py", line 7, in deliver ', 8), 'attempt', 5, 'worker', 'w-' || g %% 97, 'time', t)),
  jsonb_build_object('request', g), 1 + g %% 9, t, t, t - interval '1 hour'
from (select s as g, hashint4(s) & 2147483647 as h, now() - interval '90 days' + s * interval '1.5 s' as t
      from generate_series(%s::int, %s::int) s) n;

-- name: ours_dead_letter_indexes
select indexname, indexdef from pg_indexes where schemaname = 'tailrace' and tablename = 'dead_letter' and indexname <> 'dead_letter_pkey';

-- name: ours_after_dead_letters
-- Jobs made from now on have numbers behind theirs.
select setval(pg_get_serial_sequence('tailrace.job', 'id')::regclass, (select max(job_id) from tailrace.dead_letter)),
  tailrace.statistics_v1();
