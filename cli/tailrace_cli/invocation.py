"""What one call of the command was told: where the database is, how to print, whether it may ask.

Every command takes the common options, before or after its own name; `Invocation` gathers them and is what commands work
with. Connections come from the core; nothing here opens one before it is needed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tailrace.db import Connection, Database
from tailrace.db.versions import check
from tailrace.settings import ProducerSettings
from tailrace_cli.output import FORMATS, Column, emit, emit_one

if TYPE_CHECKING:
    from tailrace.admin import AdminUsing

__all__ = ["Invocation", "command", "common_options", "pass_invocation"]

R = TypeVar("R")


@dataclass
class Invocation:
    """One call of the command."""

    database_url: str | None = None
    """Where the database is, when a flag says so."""
    schema: str | None = None
    """The schema, when a flag says so."""
    form: str = "table"
    """How records are printed."""
    quiet: bool = False
    """Say nothing that was not asked for."""
    verbose: bool = False
    """Tracebacks and more."""

    # ---- database ----------------------------------------------------------------------------------------------------
    def overrides(self) -> dict[str, Any]:
        """The settings that flags gave; they win over environment and file."""
        return {"database_url": self.database_url, "schema_name": self.schema}

    def database(self) -> Database:
        """Where the database is, from flags, environment and file."""
        return ProducerSettings.load(self.overrides()).database("tailrace")

    def connect(self, database: Database | None = None, *, checked: bool = True) -> Connection:
        """Open a connection on which each statement commits by itself.

        Args:
            database: Default: the one the flags and settings name.
            checked: Refuse a schema that this release does not fit.
        """
        database = database or self.database()
        conn = database.connect(role="cli")
        if checked:
            try:
                check(conn, database)
            except BaseException:
                conn.close()
                raise
        return conn

    def administer(self, work: Callable[[AdminUsing], R]) -> R:
        """Do some administration on one connection and return what it gives.

        Args:
            work: Gets the admin words on that connection.
        """
        from tailrace.admin import AdminUsing  # a worker should not carry it

        database = self.database()
        with self.connect(database) as conn:
            return work(AdminUsing(conn, database))

    # ---- words -------------------------------------------------------------------------------------------------------
    def say(self, text: str) -> None:
        """Tell something on stderr, unless -q."""
        if not self.quiet:
            click.echo(text, err=True)

    def warn(self, text: str) -> None:
        """Tell something on stderr, -q or not."""
        click.echo(text, err=True)

    def show_list(self, items: Iterable[Any], *, columns: Sequence[Column], key: str, empty: str) -> int:
        """Print a list; when there is nothing in it, a table says so on stderr.

        Args:
            items: The records.
            columns: The columns of a table.
            key: What `-o name` prints.
            empty: What to say of an empty list.
        """
        count = emit(items, columns=columns, form=self.form, key=key)
        if count == 0 and self.form in ("table", "wide"):
            self.say(empty)
        return count

    def show_one(self, item: Any, *, key: str) -> None:
        """Print one record with its fields.

        Args:
            item: The record.
            key: What `-o name` prints.
        """
        emit_one(item, form=self.form, key=key)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something that cannot be undone.

        Args:
            question: What would happen, without the question mark.
            yes: Whether --yes was given, which answers it.

        Raises:
            click.UsageError: There is no terminal to ask at.
            click.ClickException: The answer was no.
        """
        if yes:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise click.UsageError(f"{question}: cannot ask without a terminal; add --yes to do it, or --dry-run to look")
        if not click.confirm(f"{question}. Go on?", default=False, err=True):
            raise click.ClickException("nothing was changed")


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, _param: click.Parameter, value: Any) -> None:
        if value is not None:
            setattr(ctx.ensure_object(Invocation), name, value)

    return callback


def common_options() -> list[click.Parameter]:
    """The options that every command takes; a fresh list for each, since click keeps state in them."""
    return [
        click.Option(
            ["--database-url"],
            metavar="URL",
            expose_value=False,
            callback=_keep("database_url"),
            help="Where the database is. Other users of the machine can see a flag's value: with a password in it, set "
            "TAILRACE_DATABASE_URL or TAILRACE_DATABASE_URL_FILE instead. Without any, libpq's PG* variables count.",
        ),
        click.Option(
            ["--schema"],
            metavar="NAME",
            expose_value=False,
            callback=_keep("schema"),
            help="The schema of Tailrace's tables. [default: tailrace; TAILRACE_SCHEMA]",
        ),
        click.Option(
            ["-o", "--output"],
            type=click.Choice(FORMATS),
            expose_value=False,
            callback=_keep("form"),
            help="How to print. [default: table]",
        ),
        _switch("-q", "--quiet", help_text="Only results and errors."),
        _switch("-v", "--verbose", help_text="Tracebacks of errors."),
    ]


def _switch(*names: str, help_text: str) -> click.Option:
    field = names[-1].removeprefix("--")
    return click.Option(list(names), is_flag=True, default=None, expose_value=False, callback=_keep(field), help=help_text)


class _Command(click.Command):
    """A command with the common options and an example below its help."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", {"max_content_width": 110})
        super().__init__(*args, **kwargs)
        self.params = [*self.params, *common_options()]
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example as it is typed."""
        super().format_epilog(ctx, formatter)
        if self.example:
            with formatter.section("Example"):
                for line in self.example.strip().splitlines():
                    formatter.write(f"{' ' * formatter.current_indent}{line.strip()}\n")


def command(
    group: click.Group, name: str, *, example: str, params: Sequence[click.Parameter] = (), epilog: str | None = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """Add a function to a group as a command with the common options; its docstring's first paragraph is the help.

    Args:
        group: Where it belongs.
        name: The word that calls it.
        example: What a person would type; shown below the help.
        params: Options made elsewhere, such as those of a settings model.
        epilog: Paragraphs below the options.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        made: click.Command = click.command(name, cls=_Command, example=example, epilog=epilog)(function)
        common = len(common_options())
        made.params = [*made.params[:-common], *params, *made.params[-common:]]
        group.add_command(made)
        return made

    return decorate


def pass_invocation(function: Callable[..., R]) -> Callable[..., R]:
    """Give a command the `Invocation` as its first argument; the innermost decorator.

    Args:
        function: The command.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> R:
        return function(click.get_current_context().ensure_object(Invocation), *args, **kwargs)

    return wrapper
