-- Tailrace 0007: views for people with psql and for the command line, and a comment on every table and column.
--
-- Field names are those of the library and of JSON output. Durations are seconds. Time is that of the statement, so a job
-- enqueued earlier in the same transaction shows as what it is.

-- ---- limits -----------------------------------------------------------------------------------------------------------
create view tailrace.limits as
  select q.name as queue, 'concurrency' as kind, m.name, case when m.name <> '' then array[m.name] end as tasks,
         m.most::bigint as most, null::double precision as period, null::bigint as burst, u.in_use, greatest(m.most - u.in_use, 0) as free
  from tailrace.queue q
  cross join lateral tailrace.limits_v1(q.settings) m
  cross join lateral (select count(*) as in_use from tailrace.lease l cross join unnest(l.ids) i(id)
                      cross join lateral (select r.task from tailrace.job r where r.id = i.id and r.token = l.token offset 0) j
                      where l.queue = q.name and m.name in ('', j.task)) u
  union all
  select q.name, 'rate', m.name, m.tasks, m.jobs::bigint, m.period, m.burst::bigint, null,
         floor(greatest(least(m.burst, coalesce(r.tokens + greatest(extract(epoch from statement_timestamp() - r.at), 0)::double precision
           * m.jobs / m.period, m.burst)), 0))::bigint
  from tailrace.queue q
  cross join lateral tailrace.rates_v1(q.settings) m
  left join tailrace.rate r on r.queue = q.name and r.name = m.name;

comment on view tailrace.limits is 'Limits and rates of queues, and how far they are used now.';
comment on column tailrace.limits.kind is 'concurrency = jobs that run at a time; rate = jobs that start in a period';
comment on column tailrace.limits.name is 'the task, or empty for the whole queue; of a rate its name';
comment on column tailrace.limits.tasks is 'the tasks it counts; null = every task';
comment on column tailrace.limits.most is 'jobs at a time, or in a period';
comment on column tailrace.limits.period is 'seconds, of a rate';
comment on column tailrace.limits.burst is 'how many may start at once, of a rate';
comment on column tailrace.limits.in_use is 'jobs that run now, null for a rate';
comment on column tailrace.limits.free is 'jobs that could start now';

-- ---- jobs -------------------------------------------------------------------------------------------------------------
create view tailrace.jobs as
  with taken as materialized (select f.queue, f.tasks from tailrace.limits f where f.free < 1)
  select j.id,
         case when j.token is not null then case when w.id is null then 'stale' else 'running' end
              when j.key_slot = 1 then 'blocked'
              when j.run_at > statement_timestamp() then case when j.attempts > 0 or j.interrupted > 0 then 'retrying' else 'scheduled' end
              when q.held or q.held_until > statement_timestamp() then 'held'
              when k.task is null then 'unclaimable'
              when g.token is not null or (g.head is not null and g.head <> j.id
                                           and exists (select from tailrace.job h where h.id = g.head offset 0)) then 'blocked'
              when exists (select from taken t where t.queue = j.queue and (t.tasks is null or j.task = any (t.tasks))) then 'blocked'
              else 'ready' end as state,
         j.tenant, j.queue, j.task, j.payload, j.priority, j.run_at, j.attempts, j.max_attempts, j.key, j.key_slot, j.serial_group,
         j.lost, j.interrupted, j.snoozes, extract(epoch from j.timeout)::double precision as timeout, j.backoff, j.expires_at, j.trace,
         j.meta, j.saved, j.errors, j.requeues, j.created_at, l.worker, l.claimed_at,
         exists (select from tailrace.cancel_request c where c.job_id = j.id) as cancel_requested
  from tailrace.job j
  left join tailrace.queue q on q.name = j.queue
  left join tailrace.job_group g on g.queue = j.queue and g.tenant = j.tenant and g.name = j.serial_group
  left join tailrace.lease l on l.token = j.token
  left join tailrace.worker w on w.id = l.worker and w.until > statement_timestamp()
  left join (select distinct s.queue, t.task
             from tailrace.worker o cross join unnest(o.queues) s(queue) cross join unnest(o.tasks) t(task)
             where o.until > statement_timestamp() and o.state = 'working') k on k.queue = j.queue and k.task = j.task;

