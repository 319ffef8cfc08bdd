"""What holds of the schema as a whole, read from the catalogue: types, nullability, HOT updates, functions, comments."""

from __future__ import annotations

import pytest

from tests.rig.servers import Connection, RigDatabase
from tests.rig.waiting import eventually

LETTERS = """
insert into tailrace.dead_letter (job_id, queue, task, payload, priority, run_at, max_attempts, reason, error_type, fingerprint,
  total_attempts, first_failed_at, failed_at, created_at)
select n, 'q', 't', '{}', 0, now(), 1, 'r', 'e', 'f', 3000000000, now(), now(), now() from generate_series(1, 3) n"""
UPDATES = """
select pg_stat_get_xact_tuples_updated('tailrace.job'::regclass), pg_stat_get_xact_tuples_hot_updated('tailrace.job'::regclass)"""
CLAIM = "update tailrace.job set token = id, attempts = attempts + 1"
BACK = """
update tailrace.job set token = null, attempts = attempts - 1, interrupted = interrupted + 1, errors = '[]', saved = '{}'"""
COLUMNS = "select table_name, column_name, data_type from information_schema.columns where table_schema = 'tailrace'"


def test_times_are_timestamptz(conn: Connection) -> None:
    """FQ-23: no time without a zone, none kept as text or number."""
    for table, column, kind in conn.execute(COLUMNS).fetchall():
        assert kind not in ("timestamp without time zone", "date", "time without time zone"), f"{table}.{column}"
        if column.endswith(("_at", "until")) or column in ("at", "as_of", "last_tick", "last_success", "steady_since", "started"):
            assert kind == "timestamp with time zone", f"{table}.{column} is {kind}"


def test_counts_are_64_bit(conn: Connection) -> None:
    """e5, BF-50: whatever counts rows is bigint, in tables, views and functions; no counter is smallint."""
    counters = {"n", "done", "failed", "total_attempts", "jobs", "leases", "workers"}
    for table, column, kind in conn.execute(COLUMNS).fetchall():
        if column in counters and (table, column) not in (("rate", "jobs"), ("limit_slot", "n")):
            assert kind == "bigint", f"{table}.{column} is {kind}"
        assert kind != "smallint" or column == "key_slot", f"{table}.{column}"
    results = conn.execute(
        "select proname, pg_get_function_result(oid) from pg_proc where pronamespace = 'tailrace'::regnamespace"
        " and proname in ('queue_stats', 'dead_letter_stats', 'purge_queue', 'end_waiting_v1')"
    ).fetchall()
    assert len(results) == 4
    assert not [name for name, result in results if "integer" in result]


def test_counts_beyond_32_bit_are_shown(conn: Connection) -> None:
    """BF-50: sums do not overflow."""
    conn.execute(LETTERS)
    assert conn.execute("select dead, average_attempts from tailrace.dead_letter_stats('q')").fetchone() == (3, 3e9)


def test_unique_indexes_have_no_nullable_column_but_the_key(conn: Connection) -> None:
    nullable = conn.execute(
        "select c.relname, a.attname, pg_get_expr(i.indpred, i.indrelid) from pg_index i join pg_class c on c.oid = i.indexrelid"
        " cross join unnest(i.indkey) k(n) join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.n"
        " where c.relnamespace = 'tailrace'::regnamespace and i.indisunique and not a.attnotnull"
    ).fetchall()
    assert {(index, column) for index, column, _ in nullable} == {("job_key", "key"), ("dead_letter_key", "key")}
    assert all("key IS NOT NULL" in predicate for _, _, predicate in nullable)


def test_no_index_names_a_column_that_claim_or_finish_changes(conn: Connection) -> None:
    """CJ-12, FQ-17: the claim stays HOT, so the partial indexes of the ready rows do not grow with each run."""
    found = conn.execute(
        "select indexname, indexdef from pg_indexes where schemaname = 'tailrace' and tablename = 'job'"
    ).fetchall()
    assert {name for name, _ in found} >= {"job_pkey", "job_ready", "job_suspect", "job_key", "job_by_group"}
    for name, definition in found:
        words = set(definition.replace("(", " ").replace(")", " ").replace(",", " ").split())
        assert not words & {"token", "attempts", "errors", "saved", "interrupted", "snoozes"}, name


def test_nothing_refers_to_the_hot_table(conn: Connection) -> None:
    assert conn.execute("select conname from pg_constraint where confrelid = 'tailrace.job'::regclass").fetchall() == []


def test_claim_and_hand_back_are_hot_updates(database: RigDatabase) -> None:
    """FQ-17: at least 95 of 100 updates of a claim and of a hand-back touch no index."""
    with database.connect(autocommit=False) as conn:
        conn.execute("alter table tailrace.job set (autovacuum_enabled = off)")  # its snapshot would keep dead versions
        conn.execute(
            "insert into tailrace.job (queue, task, payload) select 'q', 't', '{\"id\": 1, \"url\": \"https://a.example/hook\"}'"
            " from generate_series(1, 1000)"
        )
        conn.commit()
        updated = hot = 0
        for statement in (CLAIM, BACK) * 3:
            before = conn.execute(UPDATES).fetchall()[0]
            conn.execute(statement)
            after = conn.execute(UPDATES).fetchall()[0]
            updated, hot = updated + after[0] - before[0], hot + after[1] - before[1]
            conn.commit()
    assert updated == 6000
    assert hot >= 0.95 * updated


