-- Tailrace 0013: roles and their rights. The last step: it grants on what exists when it runs.
--
-- Roles belong to the whole server, so they have the same names for every schema; a role that exists already is used as
-- it is. Where the migrating user may not create roles, this step says so and goes on: `tailrace doctor` prints what is
-- missing, and role_statements_v1 is where it takes it from.
--   tailrace_enqueue  enqueues, and completes a job whose token it knows: no right on any table
--   tailrace_worker   what a worker and its maintenance touch, and enqueue
--   tailrace_admin    every operation and all data
--   tailrace_reader   reads
-- A function that runs with its caller's rights gives nobody a right, so workers and admins may run all of these;
-- functions that run with their owner's rights are named here one by one.

create function tailrace.role_statements_v1() returns table (role text, statement text)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_schema   oid := (select t.typnamespace from pg_type t where t.oid = pg_typeof(null::tailrace.job)::oid);
  v_name     text := (select n.nspname from pg_namespace n where n.oid = v_schema);
  v_enqueue  text[] := '{enqueue,enqueue_many,enqueue_batch_v1,complete_v1,job_result}';
  v_upkeep   text[] := '{retain_v1,auto_requeue_v1,history_v1}';
  v_own      text[] := '{settle_queue_v1,orphan_queue_v1}';   -- a controller may have no more than the worker's rights
  v_look     text[] := '{queue_stats,dead_letter_stats,job_result}';
  v_change   text[] := '{cancel,cancel_by_key,run_now,reschedule,update_job,hold_queue,resume_queue,apply_queue,purge_queue}'::text[]
    || '{requeue_dead_letter,delete_dead_letter,resolve_dead_letter,note_dead_letter,add_dead_letter,change_dead_letters_v1}'::text[]
    || '{requeue_dead_letters,delete_dead_letters,resolve_dead_letters,note_dead_letters,stop_operation}'::text[];
  v_find     text[] := '{find_dead_letters_v1,dead_letter_filter_v1,filter_time_v1,dead_letter_conditions_v1,refuse_v1}'::text[]
    || '{count_dead_letters_v1,dead_letter_counts_v1,dead_letter_queues_v1,given_v1,schema_v1}'::text[];
  v_times    text[] := '{run_schedule,suspend_schedule,resume_schedule}';
