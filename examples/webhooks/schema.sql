-- The shop's own table: what the application would have without any queue.
-- `demo` creates it once; `producer` writes one row per event, in the transaction that enqueues the delivery.
create schema shop;

create table shop.event (
  event_id      bigint primary key,
  kind          text not null,
  order_number  text not null,
  customer      text not null,
  amount_cents  bigint not null check (amount_cents >= 0),
  currency      text not null,
  occurred_at   timestamptz not null,
  job_id        bigint not null unique      -- the delivery that was enqueued with this row
);