def test_a_row_is_claimed_or_free_never_half(conn: Connection) -> None:
    """CJ-13: one column of a job says that it is claimed, and a lease is whole or not there.

    A token whose lease is gone shows as stale and is given back by the walk, so no row is claimed for ever.
    """
    job = {column for table, column, _ in conn.execute(COLUMNS).fetchall() if table == "job"}
    assert "token" in job
    assert not {column for column in job if column.startswith(("lock", "claim", "lease", "worker", "owner"))}
    optional = conn.execute(
        "select column_name from information_schema.columns"
        " where table_schema = 'tailrace' and table_name = 'lease' and is_nullable = 'YES'"
    ).fetchall()
    assert optional == []
    conn.execute("insert into tailrace.job (queue, task, payload, token, attempts) values ('q', 't', '{}', 7, 1)")
    assert conn.execute("select state from tailrace.jobs").fetchone() == ("stale",)

    def token_after_a_walk() -> object:
        conn.execute("select tailrace.walk_v1()")
        return conn.execute("select token from tailrace.job").fetchall()[0][0]

    eventually(lambda: token_after_a_walk() is None, what="the walk to give the row back")


def test_functions_pin_their_search_path(conn: Connection) -> None:
    """All but plain expressions, which have no rights of their own and are inlined into functions that pin it."""
    loose = conn.execute(
        "select proname from pg_proc p join pg_language l on l.oid = p.prolang where pronamespace = 'tailrace'::regnamespace"
        " and not coalesce(proconfig @> array['search_path=pg_catalog, pg_temp'], false)"
        " and not (l.lanname = 'sql' and not p.prosecdef and (p.provolatile = 'i' or p.prosqlbody is not null))"
    ).fetchall()
    assert loose == []


@pytest.mark.parametrize("kind", ["r", "p", "v"])
def test_every_table_and_column_is_described(conn: Connection, kind: str) -> None:
    bare = conn.execute(
        "select c.relname from pg_class c where c.relnamespace = 'tailrace'::regnamespace and c.relkind = %s::text::\"char\""
        " and obj_description(c.oid, 'pg_class') is null",
        [kind],
    ).fetchall()
    assert bare == []
    if kind != "v":
        undescribed = conn.execute(
            "select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0"
            " where c.relnamespace = 'tailrace'::regnamespace and c.relkind = %s::text::\"char\" and not a.attisdropped"
            " and col_description(c.oid, a.attnum) is null",
            [kind],
        ).fetchall()
        assert undescribed == []


def test_public_functions_are_described(conn: Connection) -> None:
    bare = conn.execute(
        "select proname from pg_proc p where pronamespace = 'tailrace'::regnamespace and prosecdef and proname not like '%\\_v1'"
        " and obj_description(p.oid, 'pg_proc') is null"
    ).fetchall()
    assert bare == []


def test_names_are_no_reserved_words(conn: Connection) -> None:
    """Columns of views and tables can be typed without quotes."""
    reserved = conn.execute(
        "select distinct a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0"
        " join pg_get_keywords() k on k.word = a.attname and k.catcode = 'R' where c.relnamespace = 'tailrace'::regnamespace"
    ).fetchall()
    assert reserved == []


@pytest.mark.parametrize(
    ("table", "fill", "sample"),
    [
        ("job", "insert into tailrace.job (queue, task, payload) select 'q', 't', '{}' from generate_series(1, 5000)", 3000),
        (
            "tally",
            "insert into tailrace.tally (queue, task, what, n) select 'q', 't', 'dead', 1 from generate_series(1, 500)",
            100,
        ),
        (
            "dead_letter_change",
            "insert into tailrace.dead_letter_change (size, changes) select 0, '{}' from generate_series(1, 500)",
            100,
        ),
        ("lease", "insert into tailrace.lease (token, worker, queue, ids) values (1, 'w', 'q', '{1,2,3}')", None),
    ],
)
def test_analyze_takes_little(conn: Connection, table: str, fill: str, sample: int | None) -> None:
    """Autovacuum analyzes a busy queue each minute: 0.5 s of a core with the usual sample, beside which workers claim."""
    told = list[str]()
    conn.add_notice_handler(lambda one: told.append(one.message_primary or ""))
    conn.execute(fill.encode())
    conn.execute(f"analyze (verbose) tailrace.{table}".encode())
    assert any(f" {sample or 1} rows in sample" in line for line in told), told
    of_arrays = "select attname from pg_stats where schemaname = 'tailrace' and tablename = %s and attname in ('ids', 'changes')"
    assert not conn.execute(of_arrays, [table]).fetchall()
