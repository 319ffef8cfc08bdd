-- Tailrace 0005: the routines that keep the tables clean, each one function whose call is one batch.
--
-- A call commits by itself, holds the routine's advisory lock for its own transaction only (two runners may alternate) and
-- reports what it did as JSON; `{"locked": true}` says that another runner was at it just now. Rows that somebody holds are
-- skipped and counted. Time is the database's, read once per call. A `queue` narrows a call to one queue; what is remembered
-- of such calls has that queue as its scope, so nobody takes it for a run over all queues.

-- The right to run one batch of a routine now.
create function tailrace.begin_routine_v1(routine text) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select pg_try_advisory_xact_lock(hashtext(tailrace.signal_channel_v1()), hashtext(routine))
$$;

-- Remember that a routine ran; workers look at last_success to see whether anybody runs it.
create function tailrace.end_routine_v1(routine text, scope text default '') returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  insert into tailrace.maintenance as m (routine, scope, last_tick, last_success)
    values (routine, scope, clock_timestamp(), clock_timestamp())
    on conflict (routine, scope) do update set last_tick = excluded.last_tick, last_success = excluded.last_success
$$;

-- Enter a tick of the reaper and return since when its ticks have been steady, and the moment before which a lease must
-- have run out to be taken. A tick that comes more than three intervals after the last one, or before it, or that is the
-- first, begins anew: after an outage, a failover or a step of the clock the living workers have not renewed their leases,
-- and must not lose them. A shorter gap can still be longer than what was left of a lease, so after any tick that comes
-- late (1.5 intervals) only workers are taken whose lease had run out at the tick before.
create function tailrace.reaper_tick_v1(interval_seconds real, now timestamptz, begins boolean, scope text,
                                       out steady timestamptz, out cutoff timestamptz)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  v_interval interval := interval_seconds * interval '1 second';
begin
  if begins then   -- further batches belong to the tick that began
    insert into tailrace.maintenance as m (routine, scope, last_tick, last_success, steady_since) values ('reaper', scope, now, now, now)
      on conflict on constraint maintenance_pkey do update
        set last_tick = now, last_success = now, previous_tick = m.last_tick,
            steady_since = case when m.last_tick is null or now < m.last_tick or now > m.last_tick + 3 * v_interval then now
                                else coalesce(m.steady_since, now) end;
  end if;
  select coalesce(m.steady_since, now), case when m.last_tick > m.previous_tick + 1.5 * v_interval then m.previous_tick else now end
    into steady, cutoff from tailrace.maintenance m where m.routine = 'reaper' and m.scope = scope;
  steady := coalesce(steady, now);
  cutoff := coalesce(cutoff, now);
end $$;

-- End worker and maintenance sessions whose transaction is older than a lease: a frozen client holds rows that nobody sees.
-- Migrations, the command line and applications are left alone, and so are sessions that we may not end.
create function tailrace.end_frozen_sessions_v1(older_than interval) returns int
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_pid   int;
  v_ended int := 0;
begin
  for v_pid in
    select a.pid from pg_stat_activity a
    where a.xact_start < clock_timestamp() - older_than and a.datname = current_database() and a.pid <> pg_backend_pid()
      and a.backend_type = 'client backend' and a.application_name ~ '^tailrace (work|rescan|listen|heartbeat|maintain)$'
  loop
    begin
      v_ended := v_ended + pg_terminate_backend(v_pid)::int;
    exception when insufficient_privilege then
      null;
    end;
  end loop;
  return v_ended;
end $$;

-- One batch of the reaper: takes over leases of workers whose `until` has passed, at most `batch` of them and some 5,000
-- jobs, from the token `after` on. The worker rows are locked and their `until` is read again under the lock, so a heartbeat either comes first
-- and keeps its leases or waits for this statement. An `until` more than two leases ahead (the clock stepped back) is
-- brought down to one lease.
-- Returns {"steady", "workers", "leases", "skipped", "rows": [counted_v1], "ended_sessions", "next": token or null}.
create function tailrace.reap_v1(interval_seconds real, batch int default 100, after bigint default null, queue text default null)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
declare
  v_now     timestamptz := clock_timestamp();
  v_steady  timestamptz;
  v_cutoff  timestamptz;
  v_dead    text[];
  v_all     bigint[];
  v_tokens  bigint[];
  v_longest real;
  v_ended   int := 0;
  v_result  jsonb := '{"leases": 0, "skipped": 0, "rows": []}';
