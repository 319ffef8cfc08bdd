"""What must never be shown, and names that try to be more than names (public cases l1 and l2)."""

from __future__ import annotations

import base64
import urllib.parse
from pathlib import Path

import pytest

from tailrace_cli.failures import scrubbed
from tests.cli.conftest import Cli
from tests.engine.rows import Rows
from tests.rig.servers import Connection

MARKER = "s3kr3t/m@rk er"
QUOTED = urllib.parse.quote(MARKER, safe="")
SHAPES = (MARKER, QUOTED, base64.b64encode(MARKER.encode()).decode(), "m%40rk", "m@rk")
NAMES = (
    "' OR '1'='1",
    '"; drop table canary; --',
    "q'); delete from tailrace.job; --",
    "%(queue)s %s %%",
    "{0} ${HOME} $(id)",
    "\\'; select 1 --",
    "../../etc/passwd",
    "Ünïcode 名前 🎉",
    "a\nb\tc",
)


def places(cli: Cli) -> dict[str, dict[str, str]]:
    """Broken addresses that hold the marker, by what is wrong with them."""
    right = urllib.parse.urlsplit(cli.dsn)
    return {
        "wrong password": {
            "TAILRACE_DATABASE_URL": f"postgresql://{right.username}:{QUOTED}@{right.hostname}:{right.port}{right.path}"
        },
        "unreachable": {"TAILRACE_DATABASE_URL": f"postgresql://u:{QUOTED}@127.0.0.1:1/x"},
        "no such host": {"TAILRACE_DATABASE_URL": f"postgresql://u:{QUOTED}@nowhere.invalid/x"},
        "malformed": {"TAILRACE_DATABASE_URL": f"postgresql://u:{QUOTED}@[127.0.0.1/x"},
        "not encoded": {"TAILRACE_DATABASE_URL": f"postgresql://u:{MARKER}@127.0.0.1:1/x"},
        "unknown parameter": {"TAILRACE_DATABASE_URL": f"postgresql://u:{QUOTED}@127.0.0.1:1/x?nonsense=1"},
        "words": {"TAILRACE_DATABASE_URL": f"host=127.0.0.1 port=1 password='{MARKER}' bad"},
        "no tls": {
            "TAILRACE_DATABASE_URL": f"postgresql://u:{QUOTED}@{right.hostname}:{right.port}{right.path}?sslmode=require&sslpassword={QUOTED}"
        },
        "in libpq's variable": {"TAILRACE_DATABASE_URL": "", "PGPASSWORD": MARKER, "PGHOST": "127.0.0.1", "PGPORT": "1"},
    }


def test_no_password_is_ever_shown(cli: Cli, tmp_path: Path) -> None:
    """Not in errors, not with -v, not in logs at the debug level, by flag, variable or file."""
    for what, env in places(cli).items():
        url = env["TAILRACE_DATABASE_URL"]
        for words in (
            ("-v", "jobs", "list"),
            ("doctor", "-v", "-o", "json"),
            ("migrate", "-v"),
            ("maintain", "--once", "--log-level", "debug"),
        ):
            result = cli.nursery.run(
                words, environment={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **env}, stdin="", folder=tmp_path
            )
            assert result[0] in (2, 3), (what, words, result)
            assert not [shape for shape in SHAPES if shape in result[1] + result[2]], (what, words, result)
        if url:
            flag = cli.nursery.run(
                ("-v", "jobs", "list", "--database-url", url),
                environment={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, stdin="", folder=tmp_path,
            )  # fmt: skip
            file = tmp_path / "url"
            file.write_text(url)
            by_file = cli.nursery.run(
                ("-v", "jobs", "list"),
                environment={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TAILRACE_DATABASE_URL_FILE": str(file)},
                stdin="", folder=tmp_path,
            )  # fmt: skip
            for result in (flag, by_file):
                assert result[0] in (2, 3), (what, result)
                assert not [shape for shape in SHAPES if shape in result[1] + result[2]], (what, result)


@pytest.mark.parametrize(
    "text",
    [
        f"cannot connect to postgresql://u:{QUOTED}@h/x",
        f"postgres://u:{QUOTED}@h:1,h2:2/x?password={QUOTED}&a=1",
        f"conninfo: host=h password='{MARKER}' user=u",
        f"password={QUOTED} host=h",
    ],
)
def test_scrubbing_is_the_last_line(text: str) -> None:
    assert not [shape for shape in SHAPES if shape in scrubbed(text)]
    assert "***" in scrubbed(text)


def test_names_are_data(cli: Cli, rows: Rows, conn: Connection) -> None:
    """Quotes, comments and placeholders in names are names; a canary table beside ours lives; filters match no more."""
    conn.execute("create table canary (n int); insert into canary values (1)")
    rows.job(queue="innocent", task="innocent", key="innocent", tenant="innocent")
    for name in NAMES:
        (made,) = cli("enqueue", name, name, "{}", "--key", name, "--tenant", name, "-o", "json").json
        for option in ("--queue", "--task", "--key", "--tenant"):
            found = cli("jobs", "list", option, name, "-o", "json").json
            assert [row["id"] for row in found] == [made["id"]], (option, name)
        assert cli("queues", "show", name, "-o", "json").json["queue"] == name
        assert cli("queues", "hold", name, "-o", "json").json[0]["queue"] == name
        assert cli("dlq", "list", "--queue", name, "--text", name, "--error-type", name, "-o", "json").json == []
        assert cli("workers", "list", "--queue", name, "-o", "json").json == []
        assert cli("leases", "list", "--queue", name, "--worker", name, "-o", "json").json == []
        cli("jobs", "cancel", "--key", name, "--queue", name, "--task", name, "--tenant", name)
        assert cli("queues", "purge", name, "--yes", "-o", "json").json[0]["jobs"] == 0
    assert conn.execute("select array_agg(n) from canary").fetchone() == ([1],)
    assert rows.value("select count(*) from tailrace.job where queue = 'innocent'") == 1


def test_a_schema_is_a_name_too(cli: Cli, conn: Connection) -> None:
    """BF-41: the schema's name is quoted everywhere."""
    conn.execute("create table canary (n int)")
    for schema in ('My"Schema', "x; drop table canary; --", "%s %(id)s %%", "tailrace.job", "名前"):
        cli("migrate", "--schema", schema)
        (made,) = cli("enqueue", "q", "t", "{}", "-o", "json", env={"TAILRACE_SCHEMA": schema}).json
        assert cli("jobs", "list", "-o", "json", "--schema", schema).json[0]["id"] == made["id"]
        assert cli("doctor", "--schema", schema, "-o", "json").json[2]["status"] == "ok"
    assert "schema" in cli("jobs", "list", "--schema", "x" * 64, status=2).err
    assert conn.execute("select count(*) from canary").fetchone() == (0,)


def test_objects_of_our_names_in_public_change_nothing(cli: Cli, rows: Rows, conn: Connection) -> None:
    """The search path leads nowhere: every object is named with its schema."""
    conn.execute("create table public.job (id int); create table public.jobs (id int)")
    conn.execute(
        """create function public.enqueue(text, text, jsonb, jsonb) returns table (id bigint, outcome text)
           language sql as $$ select 666::bigint, 'owned' $$"""
    )
    conn.execute("create function public.clock_timestamp() returns timestamptz language sql as $$ select null::timestamptz $$")
    assert cli("enqueue", "q", "t", "{}", "-o", "json").json[0]["outcome"] == "created"
    assert len(cli("jobs", "list", "-o", "json").json) == 1
    assert rows.value("select count(*) from tailrace.job") == 1
