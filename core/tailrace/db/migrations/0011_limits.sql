-- Tailrace 0011: how many jobs of a queue or a task run at a time, and how many start in a period.
--
-- A slot (queue, name, n) names the job that holds it and the token of that run. It is free as soon as that job has that
-- token no more, and tokens never come back: so whatever ends a run frees its slot, in the same transaction and without a
-- statement of its own, and a crash leaves none behind. Rules:
--   * slots are taken with SKIP LOCKED, and only if the row still says what the snapshot said of it;
--   * whoever claims says which version of the limits it knows; a claim under an older one takes nothing;
--   * a limit that is new or lower counts only when every claim that began before the change has ended, and what runs then
--     has its slots (queue.limits_sure): settle_limits_v1;
--   * no statement of a worker waits for a lock here that an application can hold.
-- The unit of a rate is taken in a transaction of its own before the claim, and comes back with the next take if no job
-- was started for it, so starts never exceed burst + rate x time.

-- What of a queue's settings is about limits, in one value to compare.
create function tailrace.limit_part_v1(settings jsonb) returns jsonb
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
  select jsonb_build_object('limits', coalesce(settings -> 'limits', '{}'),
    'slots', coalesce((select jsonb_object_agg(l.name, l.most) from tailrace.limits_v1(settings) l), '{}'))
$$;

