"""Options made from a settings model: one flag a field, with its description, default, unit and variable.

So `--help` cannot forget a setting. A flag is handed on as text and checked by the model, which names what is wrong.
Secrets get no flag, since other users of the machine see the arguments of a process.
"""

from __future__ import annotations

from collections.abc import Collection

import click

from tailrace.settings import LayeredSettings, SettingInfo, describe

__all__ = ["given_flags", "secret_notes", "settings_options"]

_COMMON = frozenset({"database_url", "schema_name"})
_FLAGS = {"queues": "--queue", "watch_namespaces": "--namespace", "allowed_database_hosts": "--allowed-database-host"}
"""Fields that hold several values: each has a flag that may be given again."""
_METAVARS = {"queues": "NAME[=SLOTS]", "watch_namespaces": "NAME", "allowed_database_hosts": "HOST"}
_SWITCHES = frozenset({"notify"})


def settings_options(model: type[LayeredSettings], *, without: Collection[str] = ()) -> list[click.Parameter]:
    """Return an option for each field that is neither secret nor a common option.

    Args:
        model: The settings.
        without: Fields to leave out.
    """
    return [
        _option(info) for info in describe(model) if not info.secret and info.field not in _COMMON and info.field not in without
    ]


def secret_notes(model: type[LayeredSettings]) -> str:
    """Return a paragraph about the settings that have no flag.

    Args:
        model: The settings.
    """
    names = [f"{info.variable}: {info.description}" for info in describe(model) if info.secret]
    return "Without a flag, since arguments of a process can be seen by others:\n\n" + "\n\n".join(names)


def given_flags(values: dict[str, object]) -> dict[str, object]:
    """Return the flags that were given, by field name.

    Args:
        values: What click parsed.
    """
    return {name: value for name, value in values.items() if value not in (None, ())}


def _option(info: SettingInfo) -> click.Option:
    flag = _FLAGS.get(info.field, "--" + info.field.replace("_", "-"))
    default = f"{info.default} {info.unit}".strip()
    help_text = f"{info.description} [default: {default}; {info.variable}]"
    if info.field in _SWITCHES:
        return click.Option([f"{flag}/--no-{flag[2:]}", info.field], default=None, help=help_text)
    metavar = _METAVARS.get(info.field, "SECONDS" if info.unit == "s" else "VALUE")
    return click.Option([flag, info.field], metavar=metavar, multiple=info.field in _FLAGS, default=None, help=help_text)