begin
  if interval_seconds < 1 or batch < 1 then
    raise exception using errcode = 'TR002', message = 'interval_seconds: the reaper needs an interval of 1 s or more and a batch of 1 or more',
      column = 'interval_seconds', hint = 'The default interval is 15 s.';
  end if;
  if not tailrace.begin_routine_v1('reaper') then
    return '{"locked": true}';
  end if;
  select t.steady, t.cutoff into v_steady, v_cutoff from tailrace.reaper_tick_v1(interval_seconds, v_now, after is null, coalesce(reap_v1.queue, '')) t;

  update tailrace.worker o set until = v_now + o.lease_seconds * interval '1 second'
    where o.id = any (array(select w.id from tailrace.worker w where w.until > v_now + 2 * w.lease_seconds * interval '1 second'
                            order by w.id for no key update skip locked));
  v_dead := array(select w.id from tailrace.worker w
                  where w.until < v_cutoff and v_now - v_steady >= w.lease_seconds * interval '1 second'
                    and exists (select from tailrace.lease l where l.worker = w.id offset 0)
                  order by w.id for no key update skip locked);
  v_all := array(select t.token from (
      select l.token from tailrace.lease l where l.worker = any (v_dead)
      union all   -- leases whose worker has no row: a living one writes it again with its next beat
      select l.token from tailrace.lease l
      where l.claimed_at < v_now - interval '60 seconds' and v_now - v_steady >= interval '60 seconds'
        and not exists (select from tailrace.worker w where w.id = l.worker offset 0)) t
    where (after is null or t.token > after)
      and (reap_v1.queue is null or exists (select from tailrace.lease l where l.token = t.token and l.queue = reap_v1.queue offset 0))
    order by t.token limit batch);
  v_tokens := array(select t.token from (
      select l.token, sum(cardinality(l.ids)) over (order by l.token) - cardinality(l.ids) as before
      from tailrace.lease l where l.token = any (v_all)) t
    where t.before < 5000 order by t.token);   -- a transaction stays short, whatever the size of the leases
  if cardinality(v_tokens) > 0 then
    v_result := tailrace.take_over_v1(v_tokens, null, 'the lease of the worker expired');
  end if;

  select coalesce(max(w.lease_seconds), 60) into v_longest from tailrace.worker w;
  if after is null and reap_v1.queue is null then   -- sessions are of no queue
    v_ended := case when v_now - v_steady >= v_longest * interval '1 second'
                    then tailrace.end_frozen_sessions_v1(v_longest * interval '1 second') else 0 end;
  end if;
  return v_result || jsonb_build_object('steady', v_now - v_steady >= v_longest * interval '1 second',
    'workers', cardinality(v_dead), 'ended_sessions', v_ended,
    'next', case when cardinality(v_all) = batch or cardinality(v_tokens) < cardinality(v_all)
                 then v_tokens[cardinality(v_tokens)] end);
end $$;

-- One slice of the walk over the job table by primary key: sweep and audit.
--   exhausted waiting rows (a lowered max_attempts, imports, hand edits) go to the dead letters;
--   waiting rows past expires_at that no claim meets end as expired;
--   a token without a lease is an orphan: treated as a lost lease (given back, or dead on its last attempt);
--   a successor whose holder is gone takes its place;
--   a group whose lease is gone, or which waits for a job that is gone, is free again.
-- Rows that run are never touched: what is looked at without a lock is read again under one.
--   after: begin behind this id; null goes on where the last slice ended, and remembers where this one ends
--   slice: rows looked at
--   most:  rows moved; where more are found, the slice ends at the last of them
-- Returns {"seen", "estimate": rows of the table, "skipped", "orphaned", "followed": successors, "rows": [counted_v1],
--          "next": id, or null at the end}.
create function tailrace.walk_v1(after bigint default null, slice int default 1000, most int default 1000, queue text default null)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_nestloop = off set jit = off set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  v_now     timestamptz := clock_timestamp();
  v_after   bigint := after;
  v_scope   text := coalesce(walk_v1.queue, '');
  v_seen    int;
  v_last    bigint;   -- where the next slice begins; null at the end
  v_found   bigint[];
  v_next    bigint[];
  v_locked  bigint[];
  v_orphan  int := 0;
  v_follow  bigint := 0;
  v_rest    bigint[];
  v_plain   jsonb := '[]';
  v         tailrace.verdict_v1[];
  v_done    bigint[];
  v_results text[];
