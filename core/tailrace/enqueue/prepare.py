"""From what people type to checked text: nothing is sent before all of it has passed.

Neighbours: `words` (what people type), `options`, `keys`, the task's payload, the application's enqueue hooks; `senders` send
the result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from tailrace.enqueue.new_job import NewJob
from tailrace.enqueue.options import GROUP_BYTES, KEY_BYTES, QUEUE_BYTES, TASK_BYTES, check_text, option_values
from tailrace.enqueue.statements import PreparedJob, with_member
from tailrace.errors import InvalidOption, InvalidPayload, UnknownTask
from tailrace.json_text import encode

if TYPE_CHECKING:
    from tailrace.app import App
    from tailrace.enqueue.keys import KeyTemplate
    from tailrace.task import TaskSpec


class CallOptions:
    """The options of `task.using(...)`, checked once and written as text once.

    Args:
        spec: The task.
        options: What was given, by name.

    Raises:
        InvalidOption: It names the option.
    """

    __slots__ = ("given", "group", "key", "mode_said", "priority", "queue", "tenant", "text")

    def __init__(self, spec: TaskSpec, options: Mapping[str, Any]) -> None:
        self.given = {name: value for name, value in options.items() if value is not None}
        values = option_values(self.given)
        self.given["queue"] = self.queue = check_text(self.given.get("queue", spec.queue), field="queue", most=QUEUE_BYTES)
        self.key: str | None = values.pop("key", None)
        self.group: str | None = values.get("serial_group")
        self.tenant: str = values.get("tenant", "")
        self.priority: int = values.get("priority", spec.defaults.get("priority", 0))
        self.mode_said = "on_duplicate" in values or "on_duplicate" in spec.defaults
        self.text = _options_text(values, spec.defaults)


def prepare_call(spec: TaskSpec, options: CallOptions, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PreparedJob:
    """Check the arguments of one enqueue.

    Args:
        spec: The task.
        options: Its checked options.
        args: Positional arguments.
        kwargs: Named arguments.

    Raises:
        InvalidPayload: An argument does not fit; the field is its path.
        InvalidOption: The key or group that the template gives is too long.
    """
    text = spec.shape.text(spec.shape.bind(args, kwargs))
    key, more = options.key, options.text
    if (key is None and spec.key is not None) or (options.group is None and spec.serial_group is not None):
        payload = from_json(text)
        if key is None and spec.key is not None:
            key = _rendered(spec.key, payload, KEY_BYTES)
        if options.group is None and spec.serial_group is not None:
            more = with_member(more, "serial_group", _rendered(spec.serial_group, payload, GROUP_BYTES))
    return PreparedJob(options.queue, spec.name, text, more, options.tenant, key, options.priority, options.mode_said)


def ready_call(app: App, spec: TaskSpec, options: CallOptions, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PreparedJob:
    """Check the arguments of one enqueue, and let the application's enqueue hooks change it.

    Args:
        app: Whose hooks are meant.
        spec: The task.
        options: Its checked options.
        args: Positional arguments.
        kwargs: Named arguments.

    Raises:
        InvalidPayload: An argument does not fit, or what a hook made of it; the field is its path.
        InvalidOption: A hook gave a wrong option, or no job.
    """
    if not app.enqueue_hooks:
        return prepare_call(spec, options, args, kwargs)
    return ready_job(app, new_job(spec, options, args, kwargs))


def ready_job(app: App, job: NewJob) -> PreparedJob:
    """Let the application's enqueue hooks change a job, and check what they made of it as any other.

    Args:
        app: Whose hooks are meant.
        job: What to store.

    Raises:
        InvalidPayload: The payload is no JSON object that PostgreSQL can keep, or was checked before and fits no longer.
        InvalidOption: It names the option, or a hook gave no job.
        UnknownTask: The application knows the tasks of this queue, and this is none of them.
    """
    checked = _new_job(job).checked
    for hook in app.enqueue_hooks:
        job = _new_job(hook(job), field="on_enqueue", hint="Return the job, changed by dataclasses.replace")
    ready = prepare_job(app, job)
    if app.enqueue_hooks and isinstance(checked, PreparedJob) and checked.payload != ready.payload and ready.task in app.tasks:
        app.tasks[ready.task].parse(ready.payload)  # typed arguments stay checked, whatever a hook does to them
    return ready


def new_job(spec: TaskSpec, options: CallOptions, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
    """The same as a value that is sent later.

    Args:
        spec: The task.
        options: Its checked options.
        args: Positional arguments.
        kwargs: Named arguments.
    """
    checked = prepare_call(spec, options, args, kwargs)
    given = options.given if checked.key is None else {**options.given, "key": checked.key}
    if options.group is None and spec.serial_group is not None:
        given = {**given, "serial_group": json.loads(checked.options)["serial_group"]}
    job = NewJob(spec.name, from_json(checked.payload), **given)
    object.__setattr__(job, "checked", checked)
    return job


def prepare_job(app: App, job: NewJob) -> PreparedJob:
    """Check a job that goes by its task's name; its payload is checked as JSON, not against the signature.

    Args:
        app: Whose queue is meant, and whose tasks' options count.
        job: What to store.

    Raises:
        InvalidPayload: The payload is no JSON object that PostgreSQL can keep.
        InvalidOption: It names the option.
        UnknownTask: The application knows the tasks of this queue, and this is none of them.
    """
    _new_job(job)
    # a dict can be changed behind a frozen value, so what was checked before counts only if it still says the same
    if isinstance(job.checked, PreparedJob) and from_json(job.checked.payload) == job.payload:
        return job.checked
    name = check_text(job.task, field="task", most=TASK_BYTES)
    task = app.tasks.get(name)
    queue = check_text(job.queue if job.queue is not None else task.queue if task else app.queue, field="queue", most=QUEUE_BYTES)
    if task is None:
        _refuse_unknown(app, name, queue)
    values = option_values(job.options())
    key = values.pop("key", None)
    defaults = task.spec.defaults if task is not None else {}
    if key is None and task is not None and task.spec.key is not None:
        key = _rendered(task.spec.key, job.payload, KEY_BYTES)
    if "serial_group" not in values and task is not None and task.spec.serial_group is not None:
        values["serial_group"] = _rendered(task.spec.serial_group, job.payload, GROUP_BYTES)
    return PreparedJob(
        queue=queue,
        task=name,
        payload=_payload_text(job.payload),
        options=_options_text(values, defaults),
        tenant=values.get("tenant", ""),
        key=key,
        priority=values.get("priority", defaults.get("priority", 0)),
        mode_said="on_duplicate" in values or "on_duplicate" in defaults,
    )


def _new_job(job: object, *, field: str = "job", hint: str = "Such as task.job(...)") -> NewJob:
    if isinstance(job, NewJob):
        return job
    raise InvalidOption(f"must be a NewJob, not {type(job).__name__}", field=field, hint=hint)


def _payload_text(payload: object) -> str:
    if not isinstance(payload, Mapping):
        raise InvalidPayload(f"must be a mapping, not {type(payload).__name__}", field="payload", hint="Parameters by name")
    for name in payload:
        if not isinstance(name, str):
            raise InvalidPayload(f"has a name of type {type(name).__name__}", field="payload", hint="Parameters by name")
    return encode(payload if isinstance(payload, dict) else dict(payload))


def _rendered(template: KeyTemplate, payload: Mapping[str, Any], most: int) -> str:
    try:
        return check_text(template.render(payload), field=template.field, most=most)
    except KeyError as missing:
        problem = f"is missing, and the task's {template.field} needs it"
        raise InvalidPayload(problem, field=f"payload.{missing.args[0]}") from None


def _options_text(values: dict[str, Any], defaults: Mapping[str, Any]) -> str:
    if defaults:
        values = {**values, "defaults": defaults}
    return json.dumps(values, separators=(",", ":")) if values else "{}"


def _refuse_unknown(app: App, name: str, queue: str) -> None:
    """Only where all tasks are known: a web process has not imported the worker's modules."""
    known = sorted(task.name for task in app.tasks.values() if task.queue == queue)
    if known and app.complete:
        raise UnknownTask(f"the application has no task {name!r} in queue {queue!r}", hint=f"It has: {', '.join(known)}")
