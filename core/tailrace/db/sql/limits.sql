-- Limits and rates of a queue, beside its claims.

-- name: take_rates
-- purpose: units of rates for the next claim, and back those that were not used; a transaction of its own, committed asynchronously
-- locks: the rate rows, in order of their names, for this short transaction
-- index: the primary keys of queue and rate
select class, granted, wait from tailrace.take_rates_v1(%(queue)s, %(limits)s, %(wants)s::int[], %(of_classes)s::int[],
  %(of_names)s::text[], %(back_names)s::text[], %(backs)s::int[])

-- name: settle_limits
-- purpose: make limits sure that are new or lower; the transactions to wait for, see the function
-- locks: the queue's row (SKIP LOCKED), its slots, which nobody takes meanwhile
-- index: the primary keys of queue and limit_slot
select tailrace.settle_limits_v1(%(queue)s, %(waiting)s::text[])
