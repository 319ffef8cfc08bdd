"""Jobs that cannot go on: list, count, export, put back, resolve, delete, note, add.

Behind `app.dead_letters` and `tailrace dead-letters`. The rules are in the SQL functions, which any language can call.
"""

from tailrace.dead_letters.async_words import AsyncDeadLetters
from tailrace.dead_letters.filters import DeadLetterFilter
from tailrace.dead_letters.records import (
    DEAD_LETTER_STATES,
    ERROR_TYPES,
    REASONS,
    BulkChange,
    DeadLetter,
    DeadLetterInfo,
    DeadLetterStats,
    Problem,
    TaskCount,
)
from tailrace.dead_letters.statements import DeadLetterStatements
from tailrace.dead_letters.words import DeadLetters, SyncDeadLetters

__all__ = [
    "DEAD_LETTER_STATES",
    "ERROR_TYPES",
    "REASONS",
    "AsyncDeadLetters",
    "BulkChange",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetterInfo",
    "DeadLetterStatements",
    "DeadLetterStats",
    "DeadLetters",
    "Problem",
    "SyncDeadLetters",
    "TaskCount",
]
