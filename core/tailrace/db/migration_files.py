"""The migrations as they come with the package: numbered SQL files and their checksums.

A file is written for the schema `tailrace` and rendered for another when it is applied or printed; `migrate` runs them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from tailrace.db.statements import render

__all__ = ["MIGRATIONS", "Migration", "load"]

_FILE: Final = re.compile(r"(\d{4})_(\w+)\.sql")
_CONCURRENTLY: Final = re.compile(r"^-- concurrently[ \t]*$", re.MULTILINE)
_MIN_WORKER: Final = re.compile(r"^-- min_worker: (\d+(?:\.\d+)*)[ \t]*$", re.MULTILINE)
_MIN_CONTROLLER: Final = re.compile(r"^-- min_controller: (\d+(?:\.\d+)*)[ \t]*$", re.MULTILINE)
_REPAIRS: Final = re.compile(r"^-- repairs: (\w+) by (\w+)[ \t]*$", re.MULTILINE)
_UNIQUE: Final = re.compile(
    r"create\s+unique\s+index\s+(?:concurrently\s+)?(?:if\s+not\s+exists\s+)?(\w+)\s+on\s+tailrace\.(\w+)", re.IGNORECASE
)
_TABLE: Final = re.compile(r"create\s+(?:unlogged\s+)?table\s+(?:if\s+not\s+exists\s+)?tailrace\.(\w+)", re.IGNORECASE)
_INDEX: Final = re.compile(r"create\s+(?:unique\s+)?index\s+concurrently\s+if\s+not\s+exists\s+(\w+)", re.IGNORECASE)


@dataclass(frozen=True)
class Migration:
    """One numbered step.

    Attributes:
        version: The number in the file's name.
        name: The rest of the file's name.
        text: The SQL, written for the schema `tailrace`.
    """

    version: int
    name: str
    text: str

    @property
    def label(self) -> str:
        """The file's name without its ending."""
        return f"{self.version:04d}_{self.name}"

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the text, whatever the line ends of the platform."""
        return sha256(self.text.replace("\r\n", "\n").encode()).hexdigest()

    @cached_property
    def min_worker(self) -> str | None:
        """The oldest worker that can live with this step, from the header `-- min_worker: 1.2`; None if any can."""
        match = _MIN_WORKER.search(self.text)
        return None if match is None else match[1]

    @cached_property
    def min_controller(self) -> str | None:
        """The oldest controller that can live with this step, from the header `-- min_controller: 1.2`; None if any can."""
        match = _MIN_CONTROLLER.search(self.text)
        return None if match is None else match[1]

    @cached_property
    def repairs(self) -> dict[str, str]:
        """The functions that repair rows, by table, from headers `-- repairs: dead_letter by merge_duplicates_v1`."""
        return dict(_REPAIRS.findall(self.text))

    def unrepaired(self) -> list[str]:
        """The unique indexes on older tables before which the step does not call the repair that its header names."""
        own = set(_TABLE.findall(self.text))
        found = []
        for match in _UNIQUE.finditer(self.text):
            name, table = match.groups()
            repair = self.repairs.get(table)
            if table not in own and (
                repair is None or not re.search(rf"select\s+tailrace\.{repair}\(", self.text[: match.start()])
            ):
                found.append(name)
        return found

    @cached_property
    def is_concurrent(self) -> bool:
        """Whether the header says `-- concurrently`: each statement runs alone, outside a transaction."""
        return _CONCURRENTLY.search(self.text) is not None

    def rendered(self, schema: str) -> str:
        """Return the SQL for a schema.

        Args:
            schema: The bare name of the schema.
        """
        return render(self.text, schema)

    def statements(self, schema: str) -> list[str]:
        """Return the statements of a concurrent step; each ends with a semicolon at the end of a line.

        Args:
            schema: The bare name of the schema.
        """
        code = "\n".join(line for line in self.rendered(schema).splitlines() if not line.lstrip().startswith("--"))
        return [part.strip() for part in re.split(r";[ \t]*$", code, flags=re.MULTILINE) if part.strip()]

    @cached_property
    def indexes(self) -> tuple[str, ...]:
        """The bare names of the indexes that a concurrent step makes."""
        return tuple(_INDEX.findall(self.text))


def load(folder: Traversable) -> tuple[Migration, ...]:
    """Return the migrations of a folder in their order.

    Args:
        folder: Holds files such as 0001_tables.sql; other files are left alone.

    Raises:
        ValueError: Two files have the same number, or one makes a unique index over rows that it does not repair first.
    """
    found: dict[int, Migration] = {}
    for entry in folder.iterdir():
        match = _FILE.fullmatch(entry.name)
        if match is None:
            continue
        version = int(match[1])
        if version in found:
            raise ValueError(f"two migrations have the number {version}: {found[version].name}, {match[2]}")
        step = found[version] = Migration(version, match[2], entry.read_text(encoding="utf-8"))
        if step.unrepaired():
            raise ValueError(
                f"{step.label}: {', '.join(step.unrepaired())} may meet rows that it refuses; add `-- repairs: TABLE by FUNCTION`"
            )
    return tuple(found[version] for version in sorted(found))


MIGRATIONS: Final[Sequence[Migration]] = load(files("tailrace.db").joinpath("migrations"))
