"""A task: a function with a name, a queue and options, that can be enqueued and run.

`App.task` makes one; producers type its words, the worker reads its spec. Neighbours: `signature` and `payload` (what it
takes), `enqueue.words` (what people type), `app`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from tailrace.enqueue.connections import AsyncConnection, SyncConnection, is_async
from tailrace.enqueue.keys import KeyTemplate
from tailrace.enqueue.new_job import JobOptions
from tailrace.enqueue.options import QUEUE_BYTES, TASK_BYTES, check_names, check_text, option_values
from tailrace.enqueue.words import AsyncEnqueue, BothEnqueue, JobWords, SyncEnqueue
from tailrace.errors import InvalidOption, NoRetry, RetryAfter, duration_seconds
from tailrace.job import JobContext
from tailrace.payload import PayloadShape
from tailrace.policy import GroupOrder, RetryPolicy, check_group_order
from tailrace.signature import read_signature

if TYPE_CHECKING:
    from tailrace.app import App

P = ParamSpec("P")
R = TypeVar("R")
OnError = Callable[[BaseException, JobContext[Any]], RetryAfter | NoRetry | None]
"""Decides about a failed run; None leaves it to the policy."""

OPTIONS: Final = frozenset(
    {
        "name",
        "queue",
        "timeout",
        "priority",
        "retry",
        "no_retry",
        "on_error",
        "key",
        "on_duplicate",
        "serial_group",
        "group_order",
        "keep_result",
    }
)
_SENT: Final = ("priority", "retry", "timeout", "on_duplicate")


class TaskSpec:
    """Everything about a task but the words to enqueue it.

    Args:
        fn: The function.
        queue: The application's queue.
        options: The decorator's options by name.

    Attributes:
        name: The task's name in the database.
        queue: The queue it is enqueued to.
        fn: The plain function.
        is_async: Whether it is a coroutine function.
        takes_context: Whether its first parameter is the context.
        timeout: The longest one run may take, in seconds; None is the queue's, 0 without limit.
        retry: Its policy; None is the queue's.
        no_retry: Exceptions that are final at once.
        on_error: Decides about a failed run, or None.
        key: The template of its key, or None.
        serial_group: The template of its group, or None.
        group_order: `due` or `strict`.
        keep_result: How long what it returns is kept, in seconds; None = not at all.
        shape: Its payload.
        defaults: What of its options the database takes, by the names of options.

    Raises:
        InvalidOption: An option or the signature is wrong; it says which.
    """

    def __init__(self, fn: Callable[..., Any], *, queue: str, options: Mapping[str, Any]) -> None:
        check_names(options, known=OPTIONS)
        self.name: str = check_text(options.get("name", getattr(fn, "__name__", None)), field="name", most=TASK_BYTES)
        self.queue: str = check_text(options.get("queue", queue), field="queue", most=QUEUE_BYTES)
        signature = read_signature(fn, task=self.name)
        self.fn = fn
        self.is_async = signature.is_async
        self.takes_context = signature.takes_context
        self.shape = PayloadShape(self.name, fn, signature.parameters)
        self.retry: RetryPolicy | None = options.get("retry")
        timeout = options.get("timeout")
        self.timeout = None if timeout is None else duration_seconds(timeout, field="timeout")
        self.no_retry = _exceptions(options.get("no_retry", ()))
        self.on_error: OnError | None = _callable(options.get("on_error"))
        key = options.get("key")
        self.key = None if key is None else KeyTemplate(key, signature.parameters)
        group = options.get("serial_group")
        self.serial_group = None if group is None else KeyTemplate(group, signature.parameters, field="serial_group")
        self.group_order: GroupOrder = check_group_order(options.get("group_order", "due"))
        self.keep_result = _kept_seconds(options.get("keep_result"))
        self.defaults = option_values({name: options[name] for name in _SENT if options.get(name) is not None})


class Task(BothEnqueue[P], Generic[P, R]):
    """A task of an application. Its words enqueue; the function itself is `fn`.

    Args:
        spec: What it is.
        app: Whose it is.
    """

    def __init__(self, spec: TaskSpec, app: App) -> None:
        super().__init__(spec, app, None, {})
        self.spec = spec

    def __repr__(self) -> str:
        return f"<Task {self.spec.name!r} of queue {self.spec.queue!r}>"

    @property
    def name(self) -> str:
        """Its name in the database."""
        return self.spec.name

    @property
    def queue(self) -> str:
        """The queue it is enqueued to."""
        return self.spec.queue

    @property
    def fn(self) -> Callable[..., Any]:
        """The plain function."""
        return self.spec.fn

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return self.spec.is_async

    @property
    def takes_context(self) -> bool:
        """Whether its first parameter is the context."""
        return self.spec.takes_context

    @property
    def timeout(self) -> float | None:
        """The longest one run may take, in seconds; None is the queue's, 0 without limit."""
        return self.spec.timeout

    @property
    def retry(self) -> RetryPolicy | None:
        """Its policy; None is the queue's."""
        return self.spec.retry

    @property
    def no_retry(self) -> tuple[type[BaseException], ...]:
        """Exceptions that are final at once."""
        return self.spec.no_retry

    @property
    def on_error(self) -> OnError | None:
        """Decides about a failed run."""
        return self.spec.on_error

    @property
    def group_order(self) -> GroupOrder:
        """`strict` if a member of its group that goes back stops the group until it has ended; else `due`."""
        return self.spec.group_order

    @property
    def keep_result(self) -> float | None:
        """How long what it returns is kept, in seconds; None = not at all."""
        return self.spec.keep_result

    def parse(self, raw: bytes | str) -> dict[str, Any]:
        """Return the arguments of one run from the JSON text in the database.

        Args:
            raw: The payload.

        Raises:
            InvalidPayload: It does not fit the signature; the field is its path.
        """
        return self.spec.shape.parse(raw)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the payload, for producers in other languages."""
        return self.spec.shape.schema()

    @overload
    def using(self, conn: None = None, /, **options: Unpack[JobOptions]) -> BothEnqueue[P]: ...
    @overload
    def using(self, conn: SyncConnection, /, **options: Unpack[JobOptions]) -> SyncEnqueue[P]: ...
    @overload
    def using(self, conn: AsyncConnection, /, **options: Unpack[JobOptions]) -> AsyncEnqueue[P]: ...
    def using(self, conn: Any = None, /, **options: Unpack[JobOptions]) -> JobWords[P]:
        """Return the words with options, in the caller's transaction if a connection is given.

        Args:
            conn: A psycopg connection; it is never committed, rolled back or closed here.
            options: See `JobOptions`.

        Raises:
            InvalidOption: An option is unknown or wrong, or the connection is none.
        """
        if conn is None:
            return BothEnqueue(self.spec, self._app, None, options)
        kind: type[JobWords[P]] = AsyncEnqueue if is_async(conn) else SyncEnqueue
        return kind(self.spec, self._app, conn, options)


class TaskDecorator(Protocol):
    """What `app.task(...)` with options gives: the context is not part of the words."""

    @overload
    def __call__(self, fn: Callable[Concatenate[JobContext[Any], P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[JobContext[Any], P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


def _exceptions(value: Any) -> tuple[type[BaseException], ...]:
    kinds: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise InvalidOption("must be exception classes", field="no_retry", hint="Such as (ValueError, KeyError)")
    return kinds


def _kept_seconds(value: Any) -> float | None:
    seconds = None if value is None else duration_seconds(value, field="keep_result")
    if seconds == 0:
        raise InvalidOption("must be above 0", field="keep_result", hint="Leave it out to keep no result")
    return seconds


def _callable(value: Any) -> OnError | None:
    if value is None or callable(value):
        return cast("OnError | None", value)
    raise InvalidOption("must be a function", field="on_error", hint="It takes the error and the context")
