"""Writes the pages that are made from the code: settings, command line, SQL, metrics, log events, errors, and the tree.

Run by `make docs`; a test compares. `python -m docs.generate --check` writes nothing and tells what is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import click

from docs import jobqueue, operator_words
from docs.sources import ROOT, first_sentence, functions, members, relations, tree, views
from tailrace import errors
from tailrace.db.refusals import SQLSTATES
from tailrace.names import controller_metrics, metrics
from tailrace.settings import ProducerSettings, WorkerSettings, describe
from tailrace_cli.main import tailrace as command_line
from tailrace_controller.settings import ControllerSettings

_NOTE = "<!-- Made by `make docs`; change the code, not this page. -->\n\n"
_BEGIN = "<!-- made by `make docs`: begin -->\n"
_END = "<!-- made by `make docs`: end -->\n"
_SETTINGS_HEAD = (
    "A flag wins over the environment, the environment over the file that `TAILRACE_SETTINGS_FILE` names, "
    "and all over the arguments of `App(...)`. See [configure](../how-to/configure.md).\n"
)
_COMMANDS_HEAD = (
    "Results go to stdout, all else to stderr. Exit status: 0 done, 1 the operation failed or found a problem, "
    "2 wrong usage, 3 the database cannot be reached, 130 interrupted.\n"
)
_SQL_HEAD = (
    "They live in the schema of Tailrace, `tailrace` by default. Functions whose name ends in `_v1` are internal. "
    "Each function runs with the rights of its owner; you need a role that may execute it. What they refuse has a "
    "SQLSTATE of [errors](errors.md), the field in `COLUMN`, and the remedy in `HINT`.\n\n## Functions\n"
)
_TABLES_HEAD = (
    "Read the views; they keep their columns. The tables are for those who want to know; write to them through the "
    "[functions](sql.md) only. Why they are so: [the tables](../explanation/schema.md).\n"
)
_METRICS_HEAD = (
    "Each worker serves its own at `/metrics` on its metrics port, 9464 by default, a controller on 8080. Times are in "
    "seconds. The gauges of queues come from one published reading, so combine them with max.\n"
)
_EVENTS_HEAD = (
    "Each log line of Tailrace has a field `event`. The text of a line may change, these names do not. "
    "With `TAILRACE_LOG_FORMAT=json` a line is one JSON object. "
    "Inside a job each line also has `job_id`, `queue`, `task` and `attempt`.\n\n"
)
_ERRORS_HEAD = (
    "All are `TailraceError`. They have `.field`, `.hint` and `.retryable`: whether the same call may succeed later. "
    "The SQLSTATE is what the SQL functions raise.\n\n"
)
_PACKAGES = (
    "core/tailrace",
    "worker/tailrace_worker",
    "controller/tailrace_controller",
    "cli/tailrace_cli",
    "examples/webhooks",
    "bench",
)


def settings_page() -> str:
    """Return the page of the settings, from their models."""
    parts = ["# Settings\n\n", _NOTE, _SETTINGS_HEAD]
    common = {info.field for info in describe(ProducerSettings)}
    for title, model, left_out in (
        ("Producers and workers", ProducerSettings, set()),
        ("Workers", WorkerSettings, common),
        ("Controllers", ControllerSettings, set()),
    ):
        rows = [
            (f"`{info.variable}`", f"`{info.default}`", info.unit, info.description)
            for info in describe(model)
            if info.field not in left_out
        ]
        parts += [f"\n## {title}\n\n", _table(("variable", "default", "unit", "meaning"), rows)]
    return "".join(parts)


def command_line_page() -> str:
    """Return the page of the command line: what `--help` of each command says."""
    parts = ["# Command line\n\n", _NOTE, _COMMANDS_HEAD]
    for path, command, context in _commands(command_line, None, "tailrace"):
        parts.append(f"\n## {path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n")
    return "".join(parts)


def sql_page() -> str:
    """Return the page of the SQL functions and views, from the migrations."""
    parts = ["# SQL functions and views\n\n", _NOTE, _SQL_HEAD]
    for one in functions():
        returns = f"  returns {one.returns}\n" if one.returns else ""
        parts.append(f"\n### {one.name}\n\n```text\ntailrace.{one.name}({one.signature})\n{returns}```\n")
        parts.append(f"\n{one.comment}\n" if one.comment else "")
    parts.append("\n## Views\n\n")
    parts.append(_table(("view", "one row is"), [(f"`tailrace.{one.name}`", one.comment) for one in views()]))
    return "".join(parts)


def tables_page() -> str:
    """Return the page of the tables and views with their columns, from the comments of the migrations."""
    parts = ["# Tables and views\n\n", _NOTE, _TABLES_HEAD]
    for one in relations():
        parts.append(f"\n## {one.name}\n\n{one.comment}\n")
        if one.columns:
            parts += ["\n", _table(("column", "meaning"), [(f"`{name}`", said) for name, said in one.columns])]
    return "".join(parts)


def metrics_page() -> str:
    """Return the page of the metrics, from the modules that declare them."""
    parts = ["# Metrics\n\n", _NOTE, _METRICS_HEAD]
    for title, declared in (("Workers", metrics.ALL), ("Controllers", controller_metrics.ALL)):
        rows = [(f"`{one.name}`", one.kind, ", ".join(f"`{label}`" for label in one.labels), one.help) for one in declared]
        parts += [f"\n## {title}\n\n", _table(("metric", "kind", "labels", "meaning"), rows)]
    return "".join(parts)


def events_page() -> str:
    """Return the page of the log events, from the enum that declares them."""
    rows = [(f"`{value}`", said) for value, said in members(ROOT / "core/tailrace/names/events.py", "Event")]
    return "# Log events\n\n" + _NOTE + _EVENTS_HEAD + _table(("event", "when"), rows)


def errors_page() -> str:
    """Return the page of the errors, from their classes."""
    states = {kind.__name__: state for state, kind in SQLSTATES.items()}
    raised, signals = [], []
    for name in errors.__all__:
        kind = getattr(errors, name)
        if not isinstance(kind, type) or kind is errors.TailraceError:
            continue
        said = (kind.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        if not issubclass(kind, errors.TailraceError):
            signals.append((f"`{name}`", said.removeprefix("Raised by a handler: ")))
            continue
        also = ", ".join(f"`{base.__name__}`" for base in kind.__bases__ if not issubclass(base, errors.TailraceError))
        state = f"`{states[name]}`" if name in states else ""
        raised.append((f"`{name}`", "yes" if kind.retryable else "no", also, state, said))
    return (
        "# Errors\n\n"
        + _NOTE
        + _ERRORS_HEAD
        + _table(("error", "retryable", "also", "SQLSTATE", "meaning"), raised)
        + "\n## What handlers raise\n\n"
        + _table(("signal", "meaning"), signals)
    )


def jobqueue_page() -> str:
    """Return the page of the custom resource, from its definition."""
    return jobqueue.page(note=_NOTE, table=_table)


def operator_page() -> str:
    """Return the page of the operator's labels, annotations, conditions, reasons and events, from their enums."""
    return operator_words.page(note=_NOTE, table=_table)


