-- Tailrace 0001: the tables.
--
-- Written for the schema `tailrace`; the migrator replaces that prefix by the quoted name of the configured schema.
-- Rules that shape this file (docs/explanation/schema.md tells the measurements behind them):
--   * no index, predicate or expression names a column that a claim or a finish changes (token, attempts, errors, saved):
--     those updates stay HOT;
--   * every rule of validation holds for a plain INSERT or COPY too;
--   * no column of a unique index is nullable, except the key, which the predicate leaves out.

-- Columns of fixed width that are never null come first: what stands behind a text or a null has to be searched for in
-- each row. Only the rule about attempts is a CHECK, since PostgreSQL evaluates every CHECK at each claim (5 % of its
-- time with all of them); the rules about columns that a claim does not write are in the trigger below.
create table tailrace.job (
  id             bigint generated always as identity primary key,
  run_at         timestamptz not null default clock_timestamp(),
  created_at     timestamptz not null default clock_timestamp(),
  priority       int not null default 0,
  attempts       int not null default 0,
  max_attempts   int not null default 5,
  lost           int not null default 0,
  interrupted    int not null default 0,
  snoozes        int not null default 0,
  requeues       int not null default 0,
  key_slot       smallint not null default 0,
  queue          text not null,
  task           text not null,
  tenant         text not null default '',
  payload        jsonb not null,
  token          bigint,
  key            text,
  serial_group   text,
  timeout        interval,
  expires_at     timestamptz,
  backoff        jsonb,
  trace          text,
  meta           jsonb,
  saved          jsonb,
  errors         jsonb,
  constraint job_attempts_range check (attempts >= 0 and max_attempts >= 1)
) with (fillfactor = 48,   -- a claimed row is 8 bytes longer: at 50 one in twenty had no room left on its page and was no HOT update
        autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_analyze_scale_factor = 0.2, autovacuum_vacuum_insert_scale_factor = 0.2);

-- Autovacuum analyzes a busy queue each minute, beside the workers. No plan of the engine depends on what it finds but the number of
-- rows: with a sample of 3,000 rows instead of 30,000 it takes 0.04 s of a core, not 0.55 s. For the same reason lease.ids, the
-- changes of dead letters and table tally are not analyzed: the elements of arrays cost the most.
alter table tailrace.job
  alter id set statistics 10, alter run_at set statistics 10, alter created_at set statistics 10,
  alter priority set statistics 10, alter attempts set statistics 10, alter max_attempts set statistics 10,
  alter lost set statistics 10, alter interrupted set statistics 10, alter snoozes set statistics 10,
  alter requeues set statistics 10, alter key_slot set statistics 10, alter queue set statistics 10,
  alter task set statistics 10, alter tenant set statistics 10, alter payload set statistics 10,
  alter token set statistics 10, alter key set statistics 10, alter serial_group set statistics 10,
  alter timeout set statistics 10, alter expires_at set statistics 10, alter backoff set statistics 10,
  alter trace set statistics 10, alter meta set statistics 10, alter saved set statistics 10, alter errors set statistics 10;

create index job_ready on tailrace.job (queue, priority, run_at, id) where serial_group is null and key_slot = 0 and lost = 0;
-- Jobs whose process died once: claimed alone, so they have an index of their own. Only the reaper changes `lost`.
create index job_suspect on tailrace.job (queue, run_at, id) where lost > 0 and key_slot = 0;
create unique index job_key on tailrace.job (tenant, queue, task, key, key_slot) where key is not null;
create index job_by_group on tailrace.job (queue, serial_group, tenant, priority desc, run_at, id)
  where serial_group is not null and key_slot = 0;
-- Successors stand in none of the others by queue; with this one all rows of a queue are found by index, for its counts.
create index job_successor on tailrace.job (queue) where key_slot = 1;

