"""Whose right is used for what: the Secret's for the queue, the controller's own for the schema, on allowed hosts only."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tailrace.names.conditions import ConditionType, Reason
from tailrace.names.event_reasons import EventReason
from tests.operator.stage import Stage
from tests.rig.logins import MakeLogin
from tests.rig.servers import RigDatabase

REACHABLE, SCHEMA = ConditionType.DATABASE_REACHABLE, ConditionType.SCHEMA_CURRENT


@pytest.fixture
def owner_file(empty_database: RigDatabase, make_login: MakeLogin, tmp_path: Path) -> Path:
    """A folder as the chart mounts it: the credential of who owns the empty database."""
    owner = make_login(empty_database)
    owner.may_create()
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "shop").write_text(owner.url)
    return folder


def test_the_controllers_own_credential_migrates_and_workers_rights_do_the_rest(
    stage: Stage, empty_database: RigDatabase, make_login: MakeLogin, owner_file: Path
) -> None:
    """l3: no JobQueue needs a Secret that may change the schema."""
    login = make_login(empty_database)
    stage.secret(login.url)
    controller = stage.controller("--migration-credentials", str(owner_file))
    stage.apply()
    assert "tailrace_worker" in stage.wait(SCHEMA, "False", Reason.PRIVILEGE_MISSING)
    login.grant("tailrace_worker")
    stage.change(latencyTargetSeconds=21)
    stage.wait(SCHEMA, "True", Reason.CURRENT)
    stage.wait_deployment()
    assert empty_database.value("select settings ->> 'latencyTargetSeconds' from tailrace.queue where name = 'jobs'") == "21"
    owners = empty_database.query("select distinct tableowner from pg_tables where schemaname = 'tailrace'")
    assert owners != [(login.name,)]
    password = str(conninfo_to_dict((owner_file / "shop").read_text())["password"])
    assert password not in controller.output
    assert password not in str(stage.must("jobqueues", "jobs"))


def test_with_the_workers_rights_alone_a_queue_is_served(stage: Stage, make_login: MakeLogin) -> None:
    """Least privilege: settings, figures, a proof of death, and no word about missing rights."""
    login = make_login(stage.database, "tailrace_worker")
    stage.secret(login.url)
    stage.controller()
    stage.apply(schedules=[{"name": "nightly", "cron": "30 2 * * *", "task": "report"}], limits={"concurrency": 3})
    stage.wait(REACHABLE, "True", Reason.CONNECTED)
    stage.wait(SCHEMA, "True", Reason.CURRENT)
    stage.wait_deployment()
    assert stage.wait_event(EventReason.SETTINGS_STORED)
    assert stage.database.value("select count(*) from tailrace.schedule") == 1


def test_a_host_that_is_not_allowed_is_never_connected_to(stage: Stage) -> None:
    """l1: nobody makes the controller knock at other doors."""
    stage.controller("--allowed-database-host", "*.db.example")
    stage.apply()
    sentence = stage.wait(ConditionType.STALLED, "True", Reason.INVALID_DSN)
    assert "allowedDatabaseHosts" in sentence
    assert stage.database.backends("tailrace%") == []
    assert stage.row() is None
