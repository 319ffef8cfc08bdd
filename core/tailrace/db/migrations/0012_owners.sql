-- Tailrace 0012: which JobQueue resource a queue belongs to.
--
-- The row of a queue names the one resource that writes its settings (cluster, uid, namespace, name) and the generation
-- that was written last. Any number of controllers of any number of clusters may try; under the lock of the row it is
-- decided who may. Rules:
--   * a queue without an owner goes to the first resource, also one that the command line managed until then;
--   * a recorded owner stays until it is gone (orphaned), or somebody names it by its uid to take over from it;
--   * an owner writes no generation that is older than the recorded one, so a controller that slept harms nothing;
--   * whoever is refused changes nothing and is told who has the queue.

create function tailrace.check_owner_v1(owner jsonb) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  v_field text;
begin
  foreach v_field in array '{cluster,uid,namespace,name}'::text[] loop
    if jsonb_typeof(owner -> v_field) is distinct from 'string' or octet_length(owner ->> v_field) not between 1 and 253 then
      perform tailrace.refuse_v1('TR002', 'owner', 'needs cluster, uid, namespace and name', 'Send all four, each 1 to 253 bytes');
    end if;
  end loop;
end $$;

-- Whether two owners are the same resource.
create function tailrace.same_owner_v1(one jsonb, other jsonb) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select coalesce(one ->> 'cluster' = other ->> 'cluster' and one ->> 'uid' = other ->> 'uid', false)
$$;

-- Write the settings of a queue for a resource, if it may. Returns {"outcome", "owner": the recorded one, "generation",
-- "adopted"}. Outcomes:
--   created, changed, unchanged: the row has these settings and this owner now
--   conflicted: another resource has the queue; nothing was changed
--   stale:      a newer generation of this resource was written; nothing was changed
-- adopted says whose the queue was before: cli, controller (nobody's in particular), orphaned or taken-over; null = nobody's
-- or its own. take_over: the uid of the recorded owner. A resource that names itself may also go back to an older
-- generation, as after a restore of its cluster.
create function tailrace.settle_queue_v1(
  queue text, settings jsonb, owner jsonb, generation bigint, take_over text default null) returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  v_row     tailrace.queue;
  v_adopted text;
  v_outcome text;
begin
  perform tailrace.check_owner_v1(owner);
  if (generation >= 0) is not true then
    perform tailrace.refuse_v1('TR002', 'generation', 'must be 0 or more', 'Send metadata.generation');
  end if;
  v_row := tailrace.lock_queue_v1(queue, settings);
  if v_row.owner is null then
    v_adopted := v_row.managed_by;
  elsif tailrace.same_owner_v1(v_row.owner, owner) then
    if v_row.generation > generation and take_over is distinct from owner ->> 'uid' then
      v_outcome := 'stale';
    end if;
  elsif v_row.orphaned_at is not null then
    v_adopted := 'orphaned';
  elsif v_row.owner ->> 'uid' = take_over then
    v_adopted := 'taken-over';
  else
    v_outcome := 'conflicted';
  end if;
  if v_outcome is not null then
    return jsonb_build_object('outcome', v_outcome, 'owner', v_row.owner, 'generation', v_row.generation, 'adopted', null);
  end if;

  v_outcome := tailrace.write_queue_v1(v_row, settings, 'controller');
  if (v_row.owner, v_row.generation, v_row.orphaned_at) is distinct from (owner, generation, null::timestamptz) then
    update tailrace.queue q set owner = owner, generation = generation, orphaned_at = null where q.name = queue;
  end if;
  if v_adopted is not null then
    v_outcome := 'changed';
    perform tailrace.audit_v1('adopt', jsonb_build_object('queue', queue, 'owner', owner, 'from', v_adopted, 'was', v_row.owner), 1);
  end if;
  return jsonb_build_object('outcome', v_outcome, 'owner', owner, 'generation', generation, 'adopted', v_adopted);
end $$;

-- The resource that owns a queue is gone: its schedules end, and the next resource that is applied may have the queue. Jobs,
-- dead letters and all other settings stay. Returns false when the queue is not its own any more, or has been orphaned.
create function tailrace.orphan_queue_v1(queue text, owner jsonb) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
begin
  update tailrace.queue q set orphaned_at = clock_timestamp(), settings = q.settings - 'schedules'
    where q.name = queue and q.orphaned_at is null and tailrace.same_owner_v1(q.owner, owner);
  if not found then
    return false;
  end if;
  perform tailrace.sync_schedules_v1(queue);
  perform tailrace.audit_v1('orphan', jsonb_build_object('queue', queue, 'owner', owner), 1);
  return true;
end $$;

-- A worker is proved dead, as by worker_died_v1. With `interrupted` it was the platform that ended it (evicted, preempted, its
-- pod deleted): its jobs count as interrupted, as if it had told that it drains.
create function tailrace.worker_gone_v1(worker text, reason text, interrupted boolean default false) returns jsonb
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  if interrupted then
    update tailrace.worker o set state = 'draining' where o.id = worker_gone_v1.worker and o.state <> 'draining';
  end if;
  return tailrace.worker_died_v1(worker_gone_v1.worker, worker_gone_v1.reason);
end $$;