begin
  if slice < 1 or most < 1 then
    raise exception using errcode = 'TR002', message = 'slice: a slice has at least 1 row', column = 'slice', hint = 'The default is 1000.';
  end if;
  if not tailrace.begin_routine_v1('sweep') then
    return '{"locked": true}';
  end if;
  if v_after is null then
    select m.cursor into v_after from tailrace.maintenance m where m.routine = 'sweep' and m.scope = v_scope;
  end if;
  v_after := coalesce(v_after, -9223372036854775808);

  select count(*), max(p.id), coalesce(array_agg(p.id) filter (where
           case when p.token is null then p.attempts >= p.max_attempts or p.expires_at <= v_now
                else not exists (select from tailrace.lease l where l.token = p.token offset 0) end
           and (walk_v1.queue is null or p.queue = walk_v1.queue)), '{}'),
         array_agg(p.id) filter (where p.key_slot = 1 and (walk_v1.queue is null or p.queue = walk_v1.queue))
    into v_seen, v_last, v_found, v_next
    from (select j.id, j.token, j.attempts, j.max_attempts, j.expires_at, j.key_slot, j.queue from tailrace.job j
          where j.id > v_after order by j.id limit slice) p;
  v_last := case when v_seen = slice then v_last end;
  if cardinality(v_found) > most then   -- they stand in the order of the walk; the next slice begins behind the last one
    v_found := v_found[1:most];
    v_last := v_found[most];
    v_seen := most;
  end if;
  if v_next is not null then
    v_follow := tailrace.promote_left_v1(v_next);
  end if;

  if cardinality(v_found) > 0 then
    v_locked := array(select j.id from tailrace.job j where j.id = any (v_found) order by j.id for update skip locked);
    select m.rows, m.left_over into v_plain, v_rest from tailrace.move_exhausted_v1(v_locked, v_now) m;
    select coalesce(array_agg(k.verdict), '{}'), count(*) filter (where k.orphan) into v, v_orphan
      from (select tailrace.walk_verdict_v1(j, q.settings, v_now) as verdict, j.token is not null as orphan
            from tailrace.job j left join tailrace.queue q on q.name = j.queue
            where cardinality(v_rest) > 0 and j.id = any (v_rest)   -- an empty array would imply the condition of any partial index
              and case when j.token is null then j.attempts >= j.max_attempts or j.expires_at <= v_now
                       else not exists (select from tailrace.lease l where l.token = j.token offset 0) end
            order by j.id) k;
    select coalesce(array_agg(c.id), '{}'), coalesce(array_agg(c.result), '{}') into v_done, v_results
      from tailrace.conclude_each_v1(v) c;
  elsif v_follow = 0 then
    perform set_config('synchronous_commit', 'off', true);   -- nothing but its own place is written
  end if;

  if walk_v1.queue is null and (after is null or v_last is null) then
    perform tailrace.audit_groups_v1();
  end if;
  perform tailrace.end_routine_v1('sweep', v_scope);
  if after is null then
    update tailrace.maintenance m set cursor = v_last where m.routine = 'sweep' and m.scope = v_scope;
  end if;
  return jsonb_build_object('seen', v_seen, 'orphaned', v_orphan, 'followed', v_follow,
    'estimate', (select greatest(c.reltuples, 0)::bigint from pg_type t join pg_class c on c.oid = t.typrelid
                 where t.oid = pg_typeof(null::tailrace.job)::oid),
    'skipped', cardinality(v_found) - coalesce(cardinality(v_locked), 0),
    'rows', v_plain || tailrace.counted_v1(v, coalesce(v_done, '{}'), coalesce(v_results, '{}')),
    'next', v_last);
end $$;

