-- Tailrace 0001: the tables.
--
-- Written for the schema `tailrace`; the migrator replaces that prefix by the quoted name of the configured schema.
-- Rules that shape this file (docs/explanation/schema.md tells the measurements behind them):
--   * no index, predicate or expression names a column that a claim or a finish changes (token, attempts, errors, saved):
--     those updates stay HOT;
--   * every rule of validation holds for a plain INSERT or COPY too; rules that read the payload are a trigger, since
--     PostgreSQL evaluates every CHECK again at each claim;
--   * no column of a unique index is nullable, except the key, which the predicate leaves out.

create table tailrace.job (
  id             bigint generated always as identity primary key,
  tenant         text not null default '',
  queue          text not null,
  task           text not null,
  payload        jsonb not null,
  priority       int not null default 0,
  run_at         timestamptz not null default clock_timestamp(),
  attempts       int not null default 0,
  max_attempts   int not null default 5,
  token          bigint,
  key            text,
  key_slot       smallint not null default 0,
  serial_group   text,
  lost           int not null default 0,
  interrupted    int not null default 0,
  snoozes        int not null default 0,
  timeout        interval,
  backoff        jsonb,
  expires_at     timestamptz,
  trace          text,
  meta           jsonb,
  saved          jsonb,
  errors         jsonb,
  requeues       int not null default 0,
  created_at     timestamptz not null default clock_timestamp(),
  constraint job_priority_range check (priority between -1000 and 1000),
  constraint job_attempts_range check (attempts >= 0 and max_attempts >= 1),
  constraint job_run_at_range   check (isfinite(run_at) and run_at >= '0001-01-01 00:00+00' and run_at < '10000-01-01 00:00+00'),
  constraint job_expires_range  check (expires_at is null or (isfinite(expires_at) and expires_at >= '0001-01-01 00:00+00'
                                       and expires_at < '10000-01-01 00:00+00')),
  constraint job_timeout_range  check (timeout is null or (timeout >= interval '0' and timeout <= interval '366 days')),
  constraint job_queue_size     check (octet_length(queue) between 1 and 128),
  constraint job_task_size      check (octet_length(task) between 1 and 200),
  constraint job_tenant_size    check (octet_length(tenant) <= 128),
  constraint job_key_size       check (key is null or octet_length(key) between 1 and 512),
  constraint job_group_size     check (serial_group is null or octet_length(serial_group) between 1 and 200),
  constraint job_key_slot_range check (key_slot in (0, 1) and (key_slot = 0 or key is not null)),
  -- Groups and successors are not claimed by this release; a row that nobody claims must not be stored.
  constraint job_not_yet        check (serial_group is null and key_slot = 0)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_analyze_scale_factor = 0.2, autovacuum_vacuum_insert_scale_factor = 0.2);

create index job_ready on tailrace.job (queue, priority, run_at, id) where serial_group is null and key_slot = 0 and lost = 0;
-- Jobs whose process died once: claimed alone, so they have an index of their own. Only the reaper changes `lost`.
create index job_suspect on tailrace.job (queue, run_at, id) where lost > 0 and serial_group is null and key_slot = 0;
create unique index job_key on tailrace.job (tenant, queue, task, key, key_slot) where key is not null;
create index job_by_group on tailrace.job (queue, serial_group, tenant, priority desc, run_at, id)
  where serial_group is not null and key_slot = 0;

create function tailrace.refuse_payload() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception using errcode = '23514', constraint = 'job_payload', table = 'job', column = 'payload',
    message = 'payload must be a JSON object of at most 262144 bytes',
    hint = 'Send the parameters of the task as one JSON object; store large data elsewhere and pass a reference.';
end $$;
create function tailrace.refuse_meta() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception using errcode = '23514', constraint = 'job_meta', table = 'job', column = 'meta',
    message = 'meta must be a JSON object of at most 8192 bytes', hint = 'Keep only small facts in meta.';
end $$;
create trigger job_payload before insert or update of payload on tailrace.job for each row
  when (jsonb_typeof(new.payload) <> 'object' or octet_length(new.payload::text) > 262144)
  execute function tailrace.refuse_payload();
create trigger job_meta before insert or update of meta on tailrace.job for each row
  when (new.meta is not null and (jsonb_typeof(new.meta) <> 'object' or octet_length(new.meta::text) > 8192))
  execute function tailrace.refuse_meta();

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
  death          text
) with (fillfactor = 50);

create table tailrace.lease (
  token          bigint primary key,
  worker         text not null,
  queue          text not null,
  ids            bigint[] not null,
  claimed_at     timestamptz not null default clock_timestamp()
) with (fillfactor = 80);
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
create unique index dead_letter_key on tailrace.dead_letter (tenant, queue, task, key) where key is not null and state = 'dead';
create index dead_letter_page on tailrace.dead_letter (queue, failed_at desc, job_id desc) where state = 'dead';
create index dead_letter_all on tailrace.dead_letter (queue, state, failed_at, job_id);

create table tailrace.queue (
  name           text primary key check (octet_length(name) between 1 and 128),
  settings       jsonb not null default '{}',
  held           boolean not null default false,
  held_until     timestamptz,
  owner          jsonb,
  generation     bigint,
  managed_by     text check (managed_by in ('controller', 'cli')),
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

create table tailrace.job_group (
  queue text, tenant text, name text, token bigint not null, primary key (queue, tenant, name)
) with (fillfactor = 50);
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
  source         text not null,
  suspended      boolean not null default false,
  last_tick      timestamptz not null,
  primary key (queue, name)
);

create table tailrace.maintenance (
  routine        text,
  scope          text not null default '',
  last_tick      timestamptz,
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
create table tailrace.total (
  queue text, task text, what text, n bigint not null default 0, primary key (queue, task, what)
) with (fillfactor = 50);

create table tailrace.finished (
  id             bigint not null,
  queue          text not null,
  task           text not null,
  outcome        text not null,
  attempts       int not null,
  finished_at    timestamptz not null,
  result         jsonb,
  result_until   timestamptz,
  meta           jsonb
) partition by range (finished_at);
create index finished_id on tailrace.finished (id);

create table tailrace.installation (id uuid primary key default gen_random_uuid(), created_at timestamptz not null default now());
insert into tailrace.installation default values;
