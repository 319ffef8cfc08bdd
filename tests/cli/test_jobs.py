"""`tailrace jobs`: lists, pages, and changes of single jobs."""

from __future__ import annotations

import json
import signal

from tests.cli.conftest import Cli
from tests.engine.rows import Rows

BEYOND_DOUBLE = 2**53 + 1


def test_an_empty_list_says_so_and_is_an_empty_array(cli: Cli) -> None:
    assert cli("jobs", "list").err == "no jobs\n"
    assert cli("jobs", "list", "-o", "json").json == []
    assert cli("jobs", "list", "-o", "jsonl").out == ""
    assert cli("jobs", "list", "-o", "csv").out.startswith("id,state,queue,task")


def test_wait_tells_how_a_job_ended(cli: Cli, rows: Rows) -> None:
    """The status is 0 for a success only, also when the time is over."""
    token, (done, died) = rows.running(2, max_attempts=1)
    waiting = rows.job()
    rows.settle(
        {"id": done, "token": token, "kind": "success", "keep": 60, "result": {"n": 1}},
        {"id": died, "token": token, "kind": "error"},
    )
    shown = cli("jobs", "wait", str(done), "-o", "json").json
    assert (shown["state"], shown["value"], shown["id"]) == ("succeeded", {"n": 1}, str(done))
    assert cli("jobs", "wait", str(died), "-o", "name", status=1).out == "dead\n"
    assert cli("jobs", "wait", str(waiting), "--timeout", "0s", "-o", "name", status=1).out == "waiting\n"
    assert cli("jobs", "wait", "999999", "-o", "name", status=1).out == "gone\n"


def test_ids_are_exact_strings_in_json(cli: Cli, rows: Rows) -> None:
    """e5."""
    rows.conn.execute(
        "insert into tailrace.job (id, queue, task, payload) overriding system value values (%s, 'q', 't', %s)",
        [BEYOND_DOUBLE, json.dumps({"id": 7, "deep": {"id": BEYOND_DOUBLE}})],
    )
    (listed,) = cli("jobs", "list", "-o", "json").json
    assert listed["id"] == str(BEYOND_DOUBLE)
    shown = cli("jobs", "show", str(BEYOND_DOUBLE), "-o", "json").json
    assert shown["id"] == str(BEYOND_DOUBLE)
    assert shown["payload"] == {"id": 7, "deep": {"id": BEYOND_DOUBLE}}, "what users wrote stays as it is"
    assert cli("jobs", "list", "-o", "name").out == f"{BEYOND_DOUBLE}\n"


def test_a_list_ends_at_its_limit_and_goes_on_behind_it(cli: Cli, rows: Rows) -> None:
    """BF-26, BF-27: bad limits are refused; pages neither skip nor repeat."""
    ids = [str(rows.job(queue="q", priority=0)) for _ in range(5)]
    first = cli("jobs", "list", "--limit", "2", "-o", "name")
    assert first.out.split() == ids[:2]
    cursor = first.err.split("--after ")[1].split()[0]
    assert cli("jobs", "list", "--limit", "3", "--after", cursor, "-o", "name").out.split() == ids[2:]
    assert cli("jobs", "list", "--limit", "2", "--all", "-o", "name").out.split() == ids
    for limit in ("0", "-1", "501"):
        assert "limit:" in cli("jobs", "list", "--limit", limit, status=2).err
    assert "after:" in cli("jobs", "list", "--after", "nonsense", status=2).err


def test_filters_and_their_count_agree(cli: Cli, rows: Rows) -> None:
    """BF-25: the total counts what the filter selects."""
    for n in range(3):
        rows.job(queue="a", key=f"k{n}")
    rows.job(queue="b", tenant="acme")
    rows.running(2, queue="a")
    assert len(cli("jobs", "list", "--queue", "a", "--state", "waiting", "-o", "json").json) == 3
    assert cli("jobs", "list", "--queue", "a", "--state", "waiting", "--count").out == "3\n"
    (tenant,) = cli("jobs", "list", "--tenant", "acme", "-o", "json").json
    assert tenant["queue"] == "b"
    assert cli("jobs", "list", "--key", "k1", "--count").out == "1\n"
    assert cli("jobs", "list", "--state", "nonsense", status=2).out == ""


def test_cancel_removes_waiting_jobs_and_asks_running_ones(cli: Cli, rows: Rows) -> None:
    waiting = rows.job()
    rows.worker()
    _, (running,) = rows.running()
    done = cli("jobs", "cancel", str(waiting), str(running), "--yes", "-o", "json").json
    assert [(row["id"], row["outcome"]) for row in done] == [(str(waiting), "cancelled"), (str(running), "requested")]
    assert rows.row(waiting) is None
    assert cli("jobs", "show", str(running), "-o", "json").json["cancel_requested"] is True
    assert "no live job" in cli("jobs", "cancel", "999", status=1).err


