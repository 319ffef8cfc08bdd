-- Tailrace 0004: heartbeats, and what becomes of the leases of the dead.
--
-- A lease is alive while its worker's `until` is in the future. `take_over_v1` is the one place where a lease is taken
-- from somebody: the reaper, a proof of death and `leases release` call it. It takes lease and job rows with SKIP LOCKED
-- and re-checks the token in the rows it writes, so a finish that is just committing is never undone.

-- One heartbeat: extends this worker's `until` by its lease, stores what changed, and tells what it should know.
--   known:   the tokens that the worker holds or has just sent
--   changes: any of lease_seconds, version, queues, tasks, slots, pod, state, schedules; null = nothing new
-- The row is written again if it is missing. A cordon (an order) is not undone by a worker that says "working".
create function tailrace.beat_v1(worker text, known bigint[], changes jsonb default null) returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_id      text := worker;
  v_known   bigint[] := coalesce(known, '{}');
  v_lease   real := (changes ->> 'lease_seconds')::real;
  v_cancel  jsonb := '[]';
  w         tailrace.worker;
begin
  if changes is null or changes = '{}' then
    update tailrace.worker o set until = clock_timestamp() + o.lease_seconds * interval '1 second', death = null
      where o.id = v_id returning o.* into w;
  else
    update tailrace.worker o
      set until = clock_timestamp() + coalesce(v_lease, o.lease_seconds) * interval '1 second', death = null,
          lease_seconds = coalesce(v_lease, o.lease_seconds), version = coalesce(changes ->> 'version', o.version),
          queues = case when changes ? 'queues' then array(select jsonb_array_elements_text(changes -> 'queues')) else o.queues end,
          tasks = case when changes ? 'tasks' then array(select jsonb_array_elements_text(changes -> 'tasks')) else o.tasks end,
          slots = coalesce((changes ->> 'slots')::int, o.slots), pod = coalesce(changes ->> 'pod', o.pod),
          schedules = coalesce(changes -> 'schedules', o.schedules),
          state = case when coalesce(changes ->> 'state', 'working') = 'working' then o.state else changes ->> 'state' end
      where o.id = v_id returning o.* into w;
  end if;
  if w.id is null then
    insert into tailrace.worker as o (id, until, lease_seconds, version, queues, tasks, slots, pod, state, schedules)
      select v_id, clock_timestamp() + coalesce(v_lease, 60) * interval '1 second', coalesce(v_lease, 60),
             coalesce(changes ->> 'version', ''), array(select jsonb_array_elements_text(coalesce(changes -> 'queues', '[]'))),
             array(select jsonb_array_elements_text(coalesce(changes -> 'tasks', '[]'))), coalesce((changes ->> 'slots')::int, 0),
             changes ->> 'pod', coalesce(changes ->> 'state', 'working'), coalesce(changes -> 'schedules', '[]')
      on conflict (id) do update set until = excluded.until returning o.* into w;
  end if;

  if exists (select from tailrace.cancel_request) then
    select coalesce(jsonb_agg(i.id), '[]') into v_cancel
      from tailrace.lease l cross join unnest(l.ids) i(id) join tailrace.cancel_request c on c.job_id = i.id
      where l.worker = v_id and exists (select from tailrace.job j where j.id = i.id and j.token = l.token offset 0);
  end if;
  return jsonb_build_object(
    'until', w.until::text,
    'state', w.state,
    'cancel', v_cancel,
    'unknown', (select coalesce(jsonb_agg(jsonb_build_object('token', l.token, 'queue', l.queue, 'ids', l.ids)), '[]')
                from tailrace.lease l where l.worker = v_id and l.token <> all (v_known)),
    'missing', (select coalesce(jsonb_agg(k.token), '[]') from unnest(v_known) k(token)
                where not exists (select from tailrace.lease l where l.token = k.token offset 0)),
    'queues', (select coalesce(jsonb_object_agg(n.name, jsonb_build_object(
                 'settings', coalesce(q.settings, '{}'),
                 'held', coalesce(q.held, false) or coalesce(q.held_until > clock_timestamp(), false),
                 'workers', (select count(*) from tailrace.worker o where o.until > clock_timestamp() and n.name = any (o.queues)))), '{}')
               from unnest(w.queues) n(name) left join tailrace.queue q on q.name = n.name));
end $$;

