"""Jobs that cannot go on: list, show, count, put back.

Behind `app.dead_letters` and `tailrace dead-letters`. They come here by the engine alone (`settle`), never by this package.
"""

from tailrace.dead_letters.records import (
    DEAD_LETTER_STATES,
    REASONS,
    DeadLetter,
    DeadLetterInfo,
    DeadLetterStats,
    TaskCount,
)
from tailrace.dead_letters.statements import DeadLetterFilter, DeadLetterStatements
from tailrace.dead_letters.words import AsyncDeadLetters, DeadLetters, SyncDeadLetters

__all__ = [
    "DEAD_LETTER_STATES",
    "REASONS",
    "AsyncDeadLetters",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetterInfo",
    "DeadLetterStatements",
    "DeadLetterStats",
    "DeadLetters",
    "SyncDeadLetters",
    "TaskCount",
]