-- Move those of these jobs, locked by us, that are plainly exhausted to the dead letters in one statement, at a third of the
-- cost of conclude_v1: no key, no group, never requeued, in a queue that neither discards nor keeps a history. Where that
-- fails nothing has moved, and all are left over for the careful way.
create function tailrace.move_exhausted_v1(ids bigint[], now timestamptz, out rows jsonb, out left_over bigint[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_nestloop = off set jit = off set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  v_apart text[] := array(select q.name from tailrace.queue q where q.settings ->> 'exhaustedPolicy' = 'Discard' or q.settings ? 'history');
  v_moved bigint[];
begin
  with gone as (
    delete from tailrace.job j
    where j.id = any (move_exhausted_v1.ids) and j.token is null and j.attempts >= j.max_attempts and j.requeues = 0 and j.key is null
      and j.serial_group is null and j.queue <> all (v_apart)
    returning j.id, j.tenant, j.queue, j.task, j.payload, j.priority, j.run_at, j.max_attempts, j.timeout, j.backoff, j.trace, j.meta,
              j.saved, j.errors, j.attempts, j.created_at, case when j.lost > 0 then 'lease_expired' else 'max_attempts' end as reason),
  written as (
    insert into tailrace.dead_letter
      (job_id, tenant, queue, task, payload, priority, run_at, max_attempts, timeout, backoff, trace, meta, saved, errors, reason,
       error_type, fingerprint, total_attempts, first_failed_at, failed_at, created_at)
    select g.id, g.tenant, g.queue, g.task, g.payload, g.priority, g.run_at, g.max_attempts, g.timeout, g.backoff, g.trace, g.meta, g.saved,
           coalesce(g.errors, '[]'), g.reason, 'unknown', md5(g.task || g.reason), g.attempts, move_exhausted_v1.now, move_exhausted_v1.now,
           g.created_at
    from gone g order by g.id),
  counted as (
    insert into tailrace.tally (queue, task, what, n) select g.queue, g.task, 'dead', count(*) from gone g group by 1, 2),
  sums as (select g.queue, g.task, g.reason, array_agg(g.id) as ids from gone g group by 1, 2, 3)
  select coalesce(jsonb_agg(jsonb_build_object('queue', s.queue, 'task', s.task, 'result', 'dead', 'reason', s.reason,
                                               'n', cardinality(s.ids))), '[]'),
         coalesce((select array_agg(i) from sums x cross join unnest(x.ids) i), '{}')
    into rows, v_moved from sums s;
  left_over := case when cardinality(v_moved) = cardinality(move_exhausted_v1.ids) then '{}'
                    else array(select i from unnest(move_exhausted_v1.ids) i except select m from unnest(v_moved) m order by 1) end;
exception when others then
  if sqlstate not in ('55P03', '40P01') and left(sqlstate, 2) not in ('22', '23', 'P0', 'TR') then
    raise;
  end if;
  rows := '[]';
  left_over := move_exhausted_v1.ids;
end $$;

-- Let those of these successors follow whose holder is gone. Where somebody is just taking the key, they wait on.
create function tailrace.promote_left_v1(ids bigint[]) returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_nestloop = on set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  v_left record;
  v_n    bigint := 0;
begin
  for v_left in
    select j.tenant, j.queue, j.task, j.key from tailrace.job j
    where j.id = any (ids) and j.key_slot + 0 = 1 and j.token is null
      and not exists (select from tailrace.job h where h.tenant = j.tenant and h.queue = j.queue and h.task = j.task and h.key = j.key
                      and h.key_slot = 0 offset 0)
  loop
    begin
      v_n := v_n + tailrace.promote_v1(array[v_left.tenant], array[v_left.queue], array[v_left.task], array[v_left.key]);
    exception when unique_violation or lock_not_available then
      null;
    end;
  end loop;
  return v_n;
end $$;

-- Free the groups whose lease is gone (claims write both rows in one transaction, so this never happens by itself), and forget
-- those of strict order whose head has ended meanwhile. Returns how many.
create function tailrace.audit_groups_v1() returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_custom_plan
as $$
declare
  v_tokens bigint[];
  v_n      bigint;
begin
  v_tokens := array(select distinct g.token from tailrace.job_group g
                    where g.token is not null and not exists (select from tailrace.lease l where l.token = g.token offset 0));
  if cardinality(v_tokens) > 0 then
    perform tailrace.leave_groups_v1(v_tokens);
  end if;
  delete from tailrace.job_group g where g.ctid = any (array(
    select o.ctid from tailrace.job_group o
    where o.token is null and not exists (select from tailrace.job j where j.id = o.head offset 0)
    order by o.queue, o.tenant, o.name for update skip locked));
  get diagnostics v_n = row_count;
  return v_n + cardinality(v_tokens);
end $$;

-- What the walk does with one row that it has found and locked.
create function tailrace.walk_verdict_v1(j tailrace.job, settings jsonb, now timestamptz) returns tailrace.verdict_v1
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v       tailrace.verdict_v1 := tailrace.plain_verdict_v1(j, 'expired', null);
  v_spent boolean := j.attempts >= j.max_attempts;
begin
  if j.token is null and not v_spent then
    return v;
  end if;
  if v_spent then
    v.result := case when settings ->> 'exhaustedPolicy' = 'Discard' and j.requeues = 0 then 'dropped' else 'dead' end;
    v.reason := case when j.token is not null or j.lost > 0 then 'lease_expired' else 'max_attempts' end;
    v.error_type := 'unknown';
  else
    v.result := 'lost';
    v.lost := j.lost + 1;
    v.delay := tailrace.job_backoff_v1(j.backoff, j.queue, j.task, v.lost);
  end if;
  if j.token is not null then
    v.error := jsonb_build_object('type', 'WorkerLost', 'message', 'the job had a token without a lease', 'traceback', null,
                                  'attempt', j.attempts, 'worker', null, 'time', now);
  end if;
  return v;
end $$;

-- The audit of the dead letters: one in state requeued whose job is not there is dead again. One call looks at `batch` of them, behind
-- the place `after` that the call before returned; null begins. Letters that are requeued meanwhile stand where they stood as dead ones.
-- Returns {"restored": n, "skipped": n, "next": the place for the next call, null when all were seen}.
create function tailrace.audit_requeued_v1(batch int default 2000, queue text default null, after jsonb default null) returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp set timezone = 'UTC'
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off set jit = off
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  v_queue    text;
  v_place    record;
  v_seen     int := 0;
  v_next     jsonb;
  v_found    bigint[] := '{}';
  v_held     bigint[];
  v_restored bigint[];
begin
  if not tailrace.begin_routine_v1('sweep') then
    return '{"locked": true}';
  end if;
  for v_queue in select q.name from tailrace.queue q
                 where (audit_requeued_v1.queue is null or q.name = audit_requeued_v1.queue) and q.name >= coalesce(after ->> 'queue', '')
                 order by q.name loop
    select count(*)::int as n, max(p.failed_at) as failed_at, (array_agg(p.job_id order by p.failed_at desc, p.job_id desc))[1] as job_id,
           coalesce(array_agg(p.job_id) filter (where not exists (select from tailrace.job j where j.id = p.job_id offset 0)), '{}') as found
      into v_place
      from (select o.job_id, o.failed_at from tailrace.dead_letter o
            where o.queue = v_queue and o.queue <> '' and o.state = 'requeued'
              and (o.failed_at, o.job_id) > (case when v_queue = after ->> 'queue' then (after ->> 'failed_at')::timestamptz else '-infinity' end,
                                             case when v_queue = after ->> 'queue' then (after ->> 'job_id')::bigint else 0 end)
            order by o.failed_at, o.job_id limit batch - v_seen) p;
    v_seen := v_seen + v_place.n;
    v_found := v_found || v_place.found;
    if v_seen >= batch then
      v_next := jsonb_build_object('queue', v_queue, 'failed_at', v_place.failed_at, 'job_id', v_place.job_id);
      exit;
    end if;
  end loop;
  v_held := array(select d.job_id from tailrace.dead_letter d where cardinality(v_found) > 0 and d.job_id = any (v_found) order by d.job_id for update skip locked);
  with r as (
    update tailrace.dead_letter d
      set state = 'dead',
          -- the key may be another's by now: a dead letter without a key is better than none
          key = case when exists (select from tailrace.dead_letter o where o.tenant = d.tenant and o.queue = d.queue and o.task = d.task
                                  and o.key = d.key and o.state = 'dead' offset 0) then null else d.key end,
          history = tailrace.with_event_v1(d.history, jsonb_build_object('at', clock_timestamp(), 'event', 'withdrawn', 'reason', 'audit'))
      where cardinality(v_held) > 0 and d.job_id = any (v_held) and d.state = 'requeued' and not exists (select from tailrace.job j where j.id = d.job_id offset 0)
      returning d.job_id, d.queue, d.task),
  t as (insert into tailrace.tally (queue, task, what, n) select r.queue, r.task, 'withdrawn', count(*) from r group by 1, 2)
  select coalesce(array_agg(r.job_id), '{}') into v_restored from r;
  return jsonb_build_object('restored', cardinality(v_restored), 'skipped', cardinality(v_found) - cardinality(v_held), 'next', v_next);
end $$;

-- Rest as long as the caller has worked since `since`, if that was 2 ms at least; returns since when it works again. A routine that
-- needs a core for some tenths of a second does so between its steps, for the reason that job_states_v1 gives.
create function tailrace.rest_v1(since timestamptz) returns timestamptz
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_worked double precision := extract(epoch from clock_timestamp() - since);
begin
  if v_worked < 0.002 then
    return since;
  end if;
  perform pg_sleep(least(v_worked, 0.02));
  return clock_timestamp();
end $$;

-- One reading of every queue, published in the queue's row: {"dead", "requeued", "resolved", "oldest_dead_at", "running",
-- "leases", "workers"} and what job_reading_v1 tells of its jobs; times are ISO 8601 in UTC.
-- Makes the row of queues that have jobs or dead letters and no row, and folds the counts of ends into `total` and those of
-- dead letters into theirs. For one queue only its reading is published; counts are folded by a run for all.
-- Without `readings` it only folds, for what another call has left: a million counts take fifty calls, and one reading is enough.
-- Changes of dead letters come as arrays, so five times as many of them are folded.
-- Returns {"queues", "created", "folded", "more": whether counts are left to fold, "skipped": queue rows that were locked}.
create function tailrace.statistics_v1(fold int default 20000, queue text default null, readings boolean default true) returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp set timezone = 'UTC'
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  v_created  int := 0;
  v_folded   int;
  v_letters  int;
  v_more     boolean;
  v_names    text[] := '{}';
  v_lasts    jsonb[];
  v_counts   jsonb;
  v_dead     jsonb;
  v_times    timestamptz[] := '{}';
  v_readings jsonb[] := '{}';
  v_read     int := 0;
  v_working  timestamptz := clock_timestamp();
begin
  if not tailrace.begin_routine_v1('statistics') then
    return '{"locked": true}';
  end if;
  with gone as (
    delete from tailrace.tally t where t.id = any (array(select o.id from tailrace.tally o order by o.id
                                                         limit case when statistics_v1.queue is null then fold else 0 end)) returning id, queue, task, what, n),
  sums as (select g.queue, g.task, g.what, sum(g.n)::bigint as n, count(*) as of_rows from gone g
           where case when g.id % 512 = 0 then pg_sleep(0.002) is not null else true end   -- gently, as in job_states_v1
           group by 1, 2, 3),
  folded as (insert into tailrace.total as o (queue, task, what, n) select s.queue, s.task, s.what, s.n from sums s order by 1, 2, 3
             on conflict (queue, task, what) do update set n = o.n + excluded.n)
  select coalesce(sum(s.of_rows), 0) into v_folded from sums s;
  v_more := v_folded = fold;
  v_working := tailrace.rest_v1(v_working);
  v_letters := tailrace.fold_dead_letters_v1(5 * fold);
  v_more := v_more or v_letters >= 5 * fold;
  v_working := tailrace.rest_v1(v_working);

  if readings then
    v_created := tailrace.know_queues_v1(array(select n.name from tailrace.queue_names_v1() n(name)
                                               where statistics_v1.queue is null or n.name = statistics_v1.queue));
    -- Counting may take seconds, so no queue's row is locked before all is counted: whoever holds or applies does not wait.
    select coalesce(array_agg(q.name order by q.name), '{}'), coalesce(array_agg(q.reading order by q.name), '{}')
      into v_names, v_lasts from tailrace.queue q where statistics_v1.queue is null or q.name = statistics_v1.queue;
    v_counts := tailrace.job_counts_v1(v_names, v_lasts);
    v_dead := tailrace.dead_counts_v1(statistics_v1.queue);
    for i in 1 .. cardinality(v_names) loop
      v_working := tailrace.rest_v1(v_working);
      v_times := v_times || clock_timestamp();
      v_readings := v_readings || ('{"dead": 0, "requeued": 0, "resolved": 0}' || coalesce(v_dead -> v_names[i], '{}')
                                   || jsonb_build_object('oldest_dead_at', tailrace.oldest_dead_v1(v_names[i]))
                                   || tailrace.job_reading_v1(v_names[i], v_lasts[i], v_counts -> v_names[i])
                                   || tailrace.running_counts_v1(v_names[i]));
    end loop;
    with free as (select q.name from tailrace.queue q where q.name = any (v_names) order by q.name for no key update skip locked)
    update tailrace.queue q set read_at = r.at, reading = r.reading
      from unnest(v_names, v_times, v_readings) r(name, at, reading)
      where q.name = r.name and r.name = any (array(select f.name from free f));
    get diagnostics v_read = row_count;
  end if;
  perform tailrace.end_routine_v1('statistics', coalesce(statistics_v1.queue, ''));
  return jsonb_build_object('queues', v_read, 'created', v_created, 'folded', v_folded, 'more', v_more,
                            'skipped', cardinality(v_names) - v_read);
end $$;

-- Make rows for queues that have none; returns how many were made. An application may be making one of them in a transaction
-- that stays open: nobody waits for it, the others are made, and whoever comes next looks again.
create function tailrace.know_queues_v1(names text[]) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp set lock_timeout = '1ms'
as $$
#variable_conflict use_column
declare
  v_name text;
  v_made int := 0;
begin
  for v_name in select n.name from unnest(names) n(name)
                where not exists (select from tailrace.queue q where q.name = n.name) order by 1 loop
    begin
      insert into tailrace.queue (name) values (v_name) on conflict (name) do nothing;
      v_made := v_made + found::int;
    exception when lock_not_available then
      null;
    end;
  end loop;
  return v_made;
end $$;

-- Queues that have dead letters: one index entry is read for each, its last one. The first ones are those that everything takes
-- first: after a requeue of 500,000 an index has as many dead entries there until it is vacuumed, 20 ms to read.
create function tailrace.dead_letter_queues_v1() returns table (queue text)
language sql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
  with recursive q(name) as (
    (select d.queue from tailrace.dead_letter d where d.queue <> '' order by d.queue desc limit 1)
    union all
    select (select d.queue from tailrace.dead_letter d where d.queue <> '' and d.queue < q.name order by d.queue desc limit 1) from q where q.name is not null)
  select q.name from q where q.name is not null
$$;

-- Names of queues that have jobs or dead letters and no row, found in the same way.
create function tailrace.queue_names_v1() returns table (name text)
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
as $$
  with recursive
  a(name) as (
    (select j.queue from tailrace.job j where j.serial_group is null and j.key_slot = 0 and j.lost = 0 order by j.queue desc limit 1)
    union all
    select (select j.queue from tailrace.job j where j.serial_group is null and j.key_slot = 0 and j.lost = 0 and j.queue < a.name
            order by j.queue desc limit 1) from a where a.name is not null),
  b(name) as (
    (select j.queue from tailrace.job j where j.lost > 0 and j.key_slot = 0 order by j.queue desc limit 1)
    union all
    select (select j.queue from tailrace.job j where j.lost > 0 and j.key_slot = 0 and j.queue < b.name
            order by j.queue desc limit 1) from b where b.name is not null),
  e(name) as (
    (select j.queue from tailrace.job j where j.serial_group is not null and j.key_slot = 0 order by j.queue desc limit 1)
    union all
    select (select j.queue from tailrace.job j where j.serial_group is not null and j.key_slot = 0 and j.queue < e.name
            order by j.queue desc limit 1) from e where e.name is not null)
  select n.name
  from (select name from a union select name from b union select name from e union select d.queue from tailrace.dead_letter_queues_v1() d) n
  where n.name is not null and not exists (select from tailrace.queue q where q.name = n.name)
$$;

-- The counts of each queue's dead letters, which triggers keep, by queue; null means all queues.
create function tailrace.dead_counts_v1(queue text) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return (
    select coalesce(jsonb_object_agg(c.queue, c.counts), '{}')
    from (select s.queue, jsonb_object_agg(s.state, s.n) as counts
          from (select k.queue, k.state, sum(k.n) as n from tailrace.dead_letter_counts_v1(dead_counts_v1.queue) k group by 1, 2) s group by 1) c);
end $$;

-- When the oldest of a queue's dead letters died: the first index entry. After a requeue of the oldest ones those before it are dead,
-- and are marked so by whoever comes first (1 us each). Its plan is kept.
create function tailrace.oldest_dead_v1(queue text) returns timestamptz
language plpgsql stable
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_sort = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
  return (select d.failed_at from tailrace.dead_letter d where d.queue = oldest_dead_v1.queue and d.queue <> '' and d.state = 'dead'
          order by d.failed_at limit 1);
end $$;

-- Leases, the jobs that run under them, and the workers of one queue. Its plan is kept: to plan it takes longer than to run it.
create function tailrace.running_counts_v1(queue text) returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
begin
  return jsonb_build_object(
    'leases', (select count(*) from tailrace.lease l where l.queue = queue),
    'running', (select count(*) from tailrace.lease l cross join unnest(l.ids) i(id)
                where l.queue = queue and exists (select from tailrace.job j where j.id = i.id and j.token = l.token offset 0)),
    'workers', (select count(*) from tailrace.worker w where w.until > clock_timestamp() and queue = any (w.queues)));
end $$;

-- What a reading tells of one queue's live jobs:
--   "ready" … "stale", "total": the counts of queue_stats; "oldest_ready_at", "next_due_at", "next_due_seconds", "counted_at"
--   "claimable": jobs that a worker could take now. While no worker works here, what is due counts too, although its state is
--     unclaimable: nobody knows better. But not of tasks that the last workers did not know ("unknown", for 15 minutes)
--   "arrivals": jobs that become claimable in a second, as a moving average of 2 minutes: the change of live jobs and their ends
--   "ended": ends by a run so far
--   "run_seconds": mean of a run as the workers measure it, kept while none does; null before the first
--   "demand": as it was; the routine that called this works it out anew
-- `counts`: those of job_counts_v1; null: they are as in the last reading.
create function tailrace.job_reading_v1(queue text, last jsonb, counts jsonb) returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp set timezone = 'UTC' set enable_seqscan = on set jit = off
as $$
#variable_conflict use_variable
declare
  v_now     timestamptz := clock_timestamp();
  v_runs    double precision;
  v_seconds double precision;
  v_mean    double precision := (last ->> 'run_seconds')::double precision;
begin
  select sum(tailrace.setting_number_v1(w.measured -> queue, 'runs', 0)), sum(tailrace.setting_number_v1(w.measured -> queue, 'seconds', 0))
    into v_runs, v_seconds from tailrace.worker w where w.until > v_now and queue = any (w.queues);
  if v_runs >= 0.01 then
    v_mean := round((v_seconds / v_runs)::numeric, 6);
  end if;
  if counts is null then
    counts := (select coalesce(jsonb_object_agg(k.key, k.value), '{}') from jsonb_each(last) k
               where k.key = any ('{ready,scheduled,retrying,blocked,held,unclaimable,stale,total,oldest_ready_at,next_due_at,next_due_seconds,
                                    counted_at,count_seconds,claimable,unknown,worked_at,arrivals,ended}'::text[]));
  end if;
  return counts || jsonb_build_object('run_seconds', v_mean)
    || case when last ? 'demand' then jsonb_build_object('demand', last -> 'demand') else '{}' end;
end $$;

-- Which of these queues to count now, by what their last readings say of their last counts:
--   * those that take the least, as long as they take 0.1 s together, each time;
--   * the others only after 25 times as long as they take together, an hour at most. Half of that they rest, so they cost 2 % of a
--     core. They are counted together, since a pass for some of them reads as many pages as one for all;
--   * for 10 s at most in one call; the next one begins with what was counted longest ago.
create function tailrace.queues_to_count_v1(names text[], lasts jsonb[]) returns text[]
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  with known as (
    select r.name, (r.last ->> 'counted_at')::timestamptz as at, tailrace.setting_number_v1(r.last, 'count_seconds', 0) as cost
    from unnest(names, lasts) r(name, last)),
  ranked as (select k.name, k.at, k.cost, sum(k.cost) over (order by k.cost, k.name) <= 0.1 as cheap from known k),
  pause as (select least(25 * sum(r.cost), 3600) * interval '1 second' as length from ranked r where not r.cheap),
  due as (
    select r.name, r.cost, sum(r.cost) over (order by r.cheap desc, r.at nulls first, r.name) as upto
    from ranked r cross join pause p
    where r.cheap or r.at is null or clock_timestamp() not between r.at and r.at + p.length)
  select coalesce(array_agg(d.name), '{}') from due d where d.upto - d.cost < 10
$$;

-- What came in a second, by the counts of the last reading and those of now. What is blocked by a limit has come too: it is
-- blocked and ready by turns. A count of ends that lags behind the jobs makes one step too small and the next too large; the
-- average bears that, so only it is kept above zero.
create function tailrace.arrivals_v1(last jsonb, total bigint, scheduled bigint, ended bigint, now timestamptz) returns double precision
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_before  double precision := tailrace.setting_number_v1(last, 'arrivals', 0);
  v_seconds double precision := extract(epoch from now - (last ->> 'counted_at')::timestamptz);
  v_came    double precision := (total - scheduled) - ((last ->> 'total')::bigint - (last ->> 'scheduled')::bigint)
                                + ended - (last ->> 'ended')::bigint;
begin
  if v_seconds > 0 then
    return greatest(0, v_before + (1 - exp(-v_seconds / 120)) * (v_came / v_seconds - v_before));
  end if;
  return v_before;
end $$;

-- The counts for job_reading_v1, taken now, of those of these queues that queues_to_count_v1 names: {queue: counts}.
create function tailrace.job_counts_v1(names text[], lasts jsonb[]) returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp set timezone = 'UTC'
set enable_seqscan = on set enable_hashjoin = on set jit = off set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  v_now    timestamptz := clock_timestamp();
  v_queues text[] := tailrace.queues_to_count_v1(names, lasts);
begin
  return (
    with last as (
      select l.queue, l.reading, (l.reading ->> 'worked_at')::timestamptz as worked_at,
             case when jsonb_typeof(l.reading -> 'unknown') = 'array' then l.reading -> 'unknown' else '[]' end as unknown
      from unnest(names, lasts) l(queue, reading) where l.queue = any (v_queues)),
    states as materialized (select s.queue, s.task, s.state, s.n, s.since, s.run_at from tailrace.job_states_v1(v_queues, gently => true) s),
    jobs as (
      select b.queue, jsonb_object_agg(b.state, b.n) as by_state, sum(b.n)::bigint as total,
             min(b.since) filter (where b.state = 'ready') as since, min(b.run_at) filter (where b.state in ('scheduled', 'retrying')) as due
      from (select s.queue, s.state, sum(s.n) as n, min(s.since) as since, min(s.run_at) as run_at from states s group by 1, 2) b group by 1),
    strange as (
      select s.queue, to_jsonb((array_agg(s.task order by s.task))[1:100]) as tasks from states s where s.state = 'unclaimable' group by 1),
    doubted as (
      select l.queue, sum(s.n)::bigint as n from last l join states s on s.queue = l.queue
      where s.state = 'unclaimable' and l.worked_at > v_now - interval '15 minutes' and l.unknown ? s.task group by 1),
    working as (
      select distinct u.queue from tailrace.worker w cross join unnest(w.queues) u(queue)
      where w.until > v_now and w.state = 'working' and cardinality(w.tasks) > 0),
    ended as (
      select t.queue, sum(t.n)::bigint as n from tailrace.total t
      where t.queue = any (v_queues) and t.what in ('succeeded', 'dead', 'dropped') group by 1),
    found as (
      select l.queue, l.reading, '{"ready": 0, "scheduled": 0, "retrying": 0, "blocked": 0, "held": 0, "unclaimable": 0, "stale": 0}'::jsonb
                                 || coalesce(j.by_state - 'running', '{}') as counts,
             coalesce(j.total, 0) as total, j.since, j.due, coalesce(e.n, 0) as ended, w.queue is not null as works,
             case when w.queue is not null then v_now else l.worked_at end as worked_at,
             case when w.queue is not null then coalesce(s.tasks, '[]') when l.worked_at > v_now - interval '15 minutes' then l.unknown
                  else '[]' end as unknown, coalesce(d.n, 0) as doubted
      from last l left join jobs j on j.queue = l.queue left join strange s on s.queue = l.queue left join doubted d on d.queue = l.queue
      left join working w on w.queue = l.queue left join ended e on e.queue = l.queue)
    select coalesce(jsonb_object_agg(f.queue, f.counts || jsonb_build_object(
      'total', f.total, 'oldest_ready_at', case when f.since is not null then least(f.since, v_now) end,
      'next_due_at', f.due, 'next_due_seconds', round(extract(epoch from f.due - v_now), 3), 'counted_at', v_now, 'ended', f.ended,
      'arrivals', round(tailrace.arrivals_v1(f.reading, f.total, (f.counts ->> 'scheduled')::bigint, f.ended, v_now)::numeric, 6),
      'unknown', f.unknown, 'worked_at', f.worked_at,
      'claimable', (f.counts ->> 'ready')::bigint + case when f.works then 0 else greatest((f.counts ->> 'unclaimable')::bigint - f.doubted, 0) end,
      'count_seconds', f.seconds)), '{}')
    -- a queue's part of the time, by its jobs
    from (select o.*, round(extract(epoch from clock_timestamp() - v_now) * coalesce(o.total / nullif(sum(o.total) over (), 0), 0), 4) as seconds
          from found o) f);
end $$;

-- Remove what nobody needs any more: waiter rows past their time, rows of workers dead for a week that hold no lease,
-- cancel requests whose job has ended, and slots of runs that have ended. Of one queue: its waiters only, the rest is of no
-- queue. Returns {"waiters", "workers", "cancel_requests", "limit_slots"}.
create function tailrace.housekeeping_v1(queue text default null) returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  v_now      timestamptz := clock_timestamp();
  v_waiters  bigint;
  v_workers  bigint;
  v_requests bigint;
  v_slots    bigint := 0;
begin
  if not tailrace.begin_routine_v1('housekeeping') then
    return '{"locked": true}';
  end if;
  delete from tailrace.waiter w where w.ctid = any (array(
    select x.ctid from tailrace.waiter x where x.until < v_now and (housekeeping_v1.queue is null or x.queue = housekeeping_v1.queue)
    for update skip locked));
  get diagnostics v_waiters = row_count;
  delete from tailrace.worker w where w.id = any (array(
    select x.id from tailrace.worker x
    where housekeeping_v1.queue is null and x.until < v_now - interval '7 days' and not exists (select from tailrace.lease l where l.worker = x.id offset 0)
    order by x.id limit 1000 for update skip locked));
  get diagnostics v_workers = row_count;
  delete from tailrace.cancel_request c where c.job_id = any (array(
    select x.job_id from tailrace.cancel_request x
    where housekeeping_v1.queue is null and not exists (select from tailrace.job j where j.id = x.job_id offset 0)
    order by x.job_id limit 10000 for update skip locked));
  get diagnostics v_requests = row_count;
  if housekeeping_v1.queue is null then
    v_slots := tailrace.tidy_limits_v1();
  end if;
  perform tailrace.end_routine_v1('housekeeping', coalesce(housekeeping_v1.queue, ''));
  return jsonb_build_object('waiters', v_waiters, 'workers', v_workers, 'cancel_requests', v_requests, 'limit_slots', v_slots);
end $$;
