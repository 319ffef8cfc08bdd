"""What a worker takes of the server: few connections, and no transaction while its handlers run."""

from __future__ import annotations

import time

from tests.rig.waiting import eventually
from tests.worker.scene import SLACK, Scene

OWN = {"tailrace work", "tailrace heartbeat", "tailrace listen"}
LOOK_SECONDS = 3.0
SESSIONS = """select application_name, coalesce(extract(epoch from clock_timestamp() - xact_start), 0)::float8
              from pg_stat_activity where datname = current_database() and application_name like 'tailrace %'"""


def test_three_connections_and_no_transaction_while_jobs_run(scene: Scene) -> None:
    """d4: whatever the slots. Standing in for maintenance it has one or two more, for the time of a routine."""
    jobs = scene.fill("gated", 12, gate="go")
    scene.worker("--slots", "12")
    eventually(lambda: len(scene.lines("start")) == len(jobs), what="all jobs running")
    snapshots: list[dict[str, float]] = []
    most: list[int] = []
    until = time.monotonic() + LOOK_SECONDS

    def looked() -> bool:
        found = scene.database.query(SESSIONS)
        snapshots.append(dict(found))
        most.append(len(found))
        return time.monotonic() >= until

    eventually(looked, LOOK_SECONDS + SLACK, what="some looks")
    assert all(set(snapshot) >= OWN for snapshot in snapshots)
    assert any(set(snapshot) == OWN for snapshot in snapshots)
    assert max(most) <= len(OWN) + 2
    longest = max(age for snapshot in snapshots for age in snapshot.values())
    assert longest < 1, f"a transaction was open for {longest:.1f} s"
    scene.open("go")
    scene.wait_gone()
    scene.ran_once(jobs)