-- Says which rule a row breaks, as a CHECK of that name would. The trigger's condition is the same rules in one expression.
create function tailrace.refuse_job() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  broken text[] := case
    when new.queue is null or new.task is null or new.tenant is null or new.payload is null or new.priority is null or new.run_at is null
      or new.key_slot is null then null   -- NOT NULL says it better
    when jsonb_typeof(new.payload) <> 'object' or octet_length(new.payload::text) > 262144 then
      array['job_payload', 'payload', 'must be a JSON object of at most 262144 bytes',
            'Send the parameters of the task as one JSON object; store large data elsewhere and pass a reference']
    when jsonb_typeof(new.meta) <> 'object' or octet_length(new.meta::text) > 8192 then
      array['job_meta', 'meta', 'must be a JSON object of at most 8192 bytes', 'Keep only small facts in meta']
    when new.priority not between -1000 and 1000 then
      array['job_priority_range', 'priority', 'must be between -1000 and 1000', 'Higher runs first']
    when not (isfinite(new.run_at) and new.run_at >= '0001-01-01 00:00+00' and new.run_at < '10000-01-01 00:00+00') then
      array['job_run_at_range', 'run_at', 'must be a time between the years 1 and 9999', 'Give a finite time']
    when not (isfinite(new.expires_at) and new.expires_at >= '0001-01-01 00:00+00' and new.expires_at < '10000-01-01 00:00+00') then
      array['job_expires_range', 'expires_at', 'must be a time between the years 1 and 9999', 'Give a finite time']
    when not (new.timeout >= interval '0' and new.timeout <= interval '366 days') then
      array['job_timeout_range', 'timeout', 'must be between 0 and 366 days', 'Zero means none']
    when octet_length(new.queue) not between 1 and 128 then
      array['job_queue_size', 'queue', 'must be 1 to 128 bytes of UTF-8', 'Use a shorter name']
    when octet_length(new.task) not between 1 and 200 then
      array['job_task_size', 'task', 'must be 1 to 200 bytes of UTF-8', 'Use a shorter name']
    when octet_length(new.tenant) > 128 then
      array['job_tenant_size', 'tenant', 'must be at most 128 bytes of UTF-8', 'Use a shorter name']
    when octet_length(new.key) not between 1 and 512 then
      array['job_key_size', 'key', 'must be 1 to 512 bytes of UTF-8', 'Use a shorter key, or a hash of it']
    when octet_length(new.serial_group) not between 1 and 200 then
      array['job_group_size', 'serial_group', 'must be 1 to 200 bytes of UTF-8', 'Use a shorter name']
    when new.key_slot not in (0, 1) or (new.key_slot = 1 and new.key is null) then
      array['job_key_slot_range', 'key_slot', 'must be 0, or 1 with a key', 'Leave it out']
  end;
begin
  if broken is null then
    return new;
  end if;
  raise exception using errcode = '23514', schema = tg_table_schema, table = tg_table_name, constraint = broken[1], column = broken[2],
    message = broken[2] || ' ' || broken[3], hint = broken[4];
end $$;
create trigger job_rules
  before insert or update of run_at, priority, key_slot, queue, task, tenant, payload, key, serial_group, timeout, expires_at, meta
  on tailrace.job for each row
  when (not (jsonb_typeof(new.payload) = 'object' and octet_length(new.payload::text) <= 262144
    and (new.meta is null or (jsonb_typeof(new.meta) = 'object' and octet_length(new.meta::text) <= 8192))
    and new.priority between -1000 and 1000
    and isfinite(new.run_at) and new.run_at >= '0001-01-01 00:00+00' and new.run_at < '10000-01-01 00:00+00'
    and (new.expires_at is null
         or (isfinite(new.expires_at) and new.expires_at >= '0001-01-01 00:00+00' and new.expires_at < '10000-01-01 00:00+00'))
    and (new.timeout is null or (new.timeout >= interval '0' and new.timeout <= interval '366 days'))
    and octet_length(new.queue) between 1 and 128 and octet_length(new.task) between 1 and 200
    and octet_length(new.tenant) <= 128
    and (new.key is null or octet_length(new.key) between 1 and 512)
    and (new.serial_group is null or octet_length(new.serial_group) between 1 and 200)
    and (new.key_slot = 0 or (new.key_slot = 1 and new.key is not null))))
  execute function tailrace.refuse_job();

create table tailrace.worker (
  id             text primary key,
  until          timestamptz not null,
  lease_seconds  real not null default 60,
  started        timestamptz not null default clock_timestamp(),
  version        text not null,
  queues         text[] not null,
  tasks          text[] not null,
  state          text not null default 'working' check (state in ('working', 'cordoned', 'draining')),
  slots          int not null,
  pod            text,
  schedules      jsonb not null default '[]',
  measured       jsonb not null default '{}',
  death          text
) with (fillfactor = 50);

create table tailrace.lease (
  token          bigint primary key,
  worker         text not null,
  queue          text not null,
  ids            bigint[] not null,
  claimed_at     timestamptz not null default clock_timestamp()
) with (fillfactor = 80, toast_tuple_target = 8160);   -- a thousand ids fit a page; compressing them cost 5 % of a claim
alter table tailrace.lease alter ids set statistics 0;
create index lease_worker on tailrace.lease (worker);

create table tailrace.dead_letter (
  job_id            bigint primary key,
  state             text not null default 'dead' check (state in ('dead', 'requeued', 'resolved')),
  tenant            text not null default '',
  queue             text not null,
  task              text not null,
  key               text,
  serial_group      text,
  payload           jsonb not null,
  priority          int not null,
  run_at            timestamptz not null,
  max_attempts      int not null,
  timeout           interval,
  backoff           jsonb,
  trace             text,
  meta              jsonb,
  saved             jsonb,
  errors            jsonb not null default '[]',
  reason            text not null,
  error_type        text not null,
  fingerprint       text not null,
  total_attempts    bigint not null,
  dead_count        int not null default 1,
  first_failed_at   timestamptz not null,
  failed_at         timestamptz not null,
  requeued_count    int not null default 0,
  last_requeued_at  timestamptz,
  resolved_at       timestamptz,
  resolution        text,
  history           jsonb not null default '[]',
  notes             text,
  worker            text,
  created_at        timestamptz not null
);
-- Partial, so that it does not offer itself where a number is looked for: planned on an empty table it was read whole for each.
create index dead_letter_all on tailrace.dead_letter (queue, state, failed_at, job_id) where queue <> '';

