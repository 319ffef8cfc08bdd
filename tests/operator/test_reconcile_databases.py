"""What can be wrong with a Secret, a database or its schema: each has a reason and a sentence of its own, and each heals."""

from __future__ import annotations

import pytest

from tailrace.names.conditions import ConditionType, Reason
from tailrace.names.event_reasons import EventReason
from tests.operator.stage import Stage
from tests.rig.logins import MakeLogin
from tests.rig.servers import RigDatabase, Server
from tests.rig.waiting import eventually

REACHABLE, SCHEMA = ConditionType.DATABASE_REACHABLE, ConditionType.SCHEMA_CURRENT


def well(stage: Stage) -> None:
    """Wait until nothing is wrong any more."""
    stage.wait(REACHABLE, "True", Reason.CONNECTED)
    stage.wait(SCHEMA, "True", Reason.CURRENT)
    stage.wait_deployment()


def mounted(stage: Stage) -> list[str]:
    volumes = stage.must("deployments", "jobs-worker")["spec"]["template"]["spec"]["volumes"]
    return [one["secret"]["secretName"] for one in volumes if "secret" in one]


def address_of(database: RigDatabase) -> str:
    return database.dsn.rpartition("@")[2]


def test_a_secret_that_comes_late(stage: Stage) -> None:
    stage.admin.delete("secrets", "db", namespace=stage.namespace)
    stage.controller()
    stage.apply()
    sentence = stage.wait(REACHABLE, "False", Reason.SECRET_NOT_FOUND)
    assert "no Secret db" in sentence
    assert "uri" in sentence
    assert stage.deployment() is None
    assert "SecretNotFound" in stage.wait_event(EventReason.DATABASE_PROBLEM)
    stage.secret()
    well(stage)


def test_a_key_that_comes_late(stage: Stage) -> None:
    stage.secret(key="url")
    stage.controller()
    stage.apply()
    sentence = stage.wait(REACHABLE, "False", Reason.SECRET_KEY_NOT_FOUND)
    assert "no key uri" in sentence
    assert "url" in sentence
    stage.secret()
    well(stage)


def test_a_secret_that_may_not_be_read(stage: Stage) -> None:
    stage.controller()
    role = stage.must("roles", "tailrace-controller")
    kept = [rule for rule in role["rules"] if "secrets" not in rule["resources"]]
    stage.admin.patch("roles", "tailrace-controller", {"rules": kept}, namespace=stage.namespace)
    user = f"--as=system:serviceaccount:{stage.namespace}:tailrace-controller"
    eventually(lambda: "no" in stage.kubectl.refused("auth", "can-i", "get", "secrets", user) or True, what="the loss of a right")
    stage.apply()
    sentence = stage.wait(REACHABLE, "False", Reason.SECRET_FORBIDDEN)
    assert "Secret db" in sentence
    stage.admin.patch("roles", "tailrace-controller", {"rules": role["rules"]}, namespace=stage.namespace)
    well(stage)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("mysql://nowhere", "no connection string"),
        ("postgresql://app:{marker}@db.example/app?sslkey=/etc/passwd", "sslkey"),
        ("postgresql://app:{marker}@/app?host=/var/run/postgresql", "host"),
        ("postgresql://app:{marker}@db.example/app?service=x", "service"),
    ],
)
def test_a_wrong_connection_string_names_its_keyword(stage: Stage, wrong: str, named: str) -> None:
    """l1, l2: a file of the controller's is read by no Secret, and no word of the string is repeated."""
    stage.secret(wrong.format(marker="hunter2marker"))
    controller = stage.controller()
    stage.apply()
    sentence = stage.wait(ConditionType.STALLED, "True", Reason.INVALID_DSN)
    assert named in sentence
    assert "hunter2marker" not in str(stage.must("jobqueues", "jobs"))
    assert "hunter2marker" not in str(stage.events())
    assert "hunter2marker" not in controller.output
    stage.secret()
    well(stage)


