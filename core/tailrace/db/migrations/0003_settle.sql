-- Tailrace 0003: how a run ends.
--
-- Every outcome that is not a plain success comes through `settle_v1`, everything that the reaper and the sweep decide
-- through `conclude_v1` below it, so a dead letter is written in one place only. Rules:
--   * guarded by (id, token); rows whose token is gone are fenced and nothing of them changes;
--   * no statement waits for a lock that an application can hold: jobs, dead letters, leases and cancel requests are
--     taken with SKIP LOCKED, and what is locked elsewhere is reported as busy and keeps its lease;
--   * the end of a job that holds a key lets its successor follow (key_slot 1 becomes 0) in the same transaction; while
--     somebody else has the successor locked, the holder is busy;
--   * plans are pinned (no sequential scan, hash joins bounded by an id list), so an empty table at planning time does
--     not become a scan of a full one later.

-- One row's fate. `result` says what happens:
--   it ends:      succeeded, dead, dropped, cancelled, expired, replaced
--   it goes back: retried, snoozed, interrupted, handback, lost
create type tailrace.verdict_v1 as (
  id           bigint,
  token        bigint,             -- null for a waiting row
  queue        text,
  task         text,
  requeues     int,
  result       text,
  reason       text,
  delay        double precision,   -- seconds from now; null leaves run_at as it is
  attempts     int,
  lost         int,
  interrupted  int,
  snoozes      int,
  error        jsonb,
  error_type   text,
  fingerprint  text,
  saved        jsonb,
  worker       text
);

-- The NOTIFY channel of this schema.
create function tailrace.signal_channel_v1() returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select 'tailrace_' || t.typnamespace::text from pg_type t where t.oid = pg_typeof(null::tailrace.job)::oid
$$;

-- A number of a JSON object, bounded, or the default where it is missing or none.
create function tailrace.setting_number_v1(source jsonb, name text, otherwise double precision) returns double precision
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
  select case when jsonb_typeof(source -> name) = 'number'
              then least(greatest((source ->> name)::numeric, 0), 1000000000)::double precision
              else otherwise end
$$;

-- Seconds to wait after the n-th failure. Reads the form of job.backoff and the form of a queue's settings; null is the
-- default policy (5 s, doubling, at most 900 s, 20 % either way). The exponent is bounded before it is used.
create function tailrace.backoff_v1(policy jsonb, n int) returns double precision
language plpgsql volatile parallel safe set search_path = pg_catalog, pg_temp as $$
declare
  v_strategy text := lower(replace(coalesce(policy ->> 'strategy', 'exponential'), '_', ''));
  v_base   double precision := coalesce(tailrace.setting_number_v1(policy, 'base', null), tailrace.setting_number_v1(policy, 'baseSeconds', 5));
  v_cap    double precision := coalesce(tailrace.setting_number_v1(policy, 'cap', null), tailrace.setting_number_v1(policy, 'maxSeconds', 900));
  v_jitter double precision := least(1, coalesce(tailrace.setting_number_v1(policy, 'jitter', null),
                                                 tailrace.setting_number_v1(policy, 'jitterPercent', 20) / 100));
  v_power  int := case when v_strategy = 'fixed' then 0 else least(greatest(coalesce(n, 1), 1) - 1, 60) end;
  v_wait   double precision := least(v_cap, v_base * power(2::double precision, v_power));
begin
  if v_strategy = 'fulljitter' then
    return greatest(1, v_wait * random());
  end if;
  return v_wait * (1 + v_jitter * (2 * random() - 1));
end $$;

-- The overrides of one task in a queue's settings, which list tasks by name.
create function tailrace.task_settings_v1(settings jsonb, task text) returns jsonb
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
  select case jsonb_typeof(settings -> 'tasks')
         when 'object' then settings -> 'tasks' -> task
         when 'array' then (select t.value from jsonb_array_elements(settings -> 'tasks') t where t.value ->> 'name' = task limit 1)
         end
$$;

-- How often a run may be given back uncharged: by the task's entry in the queue's settings, else the queue's, else ten times.
create function tailrace.max_interruptions_v1(settings jsonb, task text) returns int
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
  select tailrace.setting_number_v1(case when settings ? 'tasks' then tailrace.task_settings_v1(settings, task) end, 'maxInterruptions',
           tailrace.setting_number_v1(settings -> 'jobDefaults', 'maxInterruptions', 10))::int
$$;

-- The tasks that a queue's settings name.
create function tailrace.task_names_v1(settings jsonb) returns setof text
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
  select t.value ->> 'name' from jsonb_array_elements(case when jsonb_typeof(settings -> 'tasks') = 'array' then settings -> 'tasks' else '[]' end) t
  union all
  select t.key from jsonb_each(case when jsonb_typeof(settings -> 'tasks') = 'object' then settings -> 'tasks' else '{}' end) t
