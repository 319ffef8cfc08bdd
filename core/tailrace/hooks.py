"""Hooks: what an application hangs around the enqueues, the runs and the deaths of its jobs.

`App` inherits the words that register them. `enqueue.prepare` calls the enqueue hooks, a worker wraps each run by `around`
and tells of dead letters after their commit. Without hooks nobody pays for them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tailrace.enqueue.new_job import NewJob
from tailrace.errors import Conflict, InvalidOption
from tailrace.job import JobContext, Resources

if TYPE_CHECKING:
    from tailrace.dead_letters import DeadLetter

__all__ = ["Call", "DeadHook", "EnqueueHook", "Hooks", "Middleware", "around", "place"]


class Call(Protocol):
    """What a middleware wraps: the next middleware, in the end the handler. May be awaited once, or not at all."""

    async def __call__(self) -> object:
        """Run it.

        Returns:
            What the handler returned.

        Raises:
            Conflict: It has been called before.
        """


Middleware = Callable[[JobContext[Any], Call], Coroutine[Any, Any, object]]
"""Around each run."""

EnqueueHook = Callable[[NewJob], NewJob]
"""Before each insert."""

DeadHook = Callable[["DeadLetter"], Awaitable[None] | None]
"""After a job was moved to the dead letters."""

MiddlewareFn = TypeVar("MiddlewareFn", bound=Middleware)
EnqueueFn = TypeVar("EnqueueFn", bound=EnqueueHook)
DeadFn = TypeVar("DeadFn", bound=DeadHook)
AnyFn = TypeVar("AnyFn", bound=Callable[..., Any])


class Hooks:
    """The words that register hooks, each a decorator that returns its function as it is.

    Attributes:
        lifespan_factory: What a worker opens for its handlers, or None.
        middlewares: Around each run, outermost first.
        enqueue_hooks: Before each insert, in this order.
        dead_hooks: After each death, in this order.
    """

    lifespan_factory: Callable[[], AsyncIterator[Any]] | None = None
    middlewares: tuple[Middleware, ...] = ()
    enqueue_hooks: tuple[EnqueueHook, ...] = ()
    dead_hooks: tuple[DeadHook, ...] = ()

    def lifespan(self, fn: Callable[[], AsyncIterator[Resources]], /) -> Callable[[], AsyncIterator[Resources]]:
        """Register what a worker opens before its first claim and closes after its last job: an async generator.

        Args:
            fn: The function; what it yields is `ctx.resources`.

        Raises:
            InvalidOption: It is no async generator function, or the application has one.
        """
        if not inspect.isasyncgenfunction(fn):
            raise InvalidOption("must be an async generator function", field="lifespan", hint="async def with one yield")
        if self.lifespan_factory is not None and place(self.lifespan_factory) != place(fn):
            raise InvalidOption("is registered already", field="lifespan", hint="Open all resources in one function")
        self.lifespan_factory = fn
        return fn

    def middleware(self, fn: MiddlewareFn, /) -> MiddlewareFn:
        """Register what goes around each run, of sync handlers too; the first registered is the outermost.

        It runs on the worker's event loop, within the job's timeout. What it raises ends the run as if the handler had raised
        it; if it returns without calling, the job has succeeded.

        Args:
            fn: An async function of the context and the call; it returns what the call returned.

        Raises:
            InvalidOption: It is no async function of two parameters.
        """
        if not inspect.iscoroutinefunction(fn):
            raise InvalidOption("must be an async function", field="middleware", hint="async def f(ctx, call)")
        _check_parameters(fn, 2, field="middleware", hint="async def f(ctx, call)")
        self.middlewares = _with(self.middlewares, fn)
        return fn

    def on_enqueue(self, fn: EnqueueFn, /) -> EnqueueFn:
        """Register what may change, or refuse by raising, each job that this application enqueues, before anything is sent.

        Args:
            fn: A plain function from job to job; a job is changed by `dataclasses.replace`.

        Raises:
            InvalidOption: It is no plain function of one parameter.
        """
        if inspect.iscoroutinefunction(fn):
            hint = "It runs within enqueue, which never touches an event loop"
            raise InvalidOption("must be a plain function", field="on_enqueue", hint=hint)
        _check_parameters(fn, 1, field="on_enqueue", hint="def f(job): return job")
        self.enqueue_hooks = _with(self.enqueue_hooks, fn)
        return fn

    def on_dead(self, fn: DeadFn, /) -> DeadFn:
        """Register what is told in the worker when one of its jobs was moved to the dead letters: after the commit, at most once.

        Not called for jobs of workers that died: metrics and alerts count all. What it raises is logged and counted, and changes
        nothing.

        Args:
            fn: A function of the dead letter, async or plain; a plain one runs in a thread.

        Raises:
            InvalidOption: It is no function of one parameter.
        """
        _check_parameters(fn, 1, field="on_dead", hint="async def f(dead)")
        self.dead_hooks = _with(self.dead_hooks, fn)
        return fn


def around(middlewares: Sequence[Middleware], ctx: JobContext[Any], handler: Callable[[], Awaitable[object]]) -> Call:
    """Put middlewares around one run.

    Args:
        middlewares: Outermost first.
        ctx: The run's context, the same for all of them.
        handler: Runs the handler.
    """
    link = _Link(handler)
    for middleware in reversed(middlewares):
        link = _Link(functools.partial(middleware, ctx, link), inner=link)
    return link


class _Link:
    """One call of the chain: at most once, and awaited to its end if it was made at all."""

    __slots__ = ("_called", "_ended", "_inner", "_run")

    def __init__(self, run: Callable[[], Awaitable[object]], *, inner: _Link | None = None) -> None:
        self._run, self._inner = run, inner
        self._called = self._ended = False

    def __call__(self) -> Coroutine[Any, Any, object]:
        if self._called:
            raise Conflict(
                "the handler was called before in this run", field="call", hint="Raise RetryAfter to run the job again"
            )
        self._called = True
        return self._go()

    async def _go(self) -> object:
        try:
            result = await self._run()
        finally:
            self._ended = True
        if self._inner is not None and self._inner._called and not self._inner._ended:
            # a forgotten await: without this the job would count as done
            raise Conflict("the middleware returned before its call had ended", field="call", hint="Write: return await call()")
        return result


def place(fn: Callable[..., Any]) -> tuple[str, str]:
    """Where a function stands: a module that is imported again, or a cell that is run again, replaces what it registered.

    Args:
        fn: The function.

    Returns:
        Its module and its name therein.
    """
    return getattr(fn, "__module__", ""), getattr(fn, "__qualname__", repr(fn))


def _with(known: tuple[AnyFn, ...], fn: AnyFn) -> tuple[AnyFn, ...]:
    for number, one in enumerate(known):
        if one is fn or _again(one, fn):
            return (*known[:number], fn, *known[number + 1 :])
    return (*known, fn)


def _again(one: Callable[..., Any], fn: Callable[..., Any]) -> bool:
    """Whether one is the former self of the other. Of local functions and of `_` there can be several with one name."""
    name = place(fn)[1]
    return name != "_" and "<" not in name and place(one) == place(fn)


def _check_parameters(fn: Callable[..., Any], count: int, *, field: str, hint: str) -> None:
    if not callable(fn):
        raise InvalidOption(f"must be a function, not {type(fn).__name__}", field=field, hint=hint)
    try:
        inspect.signature(fn).bind(*[None] * count)
    except TypeError:
        raise InvalidOption(f"must take {count} positional parameter{'s' * (count > 1)}", field=field, hint=hint) from None
    except ValueError:  # builtins do not tell
        return
