"""What a task's function says by its signature: the context, and the parameters that are the payload.

Read at decoration, when annotations may still be text and types imported for checkers only; so what is certain by then is
refused here, and the rest when `payload` resolves the annotations at first use. Neighbours: `task`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_origin

from tailrace.errors import InvalidOption
from tailrace.job import JobContext

_EMPTY: Final = inspect.Parameter.empty
_HEAD: Final = re.compile(r"\s*([\w.]+)\s*(?:\[.*\])?\s*\Z", re.DOTALL)
_ANY: Final = frozenset({"Any", "typing.Any", "typing_extensions.Any", "t.Any", "object"})
_KINDS: Final = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, but a payload is passed by name",
    inspect.Parameter.VAR_POSITIONAL: "takes any arguments, but a payload has names",
    inspect.Parameter.VAR_KEYWORD: "takes any names, so a wrong one could not be refused",
}


@dataclass(frozen=True, slots=True)
class Signature:
    """What was read.

    Attributes:
        is_async: Whether the function is a coroutine function.
        takes_context: Whether its first parameter is the context.
        parameters: The others, by name.
    """

    is_async: bool
    takes_context: bool
    parameters: Mapping[str, inspect.Parameter]


def read_signature(fn: Callable[..., Any], *, task: str) -> Signature:
    """Read a task's function.

    Args:
        fn: A plain or coroutine function.
        task: The task's name, for messages.

    Raises:
        InvalidOption: It is no such function; the context is not first; a parameter is `*args`, `**kwargs` or
            positional-only; the first one has no annotation or `Any`.
    """
    if not inspect.isfunction(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise InvalidOption("must be a plain or async function", field=f"task {task}", hint="Decorate a def or async def")
    parameters = list(inspect.signature(fn).parameters.values())
    for parameter in parameters:
        if parameter.kind in _KINDS:
            raise _refused(task, parameter, _KINDS[parameter.kind], "Name each parameter")
    takes_context = bool(parameters) and _is_context(parameters[0], fn)
    if takes_context and parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise _refused(task, parameters[0], "is the context, but keyword-only", "Put the context first, before any *")
    if parameters and not takes_context:
        _check_first(parameters[0], fn, task)
    for parameter in parameters[1:]:
        if _is_context(parameter, fn):
            raise _refused(task, parameter, "is the context, but not the first parameter", "Put the context first")
    payload = parameters[1:] if takes_context else parameters
    return Signature(
        is_async=inspect.iscoroutinefunction(fn), takes_context=takes_context, parameters={p.name: p for p in payload}
    )


def _check_first(parameter: inspect.Parameter, fn: Callable[..., Any], task: str) -> None:
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
        return  # a checker cannot take it for the context
    annotation = parameter.annotation
    if annotation is _EMPTY:
        raise _refused(task, parameter, "has no annotation, so type checkers take it for the context", "Annotate it")
    if annotation in (Any, object) or (isinstance(annotation, str) and annotation.strip() in _ANY):
        raise _refused(task, parameter, "is Any, so type checkers take it for the context", "Annotate it with its type")


def _is_context(parameter: inspect.Parameter, fn: Callable[..., Any]) -> bool:
    annotation = parameter.annotation
    if isinstance(annotation, str):
        return _names_context(annotation, fn)
    kind = get_origin(annotation) or annotation
    return isinstance(kind, type) and issubclass(kind, JobContext)


def _names_context(annotation: str, fn: Callable[..., Any]) -> bool:
    """Whether annotation text means the context, though its name may not exist at run time."""
    match = _HEAD.match(annotation)
    if match is None:
        return False
    first, *rest = match[1].split(".")
    found: Any = inspect.unwrap(fn).__globals__.get(first)
    for name in rest:
        found = getattr(found, name, None)
    if found is not None:
        kind = get_origin(found) or found
        return isinstance(kind, type) and issubclass(kind, JobContext)
    return (rest or [first])[-1] == JobContext.__name__


def _refused(task: str, parameter: inspect.Parameter, problem: str, hint: str) -> InvalidOption:
    return InvalidOption(problem, field=f"task {task}, parameter {parameter.name}", hint=hint)
