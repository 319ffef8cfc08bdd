-- Tailrace 0008: what people do with dead letters, one or a million.
--
-- Rules of this file:
--   * a requeue inserts the job first and changes the dead letter then (lock order: job, dead letter). Sets wait for nobody:
--     what is locked elsewhere is reported as busy; a single row waits a quarter of a second. So there is no circle to wait in;
--   * a set of rows is chosen by `find_dead_letters_v1`, which reads a bounded number of index entries and says how far it
--     came, and a change of many goes forward through it, so that no row is met twice;
--   * what dies again after the beginning of a change is not part of it;
--   * counts are kept by triggers, by state, queue and task, so that looking at them does not depend on how many there are;
--   * each change writes `audit` and `tally` in its transaction.
-- repairs: dead_letter by merge_duplicates_v1

-- ---- one dead letter a key: repair, then the index ---------------------------------------------------------------------
-- Make one of dead letters that share tenant, queue, task and key: the newest keeps the key and takes over counters, notes and
-- history of the others, which are resolved as superseded and keep their payload. Returns how many were merged.
create function tailrace.merge_duplicates_v1() returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_pair   record;
  v_merged bigint := 0;
begin
  for v_pair in
    select o.newer, o.job_id as older
    from (select d.job_id, d.failed_at, first_value(d.job_id) over (partition by d.tenant, d.queue, d.task, d.key
                                                                    order by d.failed_at desc, d.job_id desc) as newer
          from tailrace.dead_letter d where d.key is not null and d.state = 'dead') o
    where o.job_id <> o.newer order by o.failed_at desc, o.job_id desc
  loop
    perform tailrace.write_dead_letters_v1('{}', array[v_pair.newer], array[v_pair.older]);
    v_merged := v_merged + 1;
  end loop;
  return v_merged;
end $$;

lock table tailrace.dead_letter in share row exclusive mode;
select tailrace.merge_duplicates_v1();
create unique index dead_letter_key on tailrace.dead_letter (tenant, queue, task, key) where key is not null and state = 'dead';

-- The ways to walk in the order of failed_at: one for each filter that can be rare, and one for none, since a page merged by queue is
-- looked for in as many places as there are queues. (queue, state, …) stands in 0001. None but that and the one by key knows what is
-- requeued: a requeue has two indexes to write instead of nine. Their predicates are written so that only the walk uses them: a plan
-- that was made while the tables were empty could else look for a key by the task alone.
create index dead_letter_task on tailrace.dead_letter (task, failed_at, job_id) where state || '' = 'dead';
create index dead_letter_cause on tailrace.dead_letter (reason, error_type, failed_at, job_id) where state || '' = 'dead';
create index dead_letter_fingerprint on tailrace.dead_letter (fingerprint, failed_at, job_id) where state || '' = 'dead';
create index dead_letter_tenant on tailrace.dead_letter (tenant, failed_at, job_id) where state || '' = 'dead' and tenant <> '';
create index dead_letter_state on tailrace.dead_letter (state, failed_at, job_id) where state || '' <> 'requeued';
create index dead_letter_holder on tailrace.dead_letter (key, state, failed_at, job_id) where coalesce(key, '') <> '';

-- ---- counts -------------------------------------------------------------------------------------------------------------
create type tailrace.letter_count_v1 as (queue text, task text, state text, n bigint, attempts numeric, requeues bigint);
-- One inserted row for each statement; the statistics routine folds them into the counts. A requeue of a thousand may have a
-- thousand kinds of rows: as rows of this table they cost a tenth of it.
create table tailrace.dead_letter_change (
  id         bigint generated always as identity primary key,
  size       int not null,
  changes    tailrace.letter_count_v1[] not null
);
alter table tailrace.dead_letter_change alter changes set storage external,   -- to compress it takes longer than to write it
  alter id set statistics 0, alter size set statistics 0, alter changes set statistics 0;
create table tailrace.dead_letter_count (
  queue      text,
  task       text,
  state      text,
  n          bigint not null,
  attempts   numeric not null,
  requeues   bigint not null,
  primary key (queue, task, state)
) with (fillfactor = 50);

-- Count what a statement did to the dead letters, whoever sent it.
create function tailrace.keep_counts_of_dead_letters_v1() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_changes tailrace.letter_count_v1[];
begin
  case tg_op
  when 'INSERT' then
    v_changes := array(
      select (a.queue, a.task, a.state, count(*), sum(a.total_attempts), sum(a.requeued_count))::tailrace.letter_count_v1
      from new_rows a group by a.queue, a.task, a.state);
  when 'DELETE' then
    v_changes := array(
      select (b.queue, b.task, b.state, -count(*), -sum(b.total_attempts), -sum(b.requeued_count))::tailrace.letter_count_v1
      from old_rows b group by b.queue, b.task, b.state);
  when 'UPDATE' then
    v_changes := array(
      select (c.queue, c.task, c.state, sum(c.n), sum(c.attempts), sum(c.requeues))::tailrace.letter_count_v1
      from (select a.queue, a.task, a.state, 1 as n, a.total_attempts as attempts, a.requeued_count as requeues from new_rows a
            union all
            select b.queue, b.task, b.state, -1, -b.total_attempts, -b.requeued_count from old_rows b) c
      group by c.queue, c.task, c.state
      having sum(c.n) <> 0 or sum(c.attempts) <> 0 or sum(c.requeues) <> 0);
  else
    delete from tailrace.dead_letter_change;
    delete from tailrace.dead_letter_count;
  end case;
  if cardinality(v_changes) > 0 then
    insert into tailrace.dead_letter_change (size, changes) values (cardinality(v_changes), v_changes);
  end if;
  return null;
end $$;
create trigger dead_letter_inserted after insert on tailrace.dead_letter
  referencing new table as new_rows for each statement execute function tailrace.keep_counts_of_dead_letters_v1();
create trigger dead_letter_updated after update on tailrace.dead_letter
  referencing old table as old_rows new table as new_rows for each statement execute function tailrace.keep_counts_of_dead_letters_v1();
create trigger dead_letter_deleted after delete on tailrace.dead_letter
  referencing old table as old_rows for each statement execute function tailrace.keep_counts_of_dead_letters_v1();
create trigger dead_letter_truncated after truncate on tailrace.dead_letter
  for each statement execute function tailrace.keep_counts_of_dead_letters_v1();

insert into tailrace.dead_letter_count (queue, task, state, n, attempts, requeues)
  select d.queue, d.task, d.state, count(*), sum(d.total_attempts), sum(d.requeued_count) from tailrace.dead_letter d group by 1, 2, 3;

-- Fold the oldest changes into the counts, until there are so many; returns how many. Only under the lock of the statistics.
create function tailrace.fold_dead_letters_v1(fold int) returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_custom_plan
as $$
declare
  v_folded int;
begin
  with gone as (
    delete from tailrace.dead_letter_change c
    where c.id = any (array(select o.id
                            from (select x.id, sum(x.size) over (order by x.id) - x.size as before
                                  from (select d.id, d.size from tailrace.dead_letter_change d order by d.id limit fold) x) o
                            where o.before < fold))
    returning c.changes),
  sums as (select u.queue, u.task, u.state, sum(u.n)::bigint as n, sum(u.attempts) as attempts, sum(u.requeues)::bigint as requeues,
                  count(*)::int as of_rows from gone g cross join unnest(g.changes) u group by 1, 2, 3),
  folded as (insert into tailrace.dead_letter_count as o (queue, task, state, n, attempts, requeues)
             select s.queue, s.task, s.state, s.n, s.attempts, s.requeues from sums s order by 1, 2, 3
             on conflict (queue, task, state) do update
               set n = o.n + excluded.n, attempts = o.attempts + excluded.attempts, requeues = o.requeues + excluded.requeues)
  select coalesce(sum(s.of_rows), 0) into v_folded from sums s;
  return v_folded;
end $$;