def architecture_page() -> str:
    """Return the page of the architecture with its tree made anew; the rest of it is written by hand."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    before, rest = text.split(_BEGIN)
    after = rest.split(_END)[1]
    parts: list[str] = []
    for package in _PACKAGES:
        folder = ROOT / package
        if folder.is_dir():
            parts.append(f"### {package}\n\n{first_sentence(folder / '__init__.py')}\n\n")
            parts.append(_table(("path", "what"), [(f"`{name}`", said) for name, said in tree(folder)]))
            parts.append("\n")
    return before + _BEGIN + "\n" + "".join(parts) + _END + after


PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/settings.md": settings_page,
    "docs/reference/cli.md": command_line_page,
    "docs/reference/sql.md": sql_page,
    "docs/reference/tables.md": tables_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/events.md": events_page,
    "docs/reference/errors.md": errors_page,
    "docs/reference/jobqueue.md": jobqueue_page,
    "docs/reference/operator.md": operator_page,
    "docs/architecture.md": architecture_page,
}
"""Each page with what makes it."""


def is_current(name: str) -> bool:
    """Tell whether a page says what the code says.

    Args:
        name: One of `PAGES`.
    """
    return _is(ROOT / name, PAGES[name]())


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with `--check` name those that are stale; returns the exit status.

    Args:
        arguments: Those of the command line.
    """
    if list(arguments) == ["--check"]:
        found = [name for name in PAGES if not is_current(name)]
        sys.stdout.writelines(f"{name} is stale: run `make docs`\n" for name in found)
        return 1 if found else 0
    for name, make in PAGES.items():
        path = ROOT / name
        text = make()
        if not _is(path, text):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {name}\n")
    return 0


def _commands(
    command: click.Command, parent: click.Context | None, path: str
) -> Iterable[tuple[str, click.Command, click.Context]]:
    context = click.Context(command, parent=parent, info_name=path.split()[-1], terminal_width=100, max_content_width=100)
    yield path, command, context
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from _commands(command.commands[name], context, f"{path} {name}")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
