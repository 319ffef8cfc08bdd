"""What a decorator refuses, and what it understands."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tailrace import App, InvalidOption, JobContext
from tailrace import JobContext as Context

if TYPE_CHECKING:
    from elsewhere import Resources  # type: ignore[import-not-found]


@pytest.fixture
def app() -> App:
    return App("q")


def context_second(event_id: int, ctx: JobContext[Any]) -> None: ...


def context_by_name(event_id: int, *, ctx: tailrace.JobContext[Any]) -> None: ...


def context_after_star(*, ctx: JobContext[Any], event_id: int) -> None: ...


def two_contexts(ctx: JobContext[Any], other: Context[Any]) -> None: ...


def any_arguments(*args: int) -> None: ...


def any_names(**kwargs: int) -> None: ...


def by_position(event_id: int, /) -> None: ...


def unannotated(event_id) -> None: ...


def anything(event_id: Any) -> None: ...


def an_object(event_id: object) -> None: ...


def generator(event_id: int) -> Iterator[int]:
    yield event_id


async def async_generator(event_id: int) -> AsyncIterator[int]:
    yield event_id


class Callable_:  # noqa: N801
    def __call__(self, event_id: int) -> None: ...


@pytest.mark.parametrize(
    ("fn", "problem"),
    [
        (context_second, "not the first"),
        (context_by_name, "not the first"),
        (context_after_star, "keyword-only"),
        (two_contexts, "not the first"),
        (any_arguments, "any arguments"),
        (any_names, "any names"),
        (by_position, "positional-only"),
        (unannotated, "no annotation"),
        (anything, "is Any"),
        (an_object, "is Any"),
        (generator, "plain or async function"),
        (async_generator, "plain or async function"),
        (Callable_(), "plain or async function"),
        (functools.partial(context_second, 1), "plain or async function"),
    ],
)
def test_a_signature_that_cannot_be_a_task_is_refused(app: App, fn: Callable[..., Any], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem) as refused:
        app.task(name="t")(fn)
    assert refused.value.field is not None
    assert refused.value.field.startswith("task t")
    assert not app.tasks


def test_the_context_is_the_first_parameter_or_absent(app: App) -> None:
    @app.task
    async def with_context(ctx: JobContext[Resources], event_id: int) -> None: ...

    @app.task
    def renamed(c: Context, event_id: int) -> None: ...

    @app.task
    def dotted(ctx: tailrace.JobContext[Any]) -> None: ...

    @app.task
    def without(*, event_id: int, note=None) -> None: ...

    assert [t.takes_context for t in app.tasks.values()] == [True, True, True, False]
    assert [list(t.spec.shape.parameters) for t in app.tasks.values()] == [["event_id"], ["event_id"], [], ["event_id", "note"]]
    assert with_context.is_async
    assert not without.is_async
    assert with_context.job(1).payload == {"event_id": 1}
    assert without.job(event_id=1, note=[2]).payload == {"event_id": 1, "note": [2]}


def test_annotations_need_no_future_import(app: App) -> None:
    namespace: dict[str, Any] = {"JobContext": JobContext}
    exec(compile("def f(ctx: JobContext, n: int) -> None: ...", "somewhere", "exec", dont_inherit=True), namespace)
    task = app.task(namespace["f"])
    assert task.takes_context
    assert task.job(n=1).payload == {"n": 1}
