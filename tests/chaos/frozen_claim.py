"""A client that stops in the middle of its claim: locked rows and an open transaction, and nobody at home.

Run as `python -m tests.chaos.frozen_claim DSN`; stops itself once it has claimed.
"""

from __future__ import annotations

import os
import signal
import sys

from pydantic import SecretStr

from tailrace.db import Database

JOBS = 50


def main(dsn: str) -> None:
    """Claim as a worker does, and stop before the commit."""
    database = Database(url=SecretStr(dsn))
    with database.connect(autocommit=False, role="work") as conn:
        params = {
            "queue": "chaos",
            "worker": "frozen",
            "tasks": ["work"],
            "context_tasks": ["work"],
            "priorities": [0],
            "run_ats": [float("-inf")],
            "ids": [0],
            "n": JOBS,
            "token": 1,
            "limits": 0,
        }
        rows = conn.execute(database.blocks["claim.claim_batch"], params).fetchall()
        print(f"claimed {len(rows)}", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        conn.execute("select 1")


if __name__ == "__main__":
    main(sys.argv[1])
