"""Connections that break, fall silent or lose an answer: no job is lost, none runs twice, and no attempt is spent."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.rig.processes import WorkerProcess
from tests.rig.proxy import TcpProxy
from tests.rig.waiting import eventually
from tests.worker.scene import PATIENCE, SLACK, Scene

LONG_LEASE = 12.0
ENDING_SECONDS = 4.0


def some_work(scene: Scene, jobs: int) -> None:
    """Wait until more than so many jobs have been started."""
    eventually(lambda: len(scene.lines("start")) > jobs, PATIENCE, what="some work")


def listening_again(worker: WorkerProcess, before: int) -> None:
    """Wait until the listener has come back once more."""
    eventually(lambda: len(worker.events("listener_back")) > before, what="the listener")


@pytest.mark.parametrize("which", ["work", "heartbeat", "listen", "%"])
def test_backends_that_are_ended_again_and_again(scene: Scene, which: str) -> None:
    """CJ-06, FQ-21, d2, d3: the connections are made again; every job runs once, at its first attempt."""
    worker = scene.worker("--slots", "4", lease=LONG_LEASE)
    pids = [worker.pid]
    jobs: list[int] = []
    for _ in range(6):
        jobs += scene.fill("quick", 300)
        some_work(scene, len(jobs) - 250)
        scene.database.terminate_backends(f"tailrace {which}")
    scene.wait_gone()
    scene.ran_once(jobs)
    assert {line.pid for line in scene.lines("start")} == set(pids)
    assert worker.metric("tailrace_fenced_writes_total") == 0
    eventually(lambda: worker.get("/readyz")[0] == 200, what="readiness")
    last = scene.enqueue("quick")
    scene.wait_line("start", last)
    worker.terminate()
    assert worker.wait(SLACK) == 0


def test_a_listener_that_is_gone_costs_no_more_than_the_poll(scene: Scene) -> None:
    """CJ-20, d3: polling is the mechanism; the connection comes back and a broken wake-up is told."""
    worker = scene.worker("--poll-seconds", "0.3")
    for _ in range(5):
        back = len(worker.events("listener_back"))
        scene.database.terminate_backends("tailrace listen")
        job = scene.enqueue("quick")
        scene.wait_line("start", job, timeout=SLACK)
        listening_again(worker, back)
    eventually(lambda: worker.metric("tailrace_notify_reconnects_total") >= 5, what="the count")


def test_a_listener_that_is_ended_whenever_it_comes_back_is_no_busy_loop(scene: Scene) -> None:
    """d3: it is made again a few times a second at most, and jobs are found by the poll meanwhile."""
    worker = scene.worker("--poll-seconds", "0.3")
    until = time.monotonic() + ENDING_SECONDS

    def ended() -> bool:
        scene.database.terminate_backends("tailrace listen")
        return time.monotonic() >= until

    job = scene.enqueue("quick")
    eventually(ended, ENDING_SECONDS + SLACK, what="the end of all listeners")
    assert scene.lines("start", job), "not found by the poll"
    assert 2 <= worker.metric("tailrace_notify_reconnects_total") <= 4 * ENDING_SECONDS
    job = scene.enqueue("quick")
    scene.wait_line("start", job)


def test_a_link_that_is_cut_again_and_again(scene: Scene, tcp_proxy: TcpProxy) -> None:
    """CJ-06: as above without a farewell of the server: what was committed is not sent as lost, what was not is sent again."""
    worker = scene.worker("--slots", "4", lease=LONG_LEASE, dsn=tcp_proxy.dsn)
    jobs: list[int] = []
    for n in range(8):
        jobs += scene.fill("quick", 300)
        some_work(scene, len(jobs) - 280)
        tcp_proxy.cut("" if n % 2 else "tailrace work")
    scene.wait_gone()
    scene.ran_once(jobs)
    assert worker.metric("tailrace_fenced_writes_total") == 0


def test_a_silence_shorter_than_the_lease_changes_nothing(scene: Scene, tcp_proxy: TcpProxy) -> None:
    """CJ-06: with one job running and others waiting."""
    running = scene.enqueue("gated", gate="go")
    worker = scene.worker("--slots", "2", lease=LONG_LEASE, dsn=tcp_proxy.dsn)
    scene.wait_line("start", running)
    tcp_proxy.pause()
    jobs = scene.fill("quick", 50)
    scene.open("go")
    scene.wait_line("end", running)
    assert scene.row(running) == (True, 1, 0, 0)
    tcp_proxy.resume()
    scene.wait_gone()
    scene.ran_once([running, *jobs])
    assert worker.metric("tailrace_fenced_writes_total") == 0


def test_a_silence_longer_than_the_lease(scene: Scene, tcp_proxy: TcpProxy) -> None:
    """FQ-03, BF-07: it starts nothing more, another worker takes its job, and its late finish is refused."""
    running = scene.enqueue("gated", gate="go")
    cut_off = scene.worker("--slots", "2", dsn=tcp_proxy.dsn)
    scene.wait_line("start", running)
    tcp_proxy.pause()
    eventually(lambda: cut_off.get("/readyz")[0] == 503, what="doubt about the lease")
    assert cut_off.get("/livez")[0] == 200
    scene.worker()
    again = scene.wait_line("start", running, 2)
    assert again.pid != cut_off.pid
    jobs = scene.fill("quick", 20)
    scene.open("go")
    eventually(lambda: len(scene.lines("end", running)) >= 1 and len(scene.lines("start")) == 22, PATIENCE, what="the others")
    tcp_proxy.resume()
    scene.wait_gone()
    eventually(lambda: cut_off.metric("tailrace_fenced_writes_total") >= 1, PATIENCE, what="the refused finish")
    assert scene.count("succeeded") == 1 + len(jobs)
    eventually(lambda: cut_off.get("/readyz")[0] == 200, PATIENCE, what="readiness")


def test_the_lost_answer_to_a_claim(scene: Scene, tcp_proxy: TcpProxy) -> None:
    """FQ-13, d2: the job was claimed and nobody knows it: it is handed back uncharged and runs once."""
    worker = scene.worker("--slots", "1", dsn=tcp_proxy.dsn, lease=LONG_LEASE)
    eventually(lambda: worker.metric("tailrace_worker_polls_total") > 0, what="a claim before")
    tcp_proxy.lose_answer(b'into "tailrace".lease', application="tailrace work")
    tcp_proxy.cut("tailrace work")  # a new session sends the text of its statements anew
    job = scene.enqueue("quick")
    start = scene.wait_line("start", job)
    assert tcp_proxy.lost_answers >= 1
    assert start.attempt == 1
    scene.wait_gone()
    scene.ran_once([job])


@pytest.mark.parametrize(("task", "end"), [("gated", "succeeded"), ("fails", "dead")])
def test_the_lost_answer_to_a_finish(scene: Scene, tcp_proxy: TcpProxy, task: str, end: str) -> None:
    """FQ-21, GW-01: it happened, so the second sending finds nothing: unknown, not refused; the job ended once."""
    statement = {"gated": b'delete from "tailrace".job', "fails": b"settle_v1"}[task]
    job = scene.enqueue(task, gate="go", options={"max_attempts": 1})
    worker = scene.worker(dsn=tcp_proxy.dsn, lease=LONG_LEASE)
    scene.wait_line("start", job)
    tcp_proxy.lose_answer(statement, application="tailrace work")
    scene.open("go")
    eventually(lambda: tcp_proxy.lost_answers == 1, what="the lost answer")
    worker.wait_event("database_back")
    last = scene.enqueue("quick")
    scene.wait_line("start", last)
    scene.wait_gone()
    eventually(lambda: scene.count(end) == (2 if end == "succeeded" else 1), what="the count of ends")
    assert worker.metric("tailrace_fenced_writes_total") == 0
    assert len(scene.lines("start", job)) == 1
    assert scene.database.value("select count(*) from tailrace.lease") == 0


def test_a_server_that_became_read_only_counts_as_lost(scene: Scene) -> None:
    """Pitfall 2.11 (a failover): the session is made anew, with pauses that grow, until the server takes writes again."""
    worker = scene.worker(lease=LONG_LEASE)
    scene.database.query(
        """create function public.refuse() returns trigger language plpgsql as
           $$ begin raise exception 'cannot execute INSERT in a read-only transaction' using errcode = '25006'; end $$"""
    )
    scene.database.query("create trigger read_only before insert on tailrace.lease for each row execute function public.refuse()")
    [before] = scene.database.backends("tailrace work")
    job = scene.enqueue("quick")
    eventually(lambda: [before] != scene.database.backends("tailrace work") != [], what="another session")
    worker.wait_event("claim_failed")
    first = len(worker.events("claim_failed"))
    eventually(lambda: len(worker.events("database_back")) >= 3, PATIENCE, what="several tries")
    assert len(worker.events("claim_failed")) < first + 30
    scene.database.query("drop trigger read_only on tailrace.lease")
    scene.wait_line("start", job)
    scene.wait_gone()
    scene.ran_once([job])
    assert not list(itertools.filterfalse(lambda e: "exception" not in e, worker.events()))
