-- Tailrace 0006: what people and programs do to single jobs, queues and dead letters.
--
-- Each changing function writes one row of `audit` in its own transaction, named for the session's user, so that the
-- library, the command line and plain SQL leave the same trace. None of them keeps a lock on a running job: a worker
-- must never wait for a transaction that an application holds open. Refusals: TR002 option, TR003 not found, TR004 conflict;
-- MESSAGE "field: problem", HINT the remedy, COLUMN the field.

create function tailrace.audit_v1(verb text, target jsonb, n bigint) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  insert into tailrace.audit (who, verb, target, n) values (session_user, verb, target, n)
$$;

-- Say to the workers of a queue that a job is due. Only idle workers have a waiter row; a transaction with an older
-- snapshot may not see the row of one that has just gone idle, so it always says it.
create function tailrace.wake_v1(queue text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  if current_setting('transaction_isolation') <> 'read committed'
     or exists (select from tailrace.waiter w where w.queue = wake_v1.queue and w.until > clock_timestamp()) then
    perform tailrace.wake_queues_v1(array[wake_v1.queue]);
  end if;
end $$;

-- ---- single jobs ------------------------------------------------------------------------------------------------------
create function tailrace.cancel(id bigint) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_queue text;
  v_token bigint;
begin
  for i in 1 .. 5 loop
    if tailrace.end_waiting_v1(array[cancel.id], 'cancelled') > 0 then
      perform tailrace.audit_v1('cancel', jsonb_build_object('id', cancel.id::text), 1);
      return 'cancelled';
    end if;
    select j.queue, j.token into v_queue, v_token from tailrace.job j where j.id = cancel.id;
    if not found then
      perform tailrace.refuse_v1('TR003', 'id', format('there is no live job %s', cancel.id),
                                 'It has ended, or the number is wrong; look among the dead letters');
    end if;
    if v_token is not null then
      insert into tailrace.cancel_request (job_id, requested_by) values (cancel.id, session_user) on conflict (job_id) do nothing;
      perform pg_notify(tailrace.signal_channel_v1(), v_queue || '?');
      perform tailrace.audit_v1('cancel', jsonb_build_object('id', cancel.id::text, 'running', true), 1);
      return 'requested';
    end if;
    -- It came back just now, or somebody holds its dead letter: look again.
  end loop;
  perform tailrace.refuse_v1('TR004', 'id', format('job %s is being changed by others', cancel.id), 'Try again');
end $$;

create function tailrace.cancel_by_key(tenant text, queue text, task text, key text) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_id     bigint;
  v_result text;
  v_one    text;
begin
  for v_id in select j.id from tailrace.job j
              where j.tenant = coalesce(cancel_by_key.tenant, '') and j.queue = cancel_by_key.queue and j.task = cancel_by_key.task
                and j.key = cancel_by_key.key order by j.key_slot desc loop
    begin
      v_one := tailrace.cancel(v_id);
      v_result := case when v_result = 'requested' then v_result else v_one end;
    exception when sqlstate 'TR003' then   -- the holder has ended while this waited for its successor
      null;
    end;
  end loop;
  if v_result is null then
    perform tailrace.refuse_v1('TR003', 'key', format('no live job of task %s holds key %s', cancel_by_key.task, cancel_by_key.key),
                               'It has ended, or tenant, queue, task or key differ');
  end if;
  return v_result;
end $$;

-- Why a waiting job could not be changed: it runs, or it is gone.
create function tailrace.refuse_change_v1(id bigint) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  if exists (select from tailrace.job j where j.id = refuse_change_v1.id) then
    perform tailrace.refuse_v1('TR004', 'id', format('job %s is running', refuse_change_v1.id), 'Wait for its end, or cancel it');
  end if;
  perform tailrace.refuse_v1('TR003', 'id', format('there is no live job %s', refuse_change_v1.id),
                             'It has ended, or the number is wrong; look among the dead letters');
end $$;

create function tailrace.run_now(id bigint) returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_queue text;
  v_at    timestamptz;
begin
  update tailrace.job j set run_at = least(j.run_at, clock_timestamp())
    where j.id = run_now.id and j.token is null returning j.queue, j.run_at into v_queue, v_at;
  if not found then
    perform tailrace.refuse_change_v1(run_now.id);
  end if;
  perform tailrace.audit_v1('run_now', jsonb_build_object('id', run_now.id::text), 1);
  perform tailrace.wake_v1(v_queue);
  return v_at;
end $$;

create function tailrace.reschedule(id bigint, run_at timestamptz) returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_queue text;
  v_at    timestamptz;
begin
  if reschedule.run_at is null or not isfinite(reschedule.run_at) or reschedule.run_at >= '10000-01-01 00:00+00' then
    perform tailrace.refuse_v1('TR002', 'run_at', 'must be a finite time before the year 10000', 'Give an aware time');
  end if;
  -- A time in the past means now: below that the floors of the workers begin.
  update tailrace.job j set run_at = greatest(reschedule.run_at, clock_timestamp())
    where j.id = reschedule.id and j.token is null returning j.queue, j.run_at into v_queue, v_at;
  if not found then
    perform tailrace.refuse_change_v1(reschedule.id);
  end if;
  perform tailrace.audit_v1('reschedule', jsonb_build_object('id', reschedule.id::text, 'run_at', v_at), 1);
  if v_at <= clock_timestamp() then
    perform tailrace.wake_v1(v_queue);
  end if;
  return v_at;
end $$;

-- A changed number, checked; null where it does not change.
create function tailrace.changed_number_v1(changes jsonb, field text, low int, high int) returns int
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_number numeric;
begin
  if not changes ? field then
    return null;
  end if;
  if jsonb_typeof(changes -> field) = 'number' then
    v_number := (changes ->> field)::numeric;
  end if;
  if (v_number = trunc(v_number) and v_number between low and high) is not true then
    perform tailrace.refuse_v1('TR002', field, format('must be a whole number from %s to %s', low, high), 'Give one in that range');
  end if;
  return v_number::int;
end $$;

-- A changed timeout: seconds or an interval's text; null stays null.
create function tailrace.changed_timeout_v1(value jsonb) returns interval
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_text text := value #>> '{}';
  v_time interval;
begin
  if v_text is null then
    return null;
  end if;
  begin
    v_time := case jsonb_typeof(value) when 'number' then v_text::double precision * interval '1 second'
                                       when 'string' then v_text::interval end;
  exception when data_exception then
    v_time := null;
  end;
  if (v_time between interval '0' and interval '366 days') is not true then
    perform tailrace.refuse_v1('TR002', 'timeout', 'must be seconds or an interval from 0 to 366 days', '0 means none, null the queue''s');
  end if;
  return v_time;
end $$;

create function tailrace.update_job(id bigint, changes jsonb) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  c          jsonb := update_job.changes;
  v_unknown  text;
  v_priority int;
  v_attempts int;
  v_timeout  interval;
  v_meta     jsonb;
begin
  if c is null or jsonb_typeof(c) <> 'object' or c = '{}'::jsonb then
    perform tailrace.refuse_v1('TR002', 'changes', 'must be a JSON object with at least one change',
                               'Known: priority, max_attempts, timeout, meta');
  end if;
  select k into v_unknown from jsonb_object_keys(c) k where k not in ('priority', 'max_attempts', 'timeout', 'meta') limit 1;
  if found then
    perform tailrace.refuse_v1('TR002', v_unknown, 'cannot be changed', 'Known: priority, max_attempts, timeout, meta');
  end if;
  v_priority := tailrace.changed_number_v1(c, 'priority', -1000, 1000);
  v_attempts := tailrace.changed_number_v1(c, 'max_attempts', 1, 2147483647);
  v_timeout := tailrace.changed_timeout_v1(c -> 'timeout');
  v_meta := nullif(c -> 'meta', 'null'::jsonb);
  if v_meta is not null and (jsonb_typeof(v_meta) <> 'object' or octet_length(v_meta::text) > 8192) then
    perform tailrace.refuse_v1('TR002', 'meta', 'must be a JSON object of at most 8192 bytes', 'Keep only small facts in meta');
  end if;
  update tailrace.job j
    set priority = coalesce(v_priority, j.priority), max_attempts = coalesce(v_attempts, j.max_attempts),
        timeout = case when c ? 'timeout' then v_timeout else j.timeout end, meta = case when c ? 'meta' then v_meta else j.meta end
    where j.id = update_job.id and j.token is null;
  if not found then
    perform tailrace.refuse_change_v1(update_job.id);
  end if;
  perform tailrace.audit_v1('update', jsonb_build_object('id', update_job.id::text, 'changes', c), 1);
end $$;

-- ---- queues -----------------------------------------------------------------------------------------------------------
create function tailrace.check_queue_name_v1(queue text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if queue is null or octet_length(queue) not between 1 and 128 then
    perform tailrace.refuse_v1('TR002', 'queue', 'must be 1 to 128 bytes of UTF-8', 'Use a shorter name');
  end if;
end $$;

create function tailrace.hold_queue(queue text, seconds double precision default null) returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_until timestamptz := '9999-12-31 00:00+00';   -- without an end; Python cannot read infinity
begin
  perform tailrace.check_queue_name_v1(hold_queue.queue);
  if hold_queue.seconds is not null then
    if not hold_queue.seconds between 0 and 3162240000 then
      perform tailrace.refuse_v1('TR002', 'seconds', 'must be between 0 and a hundred years', 'Leave it out to hold without an end');
    end if;
    v_until := clock_timestamp() + hold_queue.seconds * interval '1 second';
  end if;
  insert into tailrace.queue as q (name, held_until) values (hold_queue.queue, v_until)
    on conflict (name) do update set held_until = excluded.held_until;
  perform tailrace.audit_v1('hold', jsonb_build_object('queue', hold_queue.queue, 'until', v_until), 1);
  return v_until;
end $$;

create function tailrace.resume_queue(queue text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_policy boolean;
  v_until  timestamptz;
begin
  select q.held, q.held_until into v_policy, v_until from tailrace.queue q where q.name = resume_queue.queue for no key update;
  if not found then
    perform tailrace.refuse_v1('TR003', 'queue', format('there is no queue %s', resume_queue.queue), 'Look at the list of queues');
  end if;
  if v_policy then
    perform tailrace.refuse_v1('TR004', 'queue', format('%s is held by its stopPolicy', resume_queue.queue),
                               'Set stopPolicy to None in its JobQueue and apply it');
  end if;
  if v_until is null then
    return false;
  end if;
  update tailrace.queue q set held_until = null where q.name = resume_queue.queue;
  perform tailrace.audit_v1('resume', jsonb_build_object('queue', resume_queue.queue), 1);
  perform pg_notify(tailrace.signal_channel_v1(), resume_queue.queue);
  return v_until > clock_timestamp();
end $$;

-- Check the settings of a queue, make its row if there is none, and lock it.
create function tailrace.lock_queue_v1(queue text, settings jsonb) returns tailrace.queue
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_row tailrace.queue;
begin
  perform tailrace.check_queue_name_v1(lock_queue_v1.queue);
  if lock_queue_v1.settings is null or jsonb_typeof(lock_queue_v1.settings) <> 'object' then
    perform tailrace.refuse_v1('TR002', 'settings', 'must be a JSON object', 'Send the spec of the JobQueue');
  end if;
  if coalesce(lock_queue_v1.settings ->> 'stopPolicy', 'None') not in ('None', 'Hold', 'HoldAndDrain') then
    perform tailrace.refuse_v1('TR002', 'stopPolicy', 'must be None, Hold or HoldAndDrain', 'Correct the JobQueue');
  end if;
  insert into tailrace.queue (name) values (lock_queue_v1.queue) on conflict (name) do nothing;
  select q.* into v_row from tailrace.queue q where q.name = lock_queue_v1.queue for no key update;
  return v_row;
end $$;

-- Write the settings of a queue whose row the caller has locked and read.
create function tailrace.write_queue_v1(was tailrace.queue, settings jsonb, managed_by text) returns text
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_held boolean := coalesce(write_queue_v1.settings ->> 'stopPolicy', 'None') <> 'None';
begin
  if write_queue_v1.settings ? 'schedules' then
    perform tailrace.check_schedules_v1(was.name, write_queue_v1.settings -> 'schedules', was.settings -> 'schedules',
                                        write_queue_v1.managed_by = 'cli');
  end if;
  if was.managed_by = write_queue_v1.managed_by and was.settings = write_queue_v1.settings and was.held = v_held then
    return 'unchanged';
  end if;
  update tailrace.queue q set settings = write_queue_v1.settings, managed_by = write_queue_v1.managed_by, held = v_held
    where q.name = was.name;
  perform tailrace.sync_schedules_v1(was.name);
  perform tailrace.audit_v1('apply', jsonb_build_object('queue', was.name, 'managed_by', write_queue_v1.managed_by), 1);
  if was.held and not v_held then
    perform pg_notify(tailrace.signal_channel_v1(), was.name);
  end if;
  return case when was.managed_by is null then 'created' else 'changed' end;
end $$;

-- For whoever has no resource. A queue that a resource owns is refused; one whose resource is gone is anybody's.
create function tailrace.apply_queue(queue text, settings jsonb, managed_by text) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_old tailrace.queue;
begin
  if apply_queue.managed_by is null or apply_queue.managed_by not in ('controller', 'cli') then
    perform tailrace.check_queue_name_v1(apply_queue.queue);
    perform tailrace.refuse_v1('TR002', 'managed_by', 'must be controller or cli', 'Say who manages the queue');
  end if;
  v_old := tailrace.lock_queue_v1(apply_queue.queue, apply_queue.settings);
  if v_old.owner is not null and v_old.orphaned_at is null then
    perform tailrace.refuse_v1('TR004', 'queue', format('%s is managed by a controller for JobQueue %s/%s', apply_queue.queue,
                                                        v_old.owner ->> 'namespace', v_old.owner ->> 'name'),
                               'Change that resource instead');
  elsif v_old.owner is not null then
    update tailrace.queue q set owner = null, generation = null, orphaned_at = null where q.name = apply_queue.queue;
  elsif v_old.managed_by = 'controller' and apply_queue.managed_by = 'cli' then
    perform tailrace.refuse_v1('TR004', 'queue', format('%s is managed by a controller', apply_queue.queue),
                               'Change its JobQueue resource instead');
  end if;
  return tailrace.write_queue_v1(v_old, apply_queue.settings, apply_queue.managed_by);
end $$;

create function tailrace.purge_queue(queue text, force boolean default false, max_jobs bigint default null) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_id   bigint;
  v_ids  bigint[] := '{}';
  v_done bigint := 0;
begin
  if purge_queue.max_jobs < 1 then
    perform tailrace.refuse_v1('TR002', 'max_jobs', 'must be at least 1', 'Leave it out to purge all');
  end if;
  if not exists (select from tailrace.queue q where q.name = purge_queue.queue)
     and not exists (select from tailrace.job j where j.queue = purge_queue.queue) then
    perform tailrace.refuse_v1('TR003', 'queue', format('there is no queue %s', purge_queue.queue), 'Look at the list of queues');
  end if;
  if not coalesce(purge_queue.force, false) and exists (
       select from tailrace.worker w where w.until > clock_timestamp() and purge_queue.queue = any (w.queues)) then
    perform tailrace.refuse_v1('TR004', 'queue', format('live workers serve %s', purge_queue.queue), 'Stop them first, or pass force');
  end if;
  for v_id in select j.id from tailrace.job j where j.queue = purge_queue.queue and j.token is null limit purge_queue.max_jobs loop
    v_ids := v_ids || v_id;
    if cardinality(v_ids) >= 1000 then
      v_done := v_done + tailrace.end_waiting_v1(v_ids, 'cancelled');
      v_ids := '{}';
    end if;
  end loop;
  v_done := v_done + case when cardinality(v_ids) > 0 then tailrace.end_waiting_v1(v_ids, 'cancelled') else 0 end;
  perform tailrace.audit_v1('purge', jsonb_build_object('queue', purge_queue.queue, 'force', coalesce(purge_queue.force, false)), v_done);
  return v_done;
end $$;

-- How many jobs of these queues are in which state of the view `jobs`, by task; the earliest of them since when and until when.
-- All are counted in one pass, since the jobs of several queues lie on the same pages.
--   gently: rest for 2 ms after some thousand jobs, which take 1 to 2 ms, 2,000 times at most. Where all cores are busy, whoever is
--           woken waits for the scheduler's next tick, up to 4 ms, at each of the five steps from a commit to the start of a job;
--           rests let them through
create function tailrace.job_states_v1(queues text[], gently boolean default false)
returns table (queue text, task text, state text, n bigint, since timestamptz, run_at timestamptz)
language plpgsql stable set search_path = pg_catalog, pg_temp
-- It may read a million rows, so never by a plan that was made when there were none, never all leases for each of them, never by
-- sorting them, and on one core, beside which workers claim.
set enable_nestloop = off set enable_mergejoin = off set enable_sort = off set enable_seqscan = on set enable_hashjoin = on
set max_parallel_workers_per_gather = 0 set jit = off set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  v_now  timestamptz := statement_timestamp();
  v_each bigint;   -- a rest after so many jobs
begin
  if job_states_v1.gently then
    select greatest(1024, c.reltuples / 2000) into v_each
      from pg_type t join pg_class c on c.oid = t.typrelid where t.oid = pg_typeof(null::tailrace.job);
  end if;
  return query
  with taken_groups as materialized (
    select g.queue, g.tenant, g.name, g.token is null as by_head, g.head
    from tailrace.job_group g
    where g.queue = any (job_states_v1.queues) and (g.token is not null or exists (select from tailrace.job h where h.id = g.head offset 0))
  ), counted as materialized (
    select s.queue, s.task, s.kind, count(*) as n, min(s.since) as since, min(s.run_at) as run_at
    from (select j.queue, j.task, j.run_at, greatest(j.run_at, j.created_at) as since,
                 case when j.token is not null then case when w.id is null then 'stale' else 'running' end
                      when j.key_slot = 1 then 'blocked'
                      when j.run_at <= v_now then
                        case when g.name is not null and not (g.by_head and g.head = j.id) then 'waits' else 'due' end
                      when j.attempts > 0 or j.interrupted > 0 then 'retrying' else 'scheduled' end as kind
          from tailrace.job j
          left join taken_groups g on g.queue = j.queue and g.tenant = j.tenant and g.name = j.serial_group
          left join tailrace.lease l on l.token = j.token
          left join tailrace.worker w on w.id = l.worker and w.until > v_now
          where j.queue = any (job_states_v1.queues)
            -- true of every row; each part has an index that begins with the queue
            and ((j.serial_group is null and j.key_slot = 0 and j.lost = 0) or (j.serial_group is null and j.key_slot = 0 and j.lost > 0)
                 or (j.serial_group is not null and j.key_slot = 0) or j.key_slot = 1)
            and case when j.id % v_each = 0 then pg_sleep(0.002) is not null else true end) s
    group by s.queue, s.task, s.kind
  ), due as materialized (
    select distinct c.queue from counted c where c.kind in ('due', 'waits')
  ), held as (
    select q.name from tailrace.queue q where q.name in (select d.queue from due d) and (q.held or q.held_until > v_now)
  ), known as (
    select distinct d.queue, t.task
    from tailrace.worker w cross join unnest(w.queues) u(queue) join due d on d.queue = u.queue cross join unnest(w.tasks) t(task)
    where w.until > v_now and w.state = 'working'
  ), taken as materialized (
    select f.queue, f.tasks from tailrace.limits f where f.queue in (select d.queue from due d) and f.free < 1
  )
  select c.queue, c.task,
         case when c.kind not in ('due', 'waits') then c.kind when h.name is not null then 'held'
              when k.task is null then 'unclaimable'
              when c.kind = 'waits' or exists (select from taken t where t.queue = c.queue and (t.tasks is null or c.task = any (t.tasks)))
              then 'blocked' else 'ready' end,
         c.n, c.since, c.run_at
  from counted c
  left join held h on h.name = c.queue
  left join known k on k.queue = c.queue and k.task = c.task;
end $$;

-- One row, also for a queue that has nothing: the states of the view `jobs`, which are disjoint and sum to `total`.
create function tailrace.queue_stats(queue text) returns table (
  ready bigint, scheduled bigint, retrying bigint, blocked bigint, held bigint, unclaimable bigint, running bigint, stale bigint,
  total bigint, oldest_ready_age double precision, next_due_in double precision, dead bigint,
  oldest_dead_age double precision, read_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := statement_timestamp();
begin
  return query
  with live as (
    select coalesce(sum(s.n) filter (where s.state = 'ready'), 0)::bigint as ready,
           coalesce(sum(s.n) filter (where s.state = 'scheduled'), 0)::bigint as scheduled,
           coalesce(sum(s.n) filter (where s.state = 'retrying'), 0)::bigint as retrying,
           coalesce(sum(s.n) filter (where s.state = 'blocked'), 0)::bigint as blocked,
           coalesce(sum(s.n) filter (where s.state = 'held'), 0)::bigint as held,
           coalesce(sum(s.n) filter (where s.state = 'unclaimable'), 0)::bigint as unclaimable,
           coalesce(sum(s.n) filter (where s.state = 'running'), 0)::bigint as running,
           coalesce(sum(s.n) filter (where s.state = 'stale'), 0)::bigint as stale,
           coalesce(sum(s.n), 0)::bigint as total,
           min(s.since) filter (where s.state = 'ready') as since,
           min(s.run_at) filter (where s.state in ('scheduled', 'retrying')) as due
    from tailrace.job_states_v1(array[queue_stats.queue]) s
  ), letters as (
    select coalesce((select sum(c.n)::bigint from tailrace.dead_letter_counts_v1(queue_stats.queue) c where c.state = 'dead'), 0) as dead,
           tailrace.oldest_dead_v1(queue_stats.queue) as since
  )
  select l.ready, l.scheduled, l.retrying, l.blocked, l.held, l.unclaimable, l.running, l.stale, l.total,
         coalesce(greatest(extract(epoch from v_now - l.since), 0), 0)::double precision,
         extract(epoch from l.due - v_now)::double precision, d.dead,
         coalesce(greatest(extract(epoch from v_now - d.since), 0), 0)::double precision, v_now
  from live l cross join letters d;
end $$;
