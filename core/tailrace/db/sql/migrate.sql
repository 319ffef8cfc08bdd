-- Bookkeeping of migrations. The table is older than every migration, so the migrator makes it itself.

-- name: try_lock
-- purpose: become the one migrator of this schema; a try, since a waiting statement would hold a snapshot and stop
--          CREATE INDEX CONCURRENTLY of the one that works
-- locks: a session advisory lock
-- index: none
select pg_try_advisory_lock(hashtext('tailrace'), hashtext(%(schema)s));

-- name: find_table
-- purpose: whether schema and bookkeeping table exist; needs no privilege
-- locks: none
-- index: pg_namespace_nspname_index, pg_class_relname_nsp_index
select n.oid, c.oid
from pg_catalog.pg_namespace n
left join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = 'migration' and c.relkind = 'r'
where n.nspname = %(schema)s;

-- name: create_table
-- purpose: the bookkeeping table
-- locks: none that anybody waits for: the table is new
-- index: none
create table tailrace.migration (
  version        int primary key,
  name           text not null,
  checksum       text not null,
  applied_at     timestamptz not null default clock_timestamp(),
  min_worker     text,
  min_controller text
);

-- name: applied
-- purpose: the migrations that have been committed
-- locks: none
-- index: migration_pkey
select version, name, checksum, applied_at, min_worker, min_controller from tailrace.migration order by version;

-- name: record
-- purpose: note a migration in its own transaction
-- locks: the new row
-- index: migration_pkey
insert into tailrace.migration (version, name, checksum, min_worker, min_controller)
values (%(version)s, %(name)s, %(checksum)s, %(min_worker)s, %(min_controller)s)
returning version, name, checksum, applied_at, min_worker, min_controller;

-- name: invalid_index
-- purpose: what an interrupted CREATE INDEX CONCURRENTLY left behind
-- locks: none
-- index: pg_class_relname_nsp_index
select c.relname
from pg_catalog.pg_class c
join pg_catalog.pg_index i on i.indexrelid = c.oid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relname = any(%(names)s) and not i.indisvalid;

-- name: settle_session
-- purpose: for one transaction: give up soon on locks that an application holds, have no time limit besides, and see
--          nobody's objects but ours and the system's
-- locks: none
-- index: none
select set_config('lock_timeout', %(lock_timeout)s, true), set_config('statement_timeout', '0', true),
       set_config('search_path', 'pg_catalog, pg_temp', true);