def test_a_database_that_is_away_keeps_the_fleet_and_heals(stage: Stage, private_server: Server) -> None:
    database = private_server.migrated()
    stage.secret(database.dsn)
    stage.controller()
    stage.apply(replicas=2)
    stage.run_pods(2)
    stage.wait(ConditionType.READY, "True", Reason.READY)
    private_server.postgres.stop()
    sentence = stage.wait(REACHABLE, "False", Reason.DATABASE_UNAVAILABLE)  # noticed although nothing asks for a look
    assert address_of(database) in sentence
    stage.change(replicas=3, latencyTargetSeconds=11)
    stage.wait_replicas(3)  # the children are kept whatever the database does
    private_server.postgres.start()
    stage.wait(REACHABLE, "True", Reason.CONNECTED, timeout=15)
    assert stage.wait_event(EventReason.DATABASE_REACHABLE)
    stage.run_pods(3)
    stage.wait(ConditionType.READY, "True", Reason.READY)
    found = database.value("select settings ->> 'latencyTargetSeconds' from tailrace.queue where name = 'jobs'")
    assert found == "11"


def test_a_dead_database_delays_no_other(stage: Stage, private_server: Server) -> None:
    away = private_server.migrated()
    private_server.postgres.stop()
    stage.secret(away.dsn, name="away")
    stage.controller()
    for number in range(5):
        stage.apply(f"dead-{number}", database={"secretRef": {"name": "away", "key": "uri"}})
    stage.apply("alive")
    stage.wait_deployment(name="alive", timeout=20)
    stage.wait(REACHABLE, "False", Reason.DATABASE_UNAVAILABLE, name="dead-4")
    stage.change("alive", latencyTargetSeconds=3)
    stage.wait_setting("latencyTargetSeconds", 3, "alive", timeout=20)


def test_wrong_user_and_wrong_name_are_told_apart(stage: Stage) -> None:
    """l2: the password that failed is not told."""
    stage.controller()
    stage.secret(f"postgresql://nobody:hunter2marker@{address_of(stage.database)}")
    stage.apply()
    sentence = stage.wait(REACHABLE, "False", Reason.AUTHENTICATION_FAILED)
    assert "hunter2marker" not in sentence
    login = stage.database.dsn.rpartition("@")[0]
    place = address_of(stage.database).rpartition("/")[0]
    stage.secret(f"{login}@{place}/no_such_database")
    assert "no_such_database" in stage.wait(REACHABLE, "False", Reason.DATABASE_NOT_FOUND)
    stage.secret()
    well(stage)


def test_a_rotated_password_is_taken_up(stage: Stage, make_login: MakeLogin) -> None:
    """g4: old password, new Secret, and the Secret deleted and made again."""
    login = make_login(stage.database, "tailrace_admin", "tailrace_worker")
    stage.secret(login.url)
    stage.controller()
    stage.apply()
    well(stage)
    login.rotate()
    stage.secret(login.url)
    assert stage.wait_event(EventReason.SECRET_CHANGED)
    stage.change(latencyTargetSeconds=12)
    stage.wait_setting("latencyTargetSeconds", 12)
    stage.wait(REACHABLE, "True", Reason.CONNECTED)
    stage.admin.delete("secrets", "db", namespace=stage.namespace)
    stage.wait(REACHABLE, "False", Reason.SECRET_NOT_FOUND)
    assert stage.deployment() is not None
    stage.secret(login.url)
    well(stage)


def test_a_missing_privilege(stage: Stage, make_login: MakeLogin) -> None:
    login = make_login(stage.database)
    stage.secret(login.url)
    stage.controller()
    stage.apply()
    stage.wait(SCHEMA, "False", Reason.PRIVILEGE_MISSING)
    assert "PrivilegeMissing" in stage.wait_event(EventReason.SCHEMA_PROBLEM)
    login.grant("tailrace_admin", "tailrace_worker")
    stage.secret(login.url)  # looked at at once: else after a while
    stage.change(latencyTargetSeconds=13)
    stage.wait_setting("latencyTargetSeconds", 13)
    well(stage)


