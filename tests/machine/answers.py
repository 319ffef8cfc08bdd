"""What the answers of the public functions must mean, and what they make true with their transaction's commit.

Each is checked once, when it is told, against what its own transaction sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.machine.clients import Client
from tests.machine.model import Effect, Model
from tests.machine.records import Job, must


def once_seen(happen: Effect, error: str | None) -> Effect:
    """An effect whose refusal is true when it is told, and need not be so at the commit."""
    told = [False]

    def effect(model: Model) -> None:
        if error is None or not told[0]:
            told[0] = True
            happen(model)

    return effect


def changed(ident: int, error: str | None, **columns: Any) -> Effect:
    """A waiting job was changed; what runs or is gone must have been refused as such."""

    def happen(model: Model) -> None:
        job = model.jobs.get(ident)
        wanted = "TR003" if job is None else "TR004" if job.token is not None else None
        must(error == wanted, f"a change of job {ident} was {error or 'done'}: {job}")
        if job is not None and error is None:
            vars(job).update(columns)

    return once_seen(happen, error)


def cancelled(ident: int) -> Callable[[list[Any], str | None], Effect]:
    """What an answer of cancel means."""

    def effect(rows: list[Any], error: str | None) -> Effect:
        told = [False]

        def happen(model: Model) -> None:
            job = model.jobs.get(ident)
            answer = error or rows[0][0]
            if not told[0]:
                told[0] = True
                wanted = "TR003" if job is None else "cancelled" if job.token is None else "requested"
                must(answer == wanted, f"cancel of {ident} was {answer}, not {wanted}: {job}")
            if answer == "cancelled" and job is not None:
                model.end(job, "cancelled")
            elif answer == "requested" and job is not None:
                model.requested.add(ident)

        return happen

    return effect


def stored(client: Client, jobs: list[dict[str, Any]], rows: list[Any], error: str | None) -> Effect:
    """What the answer of an enqueue means. What it did is found out once, and done again at the commit."""
    must(error is None, f"an enqueue was refused: {error}")
    told: list[list[Effect]] = []

    def happen(model: Model) -> None:
        if told:
            for one in told[0]:
                one(model)
            return
        told.append(done := [])
        for job, (ident, outcome, _, slot) in zip(jobs, rows, strict=True):
            # what one statement did before it waited need not be what it would do now
            sure = len(jobs) == 1 or not client.waited
            for one in _did(client, model, job, ident, outcome, slot=slot, sure=sure):
                one(model)
                done.append(one)

    return happen


def _did(
    client: Client, model: Model, job: dict[str, Any], ident: int, outcome: str, *, slot: int, sure: bool
) -> Iterator[Effect]:
    """Check that an outcome is the one that the mode asks for, and say what it did."""
    task, key, mode = job["task"], job["key"], job["on_duplicate"]
    holder = model.holder(task, key)
    while mode == "skip" and holder is not None and holder.past and holder.token is None and holder.id != ident:
        client.rows.add(holder.id)
        yield lambda model, over=holder.id: model.end(model.jobs[over], "expired")  # type: ignore[misc]
        holder = model.holder(task, key)
    target = holder if mode == "skip" else model.holder(task, key, 1) or holder
    must(
        not sure or (outcome, slot if outcome == "created" else 0) == _wanted(target, mode),
        f"enqueue of {job} was {outcome}: {target}",
    )
    must(not sure or outcome == "created" or (target and target.id == ident), f"enqueue of {job} told job {ident}, not {target}")
    if outcome == "created":
        if slot and holder is not None:
            client.rows.add(holder.id)  # locked while the successor's commit looks at it
        yield lambda model: model.store(
            Job(ident, task, key, job["n"], job["max_attempts"], slot=slot, serial_group=job["serial_group"])
        )
    elif outcome == "replaced":
        client.rows.add(ident)
        yield lambda model: model.replace(ident, job["n"], job["max_attempts"])


def _wanted(target: Job | None, mode: str) -> tuple[str, int]:
    """Which outcome a mode asks for, and in which slot a new job stands."""
    if target is None:
        return "created", 0
    if target.token is not None:
        return ("created", 1) if mode == "after" else ("in_progress", 0)
    return ("skipped" if mode == "skip" else "replaced"), 0


def brief(job: dict[str, Any]) -> str:
    """A job of an enqueue in words."""
    key = f" key {job['key']} {job['on_duplicate']}" if job["key"] else ""
    group = f" group {job['serial_group']}" if job["serial_group"] else ""
    return f"{job['task']} n={job['n']} max_attempts={job['max_attempts']} priority={job['priority']}{key}{group}"
