-- What the benchmark itself asks and prepares; nothing here belongs to a measured side.

-- name: ceil_last_id
select coalesce(pg_sequence_last_value(pg_get_serial_sequence('ceil_job', 'id')::regclass), 0);

-- name: ours_last_id
select coalesce(pg_sequence_last_value(pg_get_serial_sequence('tailrace.job', 'id')::regclass), 0);

-- name: ceil_left
-- By primary key and above the rows that a scenario put there before: cheap whatever stands below.
select exists (select from ceil_job where id > %s);

-- name: ours_left
select exists (select from tailrace.job where id > %s);

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
-- Due jobs whose handler never returns.
insert into tailrace.job (queue, task, payload)
select 'default', 'wait_for_ever', '{}'::jsonb from generate_series(1, %s);

-- name: snapshot
select count(*) from pg_class;