create table tailrace.queue (
  name           text primary key check (octet_length(name) between 1 and 128),
  settings       jsonb not null default '{}',
  held           boolean not null default false,
  held_until     timestamptz,
  owner          jsonb,
  generation     bigint,
  orphaned_at    timestamptz,
  managed_by     text check (managed_by in ('controller', 'cli')),
  limits         bigint not null default 0,
  limits_sure    boolean not null default true,
  reading        jsonb,
  read_at        timestamptz
);

create table tailrace.queue_floor (
  queue          text,
  priority       int,
  run_at         timestamptz not null,
  id             bigint not null,
  primary key (queue, priority)
) with (fillfactor = 50);

-- The groups that a lease holds, and those that wait for one member: `head` is set while their order is strict.
create table tailrace.job_group (
  queue text, tenant text, name text, token bigint, head bigint, primary key (queue, tenant, name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
create index job_group_token on tailrace.job_group (token);
create table tailrace.limit_slot (
  queue text, name text not null default '', n int, job bigint, token bigint, primary key (queue, name, n)
) with (fillfactor = 50);
create table tailrace.rate (
  queue text, name text, jobs double precision not null, period interval not null, burst double precision not null,
  tokens double precision not null, at timestamptz not null, primary key (queue, name)
) with (fillfactor = 50);

create table tailrace.cancel_request (
  job_id         bigint primary key,
  requested_at   timestamptz not null default clock_timestamp(),
  requested_by   text not null
);
create unlogged table tailrace.waiter (queue text, worker text, until timestamptz not null, primary key (queue, worker));

create table tailrace.schedule (
  queue          text,
  name           text,
  definition     jsonb not null,
  source         text not null check (source in ('jobqueue', 'worker')),
  suspended      boolean not null default false,
  absent_since   timestamptz,
  last_tick      timestamptz not null,
  next_tick      timestamptz,
  last_job       bigint,
  last_fired_at  timestamptz,
  fired          bigint not null default 0,
  skipped        bigint not null default 0,
  missed         bigint not null default 0,
  failed         bigint not null default 0,
  fault          jsonb,
  constraint schedule_tick_range check (last_tick >= '0001-01-01 00:00+00' and last_tick < '10000-01-01 00:00+00'
    and coalesce(next_tick, last_tick) >= '0001-01-01 00:00+00' and coalesce(next_tick, last_tick) < '10000-01-01 00:00+00'),
  primary key (queue, name)
) with (fillfactor = 70);

create table tailrace.maintenance (
  routine        text,
  scope          text not null default '',
  last_tick      timestamptz,
  previous_tick  timestamptz,
  last_success   timestamptz,
  steady_since   timestamptz,
  cursor         bigint,
  primary key (routine, scope)
);

create table tailrace.audit (
  id             bigint generated always as identity primary key,
  at             timestamptz not null default clock_timestamp(),
  who            text not null,
  verb           text not null,
  target         jsonb,
  n              bigint not null
);

create table tailrace.operation (
  id             bigint generated always as identity primary key,
  verb           text not null,
  filter         jsonb not null,
  options        jsonb not null default '{}',
  as_of          timestamptz not null,
  done           bigint not null default 0,
  failed         bigint not null default 0,
  position       jsonb,
  state          text not null,
  started_by     text,
  updated_at     timestamptz not null default clock_timestamp()
);

create table tailrace.task_schema (
  queue text, task text, schema jsonb not null, worker_version text not null, seen_at timestamptz not null, primary key (queue, task)
);

-- One inserted row per transaction and kind of end, never updated; the statistics routine folds it into `total`.
create table tailrace.tally (
  id             bigint generated always as identity primary key,
  queue          text not null,
  task           text not null default '',
  what           text not null,
  n              bigint not null,
  at             timestamptz not null default clock_timestamp()
);
alter table tailrace.tally alter id set statistics 0, alter queue set statistics 0, alter task set statistics 0,
  alter what set statistics 0, alter n set statistics 0, alter at set statistics 0;
create table tailrace.total (
  queue text, task text, what text, n bigint not null default 0, primary key (queue, task, what)
) with (fillfactor = 50);

create table tailrace.installation (id uuid primary key default gen_random_uuid(), created_at timestamptz not null default now());
insert into tailrace.installation default values;
