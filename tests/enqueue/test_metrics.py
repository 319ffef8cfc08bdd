"""The producer's counter, and the trace that goes with a job."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import prometheus_client
import pytest

from tailrace.enqueue.metrics import priority_band
from tests.enqueue.conftest import Shop
from tests.rig.servers import RigDatabase


def value(**labels: str) -> float:
    return prometheus_client.REGISTRY.get_sample_value("tailrace_jobs_enqueued_total", labels) or 0


def test_each_outcome_is_counted(shop: Shop) -> None:
    labels = {"namespace": "", "queue": "counted", "task": "plain"}
    words = shop.plain.using(queue="counted", key="k", priority=20)
    for outcome in ("created", "skipped"):
        before = value(**labels, outcome=outcome, priority_band="emergency")
        words.enqueue()
        assert value(**labels, outcome=outcome, priority_band="emergency") == before + 1
    before = value(**labels, outcome="created", priority_band="bulk_default")
    shop.app.enqueue_many([shop.plain.using(queue="counted").job()] * 3)
    assert value(**labels, outcome="created", priority_band="bulk_default") == before + 3


def test_bands_cover_every_priority() -> None:
    names = {n: priority_band(n) for n in range(-1000, 1001)}
    assert names[20] == names[1000] == "emergency"
    assert [names[n] for n in (10, 1, 0, -1, -6, -11)] == [
        "fast_high",
        "fast_default",
        "bulk_default",
        "bulk_low",
        "bulk_lowest",
        "other",
    ]


def test_the_producers_trace_goes_with_the_job(shop: Shop, database: RigDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    propagate: Any = ModuleType("opentelemetry.propagate")
    propagate.inject = lambda carrier: carrier.update(traceparent=parent)
    for name, module in (
        ("opentelemetry", ModuleType("opentelemetry")),
        ("opentelemetry.trace", ModuleType("opentelemetry.trace")),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", propagate)
    shop.plain.enqueue()
    shop.deliver.using(key="k").enqueue(1, "u")
    shop.app.enqueue_many([shop.plain.job(), shop.deliver.job(1, "u")])
    assert database.query("select trace from tailrace.job") == [(parent,)] * 4
