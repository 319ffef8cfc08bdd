"""What a worker says of itself: the queues it serves, and its row in the database as the first heartbeat writes it.

Pure. `lease` sends the row with each beat, `measured` adds the run times to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tailrace.app import App
from tailrace.schedules.declared import published
from tailrace.settings import WorkerSettings
from tailrace_worker.version import VERSION


def queues_of(app: App, settings: WorkerSettings) -> dict[str, int]:
    """The queues to serve and their slots: the given ones, else those of the application's tasks."""
    names = settings.queues or tuple(dict.fromkeys(t.queue for t in app.tasks.values()))
    pairs = (entry.partition("=") for entry in names)
    return {name: int(slots) if slots else settings.slots for name, _, slots in pairs}


def row_of(app: App, settings: WorkerSettings, *, queues: Mapping[str, int]) -> dict[str, Any]:
    """The worker's row.

    Args:
        app: Its application.
        settings: Its settings.
        queues: Slots by queue.
    """
    return {
        "version": VERSION,
        "queues": list(queues),
        "tasks": sorted(app.tasks),
        "schedules": published(app),
        "slots": sum(queues.values()),
        "pod": os.environ.get("TAILRACE_POD_NAME"),
        "lease_seconds": settings.lease_seconds,
        "state": "working",
    }