def test_another_database_behind_the_same_secret_is_held(stage: Stage, server: Server) -> None:
    stage.controller()
    stage.apply(replicas=1)
    well(stage)
    known = stage.status()["database"]["installationID"]
    other = server.migrated()
    try:
        other.query("update tailrace.installation set id = gen_random_uuid()")
        stage.secret(other.dsn)
        sentence = stage.wait(ConditionType.STALLED, "True", Reason.DATABASE_CHANGED)
        assert known in sentence
        assert stage.status()["database"]["installationID"] == known
        assert other.query("select name from tailrace.queue") == []
        stage.secret()
        stage.wait(ConditionType.STALLED, "False")
        well(stage)
    finally:
        server.drop(other)


def test_a_resource_that_names_another_secret_means_another_database(stage: Stage, server: Server) -> None:
    """g4: pointing the resource elsewhere is a wish, not an accident."""
    other = server.migrated()
    try:
        other.query("update tailrace.installation set id = gen_random_uuid()")
        stage.controller()
        stage.apply(replicas=1)
        well(stage)
        stage.secret(other.dsn, name="other")
        stage.change(database={"secretRef": {"name": "other", "key": "uri"}})
        eventually(lambda: other.query("select name from tailrace.queue") == [("jobs",)], what="the queue in the other database")
        well(stage)
        eventually(lambda: mounted(stage) == ["other"], what="workers with the other Secret")
    finally:
        server.drop(other)


def test_an_empty_database_is_migrated(stage: Stage, empty_database: RigDatabase) -> None:
    stage.secret(empty_database.dsn)
    stage.controller()
    stage.apply()
    well(stage)
    assert stage.wait_event(EventReason.SCHEMA_MIGRATED)
    assert stage.status()["database"]["schemaVersion"] > 0


def test_a_database_that_people_migrate_waits_for_them(stage: Stage, empty_database: RigDatabase) -> None:
    from tailrace.db.migrate import migrate

    stage.secret(empty_database.dsn)
    stage.controller()
    reference = {"secretRef": {"name": "db", "key": "uri"}, "migrationPolicy": "Manual"}
    stage.apply(database=reference)
    sentence = stage.wait(ConditionType.STALLED, "True", Reason.MIGRATION_PENDING)
    assert "tailrace migrate" in sentence
    assert stage.deployment() is None
    migrate(empty_database.dsn, schema="tailrace")
    stage.change(latencyTargetSeconds=14)
    well(stage)


def test_a_user_without_the_right_to_migrate_says_the_command(
    stage: Stage, empty_database: RigDatabase, make_login: MakeLogin
) -> None:
    from tailrace.db.migrate import migrate

    login = make_login(empty_database)
    stage.secret(login.url)
    stage.controller()
    stage.apply()
    assert "tailrace migrate" in stage.wait(SCHEMA, "False", Reason.SCHEMA_MISSING)
    migrate(empty_database.dsn, schema="tailrace")
    login.grant("tailrace_admin", "tailrace_worker")
    stage.change(latencyTargetSeconds=15)
    well(stage)


def test_a_schema_that_is_too_new_is_left_alone(stage: Stage) -> None:
    newest = stage.database.value("select max(version) from tailrace.migration")
    stage.database.query(
        "insert into tailrace.migration (version, name, checksum, min_controller) values (%s, 'later', 'x', '99.0.0')",
        [newest + 50],
    )
    stage.controller()
    stage.apply()
    assert "99.0.0" in stage.wait(ConditionType.STALLED, "True", Reason.SCHEMA_TOO_NEW)
    assert stage.row() is None
    stage.database.query("delete from tailrace.migration where version = %s", [newest + 50])
    stage.change(latencyTargetSeconds=16)
    well(stage)


def test_a_schema_that_is_too_old_is_migrated_or_told(stage: Stage, empty_database: RigDatabase, make_login: MakeLogin) -> None:
    from tailrace.db.migrate import migrate

    migrate(empty_database.dsn, schema="tailrace", until=5)
    login = make_login(empty_database)
    empty_database.query(f"grant usage on schema tailrace to {login.name}; grant select on tailrace.migration to {login.name}")
    stage.secret(login.url)
    stage.controller()
    stage.apply()
    assert "tailrace migrate" in stage.wait(SCHEMA, "False", Reason.SCHEMA_TOO_OLD)
    stage.secret(empty_database.dsn)
    well(stage)
    assert stage.wait_event(EventReason.SCHEMA_MIGRATED)
