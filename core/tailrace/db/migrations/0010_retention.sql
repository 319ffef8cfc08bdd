-- Tailrace 0010: what goes and what comes back by itself: retention and requeue of dead letters, and the history of jobs.
--
-- Both routines walk the dead letters of a queue from the oldest on and remember how far they have looked, so a run costs
-- what has come since the run before, and a row that cannot be changed is passed once an hour only. A call is one batch, as
-- in 0005: it holds the routine's advisory lock, takes rows with SKIP LOCKED and waits for nobody. The two run with their
-- owner's rights, since a worker that stands in may neither delete dead letters nor insert jobs otherwise.

-- ---- tables -----------------------------------------------------------------------------------------------------------
create table tailrace.maintenance_place (
  routine        text,
  queue          text,
  kind           text,
  rule           jsonb not null default '{}',
  at             timestamptz not null default '-infinity',
  id             bigint not null default 0,
  since          timestamptz not null default clock_timestamp(),
  primary key (routine, queue, kind)
) with (fillfactor = 50);

alter table tailrace.dead_letter add column auto_requeued int not null default 0;
create index dead_letter_resolved on tailrace.dead_letter (queue, (coalesce(resolved_at, failed_at)), job_id) where state = 'resolved';

comment on table tailrace.maintenance_place is 'How far the routines that walk the dead letters of a queue have looked.';
comment on column tailrace.maintenance_place.routine is 'which';
comment on column tailrace.maintenance_place.queue is 'of which queue';
comment on column tailrace.maintenance_place.kind is 'the state of the dead letters that it walks';
comment on column tailrace.maintenance_place.rule is 'the settings it followed; when they change it begins anew';
comment on column tailrace.maintenance_place.at is 'the time of the last row it looked at';
comment on column tailrace.maintenance_place.id is 'the number of that row';
comment on column tailrace.maintenance_place.since is 'when it began; after an hour it begins anew';
comment on column tailrace.dead_letter.auto_requeued is 'how often it was requeued by itself';

-- ---- the walk over dead letters ---------------------------------------------------------------------------------------
-- Where a routine goes on in one queue. It begins anew when its rule has changed or an hour has passed, so that rows which
-- were locked, in conflict or broken are met again.
create function tailrace.place_v1(routine text, queue text, kind text, rule jsonb) returns tailrace.maintenance_place
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  v_now   timestamptz := clock_timestamp();
  v_place tailrace.maintenance_place;
begin
  select p.* into v_place from tailrace.maintenance_place p
    where p.routine = routine and p.queue = queue and p.kind = kind and p.rule = rule and p.since between v_now - interval '1 hour' and v_now;
  if not found then
    v_place := (routine, queue, kind, rule, '-infinity', 0, v_now);
  end if;
  return v_place;
end $$;

create function tailrace.keep_place_v1(place tailrace.maintenance_place) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  insert into tailrace.maintenance_place select (place).*
    on conflict (routine, queue, kind) do update set rule = excluded.rule, at = excluded.at, id = excluded.id, since = excluded.since
$$;

-- Whether an error belongs to a row, so that the other rows go on without it. Faults of the server (read-only, no right, a
-- full disk) are not, and are raised.
create function tailrace.is_row_fault_v1(state text) returns boolean
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
  select state in ('55P03', '40P01') or left(state, 2) in ('22', '23', 'P0', 'TR')
$$;

-- ---- retention --------------------------------------------------------------------------------------------------------
-- Before which moment a queue's dead letters of a state are too old.
create function tailrace.retention_cutoff_v1(settings jsonb, kind text, now timestamptz) returns timestamptz
language sql stable parallel safe set search_path = pg_catalog, pg_temp as $$
  select now - interval '1 second' * case kind
    when 'dead' then tailrace.setting_number_v1(settings -> 'deadLetters', 'retentionSeconds', 7776000)
    else tailrace.setting_number_v1(settings -> 'deadLetters', 'resolvedRetentionSeconds', 604800) end
