"""Records on stdout, in the form that was asked for; all else goes to stderr.

Tables use rich when it is installed and stdout is a terminal, else plain aligned text. JSON has the field names of the
views, ids are strings, since a number beyond 2^53 changes in many readers. Control characters of names reach no terminal.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import IO, Any, Literal, get_args

__all__ = ["FORMATS", "Column", "Format", "as_record", "emit", "emit_one", "printable"]

Format = Literal["table", "wide", "json", "jsonl", "csv", "name"]
FORMATS: tuple[str, ...] = get_args(Format)

_IDS = frozenset({"id", "ids", "job_id", "token", "job_ids", "last_job"})
_GAP = "  "


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    """The field of the record."""
    wide: bool = False
    """Only with -o wide."""
    right: bool = False
    """Set to the right, for numbers."""

    @property
    def title(self) -> str:
        """The heading."""
        return self.name.upper().replace("_", " ")


_TABLES: Mapping[str, Sequence[Column]] = {"tasks": (Column("task"), Column("dead", right=True))}
"""Fields of one record that hold a list of ours; what users wrote is shown as the JSON that it is."""


def as_record(item: Any) -> dict[str, Any]:
    """Return a dataclass or mapping as what JSON can hold: ids as strings, times in UTC, durations in seconds.

    Args:
        item: A frozen dataclass of the library, or a mapping.
    """
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        item = {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    return {name: _json_value(name, value) for name, value in item.items()}


def emit(items: Iterable[Any], *, columns: Sequence[Column], form: str, key: str, out: IO[str] | None = None) -> int:
    """Write a list of records and return how many there were.

    Args:
        items: Dataclasses or mappings.
        columns: What a table or CSV shows; JSON has every field.
        form: One of `FORMATS`.
        key: The field that `-o name` prints.
        out: Default stdout.
    """
    out = out or sys.stdout
    records = _counted(map(as_record, items))
    if form == "json":
        out.write(json.dumps(list(records), ensure_ascii=False, indent=2) + "\n")
    elif form == "jsonl":
        out.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    elif form == "csv":
        _write_csv(records, columns, out)
    elif form == "name":
        out.writelines(f"{printable(str(record[key]))}\n" for record in records)
    elif rows := list(records):
        _write_table(rows, [column for column in columns if form == "wide" or not column.wide], out)
    return records.count


def emit_one(item: Any, *, form: str, key: str, out: IO[str] | None = None) -> None:
    """Write one record with all its fields.

    Args:
        item: A dataclass or mapping.
        form: One of `FORMATS`.
        key: The field that `-o name` prints.
        out: Default stdout.
    """
    out = out or sys.stdout
    record = as_record(item)
    if form in ("json", "jsonl"):
        out.write(json.dumps(record, ensure_ascii=False, indent=2 if form == "json" else None) + "\n")
    elif form == "csv":
        _write_csv([record], [Column(name) for name in record], out)
    elif form == "name":
        out.write(f"{printable(str(record[key]))}\n")
    else:
        _write_sheet(record, out, all_fields=form == "wide")


def printable(text: str) -> str:
    r"""Return a text without characters that steer a terminal; they appear as \x1b.

    Args:
        text: Any text, such as a name that somebody chose.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class _counted:  # noqa: N801 - used like a function
    """Passes records on and counts them, so that a long list need not be in memory."""

    def __init__(self, records: Iterable[dict[str, Any]]) -> None:
        self._records = records
        self.count = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for record in self._records:
            self.count += 1
            yield record


def _json_value(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, tuple | list):
        return [_json_value(name, part) for part in value]
    if isinstance(value, Mapping):
        return {str(key): _json_value("", part) for key, part in value.items()}  # what users wrote stays as it is
    if name in _IDS and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def _cell(value: Any) -> str:
    if value is None or value == "" or value == [] or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(part, str | int) for part in value):
        return printable(",".join(str(part) for part in value))
    if isinstance(value, list | dict):
        return printable(json.dumps(value, ensure_ascii=False))
    return printable(_without_fraction(str(value)))


def _without_fraction(text: str) -> str:
    """Times are read by people to the second; JSON keeps the rest."""
    if len(text) == 27 and text[10] == "T" and text.endswith("Z") and text[19] == ".":
        return text[:19] + "Z"
    return text


def _write_csv(records: Iterable[Mapping[str, Any]], columns: Sequence[Column], out: IO[str]) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    for record in records:
        values = (record[column.name] for column in columns)
        writer.writerow([json.dumps(v, ensure_ascii=False) if isinstance(v, list | dict) else v for v in values])


def _write_table(records: Sequence[Mapping[str, Any]], columns: Sequence[Column], out: IO[str]) -> None:
    rows = [[_cell(record[column.name]) for column in columns] for record in records]
    if out.isatty() and _write_rich_table(rows, columns, out):
        return
    widths = [max(len(column.title), *(len(row[n]) for row in rows)) for n, column in enumerate(columns)]
    for line in [[column.title for column in columns], *rows]:
        cells = (
            text.rjust(width) if column.right else text.ljust(width)
            for text, width, column in zip(line, widths, columns, strict=True)
        )
        out.write(_GAP.join(cells).rstrip() + "\n")


def _write_rich_table(rows: Sequence[Sequence[str]], columns: Sequence[Column], out: IO[str]) -> bool:
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(Text(column.title), justify="right" if column.right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(file=out, highlight=False).print(table)
    return True


def _write_sheet(record: Mapping[str, Any], out: IO[str], *, all_fields: bool) -> None:
    width = max(len(name) for name in record)
    for name, value in record.items():
        if not all_fields and (value is None or value == [] or value == {}):
            continue
        lines = _sheet_lines(name, value)
        out.write(f"{name.ljust(width)}{_GAP}{lines[0]}\n")
        out.writelines(f"{' ' * width}{_GAP}{line}\n" for line in lines[1:])


def _sheet_lines(name: str, value: Any) -> list[str]:
    is_list_of_records = isinstance(value, list) and any(isinstance(part, dict) for part in value)
    if is_list_of_records and name in _TABLES:
        text = io.StringIO()
        _write_table(value, _TABLES[name], text)
        return text.getvalue().splitlines()
    if is_list_of_records or isinstance(value, dict):
        return [printable(line) for line in json.dumps(value, ensure_ascii=False, indent=2).splitlines()]
    return [_cell(value)]
