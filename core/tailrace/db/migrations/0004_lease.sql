-- Tailrace 0004: heartbeats, what becomes of the leases of the dead, how leases hold groups, and what a rescan finds at a floor.
--
-- A lease is alive while its worker's `until` is in the future. `take_over_v1` is the one place where a lease is taken
-- from somebody: the reaper, a proof of death and `leases release` call it. It takes lease and job rows with SKIP LOCKED
-- and re-checks the token in the rows it writes, so a finish that is just committing is never undone.

-- One heartbeat: extends this worker's `until` by its lease, stores what changed, and tells what it should know.
--   known:   the tokens that the worker holds or has just sent
--   changes: any of lease_seconds, version, queues, tasks, slots, pod, state, schedules, measured; null = nothing new
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
          measured = coalesce(changes -> 'measured', o.measured),
          state = case when coalesce(changes ->> 'state', 'working') = 'working' then o.state else changes ->> 'state' end
      where o.id = v_id returning o.* into w;
  end if;
  if w.id is null then
    insert into tailrace.worker as o (id, until, lease_seconds, version, queues, tasks, slots, pod, state, schedules, measured)
      select v_id, clock_timestamp() + coalesce(v_lease, 60) * interval '1 second', coalesce(v_lease, 60),
             coalesce(changes ->> 'version', ''), array(select jsonb_array_elements_text(coalesce(changes -> 'queues', '[]'))),
             array(select jsonb_array_elements_text(coalesce(changes -> 'tasks', '[]'))), coalesce((changes ->> 'slots')::int, 0),
             changes ->> 'pod', coalesce(changes ->> 'state', 'working'), coalesce(changes -> 'schedules', '[]'),
             coalesce(changes -> 'measured', '{}')
      on conflict (id) do update set until = excluded.until returning o.* into w;
  end if;

  if exists (select from tailrace.cancel_request) then
    select coalesce(jsonb_agg(i.id), '[]') into v_cancel
      from tailrace.lease l cross join unnest(l.ids) i(id)
      cross join lateral (select from tailrace.cancel_request c where c.job_id = i.id offset 0) c
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
                 'limits', coalesce(q.limits, 0),
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
           tailrace.max_interruptions_v1(q.settings, j.task) as most
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
                when exists (select from tailrace.lease l where l.token = t.token offset 0) then 'busy'
                else 'released' end
    from unnest(v_tokens) t(token) left join jsonb_array_elements(v_all) a on (a.value ->> 'token')::bigint = t.token;
end $$;

-- ---- groups: at most one member of (queue, tenant, serial_group) at a time --------------------------------------------------
-- A row of job_group with a token says that a lease holds the group. Whoever wants a group takes an advisory lock by its name
-- without waiting, then inserts its row; enqueue knows nothing of that table. Each statement below has a snapshot of its own,
-- so members are chosen after the group is certain.

