-- What a controller asks and changes for JobQueue resources. Each statement may be repeated: the second time changes nothing.

-- name: settle
-- purpose: write the settings of a queue for the resource that owns it, see the function
-- locks: the queue's row
-- index: the primary key of queue
select tailrace.settle_queue_v1(%(queue)s, %(settings)s, %(owner)s, %(generation)s, %(take_over)s)

-- name: orphan
-- purpose: the resource that owns a queue is gone, see the function
-- locks: the queue's row, its schedules
-- index: primary keys
select tailrace.orphan_queue_v1(%(queue)s, %(owner)s)

-- name: owned
-- purpose: the queues that resources of one cluster own
-- locks: none
-- index: none; one row a queue
select q.name, q.owner, q.generation, q.orphaned_at is not null
from tailrace.queue q where q.owner ->> 'cluster' = %(cluster)s order by q.name

-- name: facts
-- purpose: what is known of some queues: the columns of queues.readings, then the moments of the reading, whose the queue is, and
--          its living workers by version
-- locks: none
-- index: the primary key of queue; all of the few worker rows
select q.name, q.reading, extract(epoch from clock_timestamp() - q.read_at)::double precision,
  extract(epoch from (q.reading ->> 'next_due_at')::timestamptz - q.read_at)::double precision,
  extract(epoch from clock_timestamp() - (q.reading ->> 'oldest_ready_at')::timestamptz)::double precision,
  q.held or coalesce(q.held_until > clock_timestamp(), false),
  q.read_at, (q.reading ->> 'oldest_ready_at')::timestamptz, (q.reading ->> 'oldest_dead_at')::timestamptz,
  (q.reading ->> 'next_due_at')::timestamptz, q.owner, q.generation, q.orphaned_at is not null,
  (select coalesce(jsonb_object_agg(v.version, v.n), '{}')
   from (select w.version, count(*) as n from tailrace.worker w
         where w.until > clock_timestamp() and q.name = any (w.queues) group by w.version) v)
from tailrace.queue q where q.name = any (%(queues)s)

-- name: gone
-- purpose: proof of one worker's death, see the function
-- locks: worker, lease, job by id, dead letter (SKIP LOCKED)
-- index: the primary key of worker, lease_worker
select tailrace.worker_gone_v1(%(worker)s, %(reason)s, %(interrupted)s)

-- name: glance
-- purpose: all that a look at a database that is as it should be needs: migrations, identity, the server's version, and the
--          functions of a controller that this user may not run; fails where there is no schema or no right
-- locks: none
-- index: migration_pkey, pg_proc_proname_args_nsp_index
select (select jsonb_agg(jsonb_build_array(m.version, m.name, m.checksum, m.applied_at, m.min_worker, m.min_controller) order by m.version)
        from tailrace.migration m),
  (select i.id::text from tailrace.installation i order by i.created_at, i.id limit 1), current_setting('server_version'),
  exists (select from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
          where n.nspname = %(schema)s and p.proname = any (%(functions)s) and not has_function_privilege(p.oid, 'execute'))

-- name: identity
-- purpose: which installation this is, and on what server
-- locks: none
-- index: none; one row
select i.id::text, current_setting('server_version') from tailrace.installation i order by i.created_at, i.id limit 1

-- name: not_allowed
-- purpose: the functions of a controller that this user may not run; also where it may not even use the schema
-- locks: none
-- index: pg_proc_proname_args_nsp_index
select distinct p.proname::text
from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
where n.nspname = %(schema)s and p.proname = any (%(functions)s)
  and not (has_schema_privilege(n.oid, 'usage') and has_function_privilege(p.oid, 'execute'))
order by 1

-- name: may_migrate
-- purpose: whether this user owns the schema, or may make it where there is none
-- locks: none
-- index: pg_namespace_nspname_index
select coalesce((select pg_has_role(n.nspowner, 'usage') from pg_catalog.pg_namespace n where n.nspname = %(schema)s),
                has_database_privilege(current_database(), 'create'))

-- name: versions
-- purpose: the releases of workers that were seen within a week
-- locks: none
-- index: none; one small row a process
select distinct w.version from tailrace.worker w where w.until > clock_timestamp() - interval '7 days'
