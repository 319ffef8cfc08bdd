"""Templates of keys and groups: `resize-{path}` over the payload, without anything that runs code.

Only names of parameters may stand in braces: no attributes, no indexes, no formats. Neighbours: `task` (the options
`key` and `serial_group`).
"""

from __future__ import annotations

import inspect
import json
import string
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from tailrace.errors import InvalidOption


class KeyTemplate:
    """A template, read once.

    Args:
        template: Text with names of parameters in braces; doubled braces are plain ones.
        parameters: The task's parameters without the context.
        field: The option it is the value of.

    Raises:
        InvalidOption: It is no text, or names something that is no parameter.
    """

    def __init__(self, template: object, parameters: Mapping[str, inspect.Parameter], *, field: str = "key") -> None:
        if not isinstance(template, str) or not template:
            raise InvalidOption("must be a template of text", field=field, hint="Such as 'resize-{path}'")
        self.template, self.field = template, field
        self._parts = _parts(template, parameters, field)
        self._defaults = {name: p.default for name, p in parameters.items() if p.default is not inspect.Parameter.empty}

    def render(self, payload: Mapping[str, Any]) -> str:
        """Return the key or group of a payload.

        Text stands in it as it is, everything else as JSON; a parameter that was left out as its default.

        Args:
            payload: The checked payload as plain JSON values.
        """
        return "".join(text if name is None else text + self._value(payload, name) for text, name in self._parts)

    def _value(self, payload: Mapping[str, Any], name: str) -> str:
        value = payload[name] if name in payload else self._default(name)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    def _default(self, name: str) -> Any:
        try:
            return to_jsonable_python(self._defaults[name])
        except PydanticSerializationError:
            raise InvalidOption(
                f"the default of {name} is no JSON", field=self.field, hint=f"Pass {name} with each enqueue"
            ) from None


def _parts(template: str, parameters: Mapping[str, inspect.Parameter], field: str) -> list[tuple[str, str | None]]:
    try:
        fields = list(string.Formatter().parse(template))
    except ValueError as problem:
        raise InvalidOption(f"is no template: {problem}", field=field, hint="Double a brace that is meant as it is") from None
    parts: list[tuple[str, str | None]] = []
    for text, name, form, conversion in fields:
        if name is not None and (form or conversion or name not in parameters):
            known = ", ".join(parameters) or "none"
            raise InvalidOption(f"{{{name}}} is no parameter of the task", field=field, hint=f"Parameters: {known}; no formats")
        parts.append((text, name))
    return parts