-- Refuse limits that could not be kept: settings also come from plain SQL.
create function tailrace.check_limits_v1(settings jsonb) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_field text;
begin
  select b.field into v_field from (
    select 'limits.concurrency' as field, settings #> '{limits,concurrency}' as value, false as needed
    union all
    select 'tasks.concurrencyLimit', tailrace.task_settings_v1(settings, t.name) -> 'concurrencyLimit', false
    from tailrace.task_names_v1(settings) t(name)
    union all
    select 'limits.rates.' || f.field, r.value -> f.field, f.field <> 'burst'
    from jsonb_array_elements(case when jsonb_typeof(settings #> '{limits,rates}') = 'array' then settings #> '{limits,rates}' else '[]' end) r
    cross join unnest('{jobs,periodSeconds,burst}'::text[]) f(field)) b
  where case when b.value is null or b.value = 'null' then b.needed
             when jsonb_typeof(b.value) <> 'number' then true
             else (b.value #>> '{}')::numeric not between 1 and 1000000 or (b.value #>> '{}')::numeric <> trunc((b.value #>> '{}')::numeric) end
  limit 1;
  if found then
    perform tailrace.refuse_v1('TR002', v_field, 'must be a whole number from 1 to 1000000', 'Correct it, or leave the limit out');
  end if;
  if exists (select from jsonb_array_elements(case when jsonb_typeof(settings #> '{limits,rates}') = 'array' then settings #> '{limits,rates}' else '[]' end) r
             where coalesce(r.value ->> 'name', '') = '')
     or jsonb_typeof(settings #> '{limits,rates}') not in ('array', 'null') then
    perform tailrace.refuse_v1('TR002', 'limits.rates', 'must be a list of rates with a name each', 'Correct it, or leave it out');
  end if;
end $$;

-- A change of limits gets a new version, which claims compare, and is told to the workers. A limit that is new or lower is
-- not sure yet.
create function tailrace.note_limits_v1() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_old jsonb := case when tg_op = 'UPDATE' then old.settings else '{}' end;
begin
  if tailrace.limit_part_v1(new.settings) = tailrace.limit_part_v1(v_old) then
    return new;
  end if;
  perform tailrace.check_limits_v1(new.settings);
  new.limits := greatest(new.limits + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint);
  if not exists (select from tailrace.limits_v1(new.settings)) then
    new.limits_sure := true;
  elsif exists (select from tailrace.limits_v1(new.settings) n left join tailrace.limits_v1(v_old) o on o.name = n.name
                where o.most is null or n.most < o.most) then
    new.limits_sure := false;
  end if;
  perform pg_notify(tailrace.signal_channel_v1(), new.name || '?');
  return new;
end $$;
create trigger queue_limits before insert or update of settings on tailrace.queue for each row execute function tailrace.note_limits_v1();

-- Make limits sure that are new or lower. The transactions that may claim under the old ones hold a lock on table lease since
-- before they looked; when those of a first call (null) have ended, what they took is visible and gets its slots.
-- Returns the transactions to wait for, to be passed to the next call; none when the limits are sure.
create function tailrace.settle_limits_v1(of_queue text, waiting text[] default null) returns text[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
declare
  v_table    oid := (select t.typrelid from pg_type t where t.oid = pg_typeof(null::tailrace.lease)::oid);
  v_open     text[];
  v_settings jsonb;
begin
  if not exists (select from tailrace.queue q where q.name = of_queue and not q.limits_sure) then
    return '{}';
  end if;
  v_open := array(select distinct l.virtualtransaction from pg_locks l
                  where l.locktype = 'relation' and l.relation = v_table and l.mode = 'RowExclusiveLock' and l.pid <> pg_backend_pid()
                    and l.database = (select d.oid from pg_database d where d.datname = current_database()));
  if waiting is not null then
    v_open := array(select w.w from unnest(waiting) w(w) where w.w = any (v_open));
  end if;
  if cardinality(v_open) > 0 then
    return v_open;
  end if;
  select q.settings into v_settings from tailrace.queue q where q.name = of_queue and not q.limits_sure for no key update skip locked;
  if not found then   -- somebody else is at it
    return '{}';
  end if;
  delete from tailrace.limit_slot s where s.queue = of_queue;
  with running as materialized (
    select j.id, l.token, j.task from tailrace.lease l cross join unnest(l.ids) i(id)
    cross join lateral (select o.id, o.task from tailrace.job o where o.id = i.id and o.token = l.token offset 0) j
    where l.queue = of_queue)
  insert into tailrace.limit_slot (queue, name, n, job, token)
    select of_queue, m.name, row_number() over (partition by m.name order by r.id), r.id, r.token
    from tailrace.limits_v1(v_settings) m join running r on m.name in ('', r.task);
  update tailrace.queue q set limits_sure = true where q.name = of_queue;
  perform pg_notify(tailrace.signal_channel_v1(), of_queue);
  return '{}';
end $$;

-- Lock up to `want` free slots up to number `most`, beginning anywhere, and say which. `look` bounds how many are looked at.
-- Arrays instead of joins: then the plan is an index scan by number, whatever the planner thinks of the table's size.
create function tailrace.free_slots_v1(of_queue text, of_name text, first int, most int, look int, want int) returns int[]
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_numbers int[];
  v_tokens  bigint[];
begin
  select array_agg(c.n), array_agg(c.token) into v_numbers, v_tokens from (
    select x.n, x.token
    from (select * from (select s.n, s.job, s.token from tailrace.limit_slot s
                         where s.queue = of_queue and s.name = of_name and s.n >= first and s.n <= most order by s.n) a
          union all
          select * from (select s.n, s.job, s.token from tailrace.limit_slot s
                         where s.queue = of_queue and s.name = of_name and s.n < first order by s.n) b
          limit look) x
    where x.token is null or not exists (select from tailrace.job j where j.id = x.job and j.token = x.token offset 0)
    limit want + 8) c;
  if v_numbers is null then
    return '{}';
  end if;
  return array(select s.n from tailrace.limit_slot s
               where s.queue = of_queue and s.name = of_name and s.n = any (v_numbers)
                 and s.token is not distinct from v_tokens[array_position(v_numbers, s.n)]   -- who took it meanwhile keeps it
               limit want for no key update of s skip locked);
end $$;

-- A limit was lowered: move what holds slots above it into free ones below. Returns whether nothing is left above.
create function tailrace.fold_slots_v1(of_queue text, of_name text, most int) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_above int;
  v_idle  int[];
  v_used  int[];
  v_free  int[];
  v_moved int;
begin
  with c as materialized (
    select s.n, s.token, s.token is not null and exists (select from tailrace.job j where j.id = s.job and j.token = s.token offset 0) as used
    from tailrace.limit_slot s where s.queue = of_queue and s.name = of_name and s.n > most),
  l as materialized (
    select s.n, c.used from c join tailrace.limit_slot s on s.queue = of_queue and s.name = of_name and s.n = c.n
      and s.token is not distinct from c.token
    for update of s skip locked)
  select (select count(*) from c), coalesce(array_agg(l.n) filter (where not l.used), '{}'), coalesce(array_agg(l.n) filter (where l.used), '{}')
    into v_above, v_idle, v_used from l;
  v_free := tailrace.free_slots_v1(of_queue, of_name, 1, most, most, cardinality(v_used));
  v_moved := cardinality(v_free);
  update tailrace.limit_slot s set job = o.job, token = o.token
    from unnest(v_free, v_used[1:v_moved]) u(n, above)
    join tailrace.limit_slot o on o.queue = of_queue and o.name = of_name and o.n = u.above
    where s.queue = of_queue and s.name = of_name and s.n = u.n;
  v_idle := v_idle || v_used[1:v_moved];
  delete from tailrace.limit_slot s where s.queue = of_queue and s.name = of_name and s.n = any (v_idle);
  return v_above = cardinality(v_idle);
end $$;

-- Lock up to `want` free slots of a limit for this transaction and say which. Rows are made as they are needed, so a limit of a
-- million costs what runs; while there are fewer than the limit allows, few are looked at before more are made.
create function tailrace.take_slots_v1(of_queue text, of_name text, most int, want int) returns int[]
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_last int;
  v_free int[] := '{}';
begin
  if want < 1 then
    return v_free;
  end if;
  v_last := coalesce((select s.n from tailrace.limit_slot s where s.queue = of_queue and s.name = of_name order by s.n desc limit 1), 0);
  if v_last > most then
    if not tailrace.fold_slots_v1(of_queue, of_name, most) then
      return v_free;
    end if;
    v_last := most;
  end if;
  if v_last > 0 then
    v_free := tailrace.free_slots_v1(of_queue, of_name, 1 + (random() * (v_last - 1))::int, most,
                                     case when v_last < most then 64 + 2 * want else most end, want);
  end if;
  if cardinality(v_free) < want and v_last < most
     and pg_try_advisory_xact_lock(hashtextextended(of_queue || e'\n' || of_name, pg_typeof(null::tailrace.limit_slot)::oid::bigint)) then
    v_last := coalesce((select s.n from tailrace.limit_slot s where s.queue = of_queue and s.name = of_name order by s.n desc limit 1), 0);
    insert into tailrace.limit_slot (queue, name, n)
      select of_queue, of_name, g.n from generate_series(v_last + 1, least(most, v_last + greatest(16, want))) g(n);
    select v_free || coalesce(array_agg(g.n), '{}') into v_free
      from generate_series(v_last + 1, least(most, v_last + want - cardinality(v_free))) g(n);
  end if;
  return v_free;
end $$;

-- Whether a claim that knows this version of the limits may take jobs: null, or why not.
create function tailrace.limit_state_v1(of_queue text, known_limits bigint) returns text
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return (select case when q.held or q.held_until > clock_timestamp() then 'held' when q.limits <> known_limits then 'changed'
                      when not q.limits_sure then 'unsure' end
          from tailrace.queue q where q.name = of_queue);
end $$;

-- Lock slots for up to n jobs: of the queue's limit, and for each class of its own.
--   room: for how many jobs; caps: for how many of each class; slots: of the queue; own: of the classes, one class after the
--   other, where those of class c begin behind froms[c]
create function tailrace.open_classes_v1(
  of_queue text, names text[], mosts int[], shares int[], queue_most int, n int,
  out room int, out caps int[], out slots int[], out own int[], out froms int[])
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_cap  int;
  v_some int[];
begin
  room := n;
  caps := '{}';
  own := '{}';
  froms := '{}';
  if queue_most is not null then
    slots := tailrace.take_slots_v1(of_queue, '', queue_most, n);
    room := cardinality(slots);
  end if;
  for v_class in 1 .. cardinality(shares) loop
    v_cap := least(shares[v_class], room);
    froms := froms || cardinality(own);
    if names[v_class] is not null and v_cap > 0 then
      v_some := tailrace.take_slots_v1(of_queue, names[v_class], mosts[v_class], v_cap);
      own := own || v_some;
      v_cap := cardinality(v_some);
    end if;
    caps := caps || v_cap;
  end loop;
end $$;

-- Give the slots that open_classes_v1 locked to jobs, whose classes are `of_classes`. The others stay as they were.
create function tailrace.fill_slots_v1(
  of_queue text, new_token bigint, ids bigint[], of_classes int[], names text[], slots int[], own int[], froms int[]) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_ids   bigint[];
  v_slots int[];
begin
  if slots is not null then
    v_slots := slots[1:cardinality(ids)];
    update tailrace.limit_slot s set job = ids[array_position(v_slots, s.n)], token = new_token
      where s.queue = of_queue and s.name = '' and s.n = any (v_slots);
  end if;
  for v_class in 1 .. cardinality(names) loop
    continue when names[v_class] is null;
    v_ids := array(select a.id from unnest(ids, of_classes) a(id, class) where a.class = v_class);
    v_slots := own[froms[v_class] + 1 : froms[v_class] + cardinality(v_ids)];
    update tailrace.limit_slot s set job = v_ids[array_position(v_slots, s.n)], token = new_token
      where s.queue = of_queue and s.name = names[v_class] and s.n = any (v_slots);
  end loop;
end $$;

-- Claim jobs of a queue that has limits or rates. Tasks that are limited alike form a class, which has floors of its own, so
-- that jobs behind a taken limit are passed once and not at each claim; among classes the order is that of any claim.
--   names, mosts: per class the limit that it alone has; null for none
--   shares:       per class how many jobs to take at most: what rates grant and what is free here
--   queue_most:   the limit of the queue, null for none
--   job_ids:      choose among these; none = above the floors, or with `suspect` one job that was lost before
-- Returns jobs as claim_batch does, and last one row whose id is null and whose extra says {"state": null, or held, changed,
-- unsure: nothing was looked at; "clock", "room": what the queue's limit left of n, "caps": what was left of the shares,
-- "found": jobs found per class; fewer than its cap: it was examined to the end}.
create function tailrace.claim_limited_v1(
  of_queue text, by_worker text, new_token bigint, known_limits bigint, known_tasks text[], classes int[], context_tasks text[],
  names text[], mosts int[], shares int[], queue_most int, n int,
  floor_classes int[], priorities int[], run_ats double precision[], floor_ids bigint[], job_ids bigint[], suspect boolean)
returns table (id bigint, token bigint, attempts int, task text, payload text, timeout double precision, priority int, mark int,
               run_at double precision, extra jsonb)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_now     timestamptz := clock_timestamp();
  v_state   text;
  o         record;     -- the slots
  v_picked  record;     -- the jobs
  v_found   int[] := '{}';
  v_ids     bigint[] := '{}';
begin
  lock table tailrace.lease in row exclusive mode;   -- before the look at the version: see settle_limits_v1
  v_state := tailrace.limit_state_v1(of_queue, known_limits);
  select * into o from tailrace.open_classes_v1(of_queue, names, mosts, shares, queue_most, case when v_state is null then n else 0 end);
  if o.room > 0 and (suspect or cardinality(job_ids) > 0) then
    select * into v_picked from tailrace.pick_limited_v1(of_queue, known_tasks, classes, o.caps, o.room, job_ids, suspect);
    v_ids := v_picked.ids;
  elsif o.room > 0 then
    select * into v_picked from tailrace.scan_limited_v1(
      of_queue, known_tasks, classes, o.caps, o.room, floor_classes, priorities, run_ats, floor_ids);
    v_ids := v_picked.ids;
    v_found := v_picked.counts;
  end if;

  if cardinality(v_ids) > 0 then
    insert into tailrace.lease (token, worker, queue, ids) values (new_token, by_worker, of_queue, v_ids);
    perform tailrace.fill_slots_v1(of_queue, new_token, v_ids, v_picked.of_classes, names, o.slots, o.own, o.froms);
    return query
      update tailrace.job j set token = new_token, attempts = j.attempts + (j.attempts < j.max_attempts)::int
      where j.id = any (v_ids)
      returning j.id, j.token, j.attempts, j.task, j.payload::text, date_part('epoch', j.timeout), j.priority,
        case when j.attempts < j.max_attempts and j.requeues = 0 and j.expires_at is null and j.key is null then 0
          else case when j.id = any (v_picked.spent) then 1 else 0 end + case when j.expires_at <= v_now then 2 else 0 end
            + case when j.requeues > 0 then 4 else 0 end + case when j.attempts >= j.max_attempts then 8 else 0 end
            + case when j.key is not null then 16 else 0 end end,
        date_part('epoch', j.run_at),
        case when j.task = any (context_tasks) or j.backoff is not null then jsonb_build_object(
          'tenant', j.tenant, 'key', j.key, 'meta', j.meta, 'saved', j.saved, 'max_attempts', j.max_attempts, 'backoff', j.backoff,
          'created_at', j.created_at, 'run_at', j.run_at, 'trace', j.trace)
        when j.key is not null then jsonb_build_object('tenant', j.tenant, 'key', j.key) end;
  end if;
  return query select null::bigint, null::bigint, null::int, null::text, null::text, null::double precision, null::int, null::int,
    null::double precision, jsonb_build_object('state', v_state, 'clock', date_part('epoch', v_now), 'room', o.room, 'caps', o.caps, 'found', v_found);
end $$;

-- Lock due jobs above the floors of each class, at most its cap, and choose `room` of them in the order of claims. Those that are
-- not chosen stay free; others pass them while this transaction lasts, and see them again with the next claim.
create function tailrace.scan_limited_v1(
  of_queue text, known_tasks text[], classes int[], caps int[], room int,
  floor_classes int[], priorities int[], run_ats double precision[], floor_ids bigint[],
  out ids bigint[], out of_classes int[], out spent bigint[], out counts int[])
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_now   timestamptz := clock_timestamp();
  v_tasks text[];
  v_row   record;
  v_ids   bigint[] := '{}';
  v_of    int[] := '{}';
  v_prios int[] := '{}';
  v_runs  timestamptz[] := '{}';
begin
  counts := '{}';
  spent := '{}';
  for v_class in 1 .. cardinality(caps) loop
    if caps[v_class] < 1 then
      counts := counts || 0;
      continue;
    end if;
    v_tasks := case when cardinality(caps) = 1 then known_tasks
                    else array(select t.name from unnest(known_tasks, classes) t(name, class) where t.class = v_class) end;
    with c as materialized (
      select j.id, j.spent, j.priority, j.run_at
      from (select f.priority, to_timestamp(f.run_at) as run_at, f.id
            from unnest(floor_classes, priorities, run_ats, floor_ids) f(class, priority, run_at, id) where f.class = v_class) p
      cross join lateral (
        select s.id, s.attempts >= s.max_attempts as spent, s.priority, s.run_at from tailrace.job s
        where s.queue = of_queue and s.serial_group is null and s.key_slot = 0 and s.lost = 0 and s.priority = p.priority
          and s.run_at <= v_now and (s.run_at, s.id) > (p.run_at, p.id) and s.token is null and s.task = any (v_tasks)
        order by s.run_at, s.id limit caps[v_class] for no key update of s skip locked) j
      limit caps[v_class])
    select coalesce(array_agg(c.id), '{}') as ids, array_agg(c.priority) as prios, array_agg(c.run_at) as runs,
           coalesce(array_agg(c.id) filter (where c.spent), '{}') as spent
      into v_row from c;
    counts := counts || cardinality(v_row.ids);
    if cardinality(v_row.ids) > 0 then
      v_ids := v_ids || v_row.ids;
      v_of := v_of || array_fill(v_class, array[cardinality(v_row.ids)]);
      v_prios := v_prios || v_row.prios;
      v_runs := v_runs || v_row.runs;
      spent := spent || v_row.spent;
    end if;
  end loop;
  if cardinality(v_ids) <= room then   -- all are taken, so their order does not matter
    ids := v_ids;
    of_classes := v_of;
    return;
  end if;
  select coalesce(array_agg(o.id order by o.priority desc, o.run_at, o.id), '{}'),
         coalesce(array_agg(o.class order by o.priority desc, o.run_at, o.id), '{}')
    into ids, of_classes
    from (select u.id, u.class, u.priority, u.run_at from unnest(v_ids, v_of, v_prios, v_runs) u(id, class, priority, run_at)
          order by u.priority desc, u.run_at, u.id limit room) o;
end $$;

-- Lock given jobs, or one that was lost before, as far as the caps of their classes allow.
create function tailrace.pick_limited_v1(
  of_queue text, known_tasks text[], classes int[], caps int[], room int, job_ids bigint[], suspect boolean,
  out ids bigint[], out of_classes int[], out spent bigint[])
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_now   timestamptz := clock_timestamp();
  v_tasks text[] := array(select t.name from unnest(known_tasks, classes) t(name, class) where caps[t.class] > 0);
begin
  with one as materialized (
    select s.id, s.attempts >= s.max_attempts as spent, s.task, s.priority, s.run_at from tailrace.job s
    where suspect and s.queue = of_queue and s.lost > 0 and s.serial_group is null and s.key_slot = 0
      and s.run_at <= v_now and s.token is null and s.task = any (v_tasks)
    order by s.run_at, s.id limit 1 for no key update of s skip locked),
  many as materialized (
    select x.id, x.attempts >= x.max_attempts as spent, x.task, x.priority, x.run_at from tailrace.job x
    where not suspect and x.id = any (job_ids) and x.queue = of_queue and x.serial_group is null and x.lost = 0 and x.key_slot + 0 = 0
      and x.token is null and x.run_at <= v_now and x.task = any (v_tasks)
    order by x.priority desc, x.run_at, x.id limit room for no key update of x skip locked),
  c as (
    select a.id, a.spent, a.priority, a.run_at, k.class, row_number() over (partition by k.class order by a.priority desc, a.run_at, a.id) as rn
    from (select * from one union all select * from many) a
    cross join lateral (select t.class from unnest(known_tasks, classes) t(name, class) where t.name = a.task limit 1) k)
  select coalesce(array_agg(c.id order by c.priority desc, c.run_at, c.id), '{}'),
         coalesce(array_agg(c.class order by c.priority desc, c.run_at, c.id), '{}'), coalesce(array_agg(c.id) filter (where c.spent), '{}')
    into ids, of_classes, spent
    from c where c.rn <= caps[c.class];
end $$;

-- A turn at the groups of a queue that has limits or rates: turn_groups_v1 for as many members as they allow, one of a group at a
-- time. Classes may have few slots each, and a turn takes the next member whatever its task: so a turn takes no more groups
-- than one of the classes has room for, drawn by lot, and leaves those whose next member is of a class with less.
-- Returns members as turn_groups_v1 does; the extra of the last row says also what that of claim_limited_v1 says.
create function tailrace.turn_limited_v1(
  of_queue text, by_worker text, new_token bigint, known_limits bigint, known_tasks text[], classes int[], strict_tasks text[],
  context_tasks text[], names text[], mosts int[], shares int[], queue_most int,
  ended_names text[], ended_tenants text[], ended_tokens bigint[], unsettled bigint[],
  n int, walk int, after_name text, after_tenant text, suspect boolean)
returns table (id bigint, token bigint, attempts int, task text, payload text, timeout double precision, priority int, mark int,
               run_at double precision, extra jsonb, serial_group text, tenant text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
  v_state text;
  o       record;
  v_n     int;
  v_later text[];
  v_ids   bigint[] := '{}';
  v_of    int[] := '{}';
  v_row   record;
begin
  lock table tailrace.lease in row exclusive mode;
  v_state := tailrace.limit_state_v1(of_queue, known_limits);
  select * into o from tailrace.open_classes_v1(of_queue, names, mosts, shares, queue_most, case when v_state is null then n else 0 end);
  v_n := coalesce((select c.cap from unnest(o.caps) c(cap) where c.cap > 0 order by random() limit 1), 0);
  v_later := array(select t.name from unnest(known_tasks, classes) t(name, class) where o.caps[t.class] < v_n);
  for v_row in
    select m.* from tailrace.turn_groups_v1(of_queue, by_worker, new_token, known_tasks, strict_tasks, context_tasks,
      ended_names, ended_tenants, ended_tokens, unsettled, v_n, 1, walk, after_name, after_tenant, suspect, known_limits, v_later) m
  loop
    id := v_row.id; token := v_row.token; attempts := v_row.attempts; task := v_row.task; payload := v_row.payload;
    timeout := v_row.timeout; priority := v_row.priority; mark := v_row.mark; run_at := v_row.run_at; extra := v_row.extra;
    serial_group := v_row.serial_group; tenant := v_row.tenant;
    if id is null then
      extra := extra || jsonb_build_object('state', v_state, 'clock', date_part('epoch', clock_timestamp()), 'room', o.room, 'caps', o.caps);
    else
      v_ids := v_ids || id;
      v_of := v_of || classes[array_position(known_tasks, task)];
    end if;
    return next;
  end loop;
  if cardinality(v_ids) > 0 then
    perform tailrace.fill_slots_v1(of_queue, new_token, v_ids, v_of, names, o.slots, o.own, o.froms);
  end if;
end $$;

-- Take units of rates before a claim, and give back those that no job was started for. To be committed by itself.
--   wants:       per class how many jobs it would start
--   of_classes, of_names: which rates a class needs a unit of, for each job
--   backs:       units of the rates `back_names` that come back
-- Returns per class what is granted, and in how many seconds more is due (0 when all was granted); nothing when the version
-- that the caller knows is not the one that holds.
create function tailrace.take_rates_v1(
  of_queue text, known_limits bigint, wants int[], of_classes int[], of_names text[], back_names text[], backs int[])
returns table (class int, granted int, wait double precision)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
declare
  v_settings jsonb;
  v_rate     record;
  v_row      tailrace.rate;
  v_now      timestamptz;
  v_names    text[] := '{}';
  v_left     double precision[] := '{}';
  v_speeds   double precision[] := '{}';
  v_bursts   double precision[] := '{}';
  v_ats      timestamptz[] := '{}';
  v_at       int;
begin
  select q.settings into v_settings from tailrace.queue q where q.name = of_queue and q.limits = known_limits;
  if not found then
    return;
  end if;
  for v_rate in   -- as rates_v1 reads it, whose plan is not kept
    select r.value ->> 'name' as name, (r.value ->> 'jobs')::double precision as jobs, (r.value ->> 'periodSeconds')::double precision as period,
           coalesce((r.value ->> 'burst')::double precision, (r.value ->> 'jobs')::double precision) as burst
    from jsonb_array_elements(v_settings #> '{limits,rates}') r where r.value ->> 'name' = any (of_names || back_names) order by 1
  loop
    select r.* into v_row from tailrace.rate r where r.queue = of_queue and r.name = v_rate.name for no key update;
    if not found then
      insert into tailrace.rate (queue, name, jobs, period, burst, tokens, at)
        values (of_queue, v_rate.name, v_rate.jobs, v_rate.period * interval '1 second', v_rate.burst, v_rate.burst, clock_timestamp())
        on conflict (queue, name) do nothing;
      select r.* into v_row from tailrace.rate r where r.queue = of_queue and r.name = v_rate.name for no key update;
    end if;
    v_now := clock_timestamp();   -- after the wait for others; a clock that steps back gives nothing and takes nothing
    v_names := v_names || v_rate.name;
    v_speeds := v_speeds || v_rate.jobs / v_rate.period;
    v_bursts := v_bursts || v_rate.burst;
    v_left := v_left || least(v_rate.burst, v_row.tokens
      + greatest(extract(epoch from v_now - v_row.at)::double precision, 0) * v_rate.jobs / v_rate.period
      + coalesce((select sum(b.n) from unnest(back_names, backs) b(name, n) where b.name = v_rate.name), 0));
    v_ats := v_ats || v_now;
    if (v_row.jobs, v_row.period, v_row.burst) is distinct from (v_rate.jobs, v_rate.period * interval '1 second', v_rate.burst) then
      update tailrace.rate r set jobs = v_rate.jobs, period = v_rate.period * interval '1 second', burst = v_rate.burst
        where r.queue = of_queue and r.name = v_rate.name;
    end if;
  end loop;

  for v_class in 1 .. cardinality(wants) loop
    continue when not v_class = any (of_classes);
    class := v_class;
    granted := wants[v_class];
    for v_at in select array_position(v_names, o.name) from unnest(of_classes, of_names) o(class, name) where o.class = v_class loop
      granted := least(granted, floor(v_left[v_at] + 1e-9));   -- a unit that is due by rounding; the debt is kept
    end loop;
    wait := 0;
    for v_at in select array_position(v_names, o.name) from unnest(of_classes, of_names) o(class, name) where o.class = v_class loop
      v_left[v_at] := v_left[v_at] - granted;
      if granted < wants[v_class] then   -- until a unit is due; of a fast rate until some are
        wait := greatest(wait, (1 - v_left[v_at]) / v_speeds[v_at],
                         least(0.05, (wants[v_class] - granted - v_left[v_at]) / v_speeds[v_at], (v_bursts[v_at] - v_left[v_at]) / v_speeds[v_at]));
      end if;
    end loop;
    return next;
  end loop;
  for v_at in 1 .. cardinality(v_names) loop
    update tailrace.rate r set tokens = v_left[v_at], at = v_ats[v_at] where r.queue = of_queue and r.name = v_names[v_at];
  end loop;
end $$;

-- Housekeeping: empty the slots whose run has ended, and remove slots and rates that no settings name. What is locked stays.
create function tailrace.tidy_limits_v1(most int default 10000) returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_n    bigint;
  v_done bigint;
begin
  with c as materialized (
    select s.queue, s.name, s.n, s.token from tailrace.limit_slot s
    where s.token is not null and not exists (select from tailrace.job j where j.id = s.job and j.token = s.token offset 0) limit most),
  l as materialized (
    select s.place from c cross join lateral (
      select x.ctid as place from tailrace.limit_slot x where x.queue = c.queue and x.name = c.name and x.n = c.n and x.token = c.token
      offset 0 for no key update of x skip locked) s)
  update tailrace.limit_slot s set job = null, token = null where s.ctid = any (array(select l.place from l));
  get diagnostics v_done = row_count;
  delete from tailrace.limit_slot s where s.ctid = any (array(
    select x.ctid from tailrace.limit_slot x
    where not exists (select from tailrace.queue q cross join lateral tailrace.limits_v1(q.settings) m where q.name = x.queue and m.name = x.name offset 0)
    limit most for update skip locked));
  get diagnostics v_n = row_count;
  v_done := v_done + v_n;
  delete from tailrace.rate r where r.ctid = any (array(
    select x.ctid from tailrace.rate x
    where not exists (select from tailrace.queue q cross join lateral tailrace.rates_v1(q.settings) m where q.name = x.queue and m.name = x.name offset 0)
    limit most for update skip locked));
  get diagnostics v_n = row_count;
  return v_done + v_n;
end $$;
