"""Databases as the controller asks them: by Secret, within a budget, with errors that a condition can show.

`registry` keeps them, `database` has the words, `pool` and `breaker` what one database may cost.
"""

from tailrace.db.allowed import Target, parse_target
from tailrace.owners import Owned, Owner, QueueFacts, Settled
from tailrace_controller.databases.database import INTERRUPTED, QueueDatabase, Release
from tailrace_controller.databases.facts import DatabaseFacts, DatabaseState
from tailrace_controller.databases.pool import Budget
from tailrace_controller.databases.registry import Databases

__all__ = [
    "INTERRUPTED",
    "Budget",
    "DatabaseFacts",
    "DatabaseState",
    "Databases",
    "Owned",
    "Owner",
    "QueueDatabase",
    "QueueFacts",
    "Release",
    "Settled",
    "Target",
    "parse_target",
]