-- Leave groups that these tokens hold, each by its name; a strict one whose head lives on keeps its row and waits for it.
create function tailrace.leave_some_groups_v1(of_queue text, names text[], tenants text[], tokens bigint[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
  v_places tid[] := array(
    select x.place from unnest(names, tenants, tokens) u(name, tenant, token)
    cross join lateral (select o.ctid as place from tailrace.job_group o
                        where o.queue = of_queue and o.tenant = u.tenant and o.name = u.name and o.token + 0 = u.token offset 0) x);
begin
  update tailrace.job_group g set token = null
    where g.ctid = any (v_places)
      and g.token + 0 = any (leave_some_groups_v1.tokens)
      and g.head is not null and exists (select from tailrace.job j where j.id = g.head offset 0);
  delete from tailrace.job_group g
    where g.ctid = any (v_places)
      and g.token + 0 = any (leave_some_groups_v1.tokens);
end $$;

-- Take up to k due members of each of these groups, whose rows have the token already, and write their lease. With a head only
-- that member counts. A member that was lost before, is on its last attempt or wants strict order ends a chain: nothing is
-- taken behind it that could be charged or overtake. Groups that give nothing are left. Columns as in claim_batch, plus the group.
create function tailrace.take_members_v1(
  of_queue text, by_worker text, new_token bigint, known_tasks text[], strict_tasks text[], context_tasks text[],
  names text[], tenants text[], heads bigint[], k int, suspect boolean, not_now text[])
returns table (id bigint, token bigint, attempts int, task text, payload text, timeout double precision, priority int, mark int,
               run_at double precision, extra jsonb, serial_group text, tenant text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_now    timestamptz := clock_timestamp();
  v_ids    bigint[];
  v_spent  bigint[];
  v_first  bigint[];   -- the first member of each group that gave one
  v_groups int[];      -- the places of these groups in names
begin
  with o as materialized (select u.name, u.tenant, u.head, u.n from unnest(names, tenants, heads) with ordinality u(name, tenant, head, n)),
  one as materialized (
    select s.id, s.attempts >= s.max_attempts as spent from tailrace.job s
    where s.id = any (array(select o.head from o where o.head is not null)) and s.queue = of_queue and s.key_slot + 0 = 0
      and s.token is null and s.run_at <= v_now and s.task = any (known_tasks) and s.task <> all (not_now)
    for no key update of s skip locked),
  many as materialized (
    select o.n, x.id, x.spent, x.suspect, x.alone, x.later, x.priority, x.run_at
    from o cross join lateral (
      select s.id, s.attempts >= s.max_attempts as spent, s.lost > 0 as suspect, s.priority, s.run_at, s.task = any (not_now) as later,
             s.lost > 0 or s.attempts + 1 >= s.max_attempts or s.task = any (strict_tasks) as alone
      from tailrace.job s
      where s.queue = of_queue and s.serial_group = o.name and s.tenant = o.tenant and s.key_slot = 0 and s.token is null
        and s.run_at <= v_now and s.task = any (known_tasks)
      order by s.priority desc, s.run_at, s.id limit k for no key update of s skip locked) x
    where o.head is null),
  chains as (
    select m.n, m.id, m.spent, row_number() over w as rn, bool_or(m.alone) over w as stop, bool_or(m.later) over w as later, first_value(m.suspect) over w as suspect
    from many m window w as (partition by m.n order by m.priority desc, m.run_at, m.id)),
  c as (
    select o.n, one.id, one.spent, 1 as rn from o join one on one.id = o.head
    union all
    select x.n, x.id, x.spent, x.rn from chains x where x.suspect = take_members_v1.suspect and (x.rn = 1 or not x.stop) and not x.later)
  select array_agg(c.id order by c.n, c.rn), coalesce(array_agg(c.id) filter (where c.spent), '{}'),
         array_agg(c.id) filter (where c.rn = 1), coalesce(array_agg(c.n) filter (where c.rn = 1), '{}')
    into v_ids, v_spent, v_first, v_groups from c;

  if v_ids is not null then
    insert into tailrace.lease (token, worker, queue, ids) values (new_token, by_worker, of_queue, v_ids);
    return query
      update tailrace.job j set token = new_token, attempts = j.attempts + (j.attempts < j.max_attempts)::int
      where j.id = any (v_ids)
      returning j.id, j.token, j.attempts, j.task, j.payload::text, date_part('epoch', j.timeout), j.priority,
        32 + case when j.id = any (v_spent) then 1 else 0 end + case when j.expires_at <= v_now then 2 else 0 end
          + case when j.requeues > 0 then 4 else 0 end + case when j.attempts >= j.max_attempts then 8 else 0 end
          + case when j.key is not null then 16 else 0 end,
        date_part('epoch', j.run_at),
        case when j.task = any (context_tasks) or j.backoff is not null then jsonb_build_object(
          'tenant', j.tenant, 'key', j.key, 'meta', j.meta, 'saved', j.saved, 'max_attempts', j.max_attempts, 'backoff', j.backoff,
          'created_at', j.created_at, 'run_at', j.run_at, 'trace', j.trace, 'serial_group', j.serial_group)
        when j.key is not null then jsonb_build_object('tenant', j.tenant, 'key', j.key) end,
        j.serial_group, j.tenant;
    if cardinality(strict_tasks) > 0 or cardinality(array_remove(heads, null)) > 0 then
      update tailrace.job_group g set head = f.head
        from (select x.place, case when j.task = any (strict_tasks) then j.id end as head
              from tailrace.job j
              cross join lateral (select o.ctid as place from tailrace.job_group o
                                  where o.queue = of_queue and o.tenant = j.tenant and o.name = j.serial_group offset 0) x
              where j.id = any (v_first)) f
        where g.ctid = f.place and g.token + 0 = new_token and g.head is distinct from f.head;
    end if;
  end if;
  if cardinality(v_groups) < cardinality(names) then
    perform tailrace.leave_some_groups_v1(of_queue, array_agg(u.name), array_agg(u.tenant), array_agg(new_token))
      from unnest(names, tenants) with ordinality u(name, tenant, n) where u.n <> all (v_groups);
  end if;
end $$;

-- Write the rows of groups that walk_groups_v1 has found and locked. Returns those that this token holds now, with their heads.
create function tailrace.hold_groups_v1(
  of_queue text, new_token bigint, found_names text[], found_tenants text[], found_seen bigint[], found_heads bigint[],
  out names text[], out tenants text[], out heads bigint[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
  with i as (
    insert into tailrace.job_group (queue, tenant, name, token)
    select of_queue, u.tenant, u.name, new_token from unnest(found_names, found_tenants, found_seen) u(name, tenant, seen)
    where u.seen is null on conflict (queue, tenant, name) do nothing returning name, tenant),
  p as (
    update tailrace.job_group g set token = new_token
    where g.ctid = any (array(
        select x.place from unnest(found_names, found_tenants, found_seen) u(name, tenant, seen)
        cross join lateral (select o.ctid as place from tailrace.job_group o
                            where o.queue = of_queue and o.tenant = u.tenant and o.name = u.name and o.head = u.seen offset 0) x))
      and g.token + 0 is null and g.head = any (found_seen)
    returning g.name, g.tenant)
  select coalesce(array_agg(u.name order by u.n), '{}'), coalesce(array_agg(u.tenant order by u.n), '{}'),
         coalesce(array_agg(u.head order by u.n), '{}')
    into names, tenants, heads
    from unnest(found_names, found_tenants, found_heads) with ordinality u(name, tenant, head, n)
    join (select i.name, i.tenant from i union all select p.name, p.tenant from p) t on t.name = u.name and t.tenant = u.tenant;
end $$;

-- One turn of a worker at a queue's groups, in the transaction that writes the outcomes of the groups that ended here:
-- walk on from a cursor over at most `walk` distinct groups and take up to n that are free and due; go on with ended ones where
-- room is left (so a busy group runs at the speed of its handler, and others have their turn); leave the rest.
--   ended_*:   groups of this worker whose last member's outcome was just written, with the token that held them (where the
--              outcome emptied a lease, its groups are free already, and are taken again)
--   unsettled: jobs whose outcome may not have been written, since something was locked: their groups are kept
--   suspect:   take one group whose next member was lost before, nothing else
--   not_now:   tasks whose limit is taken: a group whose next member is of one waits
-- Returns members as take_members_v1 does, and last one row whose id is null and whose extra says
-- {"found": groups taken by walking, "walked", "after": [name, tenant] to go on from, "seconds": of the walk, "kept": [[name, tenant]]}.
create function tailrace.turn_groups_v1(
  of_queue text, by_worker text, new_token bigint, known_tasks text[], strict_tasks text[], context_tasks text[],
  ended_names text[], ended_tenants text[], ended_tokens bigint[], unsettled bigint[],
  n int, k int, walk int, after_name text, after_tenant text, suspect boolean, known_limits bigint default 0, not_now text[] default '{}')
returns table (id bigint, token bigint, attempts int, task text, payload text, timeout double precision, priority int, mark int,
               run_at double precision, extra jsonb, serial_group text, tenant text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_began   timestamptz := clock_timestamp();
  v_walked  timestamptz := v_began;
  v_room    int := n;
  v_found   record;
  v_held    record;
  v_mine    record;
  v_kept    jsonb := '[]';
  v_names   text[] := '{}';
  v_tenants text[] := '{}';
  v_heads   bigint[] := '{}';
  v_number  int := 0;
  v_walk    int := walk;
  v_of_walk int;
  v_on      int;          -- how many of the ended groups go on here
  v_name    text := after_name;
  v_tenant  text := after_tenant;
begin
  lock table tailrace.lease in row exclusive mode;   -- before the look at the limits: see settle_limits_v1
  if exists (select from tailrace.queue h where h.name = of_queue and (h.held or h.held_until > v_began or h.limits <> known_limits)) then
    v_room := 0;
  end if;
  -- In a queue without groups the walk is not even planned.
  if walk > 0 and not exists (select from tailrace.job j
                              where j.queue = of_queue and j.serial_group is not null and j.key_slot = 0) then
    v_walk := 0;
  end if;
  for v_round in 1 .. 2 loop   -- a second one from the first group on
    exit when v_room <= cardinality(v_names) or v_number >= v_walk;
    select * into v_found from tailrace.walk_groups_v1(
      of_queue, known_tasks, v_room - cardinality(v_names), v_walk - v_number, v_name, v_tenant, suspect, null, null, not_now);
    if v_found.names is not null then
      select * into v_held from tailrace.hold_groups_v1(of_queue, new_token, v_found.names, v_found.tenants, v_found.seen, v_found.heads);
      v_names := v_names || v_held.names;
      v_tenants := v_tenants || v_held.tenants;
      v_heads := v_heads || v_held.heads;
    end if;
    v_number := v_number + v_found.walked;
    if v_found.last_name is not null then
      v_name := v_found.last_name;
      v_tenant := v_found.last_tenant;
    end if;
    exit when suspect or cardinality(v_names) >= v_room or v_number >= v_walk;
    v_name := '';
    v_tenant := '';
    exit when after_name = '';
  end loop;
  v_of_walk := cardinality(v_names);
  v_walked := clock_timestamp();

  if cardinality(ended_names) > 0 then
    select coalesce(array_agg(m.name) filter (where m.ours), '{}') as names, coalesce(array_agg(m.tenant) filter (where m.ours), '{}') as tenants,
           coalesce(array_agg(m.token) filter (where m.ours), '{}') as tokens, coalesce(array_agg(m.head) filter (where m.ours), '{}') as heads,
           coalesce(jsonb_agg(jsonb_build_array(m.name, m.tenant)) filter (where m.unsettled), '[]') as kept,
           array_agg(m.name) filter (where m.gone) as gone_names, array_agg(m.tenant) filter (where m.gone) as gone_tenants
      into v_mine
      from (select o.*, o.held and not o.unsettled as ours, not o.held as gone
            from (select u.name, u.tenant, u.token, g.token is not null as held, (select j.id from tailrace.job j where j.id = g.head) as head,
                         g.token is not null and exists (select from tailrace.job j where j.id = any (unsettled) and j.token = g.token
                                                         and j.serial_group = g.name and j.tenant = g.tenant offset 0) as unsettled
                  from unnest(ended_names, ended_tenants, ended_tokens) with ordinality u(name, tenant, token, n)
                  left join lateral (select x.name, x.tenant, x.token, x.head from tailrace.job_group x
                                     where x.queue = of_queue and x.tenant = u.tenant and x.name = u.name and x.token + 0 = u.token offset 0) g on true
                  order by u.n) o) m;
    v_kept := v_mine.kept;
    v_room := case when suspect then 0 else greatest(v_room - v_of_walk, 0) end;
    v_on := least(v_room, cardinality(v_mine.names));
    if v_on > 0 then
      update tailrace.job_group g set token = new_token
        where g.ctid = any (array(
            select x.place from unnest(v_mine.names[1:v_on], v_mine.tenants[1:v_on], v_mine.tokens[1:v_on]) u(name, tenant, token)
            cross join lateral (select o.ctid as place from tailrace.job_group o where o.queue = of_queue and o.tenant = u.tenant
                                  and o.name = u.name and o.token + 0 = u.token offset 0) x))
          and g.token + 0 = any (v_mine.tokens);
      v_names := v_names || v_mine.names[1:v_on];
      v_tenants := v_tenants || v_mine.tenants[1:v_on];
      v_heads := v_heads || v_mine.heads[1:v_on];
    end if;
    if v_on < cardinality(v_mine.names) then
      perform tailrace.leave_some_groups_v1(of_queue, v_mine.names[v_on + 1:], v_mine.tenants[v_on + 1:], v_mine.tokens[v_on + 1:]);
    elsif v_room > v_on and v_mine.gone_names is not null then
      select * into v_found from tailrace.walk_groups_v1(of_queue, known_tasks, v_room - v_on, 0, '', '', false, v_mine.gone_names, v_mine.gone_tenants, not_now);
      select * into v_held from tailrace.hold_groups_v1(of_queue, new_token, v_found.names, v_found.tenants, v_found.seen, v_found.heads);
      v_names := v_names || v_held.names;
      v_tenants := v_tenants || v_held.tenants;
      v_heads := v_heads || v_held.heads;
    end if;
    if v_on < cardinality(v_mine.names) or v_room - v_on < coalesce(cardinality(v_mine.gone_names), 0) then
      perform tailrace.wake_v1(of_queue);   -- others may have a slot for them
    end if;
  end if;

  if cardinality(v_names) > 0 then
    return query select m.* from tailrace.take_members_v1(
      of_queue, by_worker, new_token, known_tasks, strict_tasks, context_tasks, v_names, v_tenants, v_heads, k, suspect, not_now) m;
  end if;
  return query select null::bigint, null::bigint, null::int, null::text, null::text, null::double precision, null::int, null::int,
    null::double precision, jsonb_build_object('found', v_of_walk, 'walked', v_number, 'after', jsonb_build_array(v_name, v_tenant),
      'seconds', extract(epoch from v_walked - v_began), 'kept', v_kept), null::text, null::text;
end $$;

-- The next free groups behind a cursor whose next member is due: their names, tenants, the head that their row names (seen) and
-- the head that lives and must be taken. Locks each by name for the transaction, without waiting. Stops at `n` of them, else
-- after `walk` groups; says how many were passed and which was the last. With `these_names` only these groups are looked at.
create function tailrace.walk_groups_v1(
  of_queue text, known_tasks text[], n int, walk int, after_name text, after_tenant text, suspect boolean,
  these_names text[], these_tenants text[], not_now text[],
  out names text[], out tenants text[], out seen bigint[], out heads bigint[], out walked int, out last_name text, out last_tenant text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_now    timestamptz := clock_timestamp();
  v_schema bigint := pg_typeof(null::tailrace.job)::oid::bigint;
begin
  with recursive g(name, tenant, n) as (
    (select j.serial_group, j.tenant, 1 from tailrace.job j
     where not suspect and these_names is null and j.queue = of_queue and j.serial_group is not null and j.key_slot = 0
       and (j.serial_group, j.tenant) > (after_name, after_tenant)
     order by j.serial_group, j.tenant limit 1)
    union all
    select x.serial_group, x.tenant, g.n + 1
    from g cross join lateral (
      select j.serial_group, j.tenant from tailrace.job j
      where j.queue = of_queue and j.serial_group is not null and j.key_slot = 0 and (j.serial_group, j.tenant) > (g.name, g.tenant)
      order by j.serial_group, j.tenant limit 1) x
    where g.n < walk),
  s as (
    select x.serial_group, x.tenant, (row_number() over ())::int as n
    from (select j.serial_group, j.tenant from tailrace.job j
          where suspect and j.queue = of_queue and j.lost > 0 and j.key_slot = 0 and j.run_at <= v_now
            and coalesce(j.serial_group, '') <> ''   -- so that job_by_group does not offer itself
            and j.token is null and j.task = any (known_tasks)
          order by j.run_at, j.id limit walk) x),
  w as (
    select g.name, g.tenant, g.n from g union all select s.serial_group, s.tenant, s.n from s
    union all select e.name, e.tenant, e.n::int from unnest(these_names, these_tenants) with ordinality e(name, tenant, n)),
  c as materialized (
    select w.name, w.tenant, w.n, r.head as seen, b.id as head
    from w
    left join lateral (select x.token, x.head from tailrace.job_group x
                       where x.queue = of_queue and x.tenant = w.tenant and x.name = w.name offset 0) r on true
    left join lateral (select x.id, x.token, x.run_at, x.task, x.lost from tailrace.job x where x.id = r.head offset 0) b on true
    where r.token is null
      and case when b.id is not null
               then b.token is null and b.run_at <= v_now and b.task = any (known_tasks) and b.task <> all (not_now) and (b.lost > 0) = suspect
               else (select case when m.task <> all (not_now) then m.lost > 0 end from tailrace.job m
                     where m.queue = of_queue and m.serial_group = w.name and m.tenant = w.tenant and m.key_slot = 0 and m.token is null
                       and m.run_at <= v_now and m.task = any (known_tasks)
                     order by m.priority desc, m.run_at, m.id limit 1) = suspect end),
  l as materialized (
    select c.name, c.tenant, c.n, c.seen, c.head from c
    where pg_try_advisory_xact_lock(hashtextextended(of_queue || e'\n' || c.tenant || e'\n' || c.name, v_schema))
    limit walk_groups_v1.n),
  z as (   -- the last group that was looked at; the rest of the walk is not even made when enough was found
    select case when (select count(*) from l) >= walk_groups_v1.n then (select max(l.n) from l) else (select max(w.n) from w) end as n)
  select (select array_agg(l.name order by l.n) from l), (select array_agg(l.tenant order by l.n) from l),
         (select array_agg(l.seen order by l.n) from l), (select array_agg(l.head order by l.n) from l),
         coalesce(z.n, 0), w.name, w.tenant
    into names, tenants, seen, heads, walked, last_name, last_tenant
    from z left join lateral (select w.name, w.tenant from w where w.n = z.n limit 1) w on true;
end $$;

-- ---- rescans ------------------------------------------------------------------------------------------------------------
-- Ids above `low`, up to `high`, of free jobs of one priority that are due at one time, the one of a worker's floor: the lowest
-- first, 1001 or somewhat more. Read in pieces until `high` is passed: as conditions of a statement, the time as an equation
-- and the id as a bound, they let it go through the primary key, which has the jobs of all queues.
create function tailrace.free_at_floor_v1(queue text, priority int, run_at timestamptz, low bigint, high bigint, tasks text[])
returns setof bigint
language plpgsql stable rows 10
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
  v_piece int := 64;
  v_read  int;
  v_found bigint[];
  v_most  int := 1001;
begin
  while low < high and v_most > 0 loop
    select max(p.id), count(*), array_agg(p.id order by p.id) filter (where p.free and p.id <= high) into low, v_read, v_found
      from (select s.id, s.token is null and s.task = any (tasks) as free from tailrace.job s
            where s.queue = queue and s.serial_group is null and s.key_slot = 0 and s.lost = 0 and s.priority = priority
              and (s.run_at, s.id) > (run_at, low) and s.run_at <= run_at
            order by s.run_at, s.id limit v_piece) p;
    return query select f from unnest(v_found) f;
    exit when v_read < v_piece;
    v_most := v_most - coalesce(cardinality(v_found), 0);
    v_piece := least(4 * v_piece, 4096);
  end loop;
end $$;
