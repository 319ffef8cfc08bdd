"""The application: its queue, its tasks and where its database is. Making one opens nothing.

Producers import it and type the words of its tasks; the worker loads it, imports the modules it names and runs its tasks.
Neighbours: `task`, `hooks`, `settings`, `using`, `admin`.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from tailrace import db
from tailrace.enqueue.connections import AsyncConnection, SyncConnection, is_async
from tailrace.enqueue.options import NOT_YET, QUEUE_BYTES, check_text
from tailrace.enqueue.senders import AsyncSender, SyncSender
from tailrace.enqueue.words import AsyncMany, SyncMany
from tailrace.errors import InvalidOption, UnknownApp
from tailrace.hooks import Hooks, place
from tailrace.job import JobContext
from tailrace.policy import GroupOrder, OnDuplicate, RetryPolicy
from tailrace.schedules.declared import Crons
from tailrace.settings import AppSettings, ProducerSettings, checked_arguments
from tailrace.task import OnError, Task, TaskDecorator, TaskSpec
from tailrace.using import AppUsing, AsyncAppUsing

if TYPE_CHECKING:
    from tailrace.admin import Admin
    from tailrace.dead_letters import DeadLetters
    from tailrace.jobs import Jobs
    from tailrace.leases import Leases
    from tailrace.queues import Queues
    from tailrace.schedules.words import Schedules
    from tailrace.workers import Workers

P = ParamSpec("P")
R = TypeVar("R")


class App(Hooks, Crons, SyncMany, AsyncMany):
    """An application.

    Args:
        queue: The queue of tasks that name no other.
        imports: Modules with handlers; only the worker imports them.
        settings: See `AppSettings`; environment, flags and files win over them.

    Raises:
        InvalidOption: The queue's name is wrong, or a setting is unknown.
    """

    def __init__(self, queue: str, *, imports: Sequence[str] = (), **settings: Unpack[AppSettings]) -> None:
        super().__init__(self, None)
        self.queue = check_text(queue, field="queue", most=QUEUE_BYTES)
        if isinstance(imports, str) or not all(isinstance(name, str) for name in imports):
            raise InvalidOption("must be a list of module names", field="imports", hint="Such as ('shop.handlers',)")
        self.imports = tuple(imports)
        self.arguments: Mapping[str, Any] = MappingProxyType(checked_arguments(settings))
        self._tasks: dict[str, Task[..., Any]] = {}
        self._loaded = not self.imports

    # ---- tasks -------------------------------------------------------------------------------------------------------
    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The tasks by name, as far as their modules have been imported."""
        return MappingProxyType(self._tasks)

    @property
    def complete(self) -> bool:
        """Whether all modules with tasks have been imported."""
        return self._loaded

    @overload
    def task(self, fn: Callable[Concatenate[JobContext[Any], P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[Concatenate[JobContext[Any], P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str = ...,
        queue: str = ...,
        timeout: float | timedelta = ...,
        priority: int = ...,
        retry: RetryPolicy = ...,
        no_retry: type[BaseException] | tuple[type[BaseException], ...] = ...,
        on_error: OnError = ...,
        key: str = ...,
        on_duplicate: OnDuplicate = ...,
        serial_group: str = ...,
        group_order: GroupOrder = ...,
        keep_result: float | timedelta = ...,
    ) -> TaskDecorator: ...
    def task(self, *fn: Callable[..., Any], **options: Any) -> Any:
        """Make a task of a function: `@app.task` or `@app.task(timeout=30, ...)`.

        The first parameter annotated `JobContext` is the context; the others, by name, are the payload.

        Args:
            fn: The function, when the decorator has no options.
            options: name (default: the function's), queue, timeout (seconds, 0 = none), priority, retry, no_retry
                (exception classes), on_error, on_duplicate, key and serial_group (templates over the payload), group_order, and
                keep_result (seconds that what it returns is kept, for `app.jobs.get_result`).

        Raises:
            InvalidOption: An option, the name or the signature is wrong; it says which.
        """
        if fn:
            return self._add(fn[0], options)
        return functools.partial(self._add, options=options)

    def _add(self, fn: Callable[..., Any], options: Mapping[str, Any]) -> Task[..., Any]:
        task: Task[..., Any] = Task(TaskSpec(fn, queue=self.queue, options=options), self)
        known = self._tasks.get(task.name)
        if known is not None and place(known.fn) != place(fn):
            taken = f"{task.name!r} is taken by {'.'.join(place(known.fn))}"
            raise InvalidOption(taken, field="name", hint="Give one of the two another name")
        self._tasks[task.name] = task
        return task

    def load(self) -> None:
        """Import the modules of `imports`; the worker does, once.

        Raises:
            UnknownApp: There is no such module.
        """
        if self._loaded:
            return
        for name in self.imports:
            _import(name, field="imports")
        self._loaded = True

    # ---- enqueue and look --------------------------------------------------------------------------------------------
    @overload
    def using(self, conn: SyncConnection, /) -> AppUsing: ...
    @overload
    def using(self, conn: AsyncConnection, /) -> AsyncAppUsing: ...
    def using(self, conn: Any, /) -> AppUsing | AsyncAppUsing:
        """Return the application's words in the caller's transaction.

        Args:
            conn: A psycopg connection, else `InvalidOption`; it is never committed, rolled back or closed here.
        """
        return AsyncAppUsing(self, conn) if is_async(conn) else AppUsing(self, conn)

    def sync_sender(self, conn: db.Connection | None) -> SyncSender:
        """Return the driver of the words that wait, on a connection or on the pool."""
        return SyncSender(self.database, self.settings.namespace, conn)

    def async_sender(self, conn: db.AsyncConnection | None) -> AsyncSender:
        """Return the driver of the words that are awaited, on a connection or on the loop's pool."""
        return AsyncSender(self.database, self.settings.namespace, conn)

    @functools.cached_property
    def _admin(self) -> Admin:
        # only programs that administrate pay for the import
        from tailrace.admin import Admin

        return Admin(self.database, self.settings.namespace)

    @property
    def jobs(self) -> Jobs:
        """Live jobs."""
        return self._admin.jobs

    @property
    def dead_letters(self) -> DeadLetters:
        """Jobs that cannot go on."""
        return self._admin.dead_letters

    @property
    def queues(self) -> Queues:
        """Queues and their settings."""
        return self._admin.queues

    @property
    def schedules(self) -> Schedules:
        """What fires when."""
        return self._admin.schedules

    @property
    def leases(self) -> Leases:
        """Who runs what."""
        return self._admin.leases

    @property
    def workers(self) -> Workers:
        """Processes."""
        return self._admin.workers

    # ---- where -------------------------------------------------------------------------------------------------------
    @functools.cached_property
    def settings(self) -> ProducerSettings:
        """The settings, read at first use."""
        return ProducerSettings.load(app=self.arguments)

    @functools.cached_property
    def database(self) -> db.Database:
        """Where the database is; nothing is connected before the first statement."""
        return self.settings.database()

    def configure(self, settings: ProducerSettings) -> None:
        """Use these settings from now on; the worker does, so that handlers enqueue where it works.

        Args:
            settings: Read by `load`.
        """
        for name in ("settings", "database", "_admin"):
            self.__dict__.pop(name, None)
        self.__dict__["settings"] = settings

    def __repr__(self) -> str:
        return f"App({self.queue!r})"

    def __enter__(self) -> Self:
        self.database.pool()
        return self

    def __exit__(self, *_: object) -> None:
        self.database.close()

    async def __aenter__(self) -> Self:
        await self.database.apool()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.database.aclose()

    if not TYPE_CHECKING:  # checkers should see the missing attribute themselves

        def __getattr__(self, name: str) -> Any:
            problem = "is not in this release" if name in NOT_YET else "is no word of an application"
            raise AttributeError(f"App.{name} {problem}")


def load_app(path: str) -> App:
    """Return the application at `module:attribute`; the current directory is searched too.

    Args:
        path: Such as `shop.jobs:app`.

    Raises:
        UnknownApp: It says what of the path is wrong.
    """
    module_name, colon, attribute = path.partition(":")
    if not colon or not module_name or not attribute:
        raise UnknownApp("is no MODULE:ATTRIBUTE", field=path, hint="Such as shop.jobs:app")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    found: Any = _import(module_name, field=path)
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise UnknownApp(f"{module_name} has no {attribute!r}", field=path, hint=_candidates(module_name)) from None
    if isinstance(found, App):
        return found
    raise UnknownApp(f"is a {type(found).__name__}, no App", field=path, hint=_candidates(module_name))


def _import(name: str, *, field: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        # another module that is missing inside it is an error of its own
        if problem.name is None or not (name == problem.name or name.startswith(problem.name + ".")):
            raise
        raise UnknownApp(
            f"there is no module {problem.name!r}", field=field, hint="Run it where the module can be imported"
        ) from None


def _candidates(module_name: str) -> str:
    names = sorted(name for name, value in vars(sys.modules[module_name]).items() if isinstance(value, App))
    return f"It has: {', '.join(names)}" if names else "It has no App at all"