def test_cancel_of_several_asks_first(cli: Cli, rows: Rows) -> None:
    """A question without a terminal is wrong usage; a refusal changes nothing."""
    ids = [str(rows.job()) for _ in range(2)]
    assert "--yes" in cli("jobs", "cancel", *ids, status=2).err
    status, text = cli.on_terminal("jobs", "cancel", *ids, answer="n")
    assert (status, "nothing was changed" in text) == (1, True)
    assert rows.value("select count(*) from tailrace.job") == 2
    status, text = cli.on_terminal("jobs", "cancel", *ids, answer=signal.SIGINT)
    assert (status, "interrupted" in text, "Traceback" in text) == (130, True, False)
    assert rows.value("select count(*) from tailrace.job") == 2
    status, text = cli.on_terminal("jobs", "cancel", *ids, answer="y")
    assert status == 0, text
    assert rows.value("select count(*) from tailrace.job") == 0


def test_a_batch_goes_on_after_a_row_that_fails(cli: Cli, rows: Rows) -> None:
    good = rows.job()
    result = cli("jobs", "cancel", "-", "--yes", "-o", "json", stdin=f"998\n{good}\n 999\n", status=1)
    assert [row["id"] for row in result.json] == [str(good)]
    assert result.err.count("no live job") == 2


def test_dry_run_changes_nothing(cli: Cli, rows: Rows) -> None:
    one = rows.job(run_at="2030-01-01 00:00+00")
    for word in (("cancel",), ("run-now",), ("reschedule", "--delay", "1h"), ("update", "--priority", "3")):
        (row,) = cli("jobs", word[0], str(one), *word[1:], "--dry-run", "-o", "json").json
        assert row["outcome"].startswith("would be")
    assert rows.value("select count(*) from tailrace.job where run_at = '2030-01-01 00:00+00' and priority = 0") == 1
    assert rows.value("select count(*) from tailrace.audit") == 0


def test_cancel_by_key(cli: Cli, rows: Rows) -> None:
    rows.job(queue="q", task="t", key="event-1")
    assert "--queue" in cli("jobs", "cancel", "--key", "event-1", status=2).err
    chosen = ("jobs", "cancel", "--key", "event-1", "--queue", "q", "--task", "t")
    assert "would be cancelled" in cli(*chosen, "--dry-run").out
    assert cli(*chosen, "-o", "json").json == [{"key": "event-1", "outcome": "cancelled"}]
    assert "key:" in cli(*chosen, status=1).err


def test_time_and_settings_of_a_waiting_job(cli: Cli, rows: Rows) -> None:
    one = rows.job(run_at="2030-01-01 00:00+00")
    (row,) = cli("jobs", "reschedule", str(one), "--at", "2031-02-03T04:05:06+00:00", "-o", "json").json
    assert (row["outcome"], row["at"]) == ("rescheduled", "2031-02-03T04:05:06Z")
    cli("jobs", "reschedule", str(one), "--delay", "1h30m")
    assert 5300 < rows.row(one)["wait"] < 5500  # type: ignore[index]
    cli("jobs", "run-now", str(one))
    assert rows.row(one)["wait"] <= 0  # type: ignore[index]
    cli("jobs", "update", str(one), "--priority", "9", "--max-attempts", "2", "--timeout", "90s", "--meta", '{"a": 1}')
    shown = cli("jobs", "show", str(one), "-o", "json").json
    assert (shown["priority"], shown["max_attempts"], shown["timeout"], shown["meta"]) == (9, 2, 90.0, {"a": 1})


def test_wrong_values_are_wrong_usage_and_name_the_argument(cli: Cli, rows: Rows) -> None:
    one = str(rows.job())
    for words, named in (
        (("reschedule", one), "--at"),
        (("reschedule", one, "--at", "2030-01-01T00:00"), "--at"),
        (("reschedule", one, "--delay", "soon"), "--delay"),
        (("update", one), "--priority"),
        (("update", one, "--priority", "1001"), "priority"),
        (("update", one, "--max-attempts", "0"), "max_attempts"),
        (("update", one, "--meta", "[1]"), "--meta"),
        (("show", "0"), "ID"),
        (("show", "-1"), "-1"),
        (("show", str(2**63)), "ID"),
        (("cancel",), "ids"),
        (("cancel", "1; drop table tailrace.job"), "id"),
    ):
        result = cli("jobs", *words, status=2)
        assert named in result.err, result
        assert result.out in ("", "[]\n"), result
        assert "Traceback" not in result.err


def test_a_running_job_is_not_changed(cli: Cli, rows: Rows) -> None:
    """BF-47: a conflict is told as one."""
    rows.worker()
    _, (running,) = rows.running()
    for words in (("run-now",), ("reschedule", "--delay", "1h"), ("update", "--priority", "3")):
        result = cli("jobs", words[0], str(running), *words[1:], status=1)
        assert "is running" in result.err
