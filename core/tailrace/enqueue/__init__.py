"""From typed arguments to a row: checks, statements, and two thin drivers.

The way of a job: `words` (what people type), `prepare` (checked text), `statements` (what is sent), `senders` (who sends),
then `db/sql/enqueue.sql`.
"""
