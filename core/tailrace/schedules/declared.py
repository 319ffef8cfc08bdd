"""What an application declares: `app.cron(...)` and `app.every(...)`.

A worker publishes the declarations in its row; they live while such a worker lives, and the JobQueue's schedule of the same
name wins. Nothing here touches a database. Neighbours: `times` (checks), `app` (inherits the words), the worker's heartbeat.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, Protocol, TypeVar, Unpack, cast, get_args, overload

from typing_extensions import TypedDict

from tailrace.enqueue.new_job import NewJob
from tailrace.enqueue.options import check_names
from tailrace.enqueue.prepare import prepare_job
from tailrace.errors import InvalidOption, duration_seconds
from tailrace.hooks import place
from tailrace.job import JobContext
from tailrace.json_text import encode
from tailrace.task import Task

if TYPE_CHECKING:
    from tailrace.app import App

__all__ = ["PAYLOAD_BYTES", "Crons", "DeclaredSchedule", "Overlap", "published"]

P = ParamSpec("P")
R = TypeVar("R")
Overlap = Literal["allow", "skip", "replace"]

PAYLOAD_BYTES: Final = 2048
"""The largest payload of a schedule, in bytes of its JSON text."""

_MOST: Final = 200
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """A schedule that an application declares.

    Attributes:
        name: Unique in its queue.
        cron: The crontab line, or None.
        every_seconds: The period, or None.
        time_zone: The zone of the crontab line.
        overlap: allow, skip or replace.
        catch_up_seconds: How far back missed ticks are made up for.
        job: What is enqueued; or a task without required parameters.
    """

    name: str
    cron: str | None
    every_seconds: int | None
    time_zone: str
    overlap: Overlap
    catch_up_seconds: int
    job: NewJob | Task[..., Any]

    def as_json(self, app: App) -> dict[str, Any]:
        """Return it as a worker publishes it, in the words of the JobQueue.

        Args:
            app: Whose tasks and queue are meant.

        Raises:
            InvalidOption: An option of the job is wrong.
            InvalidPayload: The payload is too large, or no JSON that PostgreSQL can keep.
            UnknownTask: The application has no such task.
        """
        job = self.job.job() if isinstance(self.job, Task) else self.job
        ready = prepare_job(app, job)
        options = json.loads(ready.options)
        if ready.key is not None:
            options["key"] = ready.key
        payload = json.loads(ready.payload)
        encode(payload, limit=PAYLOAD_BYTES, root=f"schedule {self.name}, payload")
        times = {"cron": self.cron, "timeZone": self.time_zone} if self.cron is not None else {"everySeconds": self.every_seconds}
        return {
            "queue": ready.queue,
            "name": self.name,
            **times,
            "task": ready.task,
            "payload": payload,
            "overlap": self.overlap.capitalize(),
            "catchUpSeconds": self.catch_up_seconds,
            "options": options,
        }


class ScheduleDecorator(Protocol):
    """What `app.cron(line)` and `app.every(seconds)` give: for a function, which becomes a task, or for a task."""

    @overload
    def __call__(self, fn: Task[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[JobContext[Any], P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[JobContext[Any], P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


class ScheduleOptions(TypedDict, total=False):
    """The options of `cron` and `every`."""

    name: str
    overlap: Overlap
    catch_up: float | timedelta


class Crons:
    """The words that declare schedules.

    Attributes:
        declared_schedules: What was declared so far.
    """

    declared_schedules: tuple[DeclaredSchedule, ...] = ()

    @overload
    def cron(self, line: str, job: NewJob, /, *, timezone: str = "UTC", **options: Unpack[ScheduleOptions]) -> None: ...
    @overload
    def cron(self, line: str, /, *, timezone: str = "UTC", **options: Unpack[ScheduleOptions]) -> ScheduleDecorator: ...
    def cron(self, line: str, job: NewJob | None = None, /, *, timezone: str = "UTC", **options: Unpack[ScheduleOptions]) -> Any:
        """Enqueue a job at the times of a crontab line: `@app.cron("*/5 * * * *")` or `app.cron("30 2 * * *", task.job(...))`.

        Args:
            line: Minute, hour, day of month, month, day of week.
            job: What to enqueue; without it this decorates a task, or a function, that needs no parameters.
            timezone: The zone that the line is read in, as in the IANA database.
            options: name (unique in its queue, a DNS label; default: the task's name); overlap, what happens while the last job
                of the schedule still lives: skip the tick, replace that job, or allow both; catch_up, how far back missed ticks
                are made up for, in seconds or as a timedelta, a minute in any case.

        Raises:
            InvalidOption: It names what is wrong.
        """
        from tailrace.schedules.times import timing_of  # only programs with schedules pay for the import

        timing_of(line, None, timezone)
        return self._declare((" ".join(line.split()), None, timezone), job, **options)

    @overload
    def every(self, seconds: int | timedelta, job: NewJob, /, **options: Unpack[ScheduleOptions]) -> None: ...
    @overload
    def every(self, seconds: int | timedelta, /, **options: Unpack[ScheduleOptions]) -> ScheduleDecorator: ...
    def every(self, seconds: int | timedelta, job: NewJob | None = None, /, **options: Unpack[ScheduleOptions]) -> Any:
        """Enqueue a job at each multiple of a period since 1970 (UTC), whoever was restarted when.

        Args:
            seconds: The period, whole seconds from 1 to a year.
            job: See `cron`.
            options: See `cron`.

        Raises:
            InvalidOption: It names what is wrong.
        """
        from tailrace.schedules.times import timing_of

        period: Any = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        period = int(period) if isinstance(period, float) and period.is_integer() else period
        timing_of(None, period, None)
        return self._declare((None, period, "UTC"), job, **options)

    def _declare(self, times: tuple[str | None, int | None, str], job: NewJob | None, **options: Unpack[ScheduleOptions]) -> Any:
        check_names(options, known=ScheduleOptions.__annotations__)
        overlap = options.get("overlap", "skip")
        if overlap not in get_args(Overlap):
            raise InvalidOption("is no such mode", field="overlap", hint=f"Use {', '.join(get_args(Overlap))}")
        window = math.ceil(duration_seconds(options.get("catch_up", 0), field="catch_up"))

        def add(what: NewJob | Task[..., Any]) -> None:
            label = _name(options.get("name"), what.name if isinstance(what, Task) else what.task)
            self._add_schedule(DeclaredSchedule(label, *times, overlap, window, what))

        if job is None:
            return self._decorator(add)
        if not isinstance(job, NewJob):
            raise InvalidOption(f"must be a NewJob, not {type(job).__name__}", field="job", hint="Such as task.job(...)")
        if job.run_at is not None:
            raise InvalidOption("excludes a schedule", field="run_at", hint="Use delay for a while after each tick")
        add(job)
        return None

    def _decorator(self, add: Callable[[Task[..., Any]], None]) -> Callable[[Any], Task[..., Any]]:
        def decorate(fn: Any) -> Task[..., Any]:
            task: Task[..., Any] = fn if isinstance(fn, Task) else cast("App", self).task(fn)
            needed = [p.name for p in task.spec.shape.parameters.values() if p.default is inspect.Parameter.empty]
            if needed:
                hint = "Give the parameter a default, or schedule task.job(...)"
                raise InvalidOption(
                    f"needs {needed[0]}, and a schedule gives no parameters", field=f"task {task.name}", hint=hint
                )
            add(task)
            return task

        return decorate

    def _add_schedule(self, new: DeclaredSchedule) -> None:
        others = [one for one in self.declared_schedules if not _again(one, new)]
        for one in others:
            if one.name == new.name and _queue_of(one, self) == _queue_of(new, self):
                raise InvalidOption(f"{new.name!r} is taken by another schedule", field="name", hint="Give one of the two a name")
        if len(others) >= _MOST:
            raise InvalidOption(f"at most {_MOST} schedules", field="schedules", hint="Let one job do the work of several")
        self.declared_schedules = (*others, new)


def published(app: App) -> list[dict[str, Any]]:
    """Return an application's declarations as a worker publishes them.

    Args:
        app: With its modules imported.

    Raises:
        TailraceError: One of them cannot be; it says which and why.
    """
    return [one.as_json(app) for one in app.declared_schedules]


def _name(given: object, task: str) -> str:
    name: object = task.lower().replace("_", "-") if given is None else given
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        problem = f"{name!r} is no DNS label of at most 63 characters"
        raise InvalidOption(problem, field="name", hint="Give a name of lower case letters, digits and hyphens")
    return name


def _queue_of(one: DeclaredSchedule, app: Crons) -> str:
    if isinstance(one.job, Task):
        return one.job.queue
    task = cast("App", app).tasks.get(one.job.task)
    return one.job.queue or (task.queue if task is not None else cast("App", app).queue)


def _again(one: DeclaredSchedule, new: DeclaredSchedule) -> bool:
    """Whether this is the same declaration: a module that is imported again, or a cell that is run again, replaces it."""
    if isinstance(one.job, Task) and isinstance(new.job, Task):
        return one.name == new.name and place(one.job.fn) == place(new.job.fn)
    return one == new
