-- Tailrace 0002: enqueue, for every language.
--
-- `enqueue` and `enqueue_many` are the public words, `enqueue_batch_v1` is the library's way for bulk. Rules:
--   * options are one jsonb, so that the signature never changes; what is unknown, of a wrong type or out of range is
--     refused with TR002 (COLUMN names the field, HINT the remedy) and nothing is stored;
--   * a setting is taken from the options, then the queue's entry for the task, then the decorator ("defaults"), then the
--     queue's jobDefaults, then what is built in; timeout and backoff are stored only if one of the first three says them;
--   * a running row is never locked or changed: whoever holds a row that a worker runs would stop the worker's finish;
--   * waiting workers are looked for by a statement of its own after the insert, so that it sees who registered meanwhile;
--   * an unknown queue is no error and gets no row: a row would be a lock that all producers of the queue share.

create type tailrace.enqueue_settings_v1 as (
  queue         text,
  task          text,
  tenant        text,
  key           text,
  on_duplicate  text,
  priority      int,
  run_at        timestamptz,
  max_attempts  int,
  timeout       interval,
  expires_at    timestamptz,
  backoff       jsonb,
  meta          jsonb,
  trace         text,
  payload_limit int,             -- null: the table's own
  serial_group  text
);

-- Raise one of our errors: SQLSTATE, field, problem, remedy.
create function tailrace.refuse_v1(code text, field text, problem text, remedy text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception using errcode = code, message = field || ': ' || problem, hint = remedy, column = field;
end $$;

-- Refuse what is wrong with the three arguments that every job has.
create function tailrace.check_job_v1(queue text, task text, payload jsonb) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if (octet_length(queue) between 1 and 128) is not true then
    perform tailrace.refuse_v1('TR002', 'queue', 'must be 1 to 128 bytes of UTF-8', 'Give a name of that length');
  elsif (octet_length(task) between 1 and 200) is not true then
    perform tailrace.refuse_v1('TR002', 'task', 'must be 1 to 200 bytes of UTF-8', 'Give a name of that length');
  elsif (jsonb_typeof(payload) = 'object') is not true then
    perform tailrace.refuse_v1('TR001', 'payload', 'must be a JSON object',
                               'Send the parameters of the task by name, {} if it has none');
  end if;
end $$;

-- An option that must be text of a length in bytes.
create function tailrace.text_option_v1(options jsonb, field text, least_bytes int, most_bytes int) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  v_text text := options ->> field;
begin
  if jsonb_typeof(options -> field) <> 'string' then
    perform tailrace.refuse_v1('TR002', field, 'must be text, not ' || jsonb_typeof(options -> field), 'Send it as a JSON string');
  elsif octet_length(v_text) not between least_bytes and most_bytes then
    perform tailrace.refuse_v1('TR002', field, format('must be %s to %s bytes of UTF-8', least_bytes, most_bytes),
                               'Use a shorter text, such as a digest of the long one');
  end if;
  return v_text;
end $$;

-- A whole number in a range, or null. In plain SQL without a search_path of its own, so that the planner inlines it; it names
-- operators and functions by their schema instead.
create function tailrace.whole_number_v1(value jsonb, lowest int, highest int) returns int
language sql immutable as $$
  select case when pg_catalog.jsonb_typeof(value) operator(pg_catalog.=) 'number'
              then case when value::pg_catalog.numeric operator(pg_catalog.>=) lowest
                         and value::pg_catalog.numeric operator(pg_catalog.<=) highest
                         and value::pg_catalog.numeric operator(pg_catalog.=) pg_catalog.trunc(value::pg_catalog.numeric)
                        then value::pg_catalog.int4 end end
$$;

-- A number of seconds up to 366 days as an interval, or null; inlined like whole_number_v1.
create function tailrace.seconds_v1(value jsonb) returns interval
language sql immutable as $$
  select case when pg_catalog.jsonb_typeof(value) operator(pg_catalog.=) 'number'
              then case when value::pg_catalog.numeric operator(pg_catalog.>=) 0
                         and value::pg_catalog.numeric operator(pg_catalog.<=) 31622400
                        then pg_catalog.make_interval(secs => value::pg_catalog.float8) end end
$$;

-- Refuse an option that is no whole number in its range. Volatile, or the planner would call it to fold a constant.
create function tailrace.integer_option_v1(field text, lowest int, highest int, remedy text) returns int
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  perform tailrace.refuse_v1('TR002', field, format('must be a whole number from %s to %s', lowest, highest), remedy);
  return null;
end $$;

-- An option that must be a duration: a number of seconds or the text of an interval, at most 366 days.
create function tailrace.duration_option_v1(options jsonb, field text) returns interval
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  v_duration interval;
begin
  case jsonb_typeof(options -> field)
  when 'number' then
    if (options ->> field)::numeric between 0 and 31622400 then
      v_duration := make_interval(secs => (options ->> field)::double precision);
    end if;
  when 'string' then
    begin
      v_duration := (options ->> field)::interval;
    exception when data_exception then
      perform tailrace.refuse_v1('TR002', field, 'is no duration', 'Give seconds as a number, or an interval such as "1 hour"');
    end;
  else
    perform tailrace.refuse_v1('TR002', field, 'must be a duration, not ' || jsonb_typeof(options -> field),
                               'Give seconds as a number, or an interval such as "1 hour"');
  end case;
  if (v_duration >= interval '0' and v_duration <= interval '366 days') is not true then
    perform tailrace.refuse_v1('TR002', field, 'must be between 0 and 366 days', 'Give seconds, or an interval such as "1 hour"');
  end if;
  return v_duration;
end $$;

-- The option run_at: a time with its offset from UTC, finite, in the years 1 to 9999.
create function tailrace.run_at_option_v1(options jsonb) returns timestamptz
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_text text := options ->> 'run_at';
  v_at   timestamptz;
begin
  if jsonb_typeof(options -> 'run_at') <> 'string' then
    perform tailrace.refuse_v1('TR002', 'run_at', 'must be a time as text, not ' || jsonb_typeof(options -> 'run_at'),
                               'Write it as 2026-11-28T12:00:00+00:00; for "in a minute" use delay');
  end if;
  begin
    v_at := v_text::timestamptz;
  exception when data_exception then
    perform tailrace.refuse_v1('TR002', 'run_at', 'is no time', 'Write it as 2026-11-28T12:00:00+00:00');
  end;
  if not isfinite(v_at) or v_at not between '0001-01-01 00:00+00' and '9999-12-31 23:59:59.999999+00' then
    perform tailrace.refuse_v1('TR002', 'run_at', 'must be a finite time in the years 1 to 9999', 'Leave it out to run now');
  elsif v_text !~* '\d:\d\d.*(Z|UTC|[+-]\d\d(:?\d\d){0,2})$' then
    perform tailrace.refuse_v1('TR002', 'run_at', 'must say its offset from UTC', 'Append Z or +00:00');
  end if;
  return v_at;
end $$;

-- The option backoff, in the form that job.backoff keeps.
create function tailrace.backoff_option_v1(policy jsonb) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  v_field text;
begin
  if (jsonb_typeof(policy) = 'object'
      and policy - array['strategy', 'base', 'cap', 'jitter'] = '{}'
      and coalesce(policy ->> 'strategy', 'exponential') in ('exponential', 'fixed', 'full_jitter')
      and tailrace.seconds_v1(coalesce(policy -> 'base', '5')) is not null
      and tailrace.seconds_v1(coalesce(policy -> 'cap', '900')) is not null
      and jsonb_typeof(coalesce(policy -> 'jitter', '0')) = 'number'
      and coalesce(policy -> 'jitter', '0') between '0' and '1') then
    return policy;
  elsif jsonb_typeof(policy) <> 'object' then
    perform tailrace.refuse_v1('TR002', 'backoff', 'must be a JSON object', 'Such as {"strategy": "exponential", "base": 5, "cap": 900}');
  end if;
  for v_field in select jsonb_object_keys(policy) loop
    if v_field not in ('strategy', 'base', 'cap', 'jitter') then
      perform tailrace.refuse_v1('TR002', 'backoff.' || v_field, 'is unknown', 'Known: strategy, base, cap, jitter');
    end if;
  end loop;
  perform tailrace.refuse_v1('TR002', 'backoff', 'has a value out of range',
    'strategy: exponential, fixed or full_jitter; base and cap: 0 to 31622400 seconds; jitter: a share from 0 to 1');
end $$;

-- A task's entry in the queue's settings, in the words of options.
create function tailrace.task_options_v1(settings jsonb, task text) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_entry  jsonb := tailrace.task_settings_v1(settings, task);
  v_policy jsonb;
begin
  if v_entry is null then
    return '{}';
  end if;
  v_policy := v_entry -> 'backoff';
  return jsonb_strip_nulls(jsonb_build_object(
    'priority', v_entry -> 'priority',
    'max_attempts', v_entry -> 'maxAttempts',
    'timeout', v_entry -> 'timeoutSeconds',
    'backoff', case when v_policy is not null then jsonb_build_object(
      'strategy', case v_policy ->> 'strategy' when 'Fixed' then 'fixed' when 'FullJitter' then 'full_jitter' else 'exponential' end,
      'base', v_policy -> 'baseSeconds',
      'cap', v_policy -> 'maxSeconds',
      'jitter', (v_policy ->> 'jitterPercent')::numeric / 100) end));
end $$;

-- Refuse an option that is unknown or belongs to a later release.
create function tailrace.refuse_option_v1(options jsonb) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_field text;
begin
  for v_field in select jsonb_object_keys(options) loop
    if v_field = 'keep_result' then
      perform tailrace.refuse_v1('TR002', v_field, 'is an option of the task', 'Give it where the handler is: @app.task(keep_result=3600)');
    elsif v_field = 'group_order' then
      perform tailrace.refuse_v1('TR002', v_field, 'belongs to the task, not to a job', 'Give it to the decorator of the task');
    elsif v_field not in ('priority', 'delay', 'run_at', 'key', 'on_duplicate', 'tenant', 'max_attempts', 'timeout', 'expires_in',
                          'backoff', 'meta', 'trace', 'serial_group') then
      perform tailrace.refuse_v1('TR002', v_field, 'is no option',
        'Known: priority, delay, run_at, key, on_duplicate, serial_group, tenant, max_attempts, timeout, expires_in, backoff, meta, trace');
    end if;
  end loop;
end $$;

-- The options of one job, checked and completed from the queue's settings. Runs at most enqueues: what is right passes by
-- plain expressions, and only what looks wrong costs the call of a function that names the fault.
create function tailrace.read_options_v1(queue text, task text, options jsonb) returns tailrace.enqueue_settings_v1
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  v_settings jsonb;
  v_default  jsonb;
  o          jsonb := coalesce(options, '{}');
  v          tailrace.enqueue_settings_v1;
  v_now      timestamptz := clock_timestamp();
begin
  if jsonb_typeof(o) <> 'object' or jsonb_typeof(o -> 'defaults') <> 'object' then
    perform tailrace.refuse_v1('TR002', case when jsonb_typeof(o) <> 'object' then 'options' else 'defaults' end,
                               'must be a JSON object', 'Such as {"priority": 10}');
  end if;
  if jsonb_path_exists(o, '$.* ? (@ == null)') then      -- an option that is null was not given
    o := coalesce((select jsonb_object_agg(e.key, e.value) from jsonb_each(o) e where e.value <> 'null'), '{}');
  end if;
  select q.settings into v_settings from tailrace.queue q where q.name = queue;
  if v_settings ? 'tasks' then
    o := coalesce(o -> 'defaults', '{}') || tailrace.task_options_v1(v_settings, task) || (o - 'defaults');
  elsif o ? 'defaults' then
    o := (o -> 'defaults') || (o - 'defaults');
  end if;
  if o - array['priority', 'delay', 'run_at', 'key', 'on_duplicate', 'tenant', 'max_attempts', 'timeout', 'expires_in', 'backoff',
               'meta', 'trace', 'serial_group'] <> '{}' then
    perform tailrace.refuse_option_v1(o);
  end if;

  v.queue := queue;
  v.task := task;
  v.tenant := case when o ? 'tenant' then tailrace.text_option_v1(o, 'tenant', 0, 128) else '' end;
  v_default := v_settings -> 'jobDefaults';
  v.priority := coalesce(tailrace.whole_number_v1(coalesce(o -> 'priority', v_default -> 'priority', '0'), -1000, 1000),
                         tailrace.integer_option_v1('priority', -1000, 1000, 'Higher runs first; the default is 0'));
  v.max_attempts := coalesce(tailrace.whole_number_v1(coalesce(o -> 'max_attempts', v_default -> 'maxAttempts', '5'), 1, 2147483647),
                             tailrace.integer_option_v1('max_attempts', 1, 2147483647, 'It counts all runs, the first one too'));
  v.payload_limit := tailrace.whole_number_v1(v_default -> 'payloadLimitBytes', 1, 262143);
  v.on_duplicate := coalesce(o ->> 'on_duplicate', 'skip');
  if v.on_duplicate not in ('skip', 'replace', 'preserve_run_at', 'after') then
    perform tailrace.refuse_v1('TR002', 'on_duplicate', 'is no such mode', 'Use skip, replace, preserve_run_at or after');
  end if;
  if o ? 'key' then
    v.key := tailrace.text_option_v1(o, 'key', 1, 512);
  end if;
  if o ? 'serial_group' then
    v.serial_group := tailrace.text_option_v1(o, 'serial_group', 1, 200);
  end if;
  if o ? 'timeout' then
    v.timeout := coalesce(tailrace.seconds_v1(o -> 'timeout'), tailrace.duration_option_v1(o, 'timeout'));
  end if;
  if o ? 'backoff' then
    v.backoff := tailrace.backoff_option_v1(o -> 'backoff');
  end if;
  if o ? 'trace' then
    v.trace := tailrace.text_option_v1(o, 'trace', 1, 512);
  end if;
  if o ? 'meta' then
    v.meta := o -> 'meta';
    if jsonb_typeof(v.meta) <> 'object' or octet_length(v.meta::text) > 8192 then
      perform tailrace.refuse_v1('TR002', 'meta', 'must be a JSON object of at most 8192 bytes', 'Keep only small facts in meta');
    end if;
  end if;

  -- by the database's clock, and never in the past
  v.run_at := v_now;
  if o ? 'run_at' then
    if o ? 'delay' then
      perform tailrace.refuse_v1('TR002', 'run_at', 'excludes delay', 'Give one of the two');
    end if;
    v.run_at := greatest(tailrace.run_at_option_v1(o), v_now);
  elsif o ? 'delay' then
    v.run_at := v_now + tailrace.duration_option_v1(o, 'delay');
  end if;
  if o ? 'expires_in' then
    v.expires_at := v_now + tailrace.duration_option_v1(o, 'expires_in');
    if v.expires_at <= v.run_at then
      perform tailrace.refuse_v1('TR002', 'expires_in', 'ends before the job is due', 'It counts from now: give more than the delay');
    end if;
  end if;
  return v;
end $$;

-- One job with a key: stored, or settled with the job that holds the key. In mode `after` a job that meets a running holder
-- is stored as its successor (key_slot 1). While a successor waits, it is the newest word about the key: what would replace
-- the holder replaces the successor, or else an older payload would run last.
create function tailrace.enqueue_keyed_v1(
  new_payload jsonb, new_key text, s tailrace.enqueue_settings_v1, out id bigint, out outcome text)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  v_running boolean;
  v_expired boolean;
begin
  for v_round in 1 .. 5 loop
    if s.on_duplicate <> 'skip' then
      -- only a waiting row: an ON CONFLICT DO UPDATE would lock a running one even when its WHERE is false
      begin
        update tailrace.job j set
          payload = new_payload, priority = s.priority, timeout = s.timeout, meta = s.meta, max_attempts = s.max_attempts,
          run_at = case when s.on_duplicate = 'preserve_run_at' then j.run_at else s.run_at end,
          backoff = s.backoff, expires_at = s.expires_at, trace = s.trace,
          attempts = case when j.payload = new_payload then j.attempts else 0 end,
          lost     = case when j.payload = new_payload then j.lost else 0 end,
          errors   = case when j.payload = new_payload then j.errors end,
          saved    = case when j.payload = new_payload then j.saved end
        where j.token is null and j.id = (
          select k.id from tailrace.job k
          where k.tenant = s.tenant and k.queue = s.queue and k.task = s.task and k.key = new_key order by k.key_slot desc limit 1)
        returning j.id into id;
        if found then
          outcome := 'replaced';
          return;
        elsif exists (select from tailrace.job j
                      where j.tenant = s.tenant and j.queue = s.queue and j.task = s.task and j.key = new_key) then
          -- A row that a claim took while this waited for it stays locked, and its worker would wait for the caller's transaction:
          -- undoing the block gives the lock back.
          raise exception using errcode = 'TR000';
        end if;
      exception when sqlstate 'TR000' then
        null;
      end;
    end if;
    insert into tailrace.job as j (tenant, queue, task, payload, key, serial_group, priority, run_at, max_attempts, timeout, expires_at, backoff,
                                   meta, trace)
    values (s.tenant, s.queue, s.task, new_payload, new_key, s.serial_group, s.priority, s.run_at, s.max_attempts, s.timeout, s.expires_at,
            s.backoff, s.meta, s.trace)
    on conflict (tenant, queue, task, key, key_slot) where key is not null do nothing
    returning j.id into id;
    if found then
      outcome := 'created';
      return;
    end if;
    select j.id, j.token is not null, j.expires_at <= clock_timestamp() into id, v_running, v_expired
    from tailrace.job j
    where j.tenant = s.tenant and j.queue = s.queue and j.task = s.task and j.key = new_key and j.key_slot = 0;
    if found and v_running and s.on_duplicate = 'after' then
      insert into tailrace.job as j (tenant, queue, task, payload, key, key_slot, serial_group, priority, run_at, max_attempts, timeout,
                                     expires_at, backoff, meta, trace)
      values (s.tenant, s.queue, s.task, new_payload, new_key, 1, s.serial_group, s.priority, s.run_at, s.max_attempts, s.timeout,
              s.expires_at, s.backoff, s.meta, s.trace)
      on conflict (tenant, queue, task, key, key_slot) where key is not null do nothing
      returning j.id into id;
      if found then
        outcome := 'created';
        return;
      end if;
    elsif found and v_running then
      outcome := 'in_progress';
      return;
    elsif found and s.on_duplicate = 'skip' then
      -- a holder that is past its time never runs, so it must not swallow this one
      if v_expired is not true or tailrace.end_waiting_v1(array[id], 'expired') = 0 then
        outcome := 'skipped';
        return;
      end if;
    end if;
  end loop;
  perform tailrace.refuse_v1('TR004', 'key', 'is changing hands too fast to settle', 'Send the same call again');
end $$;

-- The holder of a key may end while the enqueue of its successor is not committed; then nobody sees whom to let follow. So
-- the successor looks once more when its transaction commits: a holder that lives is locked until the commit is done, which
-- makes its end wait that long and see the successor; one that is gone leaves its place.
create function tailrace.follow_v1() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
begin
  for v_round in 1 .. 5 loop
    perform from tailrace.job h
      where h.tenant = new.tenant and h.queue = new.queue and h.task = new.task and h.key = new.key and h.key_slot = 0 for key share;
    if found then
      return null;
    end if;
    begin
      perform tailrace.promote_v1(array[new.tenant], array[new.queue], array[new.task], array[new.key]);
      return null;
    exception when unique_violation then   -- somebody else has just taken the place: he is the holder now
      null;
    end;
  end loop;
  return null;                             -- the sweep finds it
end $$;
create constraint trigger job_follow
  after insert on tailrace.job deferrable initially deferred for each row when (new.key_slot = 1)
  execute function tailrace.follow_v1();

-- Tell idle workers of the queues about jobs that are due, or will be before they poll again. Producers with a fixed snapshot may not see who waits.
create function tailrace.wake_queues_v1(queues text[]) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_channel text := tailrace.signal_channel_v1();
  v_queue   text;
begin
  foreach v_queue in array queues loop
    perform pg_notify(v_channel, v_queue);
  end loop;
end $$;

-- Enqueue one job in the caller's transaction; returns its id and created, replaced, skipped or in_progress. Options: priority,
-- delay, run_at, key, on_duplicate, serial_group, tenant, max_attempts, timeout, expires_in, backoff, meta, trace; durations are intervals or seconds.
create function tailrace.enqueue(
  queue text, task text, payload jsonb, options jsonb default '{}', out id bigint, out outcome text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  s tailrace.enqueue_settings_v1;
begin
  if (octet_length(queue) between 1 and 128 and octet_length(task) between 1 and 200 and jsonb_typeof(payload) = 'object') is not true then
    perform tailrace.check_job_v1(queue, task, payload);
  end if;
  if options = '{}' then
    -- the commonest case is one statement: nothing said here, and nothing by the queue
    insert into tailrace.job as j (queue, task, payload)
    select queue, task, payload where not exists (select from tailrace.queue q where q.name = queue and q.settings <> '{}')
    returning j.id, j.run_at into id, s.run_at;
  end if;
  if id is not null then
    outcome := 'created';
  else
    s := tailrace.read_options_v1(queue, task, options);
    if octet_length(payload::text) > s.payload_limit then
      perform tailrace.refuse_v1('TR001', 'payload', format('has more than the %s bytes that the queue takes', s.payload_limit),
                                 'Store large data elsewhere and pass a reference');
    end if;
    if s.key is null then
      insert into tailrace.job as j (tenant, queue, task, payload, serial_group, priority, run_at, max_attempts, timeout, expires_at, backoff,
                                     meta, trace)
      values (s.tenant, queue, task, payload, s.serial_group, s.priority, s.run_at, s.max_attempts, s.timeout, s.expires_at, s.backoff,
              s.meta, s.trace)
      returning j.id into id;
      outcome := 'created';
    else
      select k.id, k.outcome into id, outcome from tailrace.enqueue_keyed_v1(payload, s.key, s) k;
    end if;
  end if;
  if outcome in ('created', 'replaced') and s.run_at <= clock_timestamp() + interval '6 s'   -- an idle worker polls each 5 s
     and (exists (select from tailrace.waiter w where w.queue = queue and w.until > clock_timestamp())
          or current_setting('transaction_isolation') <> 'read committed') then
    perform tailrace.wake_queues_v1(array[queue]);
  end if;
end $$;

-- Many jobs in one call. heads are the distinct [{"queue", "task", "options"}]; row n has head kinds[n] (from 1), payload
-- payloads[n] and key keys[n]. Rows without a key go in as one statement, rows with one by one in the order of their keys,
-- so that two producers do not wait for each other in a circle; the same key twice is thereby settled by its mode. Ids are
-- drawn before the insert: a result row belongs to its input row by construction, not by the order of RETURNING.
create function tailrace.enqueue_batch_v1(heads jsonb, kinds int[], payloads jsonb, keys text[] default null)
returns table (ord bigint, id bigint, outcome text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  v_head     jsonb;
  v_settings tailrace.enqueue_settings_v1[] := '{}';
  v_ids      regclass := pg_get_serial_sequence(pg_typeof(null::tailrace.job)::text, 'id');
  v_queues   text[];
  r          record;
begin
  if (jsonb_typeof(heads) = 'array' and jsonb_typeof(payloads) = 'array' and cardinality(kinds) = jsonb_array_length(payloads)
      and (keys is null or cardinality(keys) = cardinality(kinds))
      and not exists (select from unnest(kinds) k where (k between 1 and jsonb_array_length(heads)) is not true)) is not true then
    perform tailrace.refuse_v1('TR002', 'kinds', 'must name a head for each payload', 'Send arrays of equal length, heads from 1');
  end if;
  for v_head in select h.value from jsonb_array_elements(heads) with ordinality h order by h.ordinality loop
    perform tailrace.check_job_v1(v_head ->> 'queue', v_head ->> 'task', '{}');
    v_settings := v_settings || tailrace.read_options_v1(v_head ->> 'queue', v_head ->> 'task', v_head -> 'options');
  end loop;

  if exists (select from unnest(v_settings) s where s.payload_limit is not null) and exists (
      select from rows from (jsonb_array_elements(payloads), unnest(kinds)) as r (payload, kind)
      where octet_length(r.payload::text) > v_settings[r.kind].payload_limit) then
    perform tailrace.refuse_v1('TR001', 'payload', 'has more bytes than its queue takes', 'Store large data elsewhere and pass a reference');
  end if;

  return query
  with fresh as (
    select r.ord, nextval(v_ids) as id, r.kind, r.payload
    from rows from (jsonb_array_elements(payloads), unnest(kinds), unnest(keys)) with ordinality as r (payload, kind, key, ord)
    join unnest(v_settings) with ordinality as h (q, t, n, k, d, p, a, m, o, e, b, i, c, l, g, kind) on h.kind = r.kind
    where coalesce(r.key, h.k) is null
  ), stored as (
    insert into tailrace.job (id, queue, task, tenant, payload, serial_group, priority, run_at, max_attempts, timeout, expires_at, backoff, meta,
                              trace)
    overriding system value
    select f.id, h.queue, h.task, h.tenant, f.payload, h.serial_group, h.priority, h.run_at, h.max_attempts, h.timeout, h.expires_at, h.backoff,
           h.meta, h.trace
    from fresh f
    join unnest(v_settings) with ordinality as h (queue, task, tenant, key, on_duplicate, priority, run_at, max_attempts, timeout,
                                                  expires_at, backoff, meta, trace, payload_limit, serial_group, kind) on h.kind = f.kind
    order by f.id
    returning 1
  )
  select f.ord, f.id, 'created'::text from fresh f order by f.ord;

  if keys is not null or exists (select from unnest(v_settings) s where s.key is not null) then
    for r in
      select r.ord, r.payload, r.kind, coalesce(r.key, h.key) as key
      from rows from (jsonb_array_elements(payloads), unnest(kinds), unnest(keys)) with ordinality as r (payload, kind, key, ord)
      join unnest(v_settings) with ordinality as h (queue, task, tenant, key, on_duplicate, priority, run_at, max_attempts, timeout,
                                                    expires_at, backoff, meta, trace, payload_limit, serial_group, kind) on h.kind = r.kind
      where coalesce(r.key, h.key) is not null
      order by h.tenant collate "C", h.queue collate "C", h.task collate "C", coalesce(r.key, h.key) collate "C", r.ord
    loop
      if octet_length(r.key) not between 1 and 512 then
        perform tailrace.refuse_v1('TR002', 'key', 'must be 1 to 512 bytes of UTF-8', 'Use a digest of the long key');
      end if;
      select r.ord, k.id, k.outcome into ord, id, outcome from tailrace.enqueue_keyed_v1(r.payload, r.key, v_settings[r.kind]) k;
      return next;
    end loop;
  end if;

  -- queues of which something is due; a batch of skips may wake a worker for nothing, which costs one empty claim
  select array_agg(distinct s.queue) into v_queues from unnest(v_settings) s where s.run_at <= clock_timestamp() + interval '6 s';
  if current_setting('transaction_isolation') = 'read committed' then
    select array_agg(distinct w.queue) into v_queues
    from tailrace.waiter w where w.queue = any (v_queues) and w.until > clock_timestamp();
  end if;
  if v_queues is not null then
    perform tailrace.wake_queues_v1(v_queues);
  end if;
end $$;

-- Many jobs as one JSON array: each element has queue, task, payload and options side by side.
create function tailrace.enqueue_many(jobs jsonb) returns table (ord bigint, id bigint, outcome text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_heads    jsonb;
  v_kinds    int[];
  v_payloads jsonb;
  v_keys     text[];
begin
  if jsonb_typeof(jobs) is distinct from 'array' then
    perform tailrace.refuse_v1('TR002', 'jobs', 'must be a JSON array', 'Such as [{"queue": "q", "task": "t", "payload": {}}]');
  end if;
  perform tailrace.check_jobs_v1(jobs);
  with rows as (
    select j.ordinality as ord, j.value - array['payload', 'key'] as head, j.value -> 'payload' as payload, j.value ->> 'key' as key
    from jsonb_array_elements(jobs) with ordinality j
  ), heads as (
    select h.head, row_number() over (order by h.first)::int as kind
    from (select r.head, min(r.ord) as first from rows r group by r.head) h
  )
  select (select jsonb_agg(jsonb_build_object('queue', h.head -> 'queue', 'task', h.head -> 'task',
                                              'options', h.head - array['queue', 'task']) order by h.kind) from heads h),
         array_agg(h.kind order by r.ord), jsonb_agg(r.payload order by r.ord), array_agg(r.key order by r.ord)
  into v_heads, v_kinds, v_payloads, v_keys
  from rows r join heads h on h.head = r.head;
  if v_kinds is not null then
    if array_remove(v_keys, null) = '{}' then
      v_keys := null;
    end if;
    return query select b.ord, b.id, b.outcome from tailrace.enqueue_batch_v1(v_heads, v_kinds, v_payloads, v_keys) b order by b.ord;
  end if;
end $$;

-- Refuse what is wrong with an element of enqueue_many by its index, before anything is stored.
create function tailrace.check_jobs_v1(jobs jsonb) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_job     jsonb;
  v_index   int := -1;
  v_head    jsonb;
  v_checked jsonb := '{}';     -- the last one: bulk is mostly one kind
  v_code    text;
  v_text    text;
  v_field   text;
  v_hint    text;
begin
  for v_job in select j.value from jsonb_array_elements(jobs) with ordinality j order by j.ordinality loop
    v_index := v_index + 1;
    if jsonb_typeof(v_job) <> 'object' then
      perform tailrace.refuse_v1('TR002', 'job', 'must be a JSON object', 'Such as {"queue": "q", "task": "t", "payload": {}}');
    end if;
    if (jsonb_typeof(v_job -> 'payload') = 'object') is not true then
      perform tailrace.check_job_v1('q', 't', v_job -> 'payload');
    end if;
    if v_job ? 'key' and v_job -> 'key' <> 'null' then
      perform tailrace.text_option_v1(v_job, 'key', 1, 512);
    end if;
    v_head := v_job - array['payload', 'key'];
    if v_head <> v_checked then
      perform tailrace.text_option_v1(v_head, 'queue', 1, 128);
      perform tailrace.text_option_v1(v_head, 'task', 1, 200);
      perform tailrace.check_job_v1(v_head ->> 'queue', v_head ->> 'task', '{}');
      perform tailrace.read_options_v1(v_head ->> 'queue', v_head ->> 'task', v_head - array['queue', 'task']);
      v_checked := v_head;
    end if;
  end loop;
exception when sqlstate 'TR001' or sqlstate 'TR002' then
  get stacked diagnostics v_code = returned_sqlstate, v_text = message_text, v_field = column_name, v_hint = pg_exception_hint;
  v_field := format('jobs[%s]%s', v_index, case when v_field <> 'job' then '.' || v_field else '' end);
  perform tailrace.refuse_v1(v_code, v_field, regexp_replace(v_text, '^[^:]*: ', ''), v_hint);
end $$;

revoke execute on function
  tailrace.refuse_v1(text, text, text, text), tailrace.check_job_v1(text, text, jsonb), tailrace.check_jobs_v1(jsonb),
  tailrace.text_option_v1(jsonb, text, int, int), tailrace.integer_option_v1(text, int, int, text),
  tailrace.whole_number_v1(jsonb, int, int), tailrace.seconds_v1(jsonb),
  tailrace.duration_option_v1(jsonb, text), tailrace.run_at_option_v1(jsonb), tailrace.backoff_option_v1(jsonb),
  tailrace.task_options_v1(jsonb, text), tailrace.refuse_option_v1(jsonb), tailrace.read_options_v1(text, text, jsonb),
  tailrace.enqueue_keyed_v1(jsonb, text, tailrace.enqueue_settings_v1), tailrace.wake_queues_v1(text[]),
  tailrace.enqueue(text, text, jsonb, jsonb), tailrace.enqueue_batch_v1(jsonb, int[], jsonb, text[]), tailrace.enqueue_many(jsonb)
from public;