comment on view tailrace.jobs is 'Live jobs with their state: ready, scheduled, retrying, blocked, held, unclaimable, running or stale. The states are disjoint and sum to the rows of table job.';
comment on column tailrace.jobs.state is 'ready = due and claimable; scheduled = first run later; retrying = waits after a failed or interrupted run; blocked = due, but its limit is taken or its rate used up, its group is taken or waits for another member in strict order, or it is the successor of a running job of its key; held = due, its queue is on hold; unclaimable = due, no live worker knows the task; running = its lease is live; stale = its lease has expired and is not taken over yet';
comment on column tailrace.jobs.timeout is 'seconds a run may take; 0 = no limit, null = that of the queue';
comment on column tailrace.jobs.worker is 'who holds the lease, while it runs';
comment on column tailrace.jobs.claimed_at is 'when the batch it belongs to was claimed';
comment on column tailrace.jobs.cancel_requested is 'a cancel was asked for while it runs';

-- ---- dead letters -----------------------------------------------------------------------------------------------------
create view tailrace.dead_letters as
  select d.job_id, d.state, d.tenant, d.queue, d.task, d.key, d.serial_group, d.payload, d.priority, d.run_at, d.max_attempts,
         extract(epoch from d.timeout)::double precision as timeout, d.backoff, d.trace, d.meta, d.saved, d.errors, d.errors -> -1 as last_error,
         d.reason, d.error_type, d.fingerprint, d.total_attempts, d.dead_count, d.first_failed_at, d.failed_at, d.requeued_count,
         d.last_requeued_at, d.resolved_at, d.resolution, d.history, d.notes, d.worker, d.created_at,
         greatest(extract(epoch from statement_timestamp() - d.failed_at), 0)::double precision as age
  from tailrace.dead_letter d;

comment on view tailrace.dead_letters is 'Exhausted jobs; those in state dead wait for somebody.';
comment on column tailrace.dead_letters.timeout is 'seconds a run may take; 0 = no limit, null = that of the queue';
comment on column tailrace.dead_letters.last_error is 'the newest of errors';
comment on column tailrace.dead_letters.age is 'seconds since failed_at';

-- ---- workers and leases -----------------------------------------------------------------------------------------------
create view tailrace.workers as
  select w.id, w.state, w.until > statement_timestamp() as alive, w.queues, w.tasks, w.slots, w.version, w.pod, w.started, w.until,
         w.lease_seconds, coalesce(l.leases, 0) as leases, coalesce(l.jobs, 0) as jobs, w.schedules, w.death
  from tailrace.worker w
  left join lateral (select count(*) as leases, sum(cardinality(o.ids))::bigint as jobs from tailrace.lease o where o.worker = w.id) l on true;

comment on view tailrace.workers is 'Worker processes, living and lately dead.';
comment on column tailrace.workers.alive is 'its lease is in the future';
comment on column tailrace.workers.leases is 'batches it holds';
comment on column tailrace.workers.jobs is 'jobs of these batches when they were claimed';

create view tailrace.leases as
  select l.token, l.worker, l.queue, l.ids, cardinality(l.ids)::bigint as jobs, l.claimed_at, w.until,
         case when w.until > statement_timestamp() then 'live' when w.id is null then 'orphaned' else 'expired' end as state,
         greatest(extract(epoch from statement_timestamp() - l.claimed_at), 0)::double precision as age,
         extract(epoch from w.until - statement_timestamp())::double precision as remaining
  from tailrace.lease l
  left join tailrace.worker w on w.id = l.worker;

comment on view tailrace.leases is 'Claimed batches, and how long their worker is known to live.';
comment on column tailrace.leases.state is 'live; expired = its worker was not heard of in time; orphaned = its worker has no row';
comment on column tailrace.leases.jobs is 'jobs of the batch when it was claimed';
comment on column tailrace.leases.age is 'seconds since the claim';
comment on column tailrace.leases.remaining is 'seconds until it expires, negative when it has';

