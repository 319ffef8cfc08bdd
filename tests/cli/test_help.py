"""`--help` of each command: an example, the common options, and every setting with default, unit and variable."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from tailrace.settings import WorkerSettings, describe
from tailrace_cli.main import tailrace


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command with the words that call it."""

    def walk(group: click.Group, words: str) -> Iterator[tuple[str, click.Command]]:
        context = click.Context(group)
        for name in group.list_commands(context):
            found = group.get_command(context, name)
            assert found is not None
            if isinstance(found, click.Group):
                yield from walk(found, f"{words} {name}")
            else:
                yield f"{words} {name}".strip(), found

    yield from walk(tailrace, "")


def help_of(words: str, command: click.Command) -> str:
    """The help as a wide terminal shows it."""
    return command.get_help(click.Context(command, info_name=f"tailrace {words}", terminal_width=110))


@pytest.mark.parametrize(("words", "command"), [pytest.param(*pair, id=pair[0]) for pair in commands()])
def test_help_has_an_example_and_the_common_options(words: str, command: click.Command) -> None:
    text = help_of(words, command)
    name = words.replace("dlq", "dead-letters")
    assert f"tailrace {name}" in text.split("Example")[1]
    for option in ("--database-url", "--schema", "-o, --output", "-q, --quiet", "-v, --verbose"):
        assert option in text
    assert command.help, "it says what it does"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{words} {parameter.name} says nothing"


def test_every_setting_of_the_worker_is_told() -> None:
    command = dict(commands())["worker"]
    text = " ".join(help_of("worker", command).split())
    for info in describe(WorkerSettings):
        assert info.variable in text
        if info.field not in ("schema_name", "database_url") and not info.secret:
            assert f"[default: {f'{info.default} {info.unit}'.strip()}; {info.variable}]" in text


def test_secrets_have_no_flag_of_their_own() -> None:
    options = {name for parameter in dict(commands())["worker"].params for name in parameter.opts}
    assert "--direct-database-url" not in options


def test_what_changes_several_rows_can_be_tried_and_answered() -> None:
    changing = ("jobs cancel", "jobs run-now", "jobs reschedule", "jobs update", "queues hold", "queues resume", "queues purge",
                "queues apply", "leases release", "dead-letters requeue")  # fmt: skip
    found = dict(commands())
    for words in changing:
        options = {name for parameter in found[words].params for name in parameter.opts}
        assert {"--yes", "--dry-run"} <= options, words
