"""`tailrace leases` and `tailrace workers`."""

from __future__ import annotations

from tests.cli.conftest import Cli
from tests.engine.rows import Rows


def test_empty(cli: Cli) -> None:
    assert cli("leases", "list").err == "no leases\n"
    assert cli("workers", "list").err == "no workers\n"
    assert cli("leases", "list", "-o", "json").json == cli("workers", "list", "-o", "json").json == []


def test_lists_with_live_leases(cli: Cli, rows: Rows) -> None:
    """BF-48: leases can be listed while jobs run; tokens are exact strings."""
    rows.worker("alive")
    rows.worker("late", until=-5)
    token, ids = rows.running(2, worker="alive")
    rows.running(worker="late")
    found = cli("leases", "list", "--worker", "alive", "-o", "json").json
    assert [(row["token"], row["state"], row["ids"], row["jobs"]) for row in found] == [
        (str(token), "live", [str(ident) for ident in ids], 2)
    ]
    assert {row["state"] for row in cli("leases", "list", "--queue", "q", "-o", "json").json} == {"live", "expired"}
    workers = {row["id"]: (row["alive"], row["jobs"]) for row in cli("workers", "list", "--queue", "q", "-o", "json").json}
    assert workers == {"alive": (True, 2), "late": (False, 1)}
    assert cli("workers", "list", "--queue", "other", "-o", "json").json == []
    assert cli("workers", "list", "-o", "name").out == "alive\nlate\n"


def test_release_needs_force_for_a_live_lease(cli: Cli, rows: Rows) -> None:
    """BF-05: a released lease gives its job back and removes nothing."""
    rows.worker("alive")
    token, (ident,) = rows.running(worker="alive")
    assert "--yes" in cli("leases", "release", str(token), status=2).err
    assert "refused" in cli("leases", "release", str(token), "--dry-run").out
    refused = cli("leases", "release", str(token), "--yes", "-o", "json", status=1)
    assert refused.json[0]["result"] == "live"
    assert "--force" in refused.err
    assert rows.value("select count(*) from tailrace.lease") == 1
    done = cli("leases", "release", str(token), "--yes", "--force", "-o", "json").json
    assert (done[0]["token"], done[0]["result"]) == (str(token), "released")
    assert rows.row(ident)["token"] is None  # type: ignore[index]
    missing = cli("leases", "release", str(token), "--yes", "-o", "json", status=1)
    assert missing.json[0]["result"] == "missing"


def test_release_of_an_expired_lease(cli: Cli, rows: Rows) -> None:
    rows.worker("late", until=-5)
    token, (ident,) = rows.running(worker="late")
    cli("leases", "release", "-", "--yes", stdin=f"{token}\n")
    assert rows.row(ident)["lost"] == 1  # type: ignore[index]