-- ---- queues -----------------------------------------------------------------------------------------------------------
create view tailrace.queues as
  select n.queue, coalesce(q.held, false) or coalesce(q.held_until > statement_timestamp(), false) as held,
         coalesce(q.held, false) as held_by_policy, case when q.held_until > statement_timestamp() then q.held_until end as held_until,
         q.managed_by, coalesce(q.settings, '{}') as settings, q.owner, q.generation, q.orphaned_at,
         (select count(*) from tailrace.worker w where w.until > statement_timestamp() and n.queue = any (w.queues)) as workers,
         q.reading, q.read_at
  from (select q.name from tailrace.queue q union all select u.name from tailrace.queue_names_v1() u) n(queue)
  left join tailrace.queue q on q.name = n.queue;

comment on view tailrace.queues is 'Every queue that has a row, a live job or a dead letter. Live counts: function queue_stats.';
comment on column tailrace.queues.held is 'no worker claims of it now';
comment on column tailrace.queues.held_by_policy is 'its stopPolicy holds it';
comment on column tailrace.queues.held_until is 'somebody holds it until then';
comment on column tailrace.queues.orphaned_at is 'since when the resource that owned it is gone';
comment on column tailrace.queues.workers is 'live workers that serve it';

-- ---- comments on tables -----------------------------------------------------------------------------------------------
comment on table tailrace.job is 'The hot table: waiting and running jobs, nothing else. No foreign key may point to it, and no index may name token, attempts, errors or saved.';
comment on column tailrace.job.id is 'the job''s number, kept through requeues';
comment on column tailrace.job.tenant is 'whose job it is; part of the scope of a key';
comment on column tailrace.job.queue is 'the stream of jobs it stands in, at most 128 bytes';
comment on column tailrace.job.task is 'the name of the handler, at most 200 bytes';
comment on column tailrace.job.payload is 'the handler''s parameters by name, at most 256 KiB';
comment on column tailrace.job.priority is 'high runs first, -1000 to 1000';
comment on column tailrace.job.run_at is 'not before this time, by the database''s clock';
comment on column tailrace.job.attempts is 'runs charged so far, the present one included';
comment on column tailrace.job.max_attempts is 'runs that may end by error, timeout or crash';
comment on column tailrace.job.token is 'the random number of the lease it runs under; null = it waits';
comment on column tailrace.job.key is 'held by at most one live job of its tenant, queue and task';
comment on column tailrace.job.key_slot is '0, or 1 for the successor that waits for the end of a running job of its key';
comment on column tailrace.job.serial_group is 'at most one job of a group runs at a time';
comment on column tailrace.job.lost is 'runs whose worker died; such jobs are claimed alone';
comment on column tailrace.job.interrupted is 'runs that we or the platform cut and gave back';
comment on column tailrace.job.snoozes is 'runs that asked for a later time';
comment on column tailrace.job.timeout is 'how long a run may take; 0 = no limit, null = that of the queue';
comment on column tailrace.job.backoff is 'its own policy of waits between runs; null = looked up at the failure';
comment on column tailrace.job.expires_at is 'it starts by then or never';
comment on column tailrace.job.trace is 'the trace context of the enqueue';
comment on column tailrace.job.meta is 'facts of the producer, at most 8 KiB';
comment on column tailrace.job.saved is 'the handler''s own state through retries, at most 4 KiB';
comment on column tailrace.job.errors is 'the last ten errors, oldest first';
comment on column tailrace.job.requeues is 'how often it came back from the dead letters; above 0 there is a dead letter to settle';
comment on column tailrace.job.created_at is 'when it was enqueued';

comment on table tailrace.worker is 'One row a worker process; the heartbeat is an update of it.';
comment on column tailrace.worker.id is 'unique for each process start';
comment on column tailrace.worker.until is 'its leases are alive until then';
comment on column tailrace.worker.lease_seconds is 'how far a heartbeat moves `until` on';
comment on column tailrace.worker.started is 'when its row was made';
comment on column tailrace.worker.version is 'the release of Tailrace it runs';
comment on column tailrace.worker.queues is 'the queues it serves';
comment on column tailrace.worker.tasks is 'the tasks it knows';
comment on column tailrace.worker.state is 'working, cordoned (claims nothing more, by order) or draining (ends)';
comment on column tailrace.worker.slots is 'jobs it runs at a time';
comment on column tailrace.worker.pod is 'its pod, in a cluster';
comment on column tailrace.worker.schedules is 'the schedules that its application declares';
comment on column tailrace.worker.measured is 'for each queue the runs of the last two minutes and their seconds, older ones fading';
comment on column tailrace.worker.death is 'how it died, as the platform said';

