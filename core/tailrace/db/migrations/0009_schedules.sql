-- Tailrace 0009: schedules, which enqueue jobs at given times.
--
-- What should be there comes from two places: the settings of a queue (the JobQueue, which wins) and the rows of living
-- workers (what their applications declare). `sync_schedules_v1` brings table `schedule` in line with them. When the ticks
-- are is not known here: crontab lines and time zones are read by the runner, which tells `fire_schedules_v1` the ticks
-- that are due. Rules:
--   * last_tick moves in the transaction that enqueues, guarded by `last_tick < tick`: any number of runners fires a tick once;
--   * a runner waits for no lock of an application; what is locked is looked at again;
--   * a schedule that cannot fire stops no other: each tick is a subtransaction, its fault is kept in the row;
--   * what was added, changed in its times or resumed begins with the first tick after that.

-- A schedule's definition without what other people may change: is it due at all?
create function tailrace.schedule_active_v1(s tailrace.schedule) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select not s.suspended and s.absent_since is null and s.definition ->> 'suspend' is distinct from 'true'
$$;

-- A tick as text: in keys, in meta and in messages.
create function tailrace.tick_text_v1(tick timestamptz) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select to_char(tick at time zone 'UTC', case when tick = date_trunc('second', tick) then 'YYYY-MM-DD"T"HH24:MI:SS"Z"'
                                               else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' end)
$$;

-- What the schedules of one queue, or of all, should be. Of several living workers the one that started last is heard.
create function tailrace.wanted_schedules_v1(only_queue text)
returns table (queue text, name text, definition jsonb, source text, since timestamptz)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select distinct on (w.queue, w.name) w.queue, w.name, w.definition, w.source, w.since
  from (
    select q.name as queue, e.value ->> 'name' as name, e.value - 'name' as definition, 'jobqueue' as source, null::timestamptz as since,
           null::text as worker
    from tailrace.queue q
    cross join lateral jsonb_array_elements(
      case jsonb_typeof(q.settings -> 'schedules') when 'array' then q.settings -> 'schedules' else '[]' end) e
    where q.settings ? 'schedules' and jsonb_typeof(e.value) = 'object' and (only_queue is null or q.name = only_queue)
    union all
    select e.value ->> 'queue', e.value ->> 'name', e.value - array['queue', 'name'], 'worker', o.started, o.id
    from tailrace.worker o
    cross join lateral jsonb_array_elements(case jsonb_typeof(o.schedules) when 'array' then o.schedules else '[]' end) e
    where o.until > clock_timestamp() and o.schedules <> '[]' and jsonb_typeof(e.value) = 'object'
      and (only_queue is null or e.value ->> 'queue' = only_queue)) w
  where octet_length(w.queue) between 1 and 128 and octet_length(w.name) between 1 and 63
  order by w.queue, w.name, w.source, w.since desc, w.worker desc, w.definition::text
$$;

-- Bring one schedule in line; a null definition means that nobody wants it. Returns added, changed, absent, kept, removed or
-- locked. One that a worker declared is kept silent for its catch-up window and ten minutes at least, so that a restart of
-- the last worker loses nothing; one that was suspended by people is kept for good.
create function tailrace.sync_schedule_v1(
  queue text, name text, definition jsonb, source text, since timestamptz, patient boolean) returns text
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  v_now  timestamptz := clock_timestamp();
  -- A worker's declaration counts from its start, at most a minute back: the runner may have looked a little later.
  v_from timestamptz := least(v_now, greatest(coalesce(since, v_now), v_now - interval '60 seconds'));
  v_same boolean;
  s      tailrace.schedule;
begin
  if patient then
    select x.* into s from tailrace.schedule x where x.queue = queue and x.name = name for no key update;
  else
    select x.* into s from tailrace.schedule x where x.queue = queue and x.name = name for no key update skip locked;
  end if;
  if s.name is null and definition is null then
    return 'locked';
  elsif s.name is null then
    begin
      insert into tailrace.schedule (queue, name, definition, source, last_tick) values (queue, name, definition, source, v_from)
        on conflict do nothing;
      return case when found then 'added' else 'locked' end;
    exception when lock_not_available then
      return 'locked';
    end;
  elsif definition is null then
    if s.source = 'jobqueue' or (not s.suspended and s.absent_since < v_now - tailrace.schedule_memory_v1(s.definition)) then
      delete from tailrace.schedule x where x.queue = queue and x.name = name;
      return 'removed';
    elsif s.absent_since is null then
      update tailrace.schedule x set absent_since = v_now, next_tick = null where x.queue = queue and x.name = name;
      return 'absent';
    end if;
    return 'kept';
  end if;
  v_same := (s.definition -> 'cron', s.definition -> 'everySeconds', coalesce(s.definition ->> 'timeZone', 'UTC'))
              is not distinct from (definition -> 'cron', definition -> 'everySeconds', coalesce(definition ->> 'timeZone', 'UTC'))
            and (s.definition ->> 'suspend' is distinct from 'true' or definition ->> 'suspend' is not distinct from 'true');
  update tailrace.schedule x
    set definition = definition, source = source, absent_since = null, next_tick = null,
        fault = case when s.definition = definition then x.fault end,
        -- Beyond an hour ahead the clock was wrong and has been set back: without this the schedule would be silent until then.
        last_tick = case when x.last_tick > v_now + interval '1 hour' then v_now when v_same then x.last_tick
                         else greatest(x.last_tick, v_from) end
    where x.queue = queue and x.name = name;
  return 'changed';
end $$;

-- How long a declared schedule is remembered after the last worker that declared it.
create function tailrace.schedule_memory_v1(definition jsonb) returns interval
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select greatest(600, tailrace.setting_number_v1(definition, 'catchUpSeconds', 0)) * interval '1 second'
$$;

-- Bring the schedules of one queue, or of all, in line with what is wanted. For one queue it waits for their rows (its caller
-- changes the queue), for all it passes by what is locked. Returns how many were added, changed, removed.
create function tailrace.sync_schedules_v1(only_queue text default null) returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off
as $$
declare
  v_now    timestamptz := clock_timestamp();
  v        record;
  v_result text;
  v_counts jsonb := '{"added": 0, "changed": 0, "absent": 0, "removed": 0, "locked": 0}';
begin
  for v in
    select coalesce(w.queue, s.queue) as queue, coalesce(w.name, s.name) as name, w.definition, w.source, w.since
    from tailrace.wanted_schedules_v1(only_queue) w
    full join (select x.* from tailrace.schedule x where only_queue is null or x.queue = only_queue) s
      on s.queue = w.queue and s.name = w.name
    where s.name is null
       or (w.name is null and (s.source = 'jobqueue' or s.absent_since is null
                               or (not s.suspended and s.absent_since < v_now - tailrace.schedule_memory_v1(s.definition))))
       or (w.name is not null and (s.definition <> w.definition or s.source <> w.source or s.absent_since is not null
                                   or s.last_tick > v_now + interval '1 hour'))
    order by 1, 2
  loop
    v_result := tailrace.sync_schedule_v1(v.queue, v.name, v.definition, v.source, v.since, only_queue is not null);
    if v_counts ? v_result then
      v_counts := jsonb_set(v_counts, array[v_result], to_jsonb((v_counts ->> v_result)::int + 1));
    end if;
  end loop;
  return v_counts;
end $$;

-- The schedules that are due, as the runner needs them to find their ticks, and the seconds until the next one is. With `sync`
-- all are brought in line with what is wanted first. What somebody has locked hides nothing that stands behind it.
create function tailrace.cron_due_v1(batch int default 100, sync boolean default true, only_queue text default null) returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp set timezone = 'UTC' set jit = off
as $$
#variable_conflict use_column
declare
  v_sync jsonb := '{}';
  v_now  timestamptz;
  v_due  jsonb;
begin
  if not tailrace.begin_routine_v1('cron') then
    return '{"locked": true}';
  end if;
  if sync then
    v_sync := tailrace.sync_schedules_v1();   -- all: it is not to wait for a row
  end if;
  v_now := clock_timestamp();
  select coalesce(jsonb_agg(jsonb_build_object(
           'queue', d.queue, 'name', d.name, 'revision', hashtextextended(d.definition::text, 0)::text, 'last_tick', d.last_tick,
           'cron', d.definition -> 'cron', 'everySeconds', d.definition -> 'everySeconds', 'timeZone', d.definition -> 'timeZone',
           'catchUpSeconds', d.definition -> 'catchUpSeconds')), '[]') into v_due
    from (select s.* from tailrace.schedule s
          where tailrace.schedule_active_v1(s) and coalesce(s.next_tick, '-infinity') <= v_now
            and (only_queue is null or s.queue = only_queue)
          order by s.next_tick nulls first, s.queue, s.name limit batch for no key update skip locked) d;
  perform tailrace.end_routine_v1('cron', coalesce(only_queue, ''));
  return v_sync || jsonb_build_object('now', v_now, 'due', v_due, 'next_in', tailrace.next_schedule_in_v1(only_queue));
end $$;

-- Seconds until the next schedule is due, negative if one is overdue; null when there is none.
create function tailrace.next_schedule_in_v1(only_queue text default null) returns double precision
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select extract(epoch from min(coalesce(s.next_tick, clock_timestamp() - interval '1 second')) - clock_timestamp())::double precision
  from tailrace.schedule s where tailrace.schedule_active_v1(s) and (only_queue is null or s.queue = only_queue)
$$;

-- Enqueue the job of one tick of a schedule whose row the caller has locked, as its overlap says. `what` is fired or skipped;
-- `unknown` tells that workers serve the queue and none of them knows the task.
create function tailrace.start_schedule_v1(s tailrace.schedule, tick timestamptz, out what text, out id bigint, out unknown boolean)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  d         jsonb := s.definition;
  v_options jsonb := coalesce(d -> 'options', '{}') || jsonb_strip_nulls(jsonb_build_object(
    'priority', d -> 'priority', 'max_attempts', d -> 'maxAttempts', 'key', d -> 'key',
    'on_duplicate', case d ->> 'onDuplicate' when 'PreserveRunAt' then 'preserve_run_at' else lower(d ->> 'onDuplicate') end));
  v_overlap text := coalesce(d ->> 'overlap', 'Skip');
  v_outcome text;
begin
  unknown := exists (select from tailrace.worker o where o.until > clock_timestamp() and o.state = 'working' and s.queue = any (o.queues))
    and not exists (select from tailrace.worker o where o.until > clock_timestamp() and o.state = 'working' and s.queue = any (o.queues)
                    and d ->> 'task' = any (o.tasks));
  if v_overlap <> 'Allow' and exists (select from tailrace.job j where j.id = s.last_job) then
    if v_overlap <> 'Replace' then
      what := 'skipped';
      id := s.last_job;
      return;
    end if;
    if not v_options ? 'key' or not exists (select from tailrace.job j where j.id = s.last_job and j.key = v_options ->> 'key') then
      perform tailrace.make_way_v1(s);
    else
      -- A key of its own keeps the place for the new job: what waits is replaced, what runs is stopped and followed.
      perform tailrace.stop_overlapped_v1(s.queue, s.name);
      v_options := '{"on_duplicate": "after"}' || v_options;
    end if;
  end if;
  v_options := jsonb_build_object('key', 'schedule/' || s.name || '/' || tailrace.tick_text_v1(tick)) || v_options
    || jsonb_build_object('meta', coalesce(v_options -> 'meta', '{}')
                                  || jsonb_build_object('schedule', s.name, 'tick', tailrace.tick_text_v1(tick)));
  select e.id, e.outcome into id, v_outcome from tailrace.enqueue(s.queue, d ->> 'task', coalesce(d -> 'payload', '{}'), v_options) e;
  what := case when v_outcome in ('created', 'replaced') then 'fired' else 'skipped' end;
end $$;

-- The last job of a schedule must not live beside the next: one that waits is removed (if it had been requeued it is dead
-- again), one that runs is asked to stop. What an application has locked is refused as a lock that is not available.
create function tailrace.make_way_v1(s tailrace.schedule) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_waits boolean;
begin
  for v_round in 1 .. 3 loop
    select j.token is null into v_waits from tailrace.job j where j.id = s.last_job;
    if not found then
      return;
    elsif not v_waits then
      perform tailrace.stop_overlapped_v1(s.queue, s.name);
      return;
    end if;
    perform from tailrace.job j where j.id = s.last_job and j.token is null for update skip locked;
    if found and tailrace.end_waiting_v1(array[s.last_job], 'replaced') > 0 then
      return;
    end if;
  end loop;
  raise exception using errcode = '55P03', message = format('job %s of the last tick is locked', s.last_job);
end $$;

-- Ask the running last job of a schedule with overlap Replace to stop. Runs with its owner's rights, since a worker may ask
-- for no other job's end.
create function tailrace.stop_overlapped_v1(queue text, name text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
begin
  insert into tailrace.cancel_request (job_id, requested_by)
    select s.last_job, 'schedule ' || s.name from tailrace.schedule s
    where s.queue = queue and s.name = name and s.definition ->> 'overlap' = 'Replace'
      and exists (select from tailrace.job j where j.id = s.last_job and j.token is not null)
    on conflict (job_id) do nothing;
  if found then
    perform pg_notify(tailrace.signal_channel_v1(), queue || '?');
  end if;
end $$;

-- Fire the ticks of one schedule as the runner has planned them; null if it has changed, is locked or does not run now.
create function tailrace.fire_schedule_v1(plan jsonb) returns jsonb
language plpgsql volatile set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
declare
  s         tailrace.schedule;
  v_tick    timestamptz;
  v_what    text;
  v_id      bigint;
  v_unknown boolean;
  v_fault   jsonb := nullif(plan -> 'fault', 'null') || jsonb_build_object('at', clock_timestamp(), 'tick', null);
  v_fired   int := 0;
  v_skipped int := 0;
  v_missed  int := 0;
  v_failed  int := (v_fault is not null)::int;
  v_again   boolean := false;
  v_lasting boolean;
  v_field   text;
  v_problem text;
  v_remedy  text;
begin
  select x.* into s from tailrace.schedule x
    where x.queue = plan ->> 'queue' and x.name = plan ->> 'name' and hashtextextended(x.definition::text, 0)::text = plan ->> 'revision'
      and tailrace.schedule_active_v1(x)
    for no key update skip locked;
  if not found then
    return null;
  end if;
  update tailrace.schedule x set last_tick = (plan ->> 'passed')::timestamptz
    where x.queue = s.queue and x.name = s.name and x.last_tick < (plan ->> 'passed')::timestamptz;
  if found then
    v_missed := (plan ->> 'missed')::int;
  end if;

  for v_tick in select t.value::timestamptz from jsonb_array_elements_text(plan -> 'ticks') with ordinality t(value, n) order by t.n loop
    begin
      update tailrace.schedule x set last_tick = v_tick where x.queue = s.queue and x.name = s.name and x.last_tick < v_tick;
      continue when not found;   -- another runner has fired it
      select t.what, t.id, t.unknown into v_what, v_id, v_unknown from tailrace.start_schedule_v1(s, v_tick) t;
      if v_what = 'fired' then
        update tailrace.schedule x set last_job = v_id where x.queue = s.queue and x.name = s.name;
        s.last_job := v_id;
      end if;
      v_fired := v_fired + (v_what = 'fired')::int;
      v_skipped := v_skipped + (v_what <> 'fired')::int;
      v_fault := case when v_unknown then tailrace.schedule_fault_v1(v_tick, 'task', 'no live worker of the queue knows '
        || coalesce(s.definition ->> 'task', 'it'), 'Roll out workers that know it, or correct the name') end;
      v_failed := v_failed + (v_unknown)::int;
    exception when others then
      get stacked diagnostics v_field = column_name, v_problem = message_text, v_remedy = pg_exception_hint;
      v_fault := tailrace.schedule_fault_v1(v_tick, v_field, v_problem, v_remedy);
      v_failed := v_failed + 1;
      v_lasting := sqlstate in ('TR001', 'TR002', 'P0001') or left(sqlstate, 2) in ('22', '23');
      if v_lasting then   -- the next tick may have better luck, this one is over
        update tailrace.schedule x set last_tick = v_tick where x.queue = s.queue and x.name = s.name and x.last_tick < v_tick;
      end if;
      v_again := not v_lasting;
    end;
    exit when v_again;
  end loop;

  update tailrace.schedule x
    set next_tick = case when v_again then clock_timestamp() + interval '5 seconds' else (plan ->> 'next')::timestamptz end,
        last_fired_at = case when v_fired > 0 then clock_timestamp() else x.last_fired_at end,
        fired = x.fired + v_fired, skipped = x.skipped + v_skipped, missed = x.missed + v_missed, failed = x.failed + v_failed,
        fault = case when v_fault is not null then v_fault when v_fired + v_skipped > 0 or x.fault ->> 'tick' is null then null
                     else x.fault end
    where x.queue = s.queue and x.name = s.name;
  return jsonb_build_object('queue', s.queue, 'name', s.name, 'fired', v_fired, 'skipped', v_skipped, 'missed', v_missed, 'failed', v_failed,
    'fault', v_fault, 'news', v_fault ->> 'problem' is distinct from s.fault ->> 'problem', 'job', v_id, 'passed', plan -> 'passed');
end $$;

-- Why a schedule could not do what it should: the field of its definition, the problem and the remedy, as our errors say it.
create function tailrace.schedule_fault_v1(tick timestamptz, field text, problem text, remedy text) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
  select jsonb_build_object('at', clock_timestamp(), 'tick', tailrace.tick_text_v1(tick), 'field', nullif(field, ''),
    'problem', case when starts_with(problem, field || ': ') then substr(problem, length(field) + 3) else problem end,
    'remedy', nullif(remedy, ''))
$$;

-- One batch of the routine: fire what the runner has planned, each schedule for itself, for half a second or little more: what is
-- left is planned again. Returns what became of each, and how many were not their turn.
create function tailrace.fire_schedules_v1(plans jsonb, only_queue text default null) returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off
as $$
declare
  v_end  timestamptz := clock_timestamp() + interval '500 milliseconds';
  v_plan jsonb;
  v_one  jsonb;
  v_rows jsonb := '[]';
  v_left int := 0;
begin
  if not tailrace.begin_routine_v1('cron') then
    return '{"locked": true}';
  end if;
  for v_plan in select p.value from jsonb_array_elements(plans) with ordinality p(value, n) order by p.n loop
    begin
      v_one := tailrace.fire_schedule_v1(v_plan);
    exception when others then   -- beyond what a single tick can meet; the other schedules go on
      update tailrace.schedule x
        set next_tick = clock_timestamp() + interval '1 minute', failed = x.failed + 1,
            fault = tailrace.schedule_fault_v1(null, null, sqlerrm, null)
        where x.queue = v_plan ->> 'queue' and x.name = v_plan ->> 'name';
      v_one := jsonb_build_object('queue', v_plan -> 'queue', 'name', v_plan -> 'name', 'fired', 0, 'skipped', 0, 'missed', 0, 'failed', 1,
        'fault', tailrace.schedule_fault_v1(null, null, sqlerrm, null), 'news', true, 'job', null, 'passed', null);
    end;
    v_rows := v_rows || coalesce(v_one, '[]');
    v_left := v_left + (v_one is null)::int;
    exit when clock_timestamp() > v_end;
  end loop;
  perform tailrace.end_routine_v1('cron', coalesce(only_queue, ''));
  return jsonb_build_object('rows', v_rows, 'left', v_left);
end $$;

-- ---- for people -------------------------------------------------------------------------------------------------------
-- Refuse a schedule that nobody could fire, where a queue gets its settings. A crontab line is read by the library, which
-- checks it before. A new entry must name a task that a living worker of the queue knows, if there are such workers.
create function tailrace.check_schedules_v1(queue text, wanted jsonb, known jsonb, tasks_too boolean) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  e       record;
  v_field text;
  v_seen  text[] := '{}';
begin
  if jsonb_typeof(wanted) <> 'array' or jsonb_array_length(wanted) > 200 then
    perform tailrace.refuse_v1('TR002', 'spec.schedules', 'must be a list of at most 200 schedules', 'Correct the JobQueue');
  end if;
  for e in select x.value, x.n - 1 as n from jsonb_array_elements(wanted) with ordinality x(value, n) loop
    v_field := format('spec.schedules[%s]', e.n);
    if jsonb_typeof(e.value) <> 'object' then
      perform tailrace.refuse_v1('TR002', v_field, 'must be an object', 'Correct the JobQueue');
    elsif e.value ->> 'name' is null or octet_length(e.value ->> 'name') not between 1 and 63 or e.value ->> 'name' = any (v_seen) then
      perform tailrace.refuse_v1('TR002', v_field || '.name', 'must be 1 to 63 bytes and unique in the queue', 'Give another name');
    elsif (e.value -> 'cron' is null) = (e.value -> 'everySeconds' is null) then
      perform tailrace.refuse_v1('TR002', v_field, 'exactly one of cron and everySeconds must be set', 'Remove one or add one');
    elsif e.value ? 'everySeconds' and tailrace.whole_number_v1(e.value -> 'everySeconds', 1, 31622400) is null then
      perform tailrace.refuse_v1('TR002', v_field || '.everySeconds', 'must be a whole number from 1 to 31622400', 'Give seconds');
    elsif e.value ->> 'task' is null or octet_length(e.value ->> 'task') not between 1 and 200 then
      perform tailrace.refuse_v1('TR002', v_field || '.task', 'must be 1 to 200 bytes of UTF-8', 'Name the task');
    elsif jsonb_typeof(coalesce(e.value -> 'payload', '{}')) <> 'object' then
      perform tailrace.refuse_v1('TR002', v_field || '.payload', 'must be a JSON object', 'Give the parameters by name');
    elsif tasks_too and not coalesce(known @> jsonb_build_array(e.value), false)
          and exists (select from tailrace.worker o where o.until > clock_timestamp() and o.state = 'working' and queue = any (o.queues))
          and not exists (select from tailrace.worker o where o.until > clock_timestamp() and o.state = 'working'
                          and queue = any (o.queues) and e.value ->> 'task' = any (o.tasks)) then
      perform tailrace.refuse_v1('TR002', v_field || '.task', format('no live worker of the queue knows %s', e.value ->> 'task'),
                                 'Roll out workers that know it first, or correct the name');
    end if;
    v_seen := v_seen || (e.value ->> 'name');
  end loop;
end $$;

-- Lock a schedule for a change by people, or say that there is none.
create function tailrace.schedule_of_v1(queue text, name text) returns tailrace.schedule
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  s tailrace.schedule;
begin
  select x.* into s from tailrace.schedule x where x.queue = queue and x.name = name for no key update;
  if not found then
    perform tailrace.refuse_v1('TR003', 'name', format('queue %s has no schedule %s', queue, name), 'Look at the list of schedules');
  end if;
  return s;
end $$;

create function tailrace.run_schedule(queue text, name text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  s      tailrace.schedule := tailrace.schedule_of_v1(queue, name);
  v_what text;
  v_id   bigint;
begin
  begin
    select t.what, t.id into v_what, v_id from tailrace.start_schedule_v1(s, clock_timestamp()) t;
  exception when lock_not_available then
    perform tailrace.refuse_v1('TR004', 'name', format('the last job of schedule %s is being changed by others', name), 'Try again');
  end;
  if v_what <> 'fired' then
    perform tailrace.refuse_v1('TR004', 'name', format('job %s of schedule %s lives', v_id, name), 'Wait for its end, or cancel it');
  end if;
  update tailrace.schedule x set last_job = v_id, last_fired_at = clock_timestamp(), fired = x.fired + 1
    where x.queue = queue and x.name = name;
  perform tailrace.audit_v1('schedules.run', jsonb_build_object('queue', queue, 'name', name, 'id', v_id::text), 1);
  return v_id;
end $$;

create function tailrace.suspend_schedule(queue text, name text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  s tailrace.schedule := tailrace.schedule_of_v1(queue, name);
begin
  if s.suspended then
    return false;
  end if;
  update tailrace.schedule x set suspended = true where x.queue = queue and x.name = name;
  perform tailrace.audit_v1('schedules.suspend', jsonb_build_object('queue', queue, 'name', name), 1);
  return true;
end $$;

create function tailrace.resume_schedule(queue text, name text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  s tailrace.schedule := tailrace.schedule_of_v1(queue, name);
begin
  if s.definition ->> 'suspend' = 'true' then
    perform tailrace.refuse_v1('TR004', 'name', format('schedule %s is suspended where it is defined', name),
                               'Set suspend to false in its JobQueue and apply it');
  elsif not s.suspended then
    return false;
  end if;
  update tailrace.schedule x set suspended = false, next_tick = null, last_tick = greatest(x.last_tick, clock_timestamp())
    where x.queue = queue and x.name = name;
  perform tailrace.audit_v1('schedules.resume', jsonb_build_object('queue', queue, 'name', name), 1);
  return true;
end $$;

comment on function tailrace.run_schedule(text, text) is 'Enqueue the job of a schedule now, whatever its times, and return its number; its overlap counts.';
comment on function tailrace.suspend_schedule(text, text) is 'Let a schedule fire no more until it is resumed; returns whether that changed anything.';
comment on function tailrace.resume_schedule(text, text) is 'Let a suspended schedule go on with its next tick; returns whether that changed anything.';

create view tailrace.schedules as
  select s.queue, s.name,
         case when s.suspended or s.definition ->> 'suspend' = 'true' then 'suspended' when s.absent_since is not null then 'absent'
              when s.fault is not null then 'failing' else 'active' end as state,
         coalesce(s.definition ->> 'cron', 'every ' || (s.definition ->> 'everySeconds') || ' s') as timing,
         coalesce(s.definition ->> 'timeZone', 'UTC') as time_zone, s.definition ->> 'task' as task, s.source,
         coalesce(s.definition ->> 'overlap', 'Skip') as overlap, s.last_tick, case when s.absent_since is null and not s.suspended
           and s.definition ->> 'suspend' is distinct from 'true' then s.next_tick end as next_tick,
         s.last_job, s.last_fired_at, s.fired, s.skipped, s.missed, s.failed, s.fault, s.suspended, s.absent_since, s.definition
  from tailrace.schedule s;

comment on view tailrace.schedules is 'Schedules, how they stand and when they fire next.';
comment on column tailrace.schedules.state is 'active; failing = its last try went wrong, see fault; suspended; absent = no live worker declares it any more';
comment on column tailrace.schedules.timing is 'the crontab line, or the period';

comment on table tailrace.schedule is 'Schedules and the tick they were last run for.';
comment on column tailrace.schedule.queue is 'the queue';
comment on column tailrace.schedule.name is 'unique in its queue';
comment on column tailrace.schedule.definition is 'when and what, in the words of the JobQueue';
comment on column tailrace.schedule.source is 'who defines it: jobqueue, or worker (an application)';
comment on column tailrace.schedule.suspended is 'people suspended it';
comment on column tailrace.schedule.absent_since is 'since when no live worker declares it; it is kept for a while, so that a restart skips nothing';
comment on column tailrace.schedule.last_tick is 'the last tick that was fired, skipped or missed; at first when it was added';
comment on column tailrace.schedule.next_tick is 'the next one; null = a runner will find out';
comment on column tailrace.schedule.last_job is 'the job it enqueued last';
comment on column tailrace.schedule.last_fired_at is 'when that was';
comment on column tailrace.schedule.fired is 'jobs it enqueued';
comment on column tailrace.schedule.skipped is 'ticks without a job, since the one before still lived or another held its key';
comment on column tailrace.schedule.missed is 'ticks that were too far back when a runner came';
comment on column tailrace.schedule.failed is 'tries that went wrong';
comment on column tailrace.schedule.fault is 'what is wrong with it: field, problem, remedy, tick, at';
