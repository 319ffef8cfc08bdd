"""The demo's receiver: what it refuses, what it records, and how it is healed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from examples.webhooks.deliveries import Delivery, DeliveryLog, answer, count_accepted, read_deliveries
from examples.webhooks.receiver import Receiver


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "deliveries.sqlite"


@pytest.fixture
def receiver(record: Path) -> Iterator[httpx.Client]:
    """A running receiver, as a client of it."""
    log = DeliveryLog(record)
    server = Receiver(log)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as client:
        yield client
    server.shutdown()
    thread.join()
    server.server_close()
    log.close()


def deliver(receiver: httpx.Client, event_id: int, attempt: int = 1) -> int:
    return receiver.post("/hooks/c001", json={"id": event_id, "delivery": attempt}).status_code


def test_one_in_ten_is_refused_for_a_while_and_one_in_a_hundred_for_good():
    first = Counter(answer(event, earlier=0, healed=False).status for event in range(1, 2001))
    assert first == {200: 1780, 503: 160, 429: 40, 500: 16, 410: 4}
    third = Counter(answer(event, earlier=2, healed=False).status for event in range(1, 2001))
    assert third == {200: 1980, 500: 16, 410: 4}
    assert {answer(event, earlier=0, healed=True).status for event in range(1, 2001)} == {200}


def test_too_many_says_how_long_to_wait(receiver: httpx.Client):
    response = receiver.post("/hooks/c001", json={"id": 57, "delivery": 1})
    assert (response.status_code, response.headers["Retry-After"]) == (429, "1")


def test_each_delivery_is_recorded_with_its_attempt_and_answer(receiver: httpx.Client, record: Path):
    assert [deliver(receiver, 27), deliver(receiver, 1), deliver(receiver, 27, attempt=2)] == [503, 200, 200]
    assert read_deliveries(record) == [
        Delivery(27, 1, 503, healed=False),
        Delivery(1, 1, 200, healed=False),
        Delivery(27, 2, 200, healed=False),
    ]
    assert count_accepted(record) == 2


def test_healing_ends_the_refusals(receiver: httpx.Client, record: Path):
    assert [deliver(receiver, 50), deliver(receiver, 150)] == [410, 500]
    assert receiver.post("/admin/heal").status_code == 200
    assert [deliver(receiver, 50), deliver(receiver, 150)] == [200, 200]
    assert [one.healed for one in read_deliveries(record)] == [False, False, True, True]


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"id": "x", "delivery": 1}', b"\xff"])
def test_what_is_no_delivery_is_refused_and_not_recorded(receiver: httpx.Client, record: Path, body: bytes):
    assert receiver.post("/hooks/c001", content=body).status_code == 400
    assert read_deliveries(record) == []


def test_a_huge_body_is_refused(receiver: httpx.Client):
    assert receiver.post("/hooks/c001", content=b"x" * 70_000).status_code == 413


def test_an_unknown_path_is_not_found(receiver: httpx.Client):
    assert receiver.post("/other").status_code == 404
