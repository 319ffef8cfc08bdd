"""Hooks: what can be registered, and the chain of middlewares around one run."""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tailrace import App, Call, Conflict, InvalidOption, Job, JobContext, NewJob
from tailrace.hooks import Middleware, around

NOW = datetime.now(UTC)


async def coroutine(first: Any, second: Any) -> object: ...


async def generator(first: Any, second: Any) -> AsyncIterator[int]:
    yield 1


def plain(first: Any) -> Any: ...


@pytest.mark.parametrize(
    ("word", "value", "problem"),
    [
        ("middleware", plain, "async function"),
        ("middleware", generator, "async function"),
        ("middleware", lambda ctx, call: call(), "async function"),
        ("middleware", functools.partial(coroutine, 1), "2 positional parameters"),
        ("middleware", 5, "async function"),
        ("on_enqueue", functools.partial(coroutine, 1), "plain function"),
        ("on_enqueue", lambda: None, "1 positional parameter"),
        ("on_enqueue", lambda *, job: job, "1 positional parameter"),
        ("on_enqueue", 5, "must be a function, not int"),
        ("on_dead", coroutine, "1 positional parameter"),
        ("on_dead", lambda: None, "1 positional parameter"),
        ("on_dead", "page", "must be a function, not str"),
    ],
)
def test_what_is_no_hook_is_refused_when_it_is_registered(word: str, value: Any, problem: str) -> None:
    app = App("q")
    with pytest.raises(InvalidOption, match=problem) as refused:
        getattr(app, word)(value)
    assert refused.value.field == word
    assert refused.value.hint
    assert [*app.middlewares, *app.enqueue_hooks, *app.dead_hooks] == []


def test_hooks_keep_their_order_and_belong_to_one_application() -> None:
    app, other = App("q"), App("q")

    @app.on_enqueue
    def first(job: NewJob) -> NewJob:
        return job

    def made(name: str) -> Any:
        def second(job: NewJob) -> NewJob:
            return job

        return second

    hooks = [app.on_enqueue(made(name)) for name in ("a", "b")]
    app.on_enqueue(first)
    assert app.enqueue_hooks == (first, *hooks)  # two functions that share a name are two
    assert app.middleware(coroutine) is coroutine
    assert app.on_dead(plain) is plain
    assert (app.middlewares, app.dead_hooks) == ((coroutine,), (plain,))
    assert [*other.middlewares, *other.enqueue_hooks, *other.dead_hooks] == []


def test_a_module_that_is_imported_again_registers_nothing_twice() -> None:
    app = App("q")
    for _ in range(2):
        space: dict[str, Any] = {"app": app, "__name__": "shop"}
        exec("@app.on_dead\ndef page(dead): ...\n@app.on_dead\ndef _(dead): ...\n@app.on_dead\ndef _(dead): ...\n", space)
    assert app.dead_hooks[0] is space["page"]
    assert [hook.__name__ for hook in app.dead_hooks[:3]] == ["page", "_", "_"]


# ---- the chain -------------------------------------------------------------------------------------------------------
def context() -> JobContext[Any]:
    return JobContext(resources=None, job=Job(id=1, queue="q", task="t", created_at=NOW, run_at=NOW))


class Trace:
    """Middlewares that note what they do, and a handler."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.seen: list[str] = []
        self.contexts: list[JobContext[Any]] = []

    def middleware(self, name: str) -> Middleware:
        """Return one that notes and passes on."""

        async def noting(ctx: JobContext[Any], call: Call) -> object:
            self.contexts.append(ctx)
            self.seen.append(f"{name} before")
            try:
                return f"{name}({await call()})"
            finally:
                self.seen.append(f"{name} after")

        return noting

    async def handler(self) -> object:
        """Return something."""
        self.seen.append("handler")
        await asyncio.sleep(0)
        return "done"


async def test_the_first_registered_is_the_outermost() -> None:
    trace, ctx = Trace(), context()
    assert await around([trace.middleware("a"), trace.middleware("b")], ctx, trace.handler)() == "a(b(done))"
    assert trace.seen == ["a before", "b before", "handler", "b after", "a after"]
    assert trace.contexts == [ctx, ctx]


async def test_one_may_answer_without_calling() -> None:
    trace = Trace()

    async def cached(ctx: JobContext[Any], call: Call) -> object:
        return "cached"

    assert await around([trace.middleware("a"), cached, trace.middleware("b")], context(), trace.handler)() == "a(cached)"
    assert trace.seen == ["a before", "a after"]


async def test_an_error_goes_outwards_and_may_be_replaced() -> None:
    trace = Trace()

    async def failing() -> object:
        raise KeyError("k")

    async def translating(ctx: JobContext[Any], call: Call) -> object:
        try:
            return await call()
        except KeyError as error:
            raise ValueError("v") from error

    with pytest.raises(ValueError, match="v"):
        await around([trace.middleware("a"), translating], context(), failing)()
    assert trace.seen == ["a before", "a after"]


async def test_the_handler_runs_at_most_once_in_a_run() -> None:
    """An attempt is one run: a second call is refused, not a second delivery."""
    trace = Trace()

    async def stubborn(ctx: JobContext[Any], call: Call) -> object:
        await call()
        return await call()

    with pytest.raises(Conflict, match="before in this run"):
        await around([stubborn], context(), trace.handler)()
    assert trace.seen == ["handler"]


@pytest.mark.parametrize("how", ["returned", "dropped", "in a task"])
async def test_a_forgotten_await_is_no_success(how: str) -> None:
    trace = Trace()

    async def forgetful(ctx: JobContext[Any], call: Call) -> object:
        if how == "in a task":
            task = asyncio.create_task(call())
            task.add_done_callback(lambda _: None)
            return None
        made = call()
        return made if how == "returned" else None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a coroutine that was never awaited
        with pytest.raises(Conflict, match="return await call"):
            await around([trace.middleware("a"), forgetful], context(), trace.handler)()
    assert trace.seen[:2] == ["a before", "a after"]
