-- What `tailrace doctor` looks at. None of these takes a lock beyond that of reading, and none fails without a schema.

-- name: server
-- purpose: version, user, recovery, and the clock; the caller notes its own clock before and after
-- locks: none
-- index: none
select current_setting('server_version_num')::int, current_setting('server_version'), current_user::text, pg_is_in_recovery(),
  date_part('epoch', clock_timestamp())

-- name: capabilities
-- purpose: what the user of the connection may do, told by one function of each role, and the statement that would allow it
-- locks: none
-- index: pg_proc by name
select c.capability, coalesce(bool_or(has_schema_privilege(n.oid, 'usage') and has_function_privilege(p.oid, 'execute')), false),
  format('grant %%I to %%I', c.role, current_user), bool_or(n.oid is not null)
from (values ('enqueue', 'enqueue', 'tailrace_enqueue'), ('work', 'settle_v1', 'tailrace_worker'),
             ('administer', 'hold_queue', 'tailrace_admin'), ('read', 'queue_stats', 'tailrace_reader')) c(capability, name, role)
left join pg_namespace n on n.nspname = %(schema)s
left join pg_proc p on p.pronamespace = n.oid and p.proname = c.name
group by c.capability, c.role order by array_position(array['enqueue', 'work', 'administer', 'read'], c.capability)

-- name: missing_roles
-- purpose: the statements that make the roles and rights which the migration could not make
-- locks: none
-- index: none
select s from tailrace.missing_roles_v1() s

-- name: oldest_transaction
-- purpose: the oldest transaction of this database, which keeps dead rows from being removed, and the sessions that cannot be seen
-- locks: none
-- index: none
select o.label, o.age, (select count(*) from pg_stat_activity a
  where a.datname = current_database() and a.backend_type is null and a.pid <> pg_backend_pid())
from (select format('session %%s of user %%s, application %%s, %%s', a.pid, a.usename, quote_literal(a.application_name), a.state) as label,
        date_part('epoch', clock_timestamp() - a.xact_start) as age
      from pg_stat_activity a
      where a.datname = current_database() and a.xact_start is not null and a.pid <> pg_backend_pid()
      union all
      select format('prepared transaction %%s of user %%s', quote_literal(x.gid), x.owner), date_part('epoch', clock_timestamp() - x.prepared)
      from pg_prepared_xacts x where x.database = current_database()
      union all select null, 0) o
order by o.age desc nulls last limit 1

-- name: foreign_objects
-- purpose: indexes, references and triggers on table job that are not ours; an index on a column that a claim changes stops
--          its cheap updates, a reference or a trigger can fail them
-- locks: none
-- index: pg_index, pg_constraint, pg_trigger by table
with t as (select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %(schema)s and c.relname = 'job')
select 'index', c.relname::text, pg_get_indexdef(i.indexrelid) ~ '\m(token|attempts|errors|saved)\M'
from t join pg_index i on i.indrelid = t.oid join pg_class c on c.oid = i.indexrelid
where c.relname <> all (array['job_pkey', 'job_ready', 'job_suspect', 'job_key', 'job_by_group', 'job_successor'])
union all
select 'foreign key', k.conname::text, true from t join pg_constraint k on k.confrelid = t.oid and k.contype = 'f'
union all
select 'trigger', g.tgname::text, false from t join pg_trigger g on g.tgrelid = t.oid and not g.tgisinternal
where g.tgname <> all (array['job_rules', 'job_follow'])
order by 1, 2

-- name: vacuum
-- purpose: whether autovacuum works on table job, its dead rows, and how many updates stay cheap (HOT)
-- locks: none
-- index: pg_class by name
select current_setting('autovacuum')::boolean and current_setting('track_counts')::boolean,
  coalesce('autovacuum_enabled=false' = any (c.reloptions), false), s.n_live_tup, s.n_dead_tup,
  date_part('epoch', clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum)), s.n_tup_upd, s.n_tup_hot_upd
from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_stat_all_tables s on s.relid = c.oid
where n.nspname = %(schema)s and c.relname = 'job'

-- name: connections
-- purpose: sessions in use and how many there may be for an ordinary user
-- locks: none
-- index: none
select (select count(*) from pg_stat_activity a where a.backend_type = 'client backend' or a.backend_type is null),
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
  (select count(*) from pg_stat_activity a where a.application_name like %(mine)s)

-- name: maintenance
-- purpose: live workers, leases, and how long ago the reaper last ended well
-- locks: none
-- index: the primary key of maintenance
select (select count(*) from tailrace.workers w where w.alive), (select count(*) from tailrace.leases),
  (select date_part('epoch', clock_timestamp() - m.last_success) from tailrace.maintenance m where m.routine = 'reaper' and m.scope = '')
