"""`tailrace controller` as a process: its endpoints, what it says when it cannot start, its memory."""

from __future__ import annotations

import re
import subprocess
import sys

import psutil
import pytest

from tailrace.names import controller_metrics as names
from tests.operator.stage import Stage
from tests.rig.processes import StartProcess, clean_environment
from tests.rig.waiting import eventually

REQUEST_MIB = 128
"""What the controller's pod asks for; an idle controller fits (operator-notes 3.1)."""


def families(page: str) -> dict[str, tuple[str, str]]:
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", page, re.MULTILINE))
    return {name: (kind, helps[name]) for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", page, re.MULTILINE)}


def test_every_declared_metric_is_there_with_its_labels(stage: Stage) -> None:
    controller = stage.controller()
    stage.apply()
    stage.wait_replicas(1)
    eventually(lambda: controller.metric("tailrace_stats_timestamp_seconds", queue="jobs") > 0, 40, what="a reading")
    eventually(lambda: controller.metric("tailrace_queue_replicas", queue="jobs", kind="current") == 1, 40, what="the pod")
    eventually(lambda: controller.metric("tailrace_jobqueue_condition", queue="jobs") > 0, 40, what="a condition")
    page = controller.get("/metrics")[1]
    shown = families(page)
    for metric in names.ALL:
        assert shown[metric.name] == (metric.kind, metric.help), metric.name
    declared = {metric.name: metric for metric in names.ALL}
    seen = set()
    for line in page.splitlines():
        match = re.match(r"(tailrace_\w+?)(_bucket|_sum|_count)?(?:\{(.*)\})? \S+$", line)
        if match is None:
            continue
        name, suffix, labels = match.groups()
        metric = declared.get(name) or declared[name + (suffix or "")]
        found = [label for label in re.findall(r'(\w+)="', labels or "") if label != "le"]
        assert sorted(found) == sorted(metric.labels), line
        seen.add(metric.name)
    assert seen >= {"tailrace_queue_jobs", "tailrace_jobqueue_condition", "tailrace_watch_last_event_timestamp_seconds"}
    of_queue = [line for line in page.splitlines() if f'namespace="{stage.namespace}",queue="jobs"' in line]
    assert len(of_queue) <= 40  # operator.md 7
    assert f'database="{stage.namespace}/db"' in page


def test_probes_answer(stage: Stage) -> None:
    controller = stage.controller()
    assert controller.get("/livez") == (200, "ok\n")
    eventually(lambda: controller.get("/readyz") == (200, "ok\n"), what="a Lease that is renewed in time")
    assert controller.get("/other")[0] == 404


def test_an_idle_controller_fits_into_its_request(stage: Stage) -> None:
    """operator-notes 3.1: kopf with the official client costs about 60 MiB."""
    controller = stage.controller()
    stage.apply()
    stage.wait_settled()
    assert psutil.Process(controller.pid).memory_info().rss < REQUEST_MIB * 2**20


def test_what_is_imported_stays_small() -> None:
    """Not a server, not a client of another cluster library, and none of the generated models of the official one."""
    script = "import sys, tailrace_controller.service; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, env=clean_environment(), timeout=60
    )
    modules = set(done.stdout.split())
    models = [name for name in modules if name.startswith("kubernetes.client.models.")]
    assert len(models) < 20
    assert not {"tailrace_worker", "pykube", "kubernetes_asyncio"} & modules


def test_a_controller_without_a_cluster_says_so(process: StartProcess) -> None:
    done = process("-m", "tailrace_cli", "controller", "--kubeconfig", "/nonexistent", env={"HOME": "/nonexistent"})
    assert done.wait(20) == 2
    assert "--kubeconfig or KUBECONFIG" in done.output


def test_settings_out_of_order_are_refused(process: StartProcess) -> None:
    done = process("-m", "tailrace_cli", "controller", "--lease-seconds", "5")
    assert done.wait(20) == 2
    assert "renew_deadline_seconds" in done.output


@pytest.mark.parametrize("signal_name", ["terminate", "interrupt"])
def test_it_ends_with_status_0_when_it_is_told_to(stage: Stage, signal_name: str) -> None:
    controller = stage.controller()
    controller.terminate() if signal_name == "terminate" else controller.signal(2)
    assert controller.wait(10) == 0
    assert controller.events("controller_stopped")[-1]["status"] == 0
    found = stage.must("leases", "tailrace-controller")
    assert found["spec"]["holderIdentity"] == ""