comment on table tailrace.lease is 'A worker''s right to a claimed batch.';
comment on column tailrace.lease.token is '63 random bits, in each job of the batch';
comment on column tailrace.lease.worker is 'who holds it; alive while that worker''s `until` is in the future';
comment on column tailrace.lease.queue is 'the queue of the batch';
comment on column tailrace.lease.ids is 'the jobs claimed; those that ended are gone from table job';
comment on column tailrace.lease.claimed_at is 'when';

comment on table tailrace.dead_letter is 'Exhausted jobs, one row for each, kept through requeues. Columns may be added.';
comment on column tailrace.dead_letter.job_id is 'the job''s own number';
comment on column tailrace.dead_letter.state is 'dead, requeued (its job lives again) or resolved';
comment on column tailrace.dead_letter.tenant is 'as in table job';
comment on column tailrace.dead_letter.queue is 'as in table job';
comment on column tailrace.dead_letter.task is 'as in table job';
comment on column tailrace.dead_letter.key is 'as in table job; null once superseded';
comment on column tailrace.dead_letter.serial_group is 'as in table job';
comment on column tailrace.dead_letter.payload is 'the payload of the last life';
comment on column tailrace.dead_letter.priority is 'as in table job';
comment on column tailrace.dead_letter.run_at is 'as in table job';
comment on column tailrace.dead_letter.max_attempts is 'as in table job';
comment on column tailrace.dead_letter.timeout is 'as in table job';
comment on column tailrace.dead_letter.backoff is 'as in table job';
comment on column tailrace.dead_letter.trace is 'as in table job';
comment on column tailrace.dead_letter.meta is 'as in table job';
comment on column tailrace.dead_letter.saved is 'as in table job';
comment on column tailrace.dead_letter.errors is 'the last ten errors, oldest first: type, message, traceback, attempt, worker, time';
comment on column tailrace.dead_letter.reason is 'max_attempts, permanent, timeout, lease_expired, interrupted or manual';
comment on column tailrace.dead_letter.error_type is 'the kind of the last error: timeout, network, not_found, unauthorized, forbidden, validation, rate_limit, unavailable, unknown';
comment on column tailrace.dead_letter.fingerprint is 'groups failures of one task, error class and place';
comment on column tailrace.dead_letter.total_attempts is 'runs of all its lives';
comment on column tailrace.dead_letter.dead_count is 'how often it died';
comment on column tailrace.dead_letter.first_failed_at is 'when it died first';
comment on column tailrace.dead_letter.failed_at is 'when it died last';
comment on column tailrace.dead_letter.requeued_count is 'how often it was requeued';
comment on column tailrace.dead_letter.last_requeued_at is 'when it was requeued last';
comment on column tailrace.dead_letter.resolved_at is 'when it was resolved';
comment on column tailrace.dead_letter.resolution is 'how: succeeded, superseded, or what somebody said';
comment on column tailrace.dead_letter.history is 'requeues, deaths and what else befell it, the newest hundred';
comment on column tailrace.dead_letter.notes is 'what people wrote';
comment on column tailrace.dead_letter.worker is 'who ran it last';
comment on column tailrace.dead_letter.created_at is 'when the job was enqueued';

comment on table tailrace.queue is 'Settings and holds of queues. A queue needs no row to take jobs.';
comment on column tailrace.queue.name is 'at most 128 bytes';
comment on column tailrace.queue.settings is 'the database part of its JobQueue';
comment on column tailrace.queue.held is 'its stopPolicy holds it';
comment on column tailrace.queue.held_until is 'somebody holds it until then; the year 9999 = without an end';
comment on column tailrace.queue.limits is 'the version of its limits and rates; a claim that knows another takes nothing';
comment on column tailrace.queue.limits_sure is 'false from the moment a limit is new or lower until all that runs is counted';
comment on column tailrace.queue.owner is 'the JobQueue resource that writes its settings: cluster, uid, namespace, name';
comment on column tailrace.queue.generation is 'the generation of that resource that was written last';
comment on column tailrace.queue.orphaned_at is 'since when that resource is gone; the first that is applied then has the queue';
comment on column tailrace.queue.managed_by is 'controller or cli';
comment on column tailrace.queue.reading is 'the last reading of its statistics: counts, ages, arrivals and run_seconds, demand in workers';
comment on column tailrace.queue.read_at is 'when that was taken';

