-- Enqueueing: the functions do the work, so that every language shares one set of rules.

-- name: one
-- purpose: store one job, or settle it with the job that holds its key
-- locks: the row that holds its key, unless it runs; waits for a transaction that is storing the same key
-- index: job_key for a job with a key
select id, outcome from tailrace.enqueue(%(queue)s, %(task)s, %(payload)s::jsonb, %(options)s::jsonb)

-- name: batch
-- purpose: store many jobs in one call; heads are their distinct queue, task and options
-- locks: as `one` for each key, in the order of the keys
-- index: job_key for jobs with a key
select ord, id, outcome from tailrace.enqueue_batch_v1(%(heads)s::jsonb, %(kinds)s::int[], %(payloads)s::jsonb, %(keys)s::text[])
