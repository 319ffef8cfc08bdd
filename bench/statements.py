"""Read named blocks of SQL files.

The benchmark keeps its SQL in files as the product does; it has its own reader so that the
reference stays independent of the code it is compared with.
"""

import re
from pathlib import Path

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load(path: Path) -> dict[str, str]:
    """Return the blocks of a file by name; a block begins with a line ``-- name: word``."""
    parts = _HEADING.split(path.read_text(encoding="utf-8"))
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