$$;

-- Delete dead letters that are locked by us and still in this state: one set, and where a row spoils it, halves of it down
-- to that row alone, which stays. Returns those that are gone.
create function tailrace.delete_letters_v1(ids bigint[], kind text) returns bigint[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off set lock_timeout = '50ms'
as $$
declare
  v_n    int := cardinality(ids);
  v_gone bigint[];
begin
  if v_n = 0 then
    return '{}';
  end if;
  begin
    with gone as (delete from tailrace.dead_letter d where d.job_id = any (ids) and d.state = kind returning d.job_id, d.queue, d.task),
    counted as (insert into tailrace.tally (queue, task, what, n) select g.queue, g.task, 'deleted', count(*) from gone g group by 1, 2)
    select coalesce(array_agg(g.job_id), '{}') into v_gone from gone g;
    return v_gone;
  exception when others then
    if not tailrace.is_row_fault_v1(sqlstate) then
      raise;
    end if;
    if v_n = 1 then
      raise warning 'tailrace: dead letter % cannot be deleted: % (%)', ids[1], sqlerrm, sqlstate;
      return '{}';
    end if;
  end;
  return tailrace.delete_letters_v1(ids[1:v_n / 2], kind) || tailrace.delete_letters_v1(ids[v_n / 2 + 1:v_n], kind);
end $$;

-- One queue's dead letters of one state that are too old, the oldest first, at most `most`: counted in `report`, with the
-- number that was looked at.
create function tailrace.retain_queue_v1(queue text, kind text, cutoff timestamptz, most int, inout report jsonb, out seen int)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_variable
declare
  v_place  tailrace.maintenance_place := tailrace.place_v1('retention', queue, kind, '{}');
  v_last   timestamptz;
  v_found  bigint[];
  v_tasks  text[];
  v_locked bigint[];
  v_gone   bigint[];
begin
  if kind = 'dead' then
    select array_agg(x.job_id), array_agg(x.task), max(x.failed_at) into v_found, v_tasks, v_last
      from (select d.job_id, d.task, d.failed_at from tailrace.dead_letter d
            where d.queue = queue and d.queue <> '' and d.state = 'dead' and d.failed_at < cutoff and (d.failed_at, d.job_id) > (v_place.at, v_place.id)
            order by d.failed_at, d.job_id limit most) x;
  else
    select array_agg(x.job_id), array_agg(x.task), max(x.at) into v_found, v_tasks, v_last
      from (select d.job_id, d.task, coalesce(d.resolved_at, d.failed_at) as at from tailrace.dead_letter d
            where d.queue = queue and d.state = 'resolved' and coalesce(d.resolved_at, d.failed_at) < cutoff
              and (coalesce(d.resolved_at, d.failed_at), d.job_id) > (v_place.at, v_place.id)
            order by coalesce(d.resolved_at, d.failed_at), d.job_id limit most) x;
  end if;
  seen := coalesce(cardinality(v_found), 0);
  if seen = 0 then
    return;
  end if;
  v_locked := array(select d.job_id from tailrace.dead_letter d where d.job_id = any (v_found) order by d.job_id for update skip locked);
  v_gone := tailrace.delete_letters_v1(v_locked, kind);
  v_place.at := v_last;
  v_place.id := v_found[seen];
  perform tailrace.keep_place_v1(v_place);
  report := report || (select coalesce(jsonb_agg(jsonb_build_object('queue', queue, 'task', g.task, 'result', g.result, 'n', g.n)), '[]')
    from (select t.task, case when t.id = any (v_gone) then kind when t.id = any (v_locked) then 'failed' else 'skipped' end as result,
                 count(*) as n
          from unnest(v_found, v_tasks) t(id, task) group by 1, 2) g);
end $$;

-- One batch of the retention: deletes dead letters in state dead and resolved that are older than their queue keeps them.
-- Those that are requeued stay: their job lives. Queues come in a random order, so a full one does not keep the others.
-- Returns {"rows": [{"queue", "task", "result": dead, resolved, failed or skipped, "n"}], "more": whether to call again}.
create function tailrace.retain_v1(queue text default null, batch int default 500) returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  v_now   timestamptz := clock_timestamp();
  v_left  int := batch;
  v_rows  jsonb := '[]';
  v_seen  int;
  v_queue record;
  v_kind  text;
begin
  if batch < 1 then
    perform tailrace.refuse_v1('TR002', 'batch', 'must be at least 1', 'The default is 500');
  end if;
  if not tailrace.begin_routine_v1('retention') then
    return '{"locked": true}';
  end if;
  <<work>>
  for v_queue in select n.queue as name, q.settings from tailrace.dead_letter_queues_v1() n left join tailrace.queue q on q.name = n.queue
                 where queue is null or n.queue = queue order by random() loop
    foreach v_kind in array '{dead,resolved}'::text[] loop
      select r.report, r.seen into v_rows, v_seen
        from tailrace.retain_queue_v1(v_queue.name, v_kind, tailrace.retention_cutoff_v1(v_queue.settings, v_kind, v_now), v_left, v_rows) r;
      v_left := v_left - v_seen;
      exit work when v_left = 0;
    end loop;
  end loop;
  perform tailrace.end_routine_v1('retention', coalesce(queue, ''));
  return jsonb_build_object('rows', v_rows, 'more', v_left = 0);
end $$;

-- ---- dead letters that come back by themselves ------------------------------------------------------------------------
-- Whether a queue's rule lets a dead letter come back: the kind of its last error is listed, it has not come back as often
-- as it may, and nobody has said that it is final (NoRetry, no_retry) or put it there by hand.
create function tailrace.comes_back_v1(rule jsonb, error_type text, reason text, times int) returns boolean
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
  select times < tailrace.setting_number_v1(rule, 'maxTimes', 0) and rule -> 'errorTypes' ? error_type and reason not in ('permanent', 'manual')
$$;

-- One queue's dead letters that the rule lets come back, the oldest first, at most `most` of the `slice` next ones.
create function tailrace.auto_requeue_queue_v1(queue text, rule jsonb, slice int, most int, inout report jsonb, out seen int, out taken int)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_variable
declare
  v_place  tailrace.maintenance_place := tailrace.place_v1('auto_requeue', queue, 'dead', rule);
  v_cutoff timestamptz := clock_timestamp() - tailrace.setting_number_v1(rule, 'afterSeconds', 1e9) * interval '1 second';
  v_ids    bigint[];
  v_tasks  text[];
  v_times  timestamptz[];
  v_last   timestamptz;
  v_end    bigint;
  v_locked bigint[];
begin
  select count(*), max(x.failed_at), (array_agg(x.job_id))[count(*)],
         coalesce(array_agg(x.job_id) filter (where x.again), '{}'), array_agg(x.task) filter (where x.again),
         array_agg(x.failed_at) filter (where x.again)
    into seen, v_last, v_end, v_ids, v_tasks, v_times
    from (select d.job_id, d.task, d.failed_at, tailrace.comes_back_v1(rule, d.error_type, d.reason, d.auto_requeued) as again
          from tailrace.dead_letter d
          where d.queue = queue and d.queue <> '' and d.state = 'dead' and d.failed_at <= v_cutoff and (d.failed_at, d.job_id) > (v_place.at, v_place.id)
          order by d.failed_at, d.job_id limit slice) x;
  taken := least(cardinality(v_ids), most);
  if seen = 0 then
    return;
  end if;
  if cardinality(v_ids) > most then   -- the next call goes on behind the last one that is taken
    v_last := v_times[most];
    v_end := v_ids[most];
    v_ids := v_ids[1:most];
    v_tasks := v_tasks[1:most];
  end if;
  v_locked := array(select d.job_id from tailrace.dead_letter d where cardinality(v_ids) > 0 and d.job_id = any (v_ids) order by d.job_id for update skip locked);
  with done as materialized (
    select r.job_id as id, case when r.outcome in ('requeued', 'conflict', 'failed') then r.outcome else 'skipped' end as result
    from unnest(tailrace.change_each_v1('requeue', v_locked, '{"auto": true}', 'infinity')) r)
  select report || coalesce(jsonb_agg(jsonb_build_object('queue', queue, 'task', g.task, 'result', g.result, 'n', g.n)), '[]') into report
    from (select t.task, coalesce(d.result, 'skipped') as result, count(*) as n
          from unnest(v_ids, v_tasks) t(id, task) left join done d on d.id = t.id group by 1, 2) g;
  v_place.at := v_last;
  v_place.id := v_end;
  perform tailrace.keep_place_v1(v_place);
end $$;

-- One batch of the automatic requeue: in queues that have a rule (deadLetters.autoRequeue), dead letters whose last failure
-- is afterSeconds old come back as jobs, each maxTimes at most in all its lives.
-- Returns {"rows": [{"queue", "task", "result": requeued, conflict, skipped or failed, "n"}], "seen", "more": whether to call again}.
create function tailrace.auto_requeue_v1(queue text default null, batch int default 500) returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  v_left  int := batch;
  v_slice int := 10 * batch;
  v_rows  jsonb := '[]';
  v_queue record;
  v_look  record;
  v_seen  int := 0;
begin
  if batch < 1 then
    perform tailrace.refuse_v1('TR002', 'batch', 'must be at least 1', 'The default is 500');
  end if;
  if not tailrace.begin_routine_v1('auto_requeue') then
    return '{"locked": true}';
  end if;
  for v_queue in select q.name, q.settings #> '{deadLetters,autoRequeue}' as rule from tailrace.queue q
                 where jsonb_typeof(q.settings #> '{deadLetters,autoRequeue}') = 'object' and (queue is null or q.name = queue)
                 order by random() loop
    select r.* into v_look from tailrace.auto_requeue_queue_v1(v_queue.name, v_queue.rule, v_slice - v_seen, v_left, v_rows) r;
    v_rows := v_look.report;
    v_left := v_left - v_look.taken;
    v_seen := v_seen + v_look.seen;
    exit when v_left = 0 or v_seen >= v_slice;
  end loop;
  perform tailrace.end_routine_v1('auto_requeue', coalesce(queue, ''));
  return jsonb_build_object('rows', v_rows, 'seen', v_seen, 'more', v_left = 0 or v_seen >= v_slice);
end $$;

-- ---- the history of jobs ----------------------------------------------------------------------------------------------
-- One row for each job that ended, in queues that keep a history, and for each result that a task keeps. In partitions by
-- time, which the retention makes ahead and drops as a whole; what has no partition of its own goes to the default one.
create table tailrace.finished (
  id             bigint not null,
  queue          text not null,
  task           text not null,
  tenant         text not null,
  key            text,
  outcome        text not null,
  attempts       int not null,
  created_at     timestamptz not null,
  finished_at    timestamptz not null,
  result         jsonb,
  result_until   timestamptz,
  meta           jsonb
) partition by range (finished_at);
create index finished_id on tailrace.finished (id);
create index finished_result on tailrace.finished (result_until) where result_until is not null;

comment on table tailrace.finished is 'Jobs that ended, where their queue keeps a history or their task its results; in partitions by time.';
comment on column tailrace.finished.id is 'the job''s number';
comment on column tailrace.finished.queue is 'as in table job';
comment on column tailrace.finished.task is 'as in table job';
comment on column tailrace.finished.tenant is 'as in table job';
comment on column tailrace.finished.key is 'as in table job';
comment on column tailrace.finished.outcome is 'succeeded, dead, cancelled, expired, replaced or dropped';
comment on column tailrace.finished.attempts is 'runs it took';
comment on column tailrace.finished.created_at is 'when it was enqueued';
comment on column tailrace.finished.finished_at is 'when it ended';
comment on column tailrace.finished.result is 'what its handler returned, at most 64 KiB, if its task keeps results';
comment on column tailrace.finished.result_until is 'how long the result is kept; null = there is none';
comment on column tailrace.finished.meta is 'as in table job';

create function tailrace.history_table_v1() returns regclass
language sql stable set search_path = pg_catalog, pg_temp as $$
  select c.oid::regclass from pg_type t join pg_class c on c.relnamespace = t.typnamespace and c.relname = 'finished'
  where t.oid = pg_typeof(null::tailrace.job)::oid
$$;

-- A table like the whole, with its comments, to be attached as a partition.
create function tailrace.make_partition_v1(name text) returns regclass
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_whole  regclass := tailrace.history_table_v1();
  v_schema text := (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = v_whole);
  v_column record;
begin
  execute format('create table %I.%I (like %s including all)', v_schema, name, v_whole);
  execute format('comment on table %I.%I is %L', v_schema, name, 'A part of table finished.');
  for v_column in select a.attname, col_description(v_whole, a.attnum) as said from pg_attribute a
                  where a.attrelid = v_whole and a.attnum > 0 and not a.attisdropped loop
    execute format('comment on column %I.%I.%I is %L', v_schema, name, v_column.attname, v_column.said);
  end loop;
  return format('%I.%I', v_schema, name)::regclass;
end $$;

do $$ begin
  execute format('alter table %s attach partition %s default', tailrace.history_table_v1(), tailrace.make_partition_v1('finished_default'));
end $$;

-- The partitions with their bounds; the default one has none.
create function tailrace.partitions_v1() returns table (part regclass, begins timestamptz, ends timestamptz)
language sql stable set search_path = pg_catalog, pg_temp set timezone = 'UTC' set datestyle = 'ISO' as $$
  select c.oid::regclass, (b.bounds)[1]::timestamptz, (b.bounds)[2]::timestamptz
  from pg_inherits i join pg_class c on c.oid = i.inhrelid
  cross join lateral (select regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''([^'']+)''\) TO \(''([^'']+)''\)') as bounds) b
  where i.inhparent = tailrace.history_table_v1()
$$;

-- How long rows of the history are kept, by the queue that keeps them longest; zero when no queue has one.
create function tailrace.history_kept_v1() returns interval
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce(max(tailrace.setting_number_v1(q.settings -> 'history', 'retentionSeconds', 0)), 0) * interval '1 second'
  from tailrace.queue q where q.settings ? 'history'
$$;

-- Whether nobody needs a part of the history any more: all its rows are older than any queue keeps them, and no result of
-- it is kept longer. Old parts are named by their end, the default one by its newest row.
create function tailrace.outlived_v1(part regclass, ends timestamptz, kept interval) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_last   timestamptz := ends;
  v_needed boolean;
begin
  if v_last is null then
    execute format('select max(finished_at) from %s', part) into v_last;
  end if;
  if v_last is null or v_last >= clock_timestamp() - kept then
    return false;
  end if;
  execute format('select exists (select from %s where result_until >= clock_timestamp())', part) into v_needed;
  return not v_needed;
end $$;

-- Take a lock on a table that stops everybody else: tried twenty times without waiting, so that nobody queues up behind us,
-- then once for a twentieth of a second. False if it could not be had.
create function tailrace.lock_all_v1(relation regclass) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '50ms' as $$
begin
  for i in 1 .. 21 loop
    begin
      execute format('lock table %s in access exclusive mode %s', relation, case when i <= 20 then 'nowait' end);
      return true;
    exception when lock_not_available then
      perform pg_sleep(0.01);
    end;
  end loop;
  return false;
end $$;

-- Make the partitions of the history for the time to come: of an hour where nothing is kept for more than two days, else of a
-- day, a week or a month, so that there are never some hundreds of them. A part whose time has begun takes the rows that have gone to the default one in the meantime, unless they are many.
create function tailrace.add_partitions_v1(kept interval) returns int
language plpgsql volatile set search_path = pg_catalog, pg_temp set timezone = 'UTC' set datestyle = 'ISO' set lock_timeout = '50ms' as $$
declare
  v_unit    text := case when kept > interval '400 days' then 'month' when kept > interval '60 days' then 'week'
                         when kept > interval '2 days' then 'day' else 'hour' end;
  v_step    interval := ('1 ' || v_unit)::interval;
  v_until   timestamptz := clock_timestamp() + case v_unit when 'hour' then interval '6 hours' when 'day' then interval '3 days'
                                                           when 'week' then interval '10 days' else interval '40 days' end;
  v_begin   timestamptz := greatest(date_trunc(v_unit, clock_timestamp()), (select max(p.ends) from tailrace.partitions_v1() p));
  v_end     timestamptz;
  v_default regclass := (select p.part from tailrace.partitions_v1() p where p.ends is null);
  v_part    regclass;
  v_made    int := 0;
begin
  while v_begin < v_until loop
    v_end := date_trunc(v_unit, v_begin) + v_step;
    begin
      v_part := tailrace.make_partition_v1('finished_' || to_char(v_begin, 'YYYYMMDD"t"HH24'));
      if v_default is not null then
        if (select count(*) from (select from tailrace.finished f where f.finished_at >= v_begin and f.finished_at < v_end limit 10001) n) > 10000
           or not tailrace.lock_all_v1(v_default) then
          raise exception using errcode = 'TR000';
        end if;
        execute format('with moved as (delete from %s where finished_at >= $1 and finished_at < $2 returning id, queue, task, tenant, key, '
          'outcome, attempts, created_at, finished_at, result, result_until, meta) insert into %s select id, queue, task, tenant, key, '
          'outcome, attempts, created_at, finished_at, result, result_until, meta from moved', v_default, v_part) using v_begin, v_end;
      end if;
      execute format('alter table %s attach partition %s for values from (%L) to (%L)', tailrace.history_table_v1(), v_part, v_begin, v_end);
      v_made := v_made + 1;
    exception when sqlstate 'TR000' or lock_not_available or duplicate_table or invalid_object_definition or check_violation then
      null;   -- this part stays with the default one; the next is tried
    end;
    v_begin := v_end;
  end loop;
  return v_made;
end $$;

-- One batch of the history's upkeep: drops at most ten parts that nobody needs, the oldest first, and makes those to come
-- where the history is in use. Returns {"made", "dropped", "kept": parts that could not be had just now}.
create function tailrace.history_v1() returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_kept    interval := tailrace.history_kept_v1();
  v_part    record;
  v_made    int := 0;
  v_dropped int := 0;
  v_busy    int := 0;
begin
  if not tailrace.begin_routine_v1('retention') then
    return '{"locked": true}';
  end if;
  if v_kept > interval '0' or exists (select from tailrace.finished) then
    v_made := tailrace.add_partitions_v1(greatest(v_kept,
      (select max(f.result_until) from tailrace.finished f where f.result_until is not null) - clock_timestamp()));
  end if;
  for v_part in select p.part, p.ends from tailrace.partitions_v1() p order by p.ends nulls last loop
    exit when v_dropped >= 10 or v_busy > 0;   -- what is in use now is tried again by the next run
    if tailrace.outlived_v1(v_part.part, v_part.ends, v_kept) then
      if v_part.ends is null and tailrace.lock_all_v1(v_part.part) then
        execute format('truncate %s', v_part.part);
        v_dropped := v_dropped + 1;
      elsif v_part.ends is not null and tailrace.lock_all_v1(tailrace.history_table_v1()) and tailrace.lock_all_v1(v_part.part) then
        execute format('drop table %s', v_part.part);
        v_dropped := v_dropped + 1;
      else
        v_busy := v_busy + 1;
      end if;
    end if;
  end loop;
  return jsonb_build_object('made', v_made, 'dropped', v_dropped, 'kept', v_busy);
end $$;

-- Whether an end of one of these jobs must be remembered: their queue keeps a history.
create function tailrace.has_history_v1(queues text[]) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (select from tailrace.queue q where q.settings ? 'history' and q.name = any (queues))
$$;

-- Remember how jobs end, before their rows go: of queues that keep a history, and those whose results are kept.
--   kept: [{"id", "result", "keep": seconds}], or null
-- Never the reason why a job cannot end: what cannot be written is left out with a warning in the server's log.
create function tailrace.remember_v1(verdicts tailrace.verdict_v1[], ids bigint[], kept jsonb) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
begin
  insert into tailrace.finished (id, queue, task, tenant, key, outcome, attempts, created_at, finished_at, result, result_until, meta)
    select j.id, j.queue, j.task, j.tenant, j.key, x.result, x.attempts, j.created_at, clock_timestamp(), k.result,
           clock_timestamp() + k.keep * interval '1 second', j.meta
    from unnest(verdicts) x join tailrace.job j on j.id = x.id
    left join jsonb_to_recordset(remember_v1.kept) k(id bigint, result jsonb, keep double precision) on k.id = x.id and x.result = 'succeeded'
    where j.id = any (ids)
      and (k.keep > 0 or exists (select from tailrace.queue q where q.name = j.queue and q.settings ? 'history'));
exception when others then
  if not tailrace.is_row_fault_v1(sqlstate) then
    raise;
  end if;
  raise warning 'tailrace: the history of % jobs was not written: % (%)', cardinality(ids), sqlerrm, sqlstate;
end $$;

-- ---- looking at it ----------------------------------------------------------------------------------------------------
create view tailrace.history as
  select f.id, f.queue, f.task, f.tenant, f.key, f.outcome, f.attempts, f.created_at, f.finished_at,
         case when f.result_until > statement_timestamp() then f.result end as result,
         case when f.result_until > statement_timestamp() then f.result_until end as result_until, f.meta
  from tailrace.finished f left join tailrace.queue q on q.name = f.queue
  where f.result_until > statement_timestamp()
     or f.finished_at > statement_timestamp()
                        - tailrace.setting_number_v1(q.settings -> 'history', 'retentionSeconds', 0) * interval '1 second';

comment on view tailrace.history is 'Jobs that ended, as long as their queue keeps them; and results as long as their task keeps them.';
comment on column tailrace.history.outcome is 'succeeded, dead, cancelled, expired, replaced or dropped';
comment on column tailrace.history.result is 'what its handler returned, while it is kept';

-- Where a job stands, and its result if that is kept: one row, whatever the number.
create function tailrace.job_result(id bigint) returns table (state text, result jsonb, finished_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
  select s.state, s.result, s.finished_at
  from (select 1 as n, case when j.token is null then 'waiting' else 'running' end as state, null::jsonb as result,
               null::timestamptz as finished_at
        from tailrace.job j where j.id = job_result.id
        union all
        (select 2, h.outcome, h.result, h.finished_at from tailrace.history h where h.id = job_result.id order by h.finished_at desc limit 1)
        union all
        select 3, case when d.resolution = 'succeeded' then 'succeeded' else 'dead' end, null, coalesce(d.resolved_at, d.failed_at)
        from tailrace.dead_letter d where d.job_id = job_result.id
        union all
        select 4, 'gone', null, null) s
  order by s.n limit 1
$$;
comment on function tailrace.job_result(bigint) is 'Where a job stands: waiting, running, succeeded, dead, cancelled, replaced, expired, dropped or gone (ended, and nothing is kept of it); and what its handler returned, while its task keeps that.';
