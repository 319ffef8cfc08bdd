"""A claimed row: its columns, and the bits that say what is special about it.

claim.sql returns such rows; what follows a claim reads them by these names.
"""

from __future__ import annotations

from typing import Any

ID, TOKEN, ATTEMPT, TASK, PAYLOAD, TIMEOUT, PRIORITY, MARK, RUN_AT, EXTRA = range(10)
"""Columns of a claimed row, as claim.sql returns them."""

GROUP, TENANT = 10, 11
"""Further columns of a member of a group."""

SPENT, EXPIRED, REQUEUED, LAST, KEYED, GROUPED = 1, 2, 4, 8, 16, 32
"""Bits of MARK: exhausted before the claim, past expires_at, requeued from the dead letters, on its last attempt, has a key,
in a group."""

Row = tuple[Any, ...]
