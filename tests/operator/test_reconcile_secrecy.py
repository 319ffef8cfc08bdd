"""A password stands in its Secret and nowhere else, whatever goes wrong on the way."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg import sql

from tailrace.names.conditions import ConditionType, Reason
from tests.operator.stage import Stage
from tests.rig.kube.controllers import ControllerProcess
from tests.rig.logins import MakeLogin
from tests.rig.waiting import eventually

MARKER = "mark/er p@ss:Wörd%41"
KINDS = ("jobqueues", "deployments", "replicasets", "pods", "configmaps", "poddisruptionbudgets", "leases")


def forms(password: str) -> set[str]:
    """Return how a password may be spelled: plain, in a URL, in base64, in JSON."""
    raw = password.encode()
    return {
        password,
        quote(password, safe=""),
        base64.b64encode(raw).decode().rstrip("="),
        json.dumps(password).strip('"'),
        repr(password).strip("'"),
    }


def everything(stage: Stage, controller: ControllerProcess) -> dict[str, str]:
    """Return all texts that people other than the readers of Secrets may see."""
    found = {kind: json.dumps(stage.admin.list(kind, namespace=stage.namespace), ensure_ascii=False) for kind in KINDS}
    path = f"/apis/events.k8s.io/v1/namespaces/{stage.namespace}/events"
    found["events"] = json.dumps(stage.admin.ask("GET", path), ensure_ascii=False)
    found["log"] = controller.output
    found["metrics"] = controller.get("/metrics")[1]
    found["command line"] = Path(f"/proc/{controller.pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    return found


def look(stage: Stage, controller: ControllerProcess) -> None:
    shown = everything(stage, controller)
    assert "jobs" in shown["jobqueues"]
    found = {place for place, text in shown.items() for form in forms(MARKER) if form in text}
    assert not found, f"the password shows in {sorted(found)}"


@pytest.mark.timeout(150)
def test_no_word_of_a_password_leaves_its_secret(stage: Stage, make_login: MakeLogin) -> None:
    """l2: while all is well, with a wrong password, an unreachable host, a malformed string and a failed migration."""
    login = make_login(stage.database, "tailrace_admin", "tailrace_worker")
    change = sql.SQL("alter role {} password {}").format(sql.Identifier(login.name), sql.Literal(MARKER))
    with stage.database.connect() as conn:
        conn.execute(change)
    place = stage.database.dsn.rpartition("@")[2]
    good = f"postgresql://{login.name}:{quote(MARKER, safe='')}@{place}"
    stage.secret(good)
    controller = stage.controller()
    stage.apply(replicas=1)
    stage.run_pods(1)
    stage.wait(ConditionType.READY, "True", Reason.READY)
    look(stage, controller)

    login.rotate()  # so the marker is wrong now
    stage.database.terminate_backends("tailrace controller%")
    stage.wait(ConditionType.DATABASE_REACHABLE, "False", Reason.AUTHENTICATION_FAILED)
    look(stage, controller)
    for wrong, reason in (
        (good.replace(place, "127.0.0.1:1/nothing"), Reason.DATABASE_UNAVAILABLE),
        (f"postgres:/{login.name}:{MARKER}@{place}", Reason.INVALID_DSN),
        (f"{good}?passfile=/etc/shadow", Reason.INVALID_DSN),
        (f"{good}?user={quote(MARKER)}", Reason.AUTHENTICATION_FAILED),
    ):
        stage.secret(wrong)
        stage.wait(ConditionType.DATABASE_REACHABLE, "False", reason)
        look(stage, controller)
    eventually(lambda: stage.events(), what="events")
