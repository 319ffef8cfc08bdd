"""`tailrace dead-letters requeue|resolve|delete|note|add`: given ones one by one, or all of a filter batch by batch."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from tailrace.admin import AdminUsing
from tailrace.dead_letters import ERROR_TYPES
from tailrace.errors import InvalidOption
from tailrace.jobs import Change
from tailrace_cli.arguments import DURATION, ID, JSON_OBJECT, NAME, TIME, read_ids, read_text
from tailrace_cli.dead_letter_bulk import Bulk, bulk_options
from tailrace_cli.dead_letter_filters import filter_options, json_or_text, read_filter
from tailrace_cli.invocation import Invocation, command, pass_invocation
from tailrace_cli.listing import change_each
from tailrace_cli.output import Column

__all__ = ["add_to"]

_PAST = {"requeue": "requeued", "resolve": "resolved", "delete": "deleted", "note": "noted"}
_note_option = click.option("--note", type=NAME, help="Append this note.")
_ids_argument = click.argument("ids", metavar="[ID]...", type=ID, nargs=-1)


def add_to(group: click.Group) -> None:
    """Add the commands to the group of dead letters."""
    command(
        group,
        "requeue",
        example="tailrace dead-letters requeue 42\n"
        "tailrace dead-letters list -o name | tailrace dead-letters requeue -\n"
        "tailrace dead-letters requeue --queue webhooks --error-type network --throttle 50\n"
        "tailrace dead-letters requeue 42 --set customer.id=7",
    )(requeue)
    command(group, "resolve", example="tailrace dead-letters resolve 42 --resolution 'paid by hand'")(resolve)
    command(group, "delete", example="tailrace dead-letters delete --task deliver --failed-before 30d --dry-run")(delete)
    command(
        group, "note", example="tailrace dead-letters note 42 'asked the customer'\ntailrace dead-letters note --task t 'bug 7'"
    )(note)
    command(
        group, "add", example="""tailrace dead-letters add webhooks deliver '{"event_id": 1}' --error 'lost by the old system'"""
    )(add)


@_ids_argument
@filter_options
@bulk_options
@click.option("--force", is_flag=True, help="Replace a waiting job that holds the same key; it is lost but for its payload.")
@click.option("--delay", type=DURATION, help="Due that much later, such as 10m.")
@click.option("--run-at", type=TIME, help="Due then.")
@click.option(
    "--set",
    "edits",
    type=NAME,
    multiple=True,
    metavar="PATH=VALUE",
    help="Repair the payload: a value, as JSON or text, at a path such as customer.id. Can be repeated.",
)
@click.option("--payload-file", metavar="FILE", help="Repair the payload: all of it, from a JSON file; - reads stdin.")
@_note_option
@pass_invocation
def requeue(
    invocation: Invocation,
    *,
    ids: tuple[int | str, ...],
    edits: tuple[str, ...],
    payload_file: str | None,
    **given: Any,
) -> int:
    """Put jobs back under their ids, with attempts anew.

    Give ids, or filters, or --all. With filters the set is fixed at the beginning: what dies again meanwhile is left alone.
    Ctrl-C stops after the batch at hand, and the same command goes on from there.
    """
    how = _given(given, "force", "delay", "run_at", "note")
    if edits:
        how["set"] = dict(_edit(text) for text in edits)
    if payload_file is not None:
        how["payload"] = _payload(payload_file)
    return _change(invocation, "requeue", ids, how, given, ask=bool(how.get("force")))


@_ids_argument
@filter_options
@bulk_options
@click.option("--resolution", type=NAME, help="How it was dealt with. [default: by hand]")
@_note_option
@pass_invocation
def resolve(invocation: Invocation, *, ids: tuple[int | str, ...], **given: Any) -> int:
    """Say that dead letters are dealt with; they are kept until retention.

    Give ids, or filters, or --all.
    """
    return _change(invocation, "resolve", ids, _given(given, "resolution", "note"), given, ask=False)


@_ids_argument
@filter_options
@bulk_options
@pass_invocation
def delete(invocation: Invocation, *, ids: tuple[int | str, ...], **given: Any) -> int:
    """Delete dead letters for good.

    Give ids, or filters, or --all. Those whose jobs live are kept.
    """
    return _change(invocation, "delete", ids, {}, given, ask=True)


@click.argument("words", metavar="[ID]... NOTE", nargs=-1, required=True, type=NAME)
@filter_options
@bulk_options
@pass_invocation
def note(invocation: Invocation, *, words: tuple[str, ...], **given: Any) -> int:
    """Append a note, with its time and your database user.

    Give ids and then the note, or filters or --all and the note.
    """
    ids = tuple(ID.convert(word, None, None) for word in words[:-1])
    return _change(invocation, "note", ids, {"note": words[-1]}, given, ask=False)


@click.argument("queue", type=NAME)
@click.argument("task", type=NAME)
@click.argument("payload", type=JSON_OBJECT, metavar="JSON")
@click.option("--error", type=NAME, help="What went wrong, as text or as a JSON object with type and message.")
@click.option("--error-type", type=click.Choice(ERROR_TYPES), help="The kind of the error.")
@click.option("--attempts", type=int, help="Runs it has had. [default: 0]")
@click.option("--key", type=NAME, help="Its key; a dead letter of the same key is superseded.")
@click.option("--tenant", type=NAME, help="Whose it is.")
@click.option("--serial-group", type=NAME, help="Its group.")
@click.option("--priority", type=int, help="Its priority.")
@click.option("--max-attempts", type=int, help="Its limit of runs.")
@_note_option
@pass_invocation
def add(invocation: Invocation, *, queue: str, task: str, payload: dict[str, Any], error: str | None, **options: Any) -> None:
    """Add a dead letter by hand, such as one that another system kept."""
    told = {name: value for name, value in options.items() if value is not None}
    if error is not None:
        found = json_or_text(error)
        told["error"] = found if isinstance(found, dict) else error
    ident = invocation.administer(lambda admin: admin.dead_letters.add(queue, task, payload, **told))
    row = {"job_id": ident, "outcome": "added"}
    invocation.show_list([row], columns=[Column("job_id", right=True), Column("outcome")], key="job_id", empty="")


def _change(
    invocation: Invocation,
    verb: str,
    ids: tuple[int | str, ...],
    how: dict[str, Any],
    given: dict[str, Any],
    *,
    ask: bool,
) -> int:
    which = read_filter(given)
    bulk = Bulk(verb, which, how, **given)
    if not ids:
        return bulk.carry_out(invocation)
    bulk.refuse_beside_ids()
    chosen = read_ids(ids)
    if bulk.dry_run:
        return change_each(invocation, chosen, lambda admin, one: _would(admin, verb, one))
    if ask:
        more = " and replaces waiting ones that hold their keys" if verb == "requeue" else " for good"
        invocation.confirm(f"This {verb}s {len(chosen)} dead letters{more}", yes=bulk.yes)
    return change_each(invocation, chosen, lambda admin, one: getattr(admin.dead_letters, verb)(one, **how))


def _would(admin: AdminUsing, verb: str, job_id: int) -> Change:
    state = admin.dead_letters.get(job_id).state
    fit = verb == "note" or state == "dead" or (verb == "delete" and state == "resolved")
    return Change(job_id, f"would be {_PAST[verb]}" if fit else f"is {state}: would be refused")


def _given(given: dict[str, Any], *names: str) -> dict[str, Any]:
    """Take options out that were given; a flag that was not set counts as not given."""
    values = {name: given.pop(name) for name in names}
    return {name: value for name, value in values.items() if isinstance(value, str | datetime | timedelta) or value is True}


def _edit(text: str) -> tuple[str, Any]:
    path, sign, value = text.partition("=")
    if not path or not sign:
        raise click.UsageError(f"--set {text!r}: write PATH=VALUE, such as customer.id=7")
    return path, json_or_text(value)


def _payload(name: str) -> dict[str, Any]:
    try:
        text = read_text() if name == "-" else Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidOption(f"{name} cannot be read: {error.strerror}", field="payload_file", hint="check its path") from None
    except UnicodeDecodeError:
        raise InvalidOption(f"{name} is not UTF-8", field="payload_file", hint="save it as UTF-8") from None
    found = JSON_OBJECT.convert(text, None, None)
    assert isinstance(found, dict)
    return found
