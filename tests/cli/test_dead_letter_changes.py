"""`tailrace dead-letters`: changes of given ones and of a filter, with the question, the progress and Ctrl-C."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.engine.letters import Letters
from tests.engine.rows import Rows
from tests.rig.processes import StartProcess
from tests.rig.proxy import TcpProxy
from tests.rig.waiting import eventually


@pytest.fixture
def letters(rows: Rows) -> Letters:
    return Letters(rows)


def test_all_of_a_filter_after_a_question(cli: Cli, letters: Letters) -> None:
    """BF-46: a look, a question that needs an answer, one batch after the other."""
    letters.fill(60)
    look = cli("dlq", "requeue", "--task", "t1", "--dry-run", "-o", "json").json
    assert (look["outcome"], look["done"], look["tasks"]) == ("would be requeued", 15, [{"task": "t1", "dead": 15}])
    assert "This requeues 15 dead letters" in cli("dlq", "requeue", "--task", "t1", status=2).err
    assert letters.states() == {"dead": 60}
    done = cli("dlq", "requeue", "--task", "t1", "--yes", "-o", "json").json
    assert (done["outcome"], done["done"], done["failed"], done["finished"]) == ("requeued", 15, 0, True)
    assert cli("dlq", "requeue", "--task", "t1", "--yes", "-o", "json").json["done"] == 0
    assert cli("dlq", "resolve", "--queue", "q1", "--resolution", "bug 7", "--yes", "-o", "json").json["done"] > 0
    assert "for good" in cli("dlq", "delete", "--all", status=2).err
    assert cli("dlq", "delete", "--all", "--max-jobs", "5", "--yes", "-o", "json").json["done"] == 5
    assert cli("dlq", "note", "--state", "requeued", "seen", "--yes", "-o", "json").json["done"] == 15
    for command in ("requeue", "resolve", "delete"):
        assert "say which" in cli("dlq", command, "--yes", status=2).err
        assert "beside ids" in cli("dlq", command, "5", "--task", "t", status=2).err


def test_every_filter_has_an_option(cli: Cli, letters: Letters) -> None:
    """BF-25: the filters of the library, in lists, counts, changes and exports."""
    letters.fill(60)
    one = letters.rows.value("select key from tailrace.dead_letter where key is not null order by job_id limit 1")
    for option, value, n in (
        ("--queue", "q1", 20),
        ("--task", "t1", 15),
        ("--key", one, 1),
        ("--tenant", "acme", 12),
        ("--reason", "timeout", 20),
        ("--error-type", "network", 15),
        ("--fingerprint", "f1", 10),
        ("--state", "all", 60),
        ("--failed-after", "2026-01-01T00:00:00Z", 60),
        ("--failed-before", "1d", 60),
        ("--text", "TO 10005.", 1),
        ("--meta", "shard=2", 15),
    ):
        assert cli("dlq", "list", option, value, "--count").out == f"{n}\n", option
        assert len(cli("dlq", "list", option, value, "--all", "-o", "name").out.split()) == n, option
        assert len(cli("dlq", "export", option, value).out.splitlines()) == n, option
        cli("dlq", "requeue", option, value, "--dry-run", status=2 if value == "all" else 0)


def test_a_rare_text_is_looked_for_to_the_end(cli: Cli, letters: Letters) -> None:
    """A page looks at a bounded number of rows; the command goes on until it has what was asked for."""
    letters.fill(2000)
    assert cli("dlq", "list", "--text", "to 10001.", "-o", "name").out == "10001\n"
    found = cli("dlq", "list", "--text", "hi", "--limit", "3", "-o", "name")
    assert (len(found.out.split()), "--after" in found.err) == (3, True)


def test_a_payload_is_repaired(cli: Cli, letters: Letters, tmp_path: Path) -> None:
    one, two, three = (letters.bury(payload={"customer": {"id": 1}}) for _ in range(3))
    cli("dlq", "requeue", str(one), "--set", "customer.id=7", "--set", 'name=it is "so"', "--delay", "10m", "--note", "bug 7")
    assert letters.of(one, "payload") == {"customer": {"id": 7}, "name": 'it is "so"'}
    file = tmp_path / "payload.json"
    file.write_text('{"whole": true}')
    cli("dlq", "requeue", str(two), "--payload-file", str(file))
    cli("dlq", "requeue", str(three), "--payload-file", "-", stdin='{"from": "stdin"}')
    assert (letters.of(two, "payload"), letters.of(three, "payload")) == ({"whole": True}, {"from": "stdin"})
    assert "PATH=VALUE" in cli("dlq", "requeue", "1", "--set", "customer.id", status=2).err
    assert "cannot be read" in cli("dlq", "requeue", "1", "--payload-file", str(tmp_path / "none"), status=2).err


def test_given_ones(cli: Cli, letters: Letters) -> None:
    ids = [str(letters.bury()) for _ in range(4)]
    assert cli("dlq", "note", ids[0], ids[1], "asked the customer", "-o", "json").json[1]["outcome"] == "noted"
    assert "asked the customer" in cli("dlq", "show", ids[0], "-o", "json").json["notes"]
    assert cli("dlq", "resolve", ids[0], "--resolution", "paid", "-o", "json").json[0]["outcome"] == "resolved"
    assert "would be deleted" in cli("dlq", "delete", ids[0], "--dry-run").out
    assert "--yes" in cli("dlq", "delete", ids[0], ids[1], status=2).err
    assert len(cli("dlq", "delete", ids[0], ids[1], "--yes", "-o", "json").json) == 2
    result = cli("dlq", "resolve", *ids[1:3], status=1)
    assert "there is no dead letter" in result.err


def test_add(cli: Cli, letters: Letters) -> None:
    made = cli("dlq", "add", "q", "t", '{"n": 1}', "--error", "lost", "--key", "K", "--attempts", "3", "-o", "name").out.strip()
    shown = cli("dlq", "show", made, "-o", "json").json
    assert (shown["reason"], shown["key"], shown["total_attempts"], shown["last_error"]["message"]) == ("manual", "K", 3, "lost")
    cli("dlq", "add", "q", "t", '{"n": 1}', "--error", '{"type": "E", "message": "m"}', "--serial-group", "g", "--note", "n")
    assert "priority" in cli("dlq", "add", "q", "t", "{}", "--priority", "5000", status=2).err


def test_export(cli: Cli, letters: Letters) -> None:
    letters.fill(1100)
    lines = cli("dlq", "export", "--all").out.splitlines()
    assert len(lines) == 1100
    assert json.loads(lines[0])["payload"] == {"n": 11_100}
    table = cli("dlq", "export", "--queue", "q1", "-o", "csv").out.splitlines()
    assert (len(table), table[0].split(",")[0]) == (367, "job_id")
    assert "say which" in cli("dlq", "export", status=2).err


def test_conflicts_are_told_row_by_row(cli: Cli, letters: Letters, rows: Rows) -> None:
    """b3, BF-20: 99 move, the one whose key a live job holds is reported and stays."""
    ids = [letters.bury(key=f"K{n}") for n in range(10)]
    holder = rows.job(key="K1")
    result = cli("dlq", "requeue", "--queue", "q", "--yes", "-o", "json", status=1)
    assert (result.json["done"], result.json["failed"]) == (9, 1)
    assert f"{ids[1]}: conflict: job {holder} holds the key and waits" in result.err
    assert letters.of(ids[1], "state") == "dead"


# ---- broken off --------------------------------------------------------------------------------------------------------
MANY = 20_000


def started(letters: Letters) -> int:
    """Whether some were requeued."""
    return int(letters.rows.value("select coalesce(sum(done), 0) from tailrace.operation"))


def nothing_is_lost(letters: Letters, rows: Rows) -> tuple[int, int]:
    text = (
        "select (select count(*) from tailrace.job), count(*) filter (where state = 'dead'), count(*) filter"
        " (where state = 'dead' and exists (select from tailrace.job j where j.id = job_id)) from tailrace.dead_letter"
    )
    jobs, dead, both = rows.conn.execute(text).fetchall()[0]
    assert (jobs + dead, both) == (MANY, 0)
    return jobs, dead


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["Ctrl-C", "kill -9", "cut"])
def test_broken_off_it_leaves_whole_batches_and_goes_on(
    cli: Cli, letters: Letters, rows: Rows, process: StartProcess, tcp_proxy: TcpProxy, how: str
) -> None:
    """b2, BF-42: live jobs and dead letters are all there at any moment, none in both; the same command finishes the rest."""
    letters.fill(MANY)
    dsn = tcp_proxy.dsn if how == "cut" else cli.dsn
    command = ("dlq", "requeue", "--all", "--yes", "--throttle", "4000")
    running = process("-m", "tailrace_cli", *command, env={"TAILRACE_DATABASE_URL": dsn})
    eventually(lambda: started(letters) > 0, 40, what="the first batch")
    nothing_is_lost(letters, rows)
    if how == "cut":
        tcp_proxy.refuse()
        tcp_proxy.cut()
        assert running.wait() == 3
    else:
        running.signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGKILL)
        assert running.wait() == (130 if how == "Ctrl-C" else -9)
    if how == "Ctrl-C":
        assert "the same command goes on from there" in running.output
        assert rows.value("select state from tailrace.operation") == "stopped"
    assert 0 < nothing_is_lost(letters, rows)[0] < MANY
    late = letters.bury()
    result = cli("dlq", "requeue", "--all", "--yes", "-o", "json")
    assert (result.json["resumed"], result.json["done"]) == (True, MANY)
    assert "going on with operation" in result.err
    assert letters.of(late, "state") == "dead", "it died after the beginning"
    assert letters.states() == {"dead": 1, "requeued": MANY}


def test_progress_on_a_terminal_and_without(cli: Cli, letters: Letters) -> None:
    letters.fill(30)
    status, text = cli.on_terminal("dlq", "requeue", "--all", "--throttle", "20", answer="y")
    assert (status, "requeued" in text, letters.states()) == (0, True, {"requeued": 30})
    letters.fill(30, first=50_000)
    quiet = cli("dlq", "delete", "--all", "--yes", "-q", "-o", "json")
    assert (quiet.err, quiet.json["done"]) == ("", 30)