comment on table tailrace.queue_floor is 'How far the workers of a queue have examined each priority; a new worker starts there.';
comment on column tailrace.queue_floor.queue is 'the queue';
comment on column tailrace.queue_floor.priority is 'the priority';
comment on column tailrace.queue_floor.run_at is 'examined up to this time';
comment on column tailrace.queue_floor.id is 'and at that time up to this job';

comment on table tailrace.job_group is 'Serial groups that a lease holds, and those of strict order that wait for one member.';
comment on column tailrace.job_group.queue is 'the queue';
comment on column tailrace.job_group.tenant is 'the tenant';
comment on column tailrace.job_group.name is 'the group';
comment on column tailrace.job_group.token is 'the lease that holds it; null = it waits for its head';
comment on column tailrace.job_group.head is 'in strict order: the member that must end before another may start';

comment on table tailrace.limit_slot is 'Slots of concurrency limits.';
comment on column tailrace.limit_slot.queue is 'the queue';
comment on column tailrace.limit_slot.name is 'the task, or empty for the limit of the queue';
comment on column tailrace.limit_slot.n is 'the slot''s number';
comment on column tailrace.limit_slot.job is 'the job in it';
comment on column tailrace.limit_slot.token is 'the lease of that job';

comment on table tailrace.rate is 'Token buckets of rate limits.';
comment on column tailrace.rate.queue is 'the queue';
comment on column tailrace.rate.name is 'the limit';
comment on column tailrace.rate.jobs is 'jobs in each period';
comment on column tailrace.rate.period is 'the period';
comment on column tailrace.rate.burst is 'how many may start at once';
comment on column tailrace.rate.tokens is 'units left at the time `at`';
comment on column tailrace.rate.at is 'when the bucket was last looked into';

comment on table tailrace.cancel_request is 'Running jobs that somebody wants to stop; their workers are told with the next heartbeat.';
comment on column tailrace.cancel_request.job_id is 'the job';
comment on column tailrace.cancel_request.requested_at is 'when';
comment on column tailrace.cancel_request.requested_by is 'the session''s user';

comment on table tailrace.waiter is 'Idle workers, which an enqueue notifies. Unlogged: a lost row costs one poll.';
comment on column tailrace.waiter.queue is 'the queue it waits for';
comment on column tailrace.waiter.worker is 'the worker';
comment on column tailrace.waiter.until is 'it counts until then';

comment on table tailrace.maintenance is 'When each routine of maintenance ran last.';
comment on column tailrace.maintenance.routine is 'reaper, sweep, retention, cron, auto_requeue, statistics or housekeeping';
comment on column tailrace.maintenance.scope is 'what part of its work, empty for all';
comment on column tailrace.maintenance.last_tick is 'when it was started last';
comment on column tailrace.maintenance.previous_tick is 'when it was started the time before';
comment on column tailrace.maintenance.last_success is 'when it ended well last';
comment on column tailrace.maintenance.steady_since is 'since when it has run without a gap';
comment on column tailrace.maintenance.cursor is 'where it goes on';

comment on table tailrace.audit is 'Changes by people and programs, written in the transaction of the change.';
comment on column tailrace.audit.id is 'in the order of writing';
comment on column tailrace.audit.at is 'when';
comment on column tailrace.audit.who is 'the session''s user';
comment on column tailrace.audit.verb is 'what was done';
comment on column tailrace.audit.target is 'to what';
comment on column tailrace.audit.n is 'how many rows it changed';