-- conclude_v1 in one set, and where a row spoils it, in halves of it down to that row alone, which is reported as failed.
create function tailrace.conclude_each_v1(verdicts tailrace.verdict_v1[]) returns table (id bigint, result text)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_n    int := cardinality(verdicts);
  v_half int := v_n / 2;
begin
  if v_n = 0 then
    return;
  end if;
  begin
    return query select c.id, c.result from tailrace.conclude_v1(verdicts) c;
    return;
  exception when others then
    if sqlstate not in ('55P03', '40P01') and left(sqlstate, 2) not in ('22', '23', 'P0', 'TR') then
      raise;
    end if;
    if v_n = 1 then
      raise warning 'tailrace: job % cannot be moved: % (%)', (verdicts[1]).id, sqlerrm, sqlstate;
      return query select (verdicts[1]).id, 'failed';
      return;
    end if;
  end;
  return query select c.id, c.result from tailrace.conclude_each_v1(verdicts[1:v_half]) c;
  return query select c.id, c.result from tailrace.conclude_each_v1(verdicts[v_half + 1:v_n]) c;
end $$;

-- Verdicts with their results, grouped for counters: [{"queue", "task", "result", "reason", "n"}]. The reason is why
-- something came to the dead letters: what had been requeued and ended otherwise is withdrawn.
create function tailrace.counted_v1(verdicts tailrace.verdict_v1[], ids bigint[], results text[]) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce(jsonb_agg(jsonb_build_object('queue', g.queue, 'task', g.task, 'result', g.result, 'reason', g.reason, 'n', g.n)), '[]')
  from (select x.queue, x.task, r.result,
               case when r.result = 'dead' then x.reason
                    when x.requeues > 0 and r.result in ('cancelled', 'expired', 'dropped', 'replaced') then 'withdrawn' end as reason,
               count(*) as n
        from unnest(ids, results) r(id, result) join unnest(verdicts) x on x.id = r.id group by 1, 2, 3, 4) g
$$;

-- Take the jobs of these leases from their workers. Each row is charged like a crash: lost + 1, back after a wait, or dead
-- (lease_expired) on its last attempt. Rows of a dead worker that was draining count as interrupted instead: the platform cut
-- them, and the attempt is given back as often as the queue allows.
--   first_delay: seconds before a job that is lost for the first time runs again; null = its backoff after one failure
--   cause:       a sentence for the job's error history
-- Returns {"rows": [counted_v1], "leases": removed, "skipped": rows that somebody else had locked}.
create function tailrace.take_over_v1(tokens bigint[], first_delay double precision, cause text) returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_nestloop = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_tokens  bigint[];
  v_ids     bigint[];
  v         tailrace.verdict_v1[];
  v_done    bigint[];
  v_results text[];
  v_leases  bigint;
  v_skipped bigint;
begin
  v_tokens := array(select l.token from tailrace.lease l where l.token = any (take_over_v1.tokens) order by l.token for update skip locked);
  v_ids := array(select i.id from tailrace.lease l cross join unnest(l.ids) i(id) where l.token = any (v_tokens));
  with j as materialized (
    select job.id, job.token, job.queue, job.task, job.requeues, job.attempts, job.max_attempts, job.lost, job.interrupted, job.snoozes,
           job.backoff
    from tailrace.job where job.id = any (v_ids) and job.token = any (v_tokens)
    order by job.id for update skip locked),
  d as (
    select j.*, l.worker, coalesce(o.state = 'draining' and o.until <= clock_timestamp(), false) as draining,
           coalesce(q.settings ->> 'exhaustedPolicy' = 'Discard', false) and j.requeues = 0 as discard,
           tailrace.setting_number_v1(q.settings -> 'jobDefaults', 'maxInterruptions', 10) as most
    from j join tailrace.lease l on l.token = j.token and l.token = any (v_tokens)
    left join tailrace.worker o on o.id = l.worker and o.id = any (array(select e.worker from tailrace.lease e where e.token = any (v_tokens)))
    left join tailrace.queue q on q.name = j.queue),
  k as (
    select d.*, case when d.draining and d.interrupted < d.most then 'interrupted'
                     when d.attempts < d.max_attempts then 'lost'
                     when d.discard then 'dropped' else 'dead' end as result
    from d)
  select coalesce(array_agg((k.id, k.token, k.queue, k.task, k.requeues, k.result,
      case when k.draining then 'interrupted' else 'lease_expired' end,
      case k.result when 'interrupted' then case when k.interrupted = 0 then 0 else 5 end
                    when 'lost' then case when k.lost = 0 and first_delay is not null then first_delay
                                          else tailrace.job_backoff_v1(k.backoff, k.queue, k.task, k.lost + 1) end end,
      case when k.result = 'interrupted' then greatest(k.attempts - 1, 0) else k.attempts end,
      k.lost + (k.result <> 'interrupted')::int,
      k.interrupted + (k.result = 'interrupted')::int,
      k.snoozes,
      jsonb_build_object('type', 'WorkerLost', 'message', cause, 'traceback', null, 'attempt', k.attempts, 'worker', k.worker,
                         'time', clock_timestamp()),
      'unknown', null, null, k.worker)::tailrace.verdict_v1 order by k.id), '{}')
    into v from k;

  select coalesce(array_agg(c.id), '{}'), coalesce(array_agg(c.result), '{}') into v_done, v_results from tailrace.conclude_each_v1(v) c;
  v_skipped := (select count(*) from tailrace.job j where j.id = any (v_ids) and j.token = any (v_tokens));
  perform tailrace.drop_empty_leases_v1(v_tokens);
  v_leases := cardinality(v_tokens) - (select count(*) from tailrace.lease l where l.token = any (v_tokens));
  return jsonb_build_object('rows', tailrace.counted_v1(v, v_done, v_results), 'leases', v_leases, 'skipped', v_skipped);
