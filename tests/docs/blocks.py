"""Reads the code blocks of a Markdown page, with what a comment before a block says about it.

Comments, on the line before the fence: `<!-- file: PATH -->` the block is written to that file; `<!-- not run: REASON -->`
the block is shown only. Neighbour: `runner` runs what is found here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

RUNNABLE = frozenset({"python", "sql", "console"})
"""Languages whose blocks run."""

SHOWN = frozenset({"text", "mermaid"})
"""Languages that no machine runs: pictures and output."""

_FENCE = re.compile(r"^```(\w*)\s*$")
_COMMENT = re.compile(r"^<!-- (file|not run): (.+) -->$")


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        page: The page's path from the repository's root.
        line: The number of its first line of code.
        language: The word after the fence.
        code: The lines.
        file: Where the block is written instead of being run, or None.
        reason: Why it is not run, or None.
    """

    page: str
    line: int
    language: str
    code: str
    file: str | None
    reason: str | None

    @property
    def place(self) -> str:
        """page:line, for messages."""
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return all pages whose blocks are checked."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def read_blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in order.

    Args:
        page: A Markdown file of the repository.
    """
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if fence is None:
            number += 1
            continue
        end = lines.index("```", number + 1)
        kind, text = _comment_before(lines, number)
        found.append(
            Block(
                page=str(page.relative_to(ROOT)),
                line=number + 2,
                language=fence[1],
                code="\n".join(lines[number + 1 : end]) + "\n",
                file=text if kind == "file" else None,
                reason=text if kind == "not run" else None,
            )
        )
        number = end + 1
    return found


def _comment_before(lines: list[str], fence: int) -> tuple[str, str]:
    match = _COMMENT.match(lines[fence - 1]) if fence > 0 else None
    return (match[1], match[2]) if match is not None else ("", "")