-- How many dead letters there are, by queue, task and state; null means all queues. Exact in the snapshot of the statement.
create function tailrace.dead_letter_counts_v1(queue text default null)
returns table (queue text, task text, state text, n bigint, attempts numeric, requeues bigint)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select c.queue, c.task, c.state, sum(c.n)::bigint, sum(c.attempts), sum(c.requeues)::bigint
  from (select a.queue, a.task, a.state, a.n, a.attempts, a.requeues from tailrace.dead_letter_count a
        union all
        select u.queue, u.task, u.state, u.n, u.attempts, u.requeues from tailrace.dead_letter_change b cross join unnest(b.changes) u) c
  where dead_letter_counts_v1.queue is null or c.queue = dead_letter_counts_v1.queue
  group by 1, 2, 3 having sum(c.n) <> 0
$$;

-- One row; null means all queues. All but the last two counts are of state dead. `by_task`: the ten with the most.
create function tailrace.dead_letter_stats(queue text default null) returns table (
  dead bigint, tasks bigint, queues bigint, average_attempts double precision, requeues bigint, oldest timestamptz,
  newest timestamptz, by_task jsonb, requeued bigint, resolved bigint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
#variable_conflict use_column
begin
  return query
  with c as materialized (select k.queue, k.task, k.state, k.n, k.attempts, k.requeues
                          from tailrace.dead_letter_counts_v1(dead_letter_stats.queue) k),
  d as (select c.queue, c.task, c.n, c.attempts, c.requeues from c where c.state = 'dead'),
  ages as (
    select min(o.failed_at) as oldest, max(n.failed_at) as newest
    from (select distinct d.queue from d) q
    cross join lateral (select x.failed_at from tailrace.dead_letter x where x.queue = q.queue and x.queue <> '' and x.state = 'dead'
                        order by x.failed_at, x.job_id limit 1) o
    cross join lateral (select x.failed_at from tailrace.dead_letter x where x.queue = q.queue and x.queue <> '' and x.state = 'dead'
                        order by x.failed_at desc, x.job_id desc limit 1) n),
  top as (select t.task, t.n from (select d.task, sum(d.n) as n from d group by d.task) t order by t.n desc, t.task limit 10)
  select coalesce(sum(d.n), 0)::bigint, count(distinct d.task), count(distinct d.queue),
         coalesce(sum(d.attempts) / nullif(sum(d.n), 0), 0)::double precision, coalesce(sum(d.requeues), 0)::bigint,
         (select a.oldest from ages a), (select a.newest from ages a),
         (select coalesce(jsonb_agg(jsonb_build_object('task', t.task, 'dead', t.n) order by t.n desc, t.task), '[]') from top t),
         (select coalesce(sum(c.n), 0)::bigint from c where c.state = 'requeued'),
         (select coalesce(sum(c.n), 0)::bigint from c where c.state = 'resolved')
  from d;
end $$;

-- ---- which ones ---------------------------------------------------------------------------------------------------------
-- A time of a filter, with its zone.
create function tailrace.filter_time_v1(filter jsonb, field text) returns timestamptz
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_text text := filter ->> field;
  v_at   timestamptz;
begin
  if v_text is null then
    return null;
  end if;
  begin
    v_at := v_text::timestamptz;
  exception when data_exception then
    v_at := null;
  end;
  if v_at is null or not isfinite(v_at) or v_text !~* '\d:\d\d.*(Z|UTC|[+-]\d\d(:?\d\d){0,2})$' then
    perform tailrace.refuse_v1('TR002', field, 'must be a time with its offset from UTC', 'Write it as 2026-11-28T12:00:00Z');
  end if;
  return v_at;
end $$;

-- An object without the members that are null, which were not given; '{}' for null. What is no object is returned as it is.
create function tailrace.given_v1(words jsonb) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
  select case when words is null then '{}' when jsonb_typeof(words) <> 'object' or not jsonb_path_exists(words, '$.* ? (@ == null)') then words
              else coalesce((select jsonb_object_agg(e.key, e.value) from jsonb_each(words) e where e.value <> 'null'), '{}') end
$$;

-- A filter of dead letters without what is null, checked. `options` names further fields that may stand in it.
create function tailrace.dead_letter_filter_v1(filter jsonb, options text[] default '{}') returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  f       jsonb := tailrace.given_v1(filter);
  v_known text[] := '{queue,task,key,tenant,reason,error_type,fingerprint,state,failed_after,failed_before,text,meta}';
  v_field text;
begin
  if jsonb_typeof(f) <> 'object' then
    perform tailrace.refuse_v1('TR002', 'filter', 'must be a JSON object', 'Such as {"task": "deliver"}');
  end if;
  for v_field in select k from jsonb_object_keys(f) k where k <> all (options) loop
    if v_field <> all (v_known) then
      perform tailrace.refuse_v1('TR002', v_field, 'is no filter of dead letters',
                                 'Known: ' || array_to_string(v_known || options, ', '));
    elsif jsonb_typeof(f -> v_field) <> (case v_field when 'meta' then 'object' else 'string' end) then
      perform tailrace.refuse_v1('TR002', v_field, 'must be ' || case v_field when 'meta' then 'a JSON object' else 'text' end,
                                 'Correct it or leave it out');
    end if;
  end loop;
  if coalesce(f ->> 'state', 'dead') not in ('dead', 'requeued', 'resolved', 'all') then
    perform tailrace.refuse_v1('TR002', 'state', 'is unknown', 'One of dead, requeued, resolved or all');
  end if;
  perform tailrace.filter_time_v1(f, 'failed_after'), tailrace.filter_time_v1(f, 'failed_before');
  return f;
end $$;

-- The conditions of a filter on dead_letter d, but for state and time, as text that refers to the filter as $1; `lane` names
-- columns that are not repeated.
create function tailrace.dead_letter_conditions_v1(filter jsonb, lane text[]) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  v_column text;
  v_text   text := '';
begin
  foreach v_column in array '{queue,task,key,tenant,reason,error_type,fingerprint}'::text[] loop
    if filter ? v_column and v_column <> all (lane) then
      v_text := v_text || format(' and d.%1$I = ($1 ->> %1$L)', v_column) || case v_column when 'queue' then ' and d.queue <> ''''' else '' end;
    end if;
  end loop;
  if filter ? 'meta' then
    v_text := v_text || ' and d.meta @> ($1 -> ''meta'')';
  end if;
  if filter ? 'text' then   -- in the words of the errors as JSON writes them, without the names of their fields, or in the notes
    v_text := v_text || $c$ and (strpos(lower(jsonb_path_query_array(d.errors, '$[*].*')::text),
        lower(substr(($1 -> 'text')::text, 2, length(($1 -> 'text')::text) - 2))) > 0
      or strpos(lower(coalesce(d.notes, '')), lower($1 ->> 'text')) > 0)$c$;
  end if;
  return v_text;
end $$;

-- The quoted name of this schema, for statements that are put together: a name of ours in a text would break under some schemas.
create function tailrace.schema_v1() returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select quote_ident(n.nspname) from pg_type t join pg_namespace n on n.oid = t.typnamespace where t.oid = pg_typeof(null::tailrace.job)::oid
$$;

-- Dead letters that a filter selects, by (failed_at, job_id): newest first, or `forward` oldest first.
--   after_time, after_id: begin behind this one
--   n:                    the most to return
--   examine:              rows to look at, at most, n at least; what is rare is found in several calls
-- Goes along the index of the rarest field, in one lane for each of its values and states, and merges the lanes. Of each of many
-- lanes it reads few rows, 8 at least, and may then return no more than those. Returns at least one row, whose job_id is null when
-- nothing was found. until_time and until_id: it came so far and no farther, go on from there; null when all was looked at.
create function tailrace.find_dead_letters_v1(
  filter jsonb, forward boolean, n int, after_time timestamptz default null, after_id bigint default null, examine int default 2000)
returns table (job_id bigint, failed_at timestamptz, until_time timestamptz, until_id bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off set jit = off
as $$
#variable_conflict use_column
declare
  f        jsonb := tailrace.dead_letter_filter_v1(filter);
  v_schema text := tailrace.schema_v1();
  v_dead   boolean := coalesce(f ->> 'state', 'dead') = 'dead';
  v_lane   text[];
  v_lanes  text := 'select null::text as a, null::text as b';
  v_where  text;
  v_rest   text;
  v_ahead  text := case when forward then 'asc' else 'desc' end;
  v_states text[] := case f ->> 'state' when 'all' then '{dead,requeued,resolved}'::text[] else array[coalesce(f ->> 'state', 'dead')] end;
begin
  v_lane := case when f ? 'key' then '{key}'::text[]
                 when v_dead and f ? 'fingerprint' then '{fingerprint}' when v_dead and f ->> 'tenant' <> '' then '{tenant}'
                 when v_dead and f ? 'task' then '{task}' when f ? 'queue' then '{queue}'
                 when v_dead and f ?| '{reason,error_type}' then '{reason,error_type}' end;
  if v_lane is null and f ->> 'state' in ('requeued', 'all') then
    v_lanes := format('select q.queue as a, null::text as b from %s.dead_letter_queues_v1() q', v_schema);
    v_where := 'd.queue = l.a and d.queue <> ''''';
  elsif v_lane is null then
    v_where := 'd.state || '''' <> ''requeued''';
  elsif v_lane = '{reason,error_type}' then
    -- What was not asked for is looked up, from the last one of each: see dead_letter_queues_v1.
    v_lanes := case when f ? 'reason' and f ? 'error_type' then $q$select $1 ->> 'reason' as a, $1 ->> 'error_type' as b$q$
      else format($q$(with recursive c(o) as (
        (select d.%1$I from %3$s.dead_letter d where d.state || '' = 'dead' %2$s order by d.%1$I desc limit 1)
        union all
        select (select d.%1$I from %3$s.dead_letter d where d.state || '' = 'dead' and d.%1$I < c.o %2$s order by d.%1$I desc limit 1)
          from c where c.o is not null)
        select coalesce($1 ->> 'reason', c.o) as a, coalesce($1 ->> 'error_type', c.o) as b from c where c.o is not null)$q$,
        case when f ? 'reason' then 'error_type' else 'reason' end, case when f ? 'reason' then 'and d.reason = ($1 ->> ''reason'')' end, v_schema)
    end;
    v_where := 'd.reason = l.a and d.error_type = l.b';
  else
    v_where := format('d.%1$I = ($1 ->> %1$L)', v_lane[1]) || case v_lane[1] when 'tenant' then ' and d.tenant <> ''''' when 'queue' then ' and d.queue <> ''''' when 'key' then ' and coalesce(d.key, '''') <> ''''' else '' end;
  end if;
  v_rest := tailrace.dead_letter_conditions_v1(f, coalesce(v_lane, '{}'));
  v_where := v_where || case when v_lane = '{key}' or v_lane = '{queue}' or v_lane is null then ' and d.state = l.state'
                             else ' and d.state || '''' = ''dead''' end
    || case when f ? 'failed_after' then ' and d.failed_at >= $3' else '' end
    || case when f ? 'failed_before' then ' and d.failed_at <= $4' else '' end
    || case when after_id is null then '' when forward then ' and (d.failed_at, d.job_id) > ($5, $6)'
            else ' and (d.failed_at, d.job_id) < ($5, $6)' end;
  return query execute format($q$
    with lane as materialized (
      select row_number() over () as lane, l.a, l.b, s.state from (%1$s) l cross join unnest($2::text[]) s(state)),
    size as (select least($7, greatest(8, least(64, 3200 / greatest(count(*), 1)), 3 * $7 / (2 * greatest(count(*), 1)))) as hits, count(*) as lanes from lane),
    bound as (select z.hits, %5$s as n from size z),
    walked as materialized (
      select l.lane, w.job_id, w.failed_at, w.place
      from lane l cross join lateral (
        select x.job_id, x.failed_at, row_number() over (order by x.failed_at %4$s, x.job_id %4$s) as place
        from (select d.job_id, d.failed_at, (true %3$s) is true as hit from %7$s.dead_letter d where %2$s
              order by d.failed_at %4$s, d.job_id %4$s limit (select b.n from bound b)) x
        where x.hit order by x.failed_at %4$s, x.job_id %4$s limit (select b.hits from bound b)) w),
    cut as (
      select z.failed_at, z.job_id
      from (select w.failed_at, w.job_id from walked w where w.place = (select b.hits from bound b)   -- a lane that goes on
            union all
            select e.failed_at, e.job_id
            from lane l cross join lateral (
              select d.failed_at, d.job_id from %7$s.dead_letter d where %2$s
              order by d.failed_at %4$s, d.job_id %4$s offset (select b.n - 1 from bound b) limit 1) e
            where %8$s and not exists (select from walked w where w.lane = l.lane and w.place = (select b.hits from bound b))) z
      order by z.failed_at %4$s, z.job_id %4$s limit 1)
    select h.job_id, h.failed_at, c.failed_at, c.job_id
    from (select 1) one left join cut c on true
    left join lateral (
      select w.job_id, w.failed_at from walked w
      where (c.job_id is null or (w.failed_at, w.job_id) %6$s (c.failed_at, c.job_id))
      order by w.failed_at %4$s, w.job_id %4$s limit $7) h on true
    order by h.failed_at %4$s, h.job_id %4$s$q$,
    v_lanes, v_where, v_rest, v_ahead,
    case when v_rest = '' then 'z.hits' else 'greatest(z.hits, $8 / greatest(z.lanes, 1))' end,
    case when forward then '<=' else '>=' end, v_schema, (v_rest <> '')::text)
  using f, v_states, tailrace.filter_time_v1(f, 'failed_after'), tailrace.filter_time_v1(f, 'failed_before'), after_time, after_id, n, examine;
end $$;

-- How many dead letters a filter selects, and how many of them each task has (the ten with the most): {"n", "tasks"}. A filter by
-- queue, task and state alone is read from the counts, any other reads the rows.
create function tailrace.count_dead_letters_v1(filter jsonb) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  f        jsonb := tailrace.dead_letter_filter_v1(filter);
  v_states text[] := case f ->> 'state' when 'all' then '{dead,requeued,resolved}'::text[] else array[coalesce(f ->> 'state', 'dead')] end;
  v_from   text := format($q$select d.task, sum(d.n)::bigint as n from %s.dead_letter_counts_v1($1 ->> 'queue') d
    where d.state = any ($2) and ($1 ->> 'task' is null or d.task = $1 ->> 'task') group by 1$q$, tailrace.schema_v1());
  v_found  jsonb;
begin
  if f - '{queue,task,state}'::text[] <> '{}' then
    v_from := 'select d.task, count(*) as n from ' || tailrace.schema_v1() || '.dead_letter d where d.state = any ($2)'
      || tailrace.dead_letter_conditions_v1(f, '{}')
      || case when f ? 'failed_after' then ' and d.failed_at >= $3' else '' end
      || case when f ? 'failed_before' then ' and d.failed_at <= $4' else '' end || ' group by 1';
  end if;
  execute format($q$with t as materialized (%s), top as (select t.task, t.n from t order by t.n desc, t.task limit 10)
    select jsonb_build_object('n', (select coalesce(sum(t.n), 0) from t), 'tasks',
      (select coalesce(jsonb_agg(jsonb_build_object('task', o.task, 'dead', o.n) order by o.n desc, o.task), '[]') from top o))$q$, v_from)
    into v_found using f, v_states, tailrace.filter_time_v1(f, 'failed_after'), tailrace.filter_time_v1(f, 'failed_before');
  return v_found;
end $$;

-- Whether a dead letter was dead at a time already: what was requeued then and has come back without a failure is not.
create function tailrace.was_dead_v1(failed_at timestamptz, history jsonb, as_of timestamptz) returns boolean
language sql stable parallel safe
return failed_at <= as_of and (history = '[]' or coalesce(history -> -1 ->> 'event' <> 'withdrawn' or (history -> -1 ->> 'at')::timestamptz <= as_of, true));

-- ---- how ----------------------------------------------------------------------------------------------------------------
-- A payload as the options of a requeue want it: another one, or this one with values set at their paths. Missing objects on
-- the way are made; a path through something that is no object or array is refused.
create function tailrace.edited_payload_v1(payload jsonb, options jsonb) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  v_edit jsonb;
  v_path text[];
begin
  if options ? 'payload' then
    return options -> 'payload';
  end if;
  for v_edit in select e.value from jsonb_array_elements(options -> 'edits') e loop
    v_path := array(select jsonb_array_elements_text(v_edit -> 'path'));
    for i in 1 .. cardinality(v_path) - 1 loop
      if payload #> v_path[1:i] is null then
        payload := jsonb_set(payload, v_path[1:i], '{}');
      end if;
    end loop;
    payload := jsonb_set(payload, v_path, v_edit -> 'value');
    if payload #> v_path is distinct from v_edit -> 'value' then
      perform tailrace.refuse_v1('TR002', 'set', format('there is no place for %s in the payload', array_to_string(v_path, '.')),
                                 'Set the object above it');
    end if;
  end loop;
  return payload;
end $$;

-- The option `set`, {"a.b": value}, as a list of paths and values; a dot that belongs to a name is written \.
create function tailrace.edits_option_v1(value jsonb) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if jsonb_typeof(value) <> 'object' or value = '{}' or value ? '' then
    perform tailrace.refuse_v1('TR002', 'set', 'must be a JSON object of paths and values', 'Such as {"customer.id": 7}');
  end if;
  return (select jsonb_agg(jsonb_build_object('value', e.value, 'path',
            (select jsonb_agg(replace(p.part, E'\x01', '.') order by p.n)
             from unnest(string_to_array(replace(e.key, '\.', E'\x01'), '.')) with ordinality p(part, n))) order by e.key)
          from jsonb_each(value) e);
end $$;

-- The options of a change of dead letters, checked, in the form that the functions below read.
create function tailrace.change_options_v1(verb text, options jsonb) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  o       jsonb := tailrace.given_v1(options);
  v_known text[] := case verb when 'requeue' then '{force,delay,run_at,payload,set,note}'::text[] when 'resolve' then '{resolution,note}'
                              when 'note' then '{note}' when 'delete' then '{}' end;
  v_field text;
begin
  if jsonb_typeof(o) <> 'object' then
    perform tailrace.refuse_v1('TR002', 'options', 'must be a JSON object', 'Such as {"note": "seen"}');
  elsif v_known is null then
    perform tailrace.refuse_v1('TR002', 'verb', 'is unknown', 'One of requeue, delete, resolve, note');
  end if;
  select k into v_field from jsonb_object_keys(o) k where k <> all (v_known) limit 1;
  if found then
    perform tailrace.refuse_v1('TR002', v_field, format('is no option of %s', verb),
                               case when v_known = '{}' then 'Leave it out' else 'Known: ' || array_to_string(v_known, ', ') end);
  end if;
  if jsonb_typeof(o -> 'force') <> 'boolean' then
    perform tailrace.refuse_v1('TR002', 'force', 'must be true or false', 'Leave it out for false');
  elsif o ? 'delay' and o ? 'run_at' then
    perform tailrace.refuse_v1('TR002', 'run_at', 'excludes delay', 'Give one of them');
  elsif o ? 'payload' and o ? 'set' then
    perform tailrace.refuse_v1('TR002', 'payload', 'excludes set', 'Give one of them');
  elsif o ? 'payload' then
    perform tailrace.check_job_v1('q', 't', o -> 'payload');
  elsif verb = 'note' and not o ? 'note' then
    perform tailrace.refuse_v1('TR002', 'note', 'is missing', 'Say what should be noted');
  end if;
  if o ? 'note' then
    o := o || jsonb_build_object('note', tailrace.text_option_v1(o, 'note', 1, 4096));
  end if;
  if o ? 'resolution' then
    o := o || jsonb_build_object('resolution', tailrace.text_option_v1(o, 'resolution', 1, 200));
  end if;
  if o ? 'delay' then
    o := o || jsonb_build_object('delay', extract(epoch from tailrace.duration_option_v1(o, 'delay')));
  end if;
  if o ? 'run_at' then
    o := o || jsonb_build_object('run_at', tailrace.run_at_option_v1(o));
  end if;
  return (o - 'set') || case when o ? 'set' then jsonb_build_object('edits', tailrace.edits_option_v1(o -> 'set')) else '{}' end;
end $$;

-- A note as it is kept: with its time and its writer.
create function tailrace.note_line_v1(note text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select '[' || to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || ' ' || session_user || '] ' || note
$$;

-- ---- the changes --------------------------------------------------------------------------------------------------------
-- What became of one: requeued, deleted, resolved or noted; or
--   missing   there is none of this number
--   conflict  its state, or a live job, does not allow it
--   busy      somebody else is changing it
--   later     it died again, or came back, after the change of many began
--   failed    the row was refused
create type tailrace.letter_outcome_v1 as (job_id bigint, queue text, task text, outcome text, detail text);

-- Why these were not changed.
create function tailrace.unchanged_v1(verb text, ids bigint[], as_of timestamptz) returns setof tailrace.letter_outcome_v1
language sql stable
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
  select i.id, d.queue, d.task,
         case when d.job_id is null then 'missing'
              when d.state <> 'dead' and not (verb = 'note' or (verb = 'delete' and d.state = 'resolved')) then 'conflict'
              when not tailrace.was_dead_v1(d.failed_at, d.history, as_of) then 'later'
              when verb = 'requeue' and (j.id is not null or h.id is not null) then 'conflict'
              else 'busy' end,
         case when d.job_id is null then format('there is no dead letter %s', i.id)
              when d.state <> 'dead' and not (verb = 'note' or (verb = 'delete' and d.state = 'resolved'))
              then format('dead letter %s is %s', i.id, d.state)
              when not tailrace.was_dead_v1(d.failed_at, d.history, as_of) then format('dead letter %s died again meanwhile', i.id)
              when verb = 'requeue' and j.id is not null then format('a live job has the number of dead letter %s', i.id)
              when verb = 'requeue' and h.id is not null
              then format('job %s holds the key and %s', h.id, case when h.token is null then 'waits' else 'runs' end)
              else format('dead letter %s is being changed by others', i.id) end
  from unnest(ids) i(id)
  left join lateral (select o.* from tailrace.dead_letter o where o.job_id = i.id offset 0) d on true
  left join lateral (select o.id from tailrace.job o where o.id = i.id offset 0) j on true
  left join lateral (select o.id, o.token from tailrace.job o where o.tenant = d.tenant and o.queue = d.queue and o.task = d.task
                       and o.key = d.key and o.key_slot = 0 offset 0) h on true
  order by i.id
$$;

-- Requeue a set. Jobs come first, under the numbers of their dead letters; where a live job has the number or the key nothing
-- is inserted. Then the dead letters follow; one that has changed since it was read loses its job again, which nobody has seen.
--   careful:  of many, leave out those that others have locked. To look first takes a tenth of the time, so that is done once one
--             of them has been in the way: without it such a one is an error after 20 ms
--   was:      the state in which the dead letters are
--   replaced: the holder that made way, for the history
create function tailrace.requeue_set_v1(
  ids bigint[], options jsonb, as_of timestamptz, careful boolean default false, was text default 'dead', replaced jsonb default null)
returns tailrace.letter_outcome_v1[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_nestloop = off set jit = off set plan_cache_mode = force_generic_plan set lock_timeout = '20ms'
as $$
#variable_conflict use_variable
declare
  v_now    timestamptz := clock_timestamp();
  v_due    timestamptz := greatest(v_now, (options ->> 'run_at')::timestamptz,
                                   v_now + (options ->> 'delay')::double precision * interval '1 second');
  v_edited boolean := options ?| '{payload,edits}';
  v_auto   boolean := options @> '{"auto": true}';   -- by the queue's rule, see auto_requeue_v1
  v_note   text := tailrace.note_line_v1(options ->> 'note');
  v_event  jsonb := jsonb_strip_nulls(jsonb_build_object('at', v_now, 'event', 'requeued', 'by', case when v_auto then 'auto_requeue' else session_user end,
                                      'run_at', case when v_due > v_now then v_due end, 'operation', options -> 'operation'))
                    || case when replaced is not null then jsonb_build_object('replaced', replaced) else '{}' end;
  v_new    bigint[];
  v_lives  int[];
  v_held   bigint[];
  v_rows   tailrace.letter_outcome_v1[];
  v_done   bigint[];
  v_queues text[];
begin
  if cardinality(ids) = 1 then
    perform set_config('lock_timeout', '250ms', true);   -- it holds nothing that others could wait for
  end if;
  with taken as (
    insert into tailrace.job (id, tenant, queue, task, payload, priority, run_at, max_attempts, key, serial_group, timeout, backoff, trace,
                              meta, saved, errors, requeues, created_at)
      overriding system value
      select d.job_id, d.tenant, d.queue, d.task,
             case when v_edited then tailrace.edited_payload_v1(d.payload, options) else d.payload end,
             d.priority, v_due, d.max_attempts, d.key, d.serial_group, d.timeout, d.backoff, d.trace, d.meta, d.saved,
             nullif(d.errors, '[]'), d.requeued_count + 1, d.created_at
      from tailrace.dead_letter d
      where d.job_id = any (ids) and d.state = was and tailrace.was_dead_v1(d.failed_at, d.history, as_of)
      order by d.job_id
      on conflict do nothing returning job.id, job.requeues)
  select coalesce(array_agg(t.id), '{}'), coalesce(array_agg(t.requeues), '{}') into v_new, v_lives from taken t;

  if cardinality(ids) = 1 then
    v_held := array(select d.job_id from tailrace.dead_letter d where d.job_id = any (v_new) for update);
  elsif careful then
    v_held := array(select d.job_id from tailrace.dead_letter d where d.job_id = any (v_new) order by d.job_id for update skip locked);
  else
    v_held := v_new;
  end if;
  with changed as (
    update tailrace.dead_letter d
      set state = 'requeued', requeued_count = d.requeued_count + 1, auto_requeued = d.auto_requeued + v_auto::int, last_requeued_at = v_now,
          payload = case when v_edited then (select j.payload from tailrace.job j where j.id = d.job_id) else d.payload end,
          notes = case when v_note is null then d.notes else concat_ws(E'\n', d.notes, v_note) end,
          history = tailrace.with_event_v1(d.history, case when v_edited then v_event || jsonb_build_object('was', d.payload)
                                                        when v_auto then v_event || jsonb_build_object('times', d.auto_requeued + 1) else v_event end)
      from unnest(v_new, v_lives) j(id, requeues)
      where d.job_id = any (v_held) and j.id = d.job_id and d.state = was and d.requeued_count + 1 = j.requeues
      returning d.job_id, d.queue, d.task),
  groups as (select c.queue, c.task, count(*) as n from changed c group by 1, 2),
  counted as (insert into tailrace.tally (queue, task, what, n) select g.queue, g.task, 'requeued', g.n from groups g)
  select coalesce(array_agg((c.job_id, c.queue, c.task, 'requeued',
                             case when replaced is not null then format('job %s was replaced', replaced ->> 'id') end)
                            ::tailrace.letter_outcome_v1), '{}'),
         array(select distinct g.queue from groups g)
    into v_rows, v_queues from changed c;

  if cardinality(v_rows) < cardinality(ids) or exists (select from tailrace.cancel_request) then
    v_done := array(select r.job_id from unnest(v_rows) r);
    delete from tailrace.job j where j.id = any (array(select n from unnest(v_new) n except select o from unnest(v_done) o));
    delete from tailrace.cancel_request c   -- of their lives before
      where c.job_id = any (array(select r.job_id from tailrace.cancel_request r where r.job_id = any (v_done) order by r.job_id for update skip locked));
    v_rows := v_rows || array(select u from tailrace.unchanged_v1('requeue', array(select i from unnest(ids) i except select o from unnest(v_done) o), as_of) u);
  end if;
  if v_due <= clock_timestamp() then
    perform tailrace.wake_v1(q) from unnest(v_queues) q;
  end if;
  return v_rows;
end $$;

-- Requeue one over a waiting holder of its key, which ends as replaced. Raises TR000 when that is not possible now. The order
-- is that of all: the holder's job, then the dead letter, which gives up the state dead before the holder ends, since a holder
-- that was requeued itself goes back to the dead letters under the same key.
create function tailrace.requeue_over_v1(job_id bigint, options jsonb, as_of timestamptz) returns tailrace.letter_outcome_v1
language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '250ms' as $$
declare
  d        tailrace.dead_letter;
  v_holder tailrace.job;
  v_result tailrace.letter_outcome_v1;
begin
  select x.* into d from tailrace.dead_letter x where x.job_id = requeue_over_v1.job_id;
  select j.* into v_holder from tailrace.job j
    where j.tenant = d.tenant and j.queue = d.queue and j.task = d.task and j.key = d.key and j.key_slot = 0;
  if not found or tailrace.lock_waiting_v1(array[v_holder.id]) = '{}' then
    raise exception using errcode = 'TR000';
  end if;
  select j.* into v_holder from tailrace.job j where j.id = v_holder.id;
  select x.* into d from tailrace.dead_letter x where x.job_id = requeue_over_v1.job_id for update;
  if d.state is distinct from 'dead' or d.key is distinct from v_holder.key or not tailrace.was_dead_v1(d.failed_at, d.history, as_of) then
    raise exception using errcode = 'TR000';
  end if;
  update tailrace.dead_letter x set state = 'requeued' where x.job_id = requeue_over_v1.job_id;
  if tailrace.end_waiting_v1(array[v_holder.id], 'replaced') = 0 then
    raise exception using errcode = 'TR000';
  end if;
  v_result := (tailrace.requeue_set_v1(array[requeue_over_v1.job_id], options, as_of, true, 'requeued',
                                       jsonb_build_object('id', v_holder.id::text, 'payload', v_holder.payload)))[1];
  if v_result.outcome <> 'requeued' then
    raise exception using errcode = 'TR000';
  end if;
  return v_result;
end $$;

-- Delete, resolve or note a set. What somebody else has locked is busy.
create function tailrace.alter_set_v1(verb text, ids bigint[], options jsonb, as_of timestamptz) returns tailrace.letter_outcome_v1[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_nestloop = off set jit = off set plan_cache_mode = force_generic_plan set lock_timeout = '250ms'
as $$
#variable_conflict use_variable
declare
  v_now        timestamptz := clock_timestamp();
  v_note       text := tailrace.note_line_v1(options ->> 'note');
  v_resolution text := coalesce(options ->> 'resolution', 'by hand');
  v_held       bigint[];
  v_rows       tailrace.letter_outcome_v1[];
begin
  if cardinality(ids) = 1 then
    v_held := array(select d.job_id from tailrace.dead_letter d where d.job_id = any (ids) for update);
  else
    v_held := array(select d.job_id from tailrace.dead_letter d where d.job_id = any (ids) order by d.job_id for update skip locked);
  end if;
  case verb
  when 'delete' then
    with gone as (
      delete from tailrace.dead_letter d
        where d.job_id = any (v_held) and d.state <> 'requeued' and tailrace.was_dead_v1(d.failed_at, d.history, as_of)
        returning d.job_id, d.queue, d.task),
    counted as (insert into tailrace.tally (queue, task, what, n) select g.queue, g.task, 'deleted', count(*) from gone g group by 1, 2)
    select coalesce(array_agg((g.job_id, g.queue, g.task, 'deleted', null)::tailrace.letter_outcome_v1), '{}') into v_rows from gone g;
  when 'resolve' then
    with changed as (
      update tailrace.dead_letter d
        set state = 'resolved', resolution = v_resolution, resolved_at = v_now,
            notes = case when v_note is null then d.notes else concat_ws(E'\n', d.notes, v_note) end,
            history = tailrace.with_event_v1(d.history, jsonb_strip_nulls(jsonb_build_object('at', v_now, 'event', 'resolved', 'by', session_user,
                        'resolution', v_resolution, 'operation', options -> 'operation')))
        where d.job_id = any (v_held) and d.state = 'dead' and tailrace.was_dead_v1(d.failed_at, d.history, as_of)
        returning d.job_id, d.queue, d.task),
    counted as (insert into tailrace.tally (queue, task, what, n) select c.queue, c.task, 'resolved', count(*) from changed c group by 1, 2)
    select coalesce(array_agg((c.job_id, c.queue, c.task, 'resolved', null)::tailrace.letter_outcome_v1), '{}') into v_rows from changed c;
  when 'note' then
    with changed as (
      update tailrace.dead_letter d set notes = concat_ws(E'\n', d.notes, v_note)
        where d.job_id = any (v_held) and d.failed_at <= as_of returning d.job_id, d.queue, d.task)
    select coalesce(array_agg((c.job_id, c.queue, c.task, 'noted', null)::tailrace.letter_outcome_v1), '{}') into v_rows from changed c;
  end case;
  if cardinality(v_rows) < cardinality(ids) then
    v_rows := v_rows || array(select u from tailrace.unchanged_v1(verb, array(select i from unnest(ids) i except select r.job_id from unnest(v_rows) r), as_of) u);
  end if;
  return v_rows;
end $$;

-- Change a set, and where a row spoils it, halves of it down to that row alone, which is told as failed or busy. A requeue is
-- tried once more with care before that. Options are those of change_options_v1.
create function tailrace.change_each_v1(verb text, ids bigint[], options jsonb, as_of timestamptz, careful boolean default false)
returns tailrace.letter_outcome_v1[]
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  v_n    int := cardinality(ids);
  v_half int := v_n / 2;
  v_rows tailrace.letter_outcome_v1[];
  v_one  tailrace.letter_outcome_v1;
begin
  if v_n = 0 then
    return '{}';
  end if;
  begin
    if verb = 'requeue' then
      v_rows := tailrace.requeue_set_v1(ids, options, as_of, careful);
    else
      v_rows := tailrace.alter_set_v1(verb, ids, options, as_of);
    end if;
  exception when others then
    if sqlstate not in ('55P03', '40P01') and left(sqlstate, 2) not in ('22', '23', 'P0', 'TR') then
      raise;
    end if;
    if v_n = 1 then
      return array(select (ids[1], d.queue, d.task, case when sqlstate in ('55P03', '40P01') then 'busy' else 'failed' end,
                           case when sqlstate in ('55P03', '40P01') then format('dead letter %s is being changed by others', ids[1]) else sqlerrm end
                          )::tailrace.letter_outcome_v1
                   from (select 1) one left join tailrace.dead_letter d on d.job_id = ids[1]);
    end if;
  end;
  if v_rows is null and verb = 'requeue' and not careful then
    return tailrace.change_each_v1(verb, ids, options, as_of, true);
  elsif v_rows is null then
    return tailrace.change_each_v1(verb, ids[1:v_half], options, as_of, careful)
           || tailrace.change_each_v1(verb, ids[v_half + 1:v_n], options, as_of, careful);
  end if;
  if options @> '{"force": true}' then
    for i in 1 .. cardinality(v_rows) loop
      continue when v_rows[i].outcome <> 'conflict' or v_rows[i].detail not like '% holds the key and waits';
      begin
        v_one := tailrace.requeue_over_v1((v_rows[i]).job_id, options, as_of);
        v_rows[i] := v_one;
      exception when sqlstate 'TR000' or lock_not_available or deadlock_detected then
        null;   -- it stays a conflict
      end;
    end loop;
  end if;
  return v_rows;
end $$;

-- Raise what became of one that was not changed.
create function tailrace.refuse_outcome_v1(o tailrace.letter_outcome_v1) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform tailrace.refuse_v1(case o.outcome when 'missing' then 'TR003' when 'failed' then 'TR002' else 'TR004' end,
    case when o.detail like '% holds the key and %' then 'key' else 'job_id' end, o.detail,
    case when o.outcome = 'missing' then 'Look at the list of dead letters'
         when o.detail like '% is requeued' then 'Its job lives; wait for its end'
         when o.detail like '% is resolved' then 'It is dealt with'
         when o.detail like '% and waits' then 'Force replaces it; its payload goes to the history'
         when o.detail like '% and runs' then 'Wait for its end, or cancel it'
         when o.outcome = 'failed' then 'Correct the payload or the options'
         else 'Try again' end);
end $$;

-- Change dead letters by their numbers, all of them or none: raises for the first that cannot be changed. In the order of ids.
create function tailrace.change_dead_letters_v1(verb text, ids bigint[], options jsonb default '{}') returns setof tailrace.letter_outcome_v1
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  o      jsonb := tailrace.change_options_v1(verb, options);
  v_ids  bigint[] := array(select distinct i from unnest(ids) i where i is not null order by 1);
  v_rows tailrace.letter_outcome_v1[] := array(select r from unnest(tailrace.change_each_v1(verb, v_ids, o, 'infinity')) r order by r.job_id);
  v_row  tailrace.letter_outcome_v1;
begin
  foreach v_row in array v_rows loop
    if v_row.outcome not in ('requeued', 'deleted', 'resolved', 'noted') then
      perform tailrace.refuse_outcome_v1(v_row);
    end if;
  end loop;
  if cardinality(v_ids) > 0 then
    perform tailrace.audit_v1(verb, case cardinality(v_ids)
      when 1 then jsonb_strip_nulls(jsonb_build_object('job_id', v_ids[1]::text, 'detail', (v_rows[1]).detail))
      else jsonb_build_object('job_ids', (select jsonb_agg(i::text) from unnest(v_ids) i)) end, cardinality(v_ids));
  end if;
  return query select r.* from unnest(v_rows) r;
end $$;

-- ---- for everybody ------------------------------------------------------------------------------------------------------
create function tailrace.requeue_dead_letter(job_id bigint, force boolean default false, options jsonb default '{}') returns text
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select c.outcome from tailrace.change_dead_letters_v1('requeue', array[job_id],
    coalesce(options, '{}') || case when force then '{"force": true}'::jsonb else '{}' end) c
$$;

create function tailrace.delete_dead_letter(job_id bigint) returns text
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select c.outcome from tailrace.change_dead_letters_v1('delete', array[job_id]) c
$$;

create function tailrace.resolve_dead_letter(job_id bigint, resolution text default null) returns text
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select c.outcome from tailrace.change_dead_letters_v1('resolve', array[job_id], jsonb_build_object('resolution', resolution)) c
$$;

create function tailrace.note_dead_letter(job_id bigint, note text) returns text
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select c.outcome from tailrace.change_dead_letters_v1('note', array[job_id], jsonb_build_object('note', note)) c
$$;

-- The most rows that one call of the functions below changes: option max_jobs.
create function tailrace.max_jobs_v1(filter jsonb) returns int
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return coalesce(tailrace.whole_number_v1(coalesce(filter -> 'max_jobs', '1000'), 1, 1000),
                  tailrace.integer_option_v1('max_jobs', 1, 1000, 'Call it again for more'));
end $$;

-- Change those that a filter selects, oldest failure first, at most max_jobs in this one transaction.
create function tailrace.change_by_filter_v1(verb text, queue text, filter jsonb) returns table (job_id bigint, outcome text, detail text)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_hows text[] := '{force,delay,run_at,payload,set,note,resolution}';
  v_all  jsonb := coalesce(filter, '{}') || case when change_by_filter_v1.queue is null then '{}'
                                            else jsonb_build_object('queue', change_by_filter_v1.queue) end;
  f      jsonb := tailrace.dead_letter_filter_v1(v_all - v_hows - '{max_jobs,dry_run}'::text[]);
  o      jsonb := tailrace.change_options_v1(verb, coalesce((select jsonb_object_agg(e.key, e.value) from jsonb_each(v_all) e
                                                            where e.key = any (v_hows)), '{}'));
  v_most int := tailrace.max_jobs_v1(v_all);
  v_now  timestamptz := clock_timestamp();
  v_ids  bigint[] := '{}';
  v_page record;
  v_time timestamptz;
  v_id   bigint;
  v_rows tailrace.letter_outcome_v1[];
begin
  perform tailrace.check_state_v1(verb, f);
  loop
    select array_remove(array_agg(p.job_id), null) as ids, max(p.until_time) as at, max(p.until_id) as id into v_page
      from tailrace.find_dead_letters_v1(f, true, v_most - cardinality(v_ids), v_time, v_id) p;
    v_ids := v_ids || v_page.ids;
    exit when v_page.id is null or cardinality(v_ids) >= v_most;
    v_time := v_page.at;
    v_id := v_page.id;
  end loop;
  if coalesce((v_all ->> 'dry_run')::boolean, false) then
    return query select u.job_id, case when u.outcome = 'busy' then 'would be ' || tailrace.participle_v1(verb) else u.outcome end,
                        case when u.outcome <> 'busy' then u.detail end
                 from tailrace.unchanged_v1(verb, v_ids, v_now) u;
    return;
  end if;
  v_rows := array(select r from unnest(tailrace.change_each_v1(verb, v_ids, o, v_now)) r order by r.job_id);
  perform tailrace.audit_v1(verb, jsonb_build_object('filter', f),
                            (select count(*) from unnest(v_rows) r where r.outcome = tailrace.participle_v1(verb)));
  return query select r.job_id, r.outcome, r.detail from unnest(v_rows) r;
end $$;

-- What a verb makes of a dead letter.
-- Without settings of its own, so that it is inlined where it is asked for each row (called, it took 40 % of a requeue of many).
create function tailrace.participle_v1(verb text) returns text
language sql immutable parallel safe
return case verb when 'requeue' then 'requeued' when 'delete' then 'deleted' when 'resolve' then 'resolved' when 'note' then 'noted' end;

-- Refuse a state that a verb cannot change.
create function tailrace.check_state_v1(verb text, filter jsonb) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if coalesce(filter ->> 'state', 'dead') <> 'dead' and verb in ('requeue', 'resolve') then
    perform tailrace.refuse_v1('TR002', 'state', format('only dead ones can be %s', tailrace.participle_v1(verb)), 'Leave it out');
  elsif verb = 'delete' and filter ->> 'state' in ('requeued', 'all') then
    perform tailrace.refuse_v1('TR002', 'state', 'those whose jobs live cannot be deleted', 'Give dead or resolved');
  end if;
end $$;

create function tailrace.requeue_dead_letters(queue text, filter jsonb default '{}') returns table (job_id bigint, outcome text, detail text)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select c.job_id, c.outcome, c.detail from tailrace.change_by_filter_v1('requeue', queue, filter) c
$$;

create function tailrace.delete_dead_letters(queue text, filter jsonb default '{}') returns table (job_id bigint, outcome text, detail text)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select c.job_id, c.outcome, c.detail from tailrace.change_by_filter_v1('delete', queue, filter) c
$$;

create function tailrace.resolve_dead_letters(queue text, filter jsonb default '{}') returns table (job_id bigint, outcome text, detail text)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select c.job_id, c.outcome, c.detail from tailrace.change_by_filter_v1('resolve', queue, filter) c
$$;

create function tailrace.note_dead_letters(queue text, note text, filter jsonb default '{}') returns table (job_id bigint, outcome text, detail text)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select c.job_id, c.outcome, c.detail
  from tailrace.change_by_filter_v1('note', queue, coalesce(filter, '{}') || jsonb_build_object('note', note)) c
$$;

-- Add a dead letter by hand: for a failure outside, or one that another system kept. It takes the next number of the jobs. One of
-- the same tenant, queue, task and key that is dead already is superseded. It passes through the table of jobs in this
-- transaction, so that it is checked, counted and written like any other.
create function tailrace.add_dead_letter(queue text, task text, payload jsonb, options jsonb default '{}') returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_own     text[] := '{error,error_type,attempts,note}';
  o         jsonb := coalesce(jsonb_strip_nulls(add_dead_letter.options), '{}');
  v         tailrace.enqueue_settings_v1;
  v_verdict tailrace.verdict_v1;
  v_job     tailrace.job;
  v_error   jsonb := case jsonb_typeof(o -> 'error') when 'object' then o -> 'error'
                       else jsonb_build_object('type', 'Manual', 'message', coalesce(o ->> 'error', 'added by hand')) end;
  v_types   text[] := '{timeout,network,not_found,unauthorized,forbidden,validation,rate_limit,unavailable,unknown}';
  v_older   bigint;
begin
  perform tailrace.check_job_v1(add_dead_letter.queue, add_dead_letter.task, add_dead_letter.payload);
  v := tailrace.read_options_v1(add_dead_letter.queue, add_dead_letter.task, o - v_own);
  if coalesce(o ->> 'error_type', 'unknown') <> all (v_types) then
    perform tailrace.refuse_v1('TR002', 'error_type', 'is unknown', 'One of ' || array_to_string(v_types, ', '));
  end if;
  if octet_length(v_error::text) > 16384 then
    perform tailrace.refuse_v1('TR002', 'error', 'must be at most 16384 bytes of JSON', 'Cut the traceback');
  end if;
  insert into tailrace.job as j (queue, task, tenant, payload, priority, run_at, max_attempts, timeout, backoff, meta, trace, attempts)
    values (v.queue, v.task, v.tenant, add_dead_letter.payload, v.priority, v.run_at, v.max_attempts, v.timeout, v.backoff, v.meta, v.trace,
            case when o ? 'attempts' then tailrace.changed_number_v1(o, 'attempts', 0, 2147483647) else 0 end)
    returning j.* into v_job;
  v_verdict := tailrace.plain_verdict_v1(v_job, 'dead', 'manual');
  v_verdict.error := jsonb_build_object('attempt', v_job.attempts, 'worker', null, 'time', clock_timestamp()) || v_error;
  v_verdict.error_type := coalesce(o ->> 'error_type', 'unknown');
  v_verdict.fingerprint := md5(v.task || ' ' || coalesce(v_error ->> 'type', ''));
  perform tailrace.conclude_v1(array[v_verdict]);
  if v.key is not null then
    select d.job_id into v_older from tailrace.dead_letter d
      where d.tenant = v.tenant and d.queue = v.queue and d.task = v.task and d.key = v.key and d.state = 'dead' for update;
    if found then
      perform tailrace.write_dead_letters_v1('{}', array[v_job.id], array[v_older]);
    end if;
  end if;
  update tailrace.dead_letter d
    set key = v.key, serial_group = v.serial_group,
        notes = case when o ? 'note' then concat_ws(E'\n', d.notes, tailrace.note_line_v1(tailrace.text_option_v1(o, 'note', 1, 4096)))
                     else d.notes end,
        history = tailrace.with_event_v1(d.history, jsonb_build_object('at', clock_timestamp(), 'event', 'added', 'by', session_user))
    where d.job_id = v_job.id;
  perform tailrace.audit_v1('add', jsonb_build_object('job_id', v_job.id::text, 'queue', v.queue, 'task', v.task), 1);
  return v_job.id;
end $$;

-- ---- changes of many, batch by batch ------------------------------------------------------------------------------------
-- Begin a change of all that a filter selects now, or go on with one of the same verb, filter and options that was broken off
-- within the last day. Options: those of the verb, and max_jobs. Returns {"id", "as_of", "done", "failed", "resumed"}.
create function tailrace.begin_operation_v1(verb text, filter jsonb, options jsonb, anew boolean default false) returns jsonb
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  f         jsonb := tailrace.dead_letter_filter_v1(filter);
  v_most    bigint := case when options ->> 'max_jobs' is not null then tailrace.changed_number_v1(options, 'max_jobs', 1, 2147483647) end;
  o         jsonb := tailrace.change_options_v1(verb, options - 'max_jobs')
                     || case when v_most is null then '{}' else jsonb_build_object('max_jobs', v_most) end;
  v_old     tailrace.operation;
  v_resumed boolean := false;
begin
  perform tailrace.check_state_v1(verb, f);
  if not coalesce(anew, false) then
    update tailrace.operation p set state = 'running', updated_at = clock_timestamp()
      where p.id = (select x.id from tailrace.operation x
                    where x.verb = verb and x.filter = f and x.options = o and x.state in ('running', 'stopped')
                      and x.updated_at > clock_timestamp() - interval '1 day' order by x.id desc limit 1)
      returning p.* into v_old;
    v_resumed := found;
  end if;
  if not v_resumed then
    insert into tailrace.operation as p (verb, filter, options, as_of, state, started_by)
      values (verb, f, o, clock_timestamp(), 'running', session_user) returning p.* into v_old;
  end if;
  return jsonb_build_object('id', v_old.id, 'as_of', v_old.as_of, 'done', v_old.done, 'failed', v_old.failed, 'resumed', v_resumed);
end $$;

-- One batch of such a change. Two who call it for the same one take turns. Returns {"state": running, done or stopped; "done" and
-- "failed" of the whole so far; "counts": [{"queue", "task", "n"}] and "problems": [{"job_id", "outcome", "detail"}] of this batch}.
create function tailrace.step_operation_v1(id bigint, batch int) returns jsonb
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  p        tailrace.operation;
  v_n      int;
  v_ids    bigint[];
  v_time   timestamptz;
  v_id     bigint;
  v_until  timestamptz;
  v_upto   bigint;
  v_rows   tailrace.letter_outcome_v1[];
  v_good   text;
  v_done   int;
  v_failed int;
  v_counts jsonb;
  v_ended  boolean;
begin
  select x.* into p from tailrace.operation x where x.id = step_operation_v1.id for no key update;
  if not found then
    perform tailrace.refuse_v1('TR003', 'operation', format('there is no operation %s', step_operation_v1.id), 'Begin one');
  end if;
  if p.state <> 'running' then
    return jsonb_build_object('state', p.state, 'done', p.done, 'failed', p.failed, 'counts', '[]'::jsonb, 'problems', '[]'::jsonb);
  end if;
  v_good := tailrace.participle_v1(p.verb);
  v_n := least(step_operation_v1.batch, coalesce((p.options ->> 'max_jobs')::bigint - p.done - p.failed, step_operation_v1.batch));
  if v_n > 0 then
    select array_remove(array_agg(f.job_id order by f.failed_at, f.job_id), null), max(f.until_time), max(f.until_id),
           max(f.failed_at), (array_agg(f.job_id order by f.failed_at desc nulls last, f.job_id desc))[1]
      into v_ids, v_until, v_upto, v_time, v_id
      from tailrace.find_dead_letters_v1(
        p.filter || jsonb_build_object('failed_before', to_char(least(p.as_of, (p.filter ->> 'failed_before')::timestamptz) at time zone 'UTC',
                                                               'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')),
        true, v_n, (p.position ->> 'failed_at')::timestamptz, (p.position ->> 'job_id')::bigint) f;
    v_rows := tailrace.change_each_v1(p.verb, v_ids, (p.options - 'max_jobs') || jsonb_build_object('operation', p.id), p.as_of);
  end if;
  v_ended := v_n <= 0 or (cardinality(v_ids) < v_n and v_upto is null)
             or coalesce(p.done + p.failed + cardinality(v_rows) >= (p.options ->> 'max_jobs')::bigint, false);
  if coalesce(cardinality(v_ids), 0) < coalesce(v_n, 0) then   -- nothing more up to there
    v_time := coalesce(v_until, v_time);
    v_id := coalesce(v_upto, v_id);
  end if;
  select coalesce(sum(g.n) filter (where g.outcome = v_good), 0), coalesce(sum(g.n) filter (where g.outcome not in (v_good, 'later')), 0),
         coalesce(jsonb_agg(jsonb_build_object('queue', g.queue, 'task', g.task, 'n', g.n)) filter (where g.outcome = v_good), '[]')
    into v_done, v_failed, v_counts
    from (select r.queue, r.task, r.outcome, count(*) as n from unnest(v_rows) r group by 1, 2, 3) g;
  update tailrace.operation x
    set done = x.done + v_done, failed = x.failed + v_failed,
        updated_at = clock_timestamp(),
        position = case when v_id is null then x.position else jsonb_build_object('failed_at', v_time, 'job_id', v_id) end,
        state = case when v_ended then 'done' else 'running' end
    where x.id = p.id returning x.* into p;
  if v_done > 0 then
    perform tailrace.audit_v1(p.verb, jsonb_build_object('operation', p.id, 'filter', p.filter), v_done);
  end if;
  return jsonb_build_object('state', p.state, 'done', p.done, 'failed', p.failed,
    'counts', v_counts,
    'problems', (select coalesce(jsonb_agg(jsonb_build_object('job_id', r.job_id, 'outcome', r.outcome, 'detail', r.detail) order by r.job_id), '[]')
                 from unnest(case when v_failed > 0 then v_rows end) r where r.outcome not in (v_good, 'later')));
end $$;

create function tailrace.stop_operation(id bigint) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_state text;
begin
  update tailrace.operation x set state = case when x.state = 'running' then 'stopped' else x.state end, updated_at = clock_timestamp()
    where x.id = stop_operation.id returning x.state into v_state;
  if not found then
    perform tailrace.refuse_v1('TR003', 'operation', format('there is no operation %s', stop_operation.id), 'Look at table operation');
  end if;
  return v_state;
end $$;

comment on table tailrace.dead_letter_count is 'How many dead letters there are, without what table dead_letter_change still holds. Kept by triggers.';
comment on column tailrace.dead_letter_count.queue is 'the queue';
comment on column tailrace.dead_letter_count.task is 'the task';
comment on column tailrace.dead_letter_count.state is 'dead, requeued or resolved';
comment on column tailrace.dead_letter_count.n is 'how many';
comment on column tailrace.dead_letter_count.attempts is 'the sum of their total_attempts';
comment on column tailrace.dead_letter_count.requeues is 'the sum of their requeued_count';
comment on table tailrace.dead_letter_change is 'Changes of these counts, one row for each statement, folded by the statistics.';
comment on column tailrace.dead_letter_change.id is 'in the order of writing';
comment on column tailrace.dead_letter_change.size is 'how many kinds of rows it changed';
comment on column tailrace.dead_letter_change.changes is 'for each queue, task and state how many came, or went when negative, and what their attempts and requeues add';
comment on function tailrace.dead_letter_stats(text) is 'Counts of the dead letters of a queue, or of all.';
comment on function tailrace.requeue_dead_letter(bigint, boolean, jsonb) is 'Put a dead letter''s job back under its number; force replaces a waiting holder of its key. Options: delay or run_at, payload or set ({"a.b": value}), note.';
comment on function tailrace.delete_dead_letter(bigint) is 'Delete a dead letter for good; refused while its job lives.';
comment on function tailrace.resolve_dead_letter(bigint, text) is 'Say that a dead letter is dealt with, and how.';
comment on function tailrace.note_dead_letter(bigint, text) is 'Append a note.';
comment on function tailrace.requeue_dead_letters(text, jsonb) is 'Put back those of a queue (null = all) that a filter selects, oldest failure first; the filter takes max_jobs (1000 at most) and dry_run, and the options of requeue_dead_letter. Tells what became of each.';
comment on function tailrace.delete_dead_letters(text, jsonb) is 'Delete those that a filter selects, like requeue_dead_letters.';
comment on function tailrace.resolve_dead_letters(text, jsonb) is 'Resolve those that a filter selects, like requeue_dead_letters; options resolution and note.';
comment on function tailrace.note_dead_letters(text, text, jsonb) is 'Append a note to those that a filter selects, like requeue_dead_letters.';
comment on function tailrace.add_dead_letter(text, text, jsonb, jsonb) is 'Add a dead letter by hand: queue, task, payload. Options: error (object or text), error_type, attempts, note, and key, serial_group, tenant, priority, max_attempts, timeout, backoff, meta, trace as in enqueue. Returns its number.';
comment on function tailrace.stop_operation(bigint) is 'Stop a change of many after its present batch; the same change begun again goes on from there.';