end $$;

-- The kubelet (or the process's parent) has proved that a worker is dead: end its lease and take its jobs over at once,
-- whatever the reaper's state; a job lost for the first time runs again without delay. Returns what take_over_v1 returns,
-- and whether the worker was known.
create function tailrace.worker_died_v1(worker text, reason text) returns jsonb
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_id     text := worker;
  v_known  boolean;
  v_result jsonb;
begin
  update tailrace.worker o set until = least(o.until, clock_timestamp()), death = coalesce(worker_died_v1.reason, 'unknown') where o.id = v_id;
  v_known := found;
  v_result := tailrace.take_over_v1(array(select l.token from tailrace.lease l where l.worker = v_id), 0,
                                    'worker ' || v_id || ' died: ' || coalesce(worker_died_v1.reason, 'unknown'));
  return v_result || jsonb_build_object('known', v_known);
end $$;

-- Release leases by hand. One whose worker lives is refused unless forced; a released lease counts as a lost one, and its
-- worker is told to look. results: released, live (refused), missing, busy (some rows were locked; try again).
create function tailrace.release_leases_v1(tokens bigint[], force boolean default false)
returns table (token bigint, worker text, queue text, jobs int, result text)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_tokens bigint[] := tokens;
  v_take   bigint[];
  v_all    jsonb;
begin
  select coalesce(jsonb_agg(jsonb_build_object('token', l.token, 'worker', l.worker, 'queue', l.queue, 'jobs',
           (select count(*) from tailrace.job j where j.id = any (l.ids) and j.token = l.token),
           'live', exists (select from tailrace.worker o where o.id = l.worker and o.until > clock_timestamp()))), '[]')
    into v_all from tailrace.lease l where l.token = any (v_tokens);
  v_take := array(select (a.value ->> 'token')::bigint from jsonb_array_elements(v_all) a
                  where coalesce(force, false) or not (a.value ->> 'live')::boolean);
  if cardinality(v_take) > 0 then
    perform tailrace.take_over_v1(v_take, null, 'the lease was released by hand');
    perform pg_notify(tailrace.signal_channel_v1(), s.queue || '?')
      from (select distinct a.value ->> 'queue' as queue from jsonb_array_elements(v_all) a where (a.value ->> 'live')::boolean) s;
    insert into tailrace.audit (who, verb, target, n)
      select session_user, 'leases.release', jsonb_build_object('tokens', (select jsonb_agg(t::text) from unnest(v_take) t), 'force', force),
             cardinality(v_take) - (select count(*) from tailrace.lease l where l.token = any (v_take));
  end if;
  return query
    select t.token, a.value ->> 'worker', a.value ->> 'queue', coalesce((a.value ->> 'jobs')::int, 0),
           case when a.value is null then 'missing'
                when t.token <> all (v_take) then 'live'
                when exists (select from tailrace.lease l where l.token = t.token) then 'busy'
                else 'released' end
    from unnest(v_tokens) t(token) left join jsonb_array_elements(v_all) a on (a.value ->> 'token')::bigint = t.token;
end $$;
