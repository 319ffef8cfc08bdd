-- What a session is, and its settings where it cannot keep any. db/pooled.py uses them.

-- name: lent
-- purpose: whether something between us and the server lends server sessions out: then the process that answers is not the one
--          that welcomed us, or it has not taken our start-up settings (all sessions of ours ask for UTC)
-- locks: none
-- index: none
select pg_backend_pid() <> %(pid)s or current_setting('TimeZone') <> 'UTC'

-- name: set_local
-- purpose: settings until the end of this transaction; its first statement
-- locks: none
-- index: none
select set_config(s.name, s.value, true) from unnest(%(names)s::text[], %(texts)s::text[]) s(name, value)
