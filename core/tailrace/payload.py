"""The payload of a task: from its signature to JSON and back.

A task's parameters become one typed dict for pydantic, built at first use, so annotations may be written as text and their
types imported for checkers only. The same adapter refuses a wrong payload in the producer and reads it in the worker.
Neighbours: `task` (owns one per task), `json_text` (what PostgreSQL accepts).
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import typing_extensions
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from tailrace.errors import InvalidOption, InvalidPayload
from tailrace.json_text import check, explain

_CONFIG: Final = ConfigDict(extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants", hide_input_in_errors=True)
_REQUIRED: Final = inspect.Parameter.empty


class PayloadShape:
    """Checks, writes and reads the payloads of one task.

    Args:
        task: the task's name, for messages.
        fn: the function whose globals resolve annotations.
        parameters: its parameters without the context.
    """

    def __init__(self, task: str, fn: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]) -> None:
        self.task = task
        self._fn = fn
        self.parameters = parameters
        self._positional = tuple(p.name for p in parameters.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY)

    @functools.cached_property
    def adapter(self) -> TypeAdapter[dict[str, Any]]:
        """The pydantic adapter; the first use resolves the annotations.

        Raises:
            InvalidOption: an annotation cannot be resolved, or pydantic knows no JSON for it.
        """
        fields = {
            name: self._annotation(parameter)
            if parameter.default is _REQUIRED
            else typing_extensions.NotRequired[self._annotation(parameter)]
            for name, parameter in self.parameters.items()
        }
        make_typed_dict: Any = typing_extensions.TypedDict
        shape = make_typed_dict(self.task, fields)
        shape.__pydantic_config__ = _CONFIG
        try:
            return TypeAdapter(shape)
        except PydanticUserError as problem:
            message = str(problem).partition("\n")[0]
            raise InvalidOption(message, field=f"task {self.task}", hint="annotate with types that pydantic knows") from problem

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of one enqueue, by parameter name; defaults that were not given stay away."""
        if not args:
            return kwargs
        if len(args) > len(self._positional):
            problem = f"{len(args)} positional arguments, takes at most {len(self._positional)}"
            raise InvalidPayload(problem, field=self.task, hint="pass them by name")
        values = dict(zip(self._positional, args, strict=False))
        for name in kwargs:
            if name in values:
                raise InvalidPayload("given twice, by position and by name", field=f"payload.{name}")
        values.update(kwargs)
        return values

    def text(self, values: dict[str, Any]) -> str:
        """JSON text of checked arguments.

        Raises:
            InvalidPayload: it does not fit the signature, or PostgreSQL cannot keep it; the field is the path.
        """
        checked = self._checked(values)
        try:
            raw = self.adapter.serializer.to_json(checked)
        except (ValueError, RecursionError, TypeError) as problem:
            raise explain(checked, root="payload", error=InvalidPayload, otherwise=problem) from None
        check(raw, checked)
        return raw.decode()

    def parse(self, raw: bytes | str) -> dict[str, Any]:
        """The arguments of one run, from the JSON text in the database.

        Raises:
            InvalidPayload: it does not fit the signature; the field is the path.
        """
        try:
            return cast("dict[str, Any]", self.adapter.validator.validate_json(raw))
        except ValidationError as problem:
            raise _invalid(problem) from None

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the payload, for producers in other languages."""
        return self.adapter.json_schema(mode="validation")

    def _checked(self, values: dict[str, Any]) -> dict[str, Any]:
        try:
            return cast("dict[str, Any]", self.adapter.validator.validate_python(values))
        except ValidationError as problem:
            raise _invalid(problem) from None
        except RecursionError as problem:
            raise explain(values, root="payload", error=InvalidPayload, otherwise=problem) from None

    def _annotation(self, parameter: inspect.Parameter) -> Any:
        if parameter.annotation is _REQUIRED:
            return Any
        holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
        try:
            return typing.get_type_hints(holder, globalns=self._fn.__globals__, include_extras=True)[parameter.name]
        except NameError as problem:
            raise InvalidOption(
                f"the annotation {parameter.annotation!r} names {problem.name!r}, which is not known at run time",
                field=f"task {self.task}, parameter {parameter.name}",
                hint="import the type at module level, outside `if TYPE_CHECKING`",
            ) from None


def _invalid(problem: ValidationError) -> InvalidPayload:
    """The first fault of a validation as one error; never the value, which may be a secret."""
    faults = problem.errors(include_url=False, include_context=False, include_input=False)
    first = faults[0]
    path = "payload" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
    message = {
        "missing": "is missing",
        "extra_forbidden": "is no parameter of the task",
        "string_unicode": "holds half of a surrogate pair, which is no character",
        "recursion_loop": "holds itself, or is nested too deeply",
    }.get(first["type"], first["msg"])
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return InvalidPayload(message + more, field=_clean(path))


def _clean(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