comment on table tailrace.operation is 'Bulk changes that can be taken up again.';
comment on column tailrace.operation.id is 'its number';
comment on column tailrace.operation.verb is 'what is done';
comment on column tailrace.operation.filter is 'to which rows';
comment on column tailrace.operation.options is 'how';
comment on column tailrace.operation.as_of is 'only to rows that were there then';
comment on column tailrace.operation.done is 'rows changed so far';
comment on column tailrace.operation.failed is 'rows that could not be changed';
comment on column tailrace.operation.position is 'where it goes on';
comment on column tailrace.operation.state is 'how it stands';
comment on column tailrace.operation.started_by is 'the session''s user';
comment on column tailrace.operation.updated_at is 'when it last moved';

comment on table tailrace.task_schema is 'JSON schemas of payloads, as workers published them.';
comment on column tailrace.task_schema.queue is 'the queue';
comment on column tailrace.task_schema.task is 'the task';
comment on column tailrace.task_schema.schema is 'the JSON schema';
comment on column tailrace.task_schema.worker_version is 'of which release';
comment on column tailrace.task_schema.seen_at is 'when';

comment on table tailrace.tally is 'Ends of jobs, one row for each transaction and kind, folded into table total by the statistics.';
comment on column tailrace.tally.id is 'in the order of writing';
comment on column tailrace.tally.queue is 'the queue';
comment on column tailrace.tally.task is 'the task';
comment on column tailrace.tally.what is 'succeeded, dead, cancelled, expired, dropped, replaced, resolved, withdrawn, requeued, …';
comment on column tailrace.tally.n is 'how many';
comment on column tailrace.tally.at is 'when';

comment on table tailrace.total is 'Ends of jobs since the installation, without what table tally still holds.';
comment on column tailrace.total.queue is 'the queue';
comment on column tailrace.total.task is 'the task';
comment on column tailrace.total.what is 'as in table tally';
comment on column tailrace.total.n is 'how many';

comment on table tailrace.installation is 'The identity of this installation: one row.';
comment on column tailrace.installation.id is 'random';
comment on column tailrace.installation.created_at is 'when the schema was made';

comment on table tailrace.migration is 'The migrations that were applied.';
comment on column tailrace.migration.version is 'its number';
comment on column tailrace.migration.name is 'its name';
comment on column tailrace.migration.checksum is 'SHA-256 of its text';
comment on column tailrace.migration.applied_at is 'when';
comment on column tailrace.migration.min_worker is 'the oldest worker that can live with it';
comment on column tailrace.migration.min_controller is 'the oldest controller that can live with it';

-- ---- comments on functions for everybody ------------------------------------------------------------------------------
comment on function tailrace.cancel(bigint) is 'End a waiting job (returns cancelled) or ask the worker of a running one to stop it (returns requested).';
comment on function tailrace.cancel_by_key(text, text, text, text) is 'Cancel the live job that holds a key: tenant (empty = none), queue, task, key.';
comment on function tailrace.run_now(bigint) is 'Make a waiting job due now; returns its run_at.';
comment on function tailrace.reschedule(bigint, timestamptz) is 'Move a waiting job to another time, now at the earliest; returns its run_at.';
comment on function tailrace.update_job(bigint, jsonb) is 'Change a waiting job: priority, max_attempts, timeout (seconds or interval; null = that of the queue), meta.';
comment on function tailrace.hold_queue(text, double precision) is 'Let no worker claim of a queue, for some seconds or without an end; returns until when.';
comment on function tailrace.resume_queue(text) is 'End a hold; returns whether there was one.';
comment on function tailrace.apply_queue(text, jsonb, text) is 'Store the settings of a queue for a manager (cli or controller); returns created, changed or unchanged.';
comment on function tailrace.purge_queue(text, boolean, bigint) is 'Cancel the waiting jobs of a queue; refused while live workers serve it unless forced; returns how many.';
comment on function tailrace.queue_stats(text) is 'Live counts of a queue by state, and its ages in seconds.';
comment on function tailrace.enqueue(text, text, jsonb, jsonb) is 'Add a job in the caller''s transaction: queue, task, payload, options. Outcomes: created; replaced; skipped or in_progress, which changed nothing and give the number of the holder of the key. Mode after keeps one successor while the holder runs.';
comment on function tailrace.enqueue_many(jsonb) is 'Add many jobs: an array of objects with queue, task, payload and the options of enqueue. `ord` counts the input from 1.';