$$;

-- The limits in a queue's settings: how many jobs run at a time of a task, or (name '') of the queue.
create function tailrace.limits_v1(settings jsonb) returns table (name text, most int)
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
  select l.name, least(greatest(trunc((l.value #>> '{}')::numeric), 1), 1000000)::int
  from (select '' as name, settings #> '{limits,concurrency}' as value
        union all
        select t.name, tailrace.task_settings_v1(settings, t.name) -> 'concurrencyLimit' from tailrace.task_names_v1(settings) t(name)) l
  where jsonb_typeof(l.value) = 'number'
$$;

-- The rates in a queue's settings; tasks null = every task, period in seconds.
create function tailrace.rates_v1(settings jsonb)
returns table (name text, jobs double precision, period double precision, burst double precision, tasks text[])
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
  select r.value ->> 'name', (r.value ->> 'jobs')::double precision, (r.value ->> 'periodSeconds')::double precision,
         coalesce((r.value ->> 'burst')::double precision, (r.value ->> 'jobs')::double precision),
         (select array_agg(t.value) from jsonb_array_elements_text(
            case when jsonb_typeof(r.value -> 'tasks') = 'array' then r.value -> 'tasks' else '[]' end) t)
  from jsonb_array_elements(case when jsonb_typeof(settings #> '{limits,rates}') = 'array' then settings #> '{limits,rates}' else '[]' end) r
$$;

-- Seconds that a job waits by its own backoff, else its task's in the queue's settings, else the queue's, else the default.
create function tailrace.job_backoff_v1(own jsonb, queue text, task text, n int) returns double precision
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  v_settings jsonb;
begin
  if own is null then
    select q.settings into v_settings from tailrace.queue q where q.name = queue;
    own := coalesce(tailrace.task_settings_v1(v_settings, task) -> 'backoff', v_settings -> 'jobDefaults' -> 'backoff');
  end if;
  return tailrace.backoff_v1(own, n);
end $$;

-- The newest ten of a job's errors with one more. Called for each row, so it must be inlined: a body that is parsed here
-- needs no pinned search_path, which would forbid that.
create function tailrace.with_error_v1(errors jsonb, error jsonb) returns jsonb
language sql stable parallel safe
return case when error is null then errors
            when errors is null or jsonb_typeof(errors) <> 'array' then jsonb_build_array(error)
            when jsonb_array_length(errors) >= 10 then jsonb_path_query_array(errors, '$[last - 8 to last]') || jsonb_build_array(error)
            else errors || jsonb_build_array(error) end;

-- A dead letter's history with one more event, the newest hundred. Inlined, like the one above.
create function tailrace.with_event_v1(history jsonb, event jsonb) returns jsonb
language sql stable parallel safe
return case when jsonb_array_length(history) >= 100 then jsonb_path_query_array(history, '$[last - 98 to last]')
            else history end || jsonb_build_array(event);

-- Which of these jobs must not end now: they hold a key whose successor somebody else has locked. The other successors stay
-- locked by us until the end of the transaction.
create function tailrace.busy_holders_v1(ids bigint[]) returns bigint[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_nestloop = on set enable_hashjoin = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_holders bigint[];
  v_next    bigint[];
  v_held    bigint[];
begin
  select array_agg(h.id), array_agg(n.id) into v_holders, v_next
    from tailrace.job h
    cross join lateral (select j.id from tailrace.job j where j.tenant = h.tenant and j.queue = h.queue and j.task = h.task
                          and j.key = h.key and j.key_slot + 0 = 1 offset 0) n
    where h.id = any (ids) and coalesce(h.key, '') <> '' and h.key_slot + 0 = 0;
  if v_next is null then
    return '{}';
  end if;
  v_held := array(select j.id from tailrace.job j where j.id = any (v_next) order by j.id for no key update skip locked);
  return array(select p.holder from unnest(v_holders, v_next) p(holder, next) where p.next <> all (v_held));
end $$;

-- Let the successors of these keys follow: they take the place of holders that have just ended. A statement of its own after
-- the end, so that it sees what was committed until then. One that somebody else has locked is left, or if `strict` refused
-- as a lock that is not available. Returns how many followed.
create function tailrace.promote_v1(tenants text[], queues text[], tasks text[], keys text[], strict boolean default false)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_nestloop = on set enable_hashjoin = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
  v_next bigint[] := array(
    select n.id from unnest(tenants, queues, tasks, keys) k(tenant, queue, task, key)
    cross join lateral (select j.id from tailrace.job j where j.tenant = k.tenant and j.queue = k.queue and j.task = k.task
                          and j.key = k.key and j.key_slot + 0 = 1 offset 0) n);
  v_ids  bigint[];
begin
  if cardinality(v_next) = 0 then
    return 0;
  end if;
  v_ids := array(select j.id from tailrace.job j where j.id = any (v_next) and j.key_slot + 0 = 1 order by j.id for no key update skip locked);
  if strict and cardinality(v_ids) < cardinality(v_next) then
    raise exception using errcode = '55P03', message = 'a successor is locked';
  end if;
  if cardinality(v_ids) > 0 then
    -- Due from now on, or it would stand below the floors of every worker.
    update tailrace.job j set key_slot = 0, run_at = greatest(j.run_at, clock_timestamp()) where j.id = any (v_ids);
    perform pg_notify(tailrace.signal_channel_v1(), w.queue)
      from (select distinct j.queue from tailrace.job j where j.id = any (v_ids)) w;
  end if;
  return cardinality(v_ids);
end $$;

-- Carry out verdicts on job rows that the caller has locked. Returns what became of each: its result, or busy where a
-- dead letter or a successor that must change with it is locked by somebody else; a busy row is left exactly as it was.
-- `kept`: results to be kept of those that succeed, see remember_v1.
create function tailrace.conclude_v1(verdicts tailrace.verdict_v1[], kept jsonb default null) returns table (id bigint, result text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_nestloop = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v        tailrace.verdict_v1[] := verdicts;
  v_busy   bigint[];
  v_ended  bigint[];
  v_back   bigint[];
  v_letter bigint[];          -- jobs whose dead letter changes
  v_newer  bigint[];          -- pairs: the job that goes dead …
  v_older  bigint[];          -- … and the dead letter of the same key that it supersedes
  v_held   bigint[];
  v_keys   text[];            -- the keys that come free, with their tenants, queues and tasks
  v_tenants text[];
  v_queues text[];
  v_tasks  text[];
begin
  if exists (select from tailrace.cancel_request c
             where c.job_id = any (array(select x.id from unnest(v) x where x.result in ('retried', 'snoozed', 'interrupted', 'lost')))) then
    v := array(select (x.id, x.token, x.queue, x.task, x.requeues,
                       case when c.job_id is not null and x.result in ('retried', 'snoozed', 'interrupted', 'lost') then 'cancelled'
                            else x.result end,
                       x.reason, x.delay, x.attempts, x.lost, x.interrupted, x.snoozes, x.error, x.error_type, x.fingerprint,
                       x.saved, x.worker)::tailrace.verdict_v1
               from unnest(v) x left join tailrace.cancel_request c
                 on c.job_id = x.id and c.job_id = any (array(select y.id from unnest(v) y)));
  end if;

  -- What is replaced leaves its key to the one who replaces it.
  v_busy := tailrace.busy_holders_v1(array(select x.id from unnest(v) x
                                           where x.result in ('succeeded', 'dead', 'dropped', 'cancelled', 'expired')));
  if cardinality(v_busy) > 0 then
    v := array(select x from unnest(v) x where x.id <> all (v_busy));
  end if;

  v_letter := array(select x.id from unnest(v) x
                    where x.result = 'dead' or (x.requeues > 0 and x.result in ('succeeded', 'dropped', 'cancelled', 'expired', 'replaced')));
  if cardinality(v_letter) > 0 then
    v_held := array(select d.job_id from tailrace.dead_letter d where d.job_id = any (v_letter) order by d.job_id for update skip locked);
    -- Conditions below are put so that no other index offers itself: one that has the id in it (hence `priority`), or a
    -- partial one (hence no `state = 'dead'` and no `key is not null`).
    v_busy := v_busy || array(select d.job_id from tailrace.dead_letter d where d.job_id = any (v_letter) and d.priority is not null
                              except select h from unnest(v_held) h);
    if exists (select from tailrace.job j where j.id = any (v_letter) and coalesce(j.key, '') <> '') then
      select array_agg(o.newer), array_agg(o.older) into v_newer, v_older
        from tailrace.superseded_v1(array(select x.id from unnest(v) x where x.result <> 'succeeded' and x.id = any (v_letter))) o;
    end if;
    if v_older is not null then
      v_held := array(select d.job_id from tailrace.dead_letter d
                      where d.job_id = any (v_older) and d.state <> 'requeued' and d.state <> 'resolved'
                      order by d.job_id for update skip locked);
      v_busy := v_busy || array(select p.newer from unnest(v_newer, v_older) p(newer, older) where p.older <> all (v_held));
    end if;
    if cardinality(v_busy) > 0 then
      v := array(select x from unnest(v) x where x.id <> all (v_busy));
      select array_agg(p.newer), array_agg(p.older) into v_newer, v_older
        from unnest(v_newer, v_older) p(newer, older) where p.newer <> all (v_busy);
    end if;
    perform tailrace.write_dead_letters_v1(v, coalesce(v_newer, '{}'), coalesce(v_older, '{}'));
  end if;

  select coalesce(array_agg(x.id) filter (where x.result in ('succeeded', 'dead', 'dropped', 'cancelled', 'expired', 'replaced')), '{}'),
         coalesce(array_agg(x.id) filter (where x.result in ('retried', 'snoozed', 'interrupted', 'handback', 'lost')), '{}')
    into v_ended, v_back from unnest(v) x;

  if cardinality(v_ended) > 0 then
    if kept is not null or tailrace.has_history_v1(array(select distinct x.queue from unnest(v) x)) then
      perform tailrace.remember_v1(v, v_ended, kept);
    end if;
    with gone as (delete from tailrace.job j where j.id = any (v_ended) returning j.id, j.tenant, j.queue, j.task, j.key, j.key_slot)
    select array_agg(g.tenant), array_agg(g.queue), array_agg(g.task), array_agg(g.key) into v_tenants, v_queues, v_tasks, v_keys
      from gone g where g.key is not null and g.key_slot = 0 and g.id <> all (array(select x.id from unnest(v) x where x.result = 'replaced'));
    if v_keys is not null then
      perform tailrace.promote_v1(v_tenants, v_queues, v_tasks, v_keys);
    end if;
    insert into tailrace.tally (queue, task, what, n)
      select x.queue, x.task, x.result, count(*) from unnest(v) x where x.id = any (v_ended) group by x.queue, x.task, x.result;
    insert into tailrace.tally (queue, task, what, n)
      select x.queue, x.task, case x.result when 'succeeded' then 'resolved' else 'withdrawn' end, count(*)
      from unnest(v) x where x.requeues > 0 and x.id = any (v_ended) and x.result <> 'dead' group by 1, 2, 3;
    delete from tailrace.cancel_request c
      where c.job_id = any (array(select r.job_id from tailrace.cancel_request r where r.job_id = any (v_ended)
                                  order by r.job_id for update skip locked));
  end if;

  if cardinality(v_back) > 0 then
    update tailrace.job j
      set token = null, attempts = x.attempts, lost = x.lost, interrupted = x.interrupted, snoozes = x.snoozes,
          run_at = case when x.delay is null then j.run_at
                        else clock_timestamp() + least(greatest(x.delay, 0), 315360000) * interval '1 second' end,
          errors = tailrace.with_error_v1(j.errors, x.error), saved = coalesce(x.saved, j.saved)
      from unnest(v) x
      where j.id = x.id and j.id = any (v_back);
    -- Rows that keep their run_at stand below the floors of every worker; rows due at once should not wait for a poll.
    perform pg_notify(tailrace.signal_channel_v1(), w.signal)
      from (select distinct case when x.delay is null then x.queue || '!' else x.queue end as signal
            from unnest(v) x where x.id = any (v_back) and (x.delay is null or x.delay <= 0)) w;
  end if;

  return query select x.id, x.result from unnest(v) x union all select b, 'busy' from unnest(v_busy) b;
end $$;

-- Dead letters of the same tenant, queue, task and key as these jobs. Planned at each call: a plan kept from the time when
-- there were no dead letters may have chosen the index on the queue alone.
create function tailrace.superseded_v1(ids bigint[]) returns table (newer bigint, older bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
begin
  return query
    select j.id, d.job_id
    from tailrace.job j
    cross join lateral (select o.job_id from tailrace.dead_letter o
                        where o.tenant = j.tenant and o.queue = j.queue and o.task = j.task and o.key = j.key
                          and o.state = 'dead' and o.job_id <> j.id limit 1) d
    where cardinality(ids) > 0 and j.id = any (ids) and coalesce(j.key, '') <> '';   -- an empty array would imply the condition of any partial index
end $$;

-- The dead letters of conclude_v1, all of them locked or not there yet: superseded ones are resolved first (the unique
-- index on the key allows one), then what died is written, then what was requeued and ended otherwise.
create function tailrace.write_dead_letters_v1(v tailrace.verdict_v1[], v_newer bigint[], v_older bigint[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_nestloop = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_now  timestamptz := clock_timestamp();
  v_dead bigint[] := array(select x.id from unnest(v) x where x.result = 'dead');
  v_gone bigint[] := array(select x.id from unnest(v) x where x.requeues > 0 and x.result in ('dropped', 'cancelled', 'expired', 'replaced'));
  v_won  bigint[] := array(select x.id from unnest(v) x where x.requeues > 0 and x.result = 'succeeded');
begin
  if cardinality(v_older) > 0 then
    update tailrace.dead_letter d set state = 'resolved', resolution = 'superseded', resolved_at = v_now, key = null
      where d.job_id = any (v_older);
  end if;

  if cardinality(v_dead) > 0 then
    insert into tailrace.dead_letter as d
      (job_id, state, tenant, queue, task, key, serial_group, payload, priority, run_at, max_attempts, timeout, backoff, trace, meta,
       saved, errors, reason, error_type, fingerprint, total_attempts, dead_count, first_failed_at, failed_at, requeued_count, worker,
       created_at)
    select j.id, 'dead', j.tenant, j.queue, j.task, j.key, j.serial_group, j.payload, j.priority, j.run_at, j.max_attempts, j.timeout,
           j.backoff, j.trace, j.meta, coalesce(x.saved, j.saved), coalesce(tailrace.with_error_v1(j.errors, x.error), '[]'),
           x.reason, coalesce(x.error_type, 'unknown'), coalesce(x.fingerprint, md5(j.task || x.reason)), j.attempts, 1, v_now, v_now, 0,
           x.worker, j.created_at
    from unnest(v) x join tailrace.job j on j.id = x.id and j.id = any (v_dead)
    where x.result = 'dead'
    order by j.id
    on conflict (job_id) do update set
      state = 'dead', tenant = excluded.tenant, queue = excluded.queue, task = excluded.task, key = excluded.key,
      serial_group = excluded.serial_group, payload = excluded.payload, priority = excluded.priority, run_at = excluded.run_at,
      max_attempts = excluded.max_attempts, timeout = excluded.timeout, backoff = excluded.backoff, trace = excluded.trace,
      meta = excluded.meta, saved = excluded.saved, errors = excluded.errors, reason = excluded.reason,
      error_type = excluded.error_type, fingerprint = excluded.fingerprint, worker = excluded.worker,
      total_attempts = d.total_attempts + excluded.total_attempts, dead_count = d.dead_count + 1, failed_at = excluded.failed_at,
      resolved_at = null, resolution = null,
      history = tailrace.with_event_v1(d.history, jsonb_build_object('at', v_now, 'event', 'failed', 'reason', excluded.reason));
  end if;

  if cardinality(v_gone) > 0 then
    update tailrace.dead_letter d
      set state = 'dead', key = j.key, payload = j.payload, priority = j.priority, run_at = j.run_at, max_attempts = j.max_attempts,
          timeout = j.timeout, backoff = j.backoff, trace = j.trace, meta = j.meta, saved = j.saved,   -- it may have been replaced
          resolved_at = null, resolution = null, total_attempts = d.total_attempts + j.attempts,
          history = tailrace.with_event_v1(d.history, jsonb_build_object('at', v_now, 'event', 'withdrawn', 'reason', x.result))
      from unnest(v) x join tailrace.job j on j.id = x.id and j.id = any (v_gone)
      where d.job_id = x.id and d.job_id = any (v_gone);
  end if;

  if cardinality(v_won) > 0 then
    update tailrace.dead_letter d
      set state = 'resolved', resolution = 'succeeded', resolved_at = v_now,
          history = tailrace.with_event_v1(d.history, jsonb_build_object('at', v_now, 'event', 'succeeded'))
      where d.job_id = any (v_won);
  end if;

  if cardinality(v_older) > 0 then
    update tailrace.dead_letter d
      set total_attempts = d.total_attempts + o.total_attempts, dead_count = d.dead_count + o.dead_count,
          requeued_count = d.requeued_count + o.requeued_count, first_failed_at = least(d.first_failed_at, o.first_failed_at),
          last_requeued_at = greatest(d.last_requeued_at, o.last_requeued_at), notes = nullif(concat_ws(E'\n', o.notes, d.notes), ''),
          history = tailrace.with_event_v1(o.history || d.history,
                      jsonb_build_object('at', v_now, 'event', 'superseded', 'job_id', o.job_id::text))
      from unnest(v_newer, v_older) p(newer, older) join tailrace.dead_letter o on o.job_id = p.older and o.job_id = any (v_older)
      where d.job_id = p.newer and d.job_id = any (v_newer);
    update tailrace.dead_letter d
      set total_attempts = 0, dead_count = 0, requeued_count = 0, notes = null,
          history = jsonb_build_array(jsonb_build_object('at', v_now, 'event', 'superseded', 'by', p.newer::text))
      from unnest(v_newer, v_older) p(newer, older) where d.job_id = p.older and d.job_id = any (v_older);
  end if;
end $$;

-- The verdict on each outcome whose row still has its token, and the end of leases that hold nothing more.
create function tailrace.settle_batch_v1(worker text, outcomes jsonb) returns table (id bigint, result text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_nestloop = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_worker text := worker;
  v_ids    bigint[];
  v_tokens bigint[];
  v_kept   jsonb;
  v        tailrace.verdict_v1[];
begin
  select array_agg(o.id), array_agg(o.token) into v_ids, v_tokens
    from (select distinct x.id, x.token from jsonb_to_recordset(outcomes) x(id bigint, token bigint)) o;
  with j as materialized (
    select job.id, job.token, job.queue, job.task, job.requeues, job.attempts, job.max_attempts, job.lost, job.interrupted, job.snoozes,
           job.backoff, job.attempts >= job.max_attempts as spent
    from tailrace.job where job.id = any (v_ids) and job.token = any (v_tokens)
    order by job.id for update skip locked),
  o as materialized (
    select distinct on (x.id, x.token) x.*
    from jsonb_to_recordset(outcomes) x(id bigint, token bigint, kind text, delay double precision, error jsonb, error_type text,
                                        fingerprint text, saved jsonb, max_interruptions int, discard boolean)
    order by x.id, x.token),
  k as (
    select j.*, o.kind, o.delay, o.error, o.error_type, o.fingerprint, o.saved, o.discard,
           case when o.kind = 'success' then 'succeeded'
                when o.kind in ('cancelled', 'expired', 'handback') then o.kind
                when o.kind = 'snooze' then 'snoozed'
                when o.kind = 'interrupted' and j.interrupted < coalesce(o.max_interruptions, 10) then 'interrupted'
                when o.kind in ('permanent', 'corrupt', 'exhausted') or j.spent
                then case when o.discard and j.requeues = 0 then 'dropped' else 'dead' end
                else 'retried' end as result
    from o join j on j.id = o.id and j.token = o.token)
  select coalesce(array_agg((k.id, k.token, k.queue, k.task, k.requeues, k.result,
      case when k.kind in ('permanent', 'corrupt') then 'permanent'
           when k.kind in ('timeout', 'interrupted') then k.kind
           when k.kind = 'exhausted' and k.lost > 0 then 'lease_expired'
           else 'max_attempts' end,
      case k.result when 'handback' then null
                    when 'interrupted' then case when k.interrupted = 0 then 0 else 5 end
                    when 'snoozed' then coalesce(k.delay, 0)
                    when 'retried' then coalesce(k.delay, tailrace.job_backoff_v1(k.backoff, k.queue, k.task, k.attempts)) end,
      case when k.result in ('snoozed', 'interrupted', 'handback') then greatest(k.attempts - 1, 0) else k.attempts end,
      k.lost,
      k.interrupted + (k.result = 'interrupted')::int,
      k.snoozes + (k.result = 'snoozed')::int,
      case when k.result <> 'handback' then k.error end,
      coalesce(k.error_type, case k.kind when 'corrupt' then 'validation' when 'timeout' then 'timeout' else 'unknown' end),
      k.fingerprint, k.saved, v_worker)::tailrace.verdict_v1 order by k.id), '{}')
    into v from k;

  if cardinality(v) > 0 then
    if jsonb_path_exists(outcomes, '$[*].keep') then
      v_kept := (select jsonb_agg(jsonb_build_object('id', o.value -> 'id', 'result', o.value -> 'result', 'keep', o.value -> 'keep'))
                 from jsonb_array_elements(outcomes) o where o.value ? 'keep');
    end if;
    return query select c.id, c.result from tailrace.conclude_v1(v, v_kept) c;
  end if;
  -- Also when all were fenced: a row that changed while it was claimed leaves a lease without a job.
  perform tailrace.drop_empty_leases_v1(v_tokens);
  if cardinality(v) < cardinality(v_ids) then
    return query
      select p.id, case when j.id is null then 'fenced' else 'busy' end
      from unnest(v_ids, v_tokens) p(id, token)
      left join tailrace.job j on j.id = p.id and j.token = p.token and j.id = any (v_ids)
      where not exists (select from unnest(v) x where x.id = p.id and x.token = p.token);
  end if;
end $$;

-- Leave the groups that these tokens hold. One of strict order keeps its row and waits for its head, the member that was
-- taken last: a claim sees whether that one still lives.
create function tailrace.leave_groups_v1(tokens bigint[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
begin
  if exists (select from tailrace.job_group g where g.token = any (tokens)) then
    update tailrace.job_group g set token = null where g.token = any (tokens) and g.head is not null;
    delete from tailrace.job_group g where g.token = any (tokens);
  end if;
end $$;

-- Delete those leases that hold no job any more, and leave their groups. A lease that somebody else has locked, or one of whose
-- groups, is left to him: a worker may be frozen in the middle of its turn, and who takes its leases over must not wait for it.
create function tailrace.drop_empty_leases_v1(tokens bigint[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
  v_empty  bigint[];
  v_groups bigint[];   -- the token of each group that is locked here
begin
  v_empty := array(
    select e.token from tailrace.lease e
    where e.token = any (tokens) and not exists (select from tailrace.job j where j.id = any (e.ids) and j.token = e.token offset 0)
    order by e.token for update skip locked);
  if exists (select from tailrace.job_group g where g.token = any (v_empty)) then
    v_groups := array(select g.token from tailrace.job_group g where g.token = any (v_empty)
                      order by g.queue || '', g.tenant, g.name for update skip locked);   -- the order of no index
    v_empty := array(select e.token from unnest(v_empty) e(token)
                     where (select count(*) from tailrace.job_group g where g.token = e.token)
                         = (select count(*) from unnest(v_groups) m(token) where m.token = e.token));
    perform tailrace.leave_groups_v1(v_empty);
  end if;
  delete from tailrace.lease l where l.token = any (v_empty);
end $$;

-- Carry out the outcomes of a worker's runs: one set, and where a row spoils it, halves of it down to that row alone,
-- which is then reported busy with a warning in the server's log. Faults that are not a row's (a read-only server, a
-- missing right, a full disk) are raised.
create function tailrace.settle_v1(worker text, outcomes jsonb) returns table (id bigint, result text)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_worker text := worker;
  v_n      int := jsonb_array_length(outcomes);
  v_half   int := v_n / 2;
begin
  if v_n = 0 then
    return;
  end if;
  begin
    return query select s.id, s.result from tailrace.settle_batch_v1(v_worker, outcomes) s;
    return;
  exception when others then
    if sqlstate not in ('55P03', '40P01') and left(sqlstate, 2) not in ('22', '23', 'P0', 'TR') then
      raise;
    end if;
    if v_n = 1 then
      raise warning 'tailrace: the outcome of job % was refused: % (%)', outcomes -> 0 ->> 'id', sqlerrm, sqlstate;
      return query select (outcomes -> 0 ->> 'id')::bigint, 'busy';
      return;
    end if;
  end;
  return query select s.id, s.result
    from tailrace.settle_v1(v_worker, (select jsonb_agg(e.value) from jsonb_array_elements(outcomes) with ordinality e(value, n) where e.n <= v_half)) s;
  return query select s.id, s.result
    from tailrace.settle_v1(v_worker, (select jsonb_agg(e.value) from jsonb_array_elements(outcomes) with ordinality e(value, n) where e.n > v_half)) s;
end $$;

-- Finish succeeded jobs that hold keys, and let their successors follow. `emptied`: leases whose last job is among them.
-- results: succeeded, fenced, busy (its successor, or the row itself, is locked by somebody else: an enqueue of its successor
-- that is just being committed, and may wait for the end of another holder).
create function tailrace.finish_keyed_v1(worker text, ids bigint[], tokens bigint[], emptied bigint[]) returns table (id bigint, result text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_worker  text := worker;
  v_locked  bigint[];
  v_done    bigint[];
  v_tenants text[];
  v_queues  text[];
  v_tasks   text[];
  v_keys    text[];
begin
  begin
    v_locked := array(select j.id from tailrace.job j
                      where j.id = any (ids) and ((j.id, j.token) in (select o.id, o.token from unnest(ids, tokens) o(id, token))) is true
                      order by j.id for update of j skip locked);
    with gone as (delete from tailrace.job j where j.id = any (v_locked) returning j.id, j.tenant, j.queue, j.task, j.key),
    counted as (insert into tailrace.tally (queue, task, what, n) select g.queue, g.task, 'succeeded', count(*) from gone g group by 1, 2)
    select coalesce(array_agg(g.id), '{}'), array_agg(g.tenant), array_agg(g.queue), array_agg(g.task), array_agg(g.key)
      into v_done, v_tenants, v_queues, v_tasks, v_keys from gone g;
    if v_keys is not null then
      perform tailrace.promote_v1(v_tenants, v_queues, v_tasks, v_keys, true);
    end if;
  exception when lock_not_available or deadlock_detected then   -- undone; one by one, so that one row does not keep the others
    return query select s.id, s.result from tailrace.settle_v1(v_worker, (
      select jsonb_agg(jsonb_build_object('id', o.id, 'token', o.token, 'kind', 'success')) from unnest(ids, tokens) o(id, token))) s;
    return;
  end;
  if cardinality(emptied) > 0 then
    perform tailrace.drop_empty_leases_v1(emptied);
  end if;
  return query
    select o.id, case when j.id is not null then 'busy' when o.id = any (v_done) then 'succeeded' else 'fenced' end
    from unnest(ids, tokens) o(id, token)
    left join lateral (select n.id from tailrace.job n where n.id = o.id and n.token = o.token offset 0) j on true;
end $$;

-- Complete a running job in its handler's own transaction, on the handler's own connection: everything that a success does.
-- Raises LeaseLost (TR005) when the job is no longer this run's, so that the transaction cannot commit. May wait for others:
-- it is an application's statement. The lease row stays, since this transaction may be open for long and no worker may wait
-- for it; the worker removes it, or the reaper. `kept`: {"result", "keep": seconds} where its task keeps results.
create function tailrace.complete_v1(job_id bigint, job_token bigint, worker text, kept jsonb default null) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_custom_plan
as $$
declare
  j        tailrace.job;
  v_result text;
begin
  select o.* into j from tailrace.job o where o.id = complete_v1.job_id and o.token = complete_v1.job_token for update;
  if not found then
    raise exception using errcode = 'TR005', column = 'job',
      message = format('job: %s is no longer run by worker %s', complete_v1.job_id, complete_v1.worker),
      hint = 'Roll back: another worker may run it';
  end if;
  perform from tailrace.job s
    where s.tenant = j.tenant and s.queue = j.queue and s.task = j.task and s.key = j.key and s.key_slot + 0 = 1 for no key update;
  if j.requeues > 0 then
    perform from tailrace.dead_letter d where d.job_id = complete_v1.job_id for update;
  end if;
  select c.result into v_result from tailrace.conclude_v1(
    array[tailrace.plain_verdict_v1(j, 'succeeded', null)],
    case when kept is not null then jsonb_build_array(kept || jsonb_build_object('id', job_id)) end) c;
  if v_result is distinct from 'succeeded' then
    raise exception using errcode = 'TR004', column = 'job', message = format('job: %s is being changed by others', complete_v1.job_id),
      hint = 'Roll back; the job is tried again';
  end if;
end $$;

-- Lock those of these jobs that wait, and return them. A row that a claim takes while this waits for it comes out locked,
-- though it does not wait any more, and its worker would wait for the caller's transaction: so the locks are given back by
-- undoing the block, and only what still waits is locked again.
create function tailrace.lock_waiting_v1(ids bigint[]) returns bigint[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
as $$
#variable_conflict use_variable
declare
  v_ids    bigint[] := array(select j.id from tailrace.job j where cardinality(ids) > 0 and j.id = any (ids) and j.token is null);
  v_locked bigint[];
begin
  loop
    begin
      v_locked := array(select j.id from tailrace.job j where cardinality(v_ids) > 0 and j.id = any (v_ids) and j.token is null order by j.id for update);
      if not exists (select from tailrace.job j where cardinality(v_ids) > 0 and j.id = any (v_ids) and j.id <> all (v_locked)) then
        return v_locked;
      end if;
      raise exception using errcode = 'TR000';
    exception when sqlstate 'TR000' then
      v_ids := v_locked;
    end;
  end loop;
end $$;

-- End waiting jobs: `what` is cancelled, expired or replaced. Rows that run, or whose dead letter somebody holds, are left.
-- Returns how many ended. May wait for a claim that is just happening, so it is for administration, not for workers.
create function tailrace.end_waiting_v1(ids bigint[], what text) returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_nestloop = off set jit = off
as $$
#variable_conflict use_variable
declare
  v_locked bigint[];
  v        tailrace.verdict_v1[];
begin
  if what not in ('cancelled', 'expired', 'replaced') then
    raise exception using errcode = 'TR002', message = 'what: unknown end ' || quote_literal(what), column = 'what',
      hint = 'One of cancelled, expired, replaced.';
  end if;
  -- Read by a statement of its own: one that was begun before the lock may see an earlier life of the same number, which died
  -- and was requeued meanwhile, and its dead letter would be forgotten.
  v_locked := tailrace.lock_waiting_v1(ids);
  select coalesce(array_agg(tailrace.plain_verdict_v1(j, what, null)), '{}') into v
    from (select w.* from tailrace.job w where cardinality(v_locked) > 0 and w.id = any (v_locked) order by w.id) j;
  if cardinality(v) = 0 then
    return 0;
  end if;
  return (select count(*) from tailrace.conclude_v1(v) c where c.result <> 'busy');
end $$;

-- A verdict that keeps a row's counters: for ends, and for what is given back as it is.
create function tailrace.plain_verdict_v1(j tailrace.job, result text, reason text) returns tailrace.verdict_v1
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select (j.id, j.token, j.queue, j.task, j.requeues, result, reason, null::double precision, j.attempts, j.lost, j.interrupted, j.snoozes,
          null::jsonb, null::text, null::text, null::jsonb, null::text)::tailrace.verdict_v1
$$;