begin
  return query select r.r, format('grant usage on schema %I to %I', v_name, r.r)
    from unnest('{tailrace_enqueue,tailrace_worker,tailrace_admin,tailrace_reader}'::text[]) r(r);

  return query
  select r.r, format('grant execute on function %I.%I(%s) to %I', v_name, p.proname, pg_get_function_identity_arguments(p.oid), r.r)
  from pg_proc p
  cross join lateral (values
    ('tailrace_enqueue', p.proname = any (v_enqueue)),
    ('tailrace_worker', p.proname = any (v_enqueue || v_upkeep || v_own || '{stop_overlapped_v1}') or not p.prosecdef),
    ('tailrace_admin', p.proname = any (v_enqueue || v_upkeep || v_own || v_look || v_change || v_times || '{stop_overlapped_v1}') or not p.prosecdef),
    ('tailrace_reader', p.proname = any (v_look || v_find || '{queue_names_v1,limits_v1,rates_v1,task_names_v1,task_settings_v1}'))) r(r, may)
  where p.pronamespace = v_schema and p.prorettype <> 'trigger'::regtype and r.may
  order by r.r, p.proname, 2;

  return query
  select g.r, format('grant %s on %I.%I to %I', g.rights, v_name, g.relation, g.r)
  from (values
    ('tailrace_worker', 'select, update, delete', 'job'),
    ('tailrace_worker', 'select, insert, update, delete', 'lease'),
    ('tailrace_worker', 'select, insert, update, delete', 'worker'),
    ('tailrace_worker', 'select, insert, update, delete', 'queue_floor'),
    ('tailrace_worker', 'select, insert, update, delete', 'job_group'),
    ('tailrace_worker', 'select, insert, update, delete', 'waiter'),
    ('tailrace_worker', 'select, insert, delete', 'tally'),
    ('tailrace_worker', 'select, insert, update', 'total'),
    ('tailrace_worker', 'select, insert, update', 'dead_letter'),
    ('tailrace_worker', 'select', 'dead_letters'),
    ('tailrace_worker', 'select', 'limits'),
    ('tailrace_worker', 'select, insert, update', 'dead_letter_count'),
    ('tailrace_worker', 'select, delete', 'dead_letter_change'),
    ('tailrace_worker', 'select, update, delete', 'cancel_request'),
    ('tailrace_worker', 'select, insert, update (reading, read_at, limits_sure)', 'queue'),
    ('tailrace_worker', 'select, insert, update, delete', 'limit_slot'),
    ('tailrace_worker', 'select, insert, update, delete', 'rate'),
    ('tailrace_worker', 'select, insert, update', 'maintenance'),
    ('tailrace_worker', 'select, insert, update, delete', 'schedule'),
    ('tailrace_worker', 'insert', 'finished'),
    ('tailrace_worker', 'select', 'migration'),
    ('tailrace_worker', 'select', 'installation')) g(r, rights, relation);

  return query
  select r.r, format('grant %s on %I.%I to %I',
                     case when r.r = 'tailrace_reader' or c.relkind = 'v' or c.relname in ('migration', 'installation') then 'select'
                          when c.relname = 'audit' then 'select, insert'
                          else 'select, insert, update, delete' end, v_name, c.relname, r.r)
  from pg_class c cross join unnest('{tailrace_admin,tailrace_reader}'::text[]) r(r)
  where c.relnamespace = v_schema and c.relkind in ('r', 'p', 'v')
  order by r.r, c.relname;
end $$;

-- The rights that are missing, as statements for the owner of the schema: what `tailrace doctor` prints.
create function tailrace.missing_roles_v1() returns setof text
language sql stable set search_path = pg_catalog, pg_temp as $$
  select format('create role %I nologin', r.r)
  from unnest('{tailrace_enqueue,tailrace_worker,tailrace_admin,tailrace_reader}'::text[]) r(r)
  where not exists (select from pg_roles p where p.rolname = r.r)
  union all
  select s.statement
  from tailrace.role_statements_v1() s
  where case when exists (select from pg_roles p where p.rolname = s.role)
             then not has_schema_privilege(s.role, (select t.typnamespace from pg_type t where t.oid = pg_typeof(null::tailrace.job)::oid), 'usage')
             else true end
$$;

do $$
declare
  v_function regprocedure;
  v_role     text;
  v_grant    text;
begin
  for v_function in select p.oid::regprocedure from pg_proc p
                    where p.pronamespace = (select t.typnamespace from pg_type t where t.oid = pg_typeof(null::tailrace.job)::oid) loop
    execute format('revoke all on function %s from public', v_function);
  end loop;

  foreach v_role in array '{tailrace_enqueue,tailrace_worker,tailrace_admin,tailrace_reader}'::text[] loop
    if not exists (select from pg_roles r where r.rolname = v_role) then
      begin
        execute format('create role %I nologin', v_role);
      exception
        when insufficient_privilege then
          raise notice 'role % was not created: % may not create roles; `tailrace doctor` prints the statements', v_role, current_user;
        when duplicate_object or unique_violation then
          null;   -- another database of this server is just being migrated
      end;
    end if;
  end loop;

  for v_role, v_grant in select s.role, s.statement from tailrace.role_statements_v1() s loop
    if exists (select from pg_roles r where r.rolname = v_role) then
      execute v_grant;
    end if;
  end loop;
end $$;

comment on function tailrace.role_statements_v1() is 'The rights of the four roles in this schema, as statements.';
comment on function tailrace.missing_roles_v1() is 'What the owner must run where the migration could not create the roles.';
