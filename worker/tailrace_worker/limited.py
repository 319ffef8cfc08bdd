"""Claims of a queue that has limits or rates: what is asked for before, and what is noted after.

Before: units of rates in a transaction of their own, and the settling of limits that are new or lower. After: units that
found no job go back, floors and rests move. limits.py decides; consumer.py calls.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tailrace.clock import boot
from tailrace.db import settings_of
from tailrace_worker import mend
from tailrace_worker.ask import Ask, Got
from tailrace_worker.classes import Limited
from tailrace_worker.floors import SECONDS_BEHIND
from tailrace_worker.groups import hand_back
from tailrace_worker.rows import TASK, TOKEN
from tailrace_worker.work import PINNED

if TYPE_CHECKING:
    from tailrace_worker.consumer import Consumer

UNSURE_SECONDS: Final = 0.01
"""How long to wait for the claims of others that began under older limits."""
ASK_SECONDS: Final = 0.5
"""At most so often a heartbeat is asked for to learn of other limits."""
SESSION: Final = {"synchronous_commit": "off", "lock_timeout": "100ms"}
"""Of a transaction of its own: what a crash of the server forgets of it is a grant."""
UNSTARTED: Final = {"handback", "exhausted", "expired"}
"""Outcomes of jobs that were never started."""


def learn(consumer: Consumer, settings: dict[str, Any], version: int) -> None:
    """The queue has other limits: from now on claims follow them, and what is limited now and has not started goes back.

    Args:
        consumer: The queue.
        settings: Its settings.
        version: The version of its limits.
    """
    limits, lanes = consumer.limits, consumer.lanes
    limits.learn(settings, version)
    consumer.exchange.know(version)
    if limits.on:
        kept = []
        while lanes.buffer:
            row = lanes.buffer.popleft()
            if limits.limits_now(row):
                hand_back(lanes, row)
                consumer.handed_back += 1
            else:
                kept.append(row)
        lanes.buffer.extend(kept)
        consumer.handed_back += lanes.groups.give_back_waiting()
    consumer.came_back()  # what a class left behind lies below the floors of the others


def ask_beat(consumer: Consumer) -> None:
    """The database has other limits than are known here: the next heartbeat tells them."""
    now = boot()
    if now >= consumer.limits.ask_beat_at:
        consumer.limits.ask_beat_at = now + ASK_SECONDS
        consumer.share.beat_soon()


async def apart(consumer: Consumer, name: str, params: dict[str, Any]) -> list[Any]:
    """Run one statement about limits in a transaction of its own. The turn of the connection must be held.

    Args:
        consumer: The queue.
        name: A block of limits.sql.
        params: Its parameters, but for the queue.
    """
    work, began, ok = consumer.work, boot(), False
    settings = settings_of({**(PINNED if work.pooled else {}), **SESSION})
    try:
        async with work.conn.pipeline(), work.conn.transaction():
            await work.conn.execute(work.database.blocks["session.set_local"], settings, prepare=True)
            block = work.database.blocks[f"limits.{name}"]
            cursor = await work.conn.execute(block, {"queue": consumer.queue, **params}, prepare=True)
        rows: list[Any] = await cursor.fetchall()
        ok = True
    finally:
        work.operations.note([name], boot() - began, ok=ok)
    return rows


async def permit(consumer: Consumer, ask: Ask) -> None:
    """Say in an exchange what it may take of each class, or take the claim out of it. The turn of the connection must be held.

    Args:
        consumer: The queue.
        ask: What is to be sent.
    """
    limits, now = consumer.limits, boot()
    groups = ask.turn.n if ask.turn is not None else 0
    jobs = ask.most
    none = [0] * len(limits.classes)
    ask.limited = limited = Limited(none, none, ask.limited.ids if ask.limited is not None else [])
    if await _sure(consumer):
        wants = limits.shares(now, jobs + groups)
        rates = [known.rates for known in limits.classes]
        limited.took = any(want and names for want, names in zip(wants, rates, strict=True))
        if limited.took:
            await _take(consumer, wants, rates)
        limited.members = [min(want, groups) for want in wants]
        if limited.took and groups and jobs:  # units are not taken twice
            limited.members = [
                min(n, want // 2) if names else n for n, want, names in zip(limited.members, wants, rates, strict=True)
            ]
        limited.shares = [
            min(jobs, want - n if names else want) for want, n, names in zip(wants, limited.members, rates, strict=True)
        ]
        for want, n, share, names in zip(wants, limited.members, limited.shares, rates, strict=True):
            limits.units.unused(names, want - n - share)
    limited.plain, limited.version = limits.plain, limits.version
    if limited.plain:
        ask.jobs = min(ask.jobs, limited.shares[0])
    else:
        limited.params = limits.params(now)
    if not any(limited.shares):
        limits.give_up_ids(limited.ids)
        limited.ids = []
        ask.jobs, ask.ids, ask.suspect = 0, (), False
    if ask.turn is not None:
        ask.turn.k = 1
        ask.turn.n = min(ask.turn.n, max(limited.members))


async def _sure(consumer: Consumer) -> bool:
    """Make limits sure that are new or lower, as far as that is possible now."""
    limits = consumer.limits
    if limits.unsure:
        rows = await apart(consumer, "settle_limits", {"waiting": limits.waiting})
        limits.waiting = rows[0][0] or None
        limits.unsure = limits.waiting is not None
        if limits.unsure:
            limits.rest.wait(boot() + UNSURE_SECONDS)
    return not limits.unsure


async def _take(consumer: Consumer, wants: list[int], rates: list[tuple[str, ...]]) -> None:
    """Take units for what is wanted, and lower it to what was granted."""
    limits = consumer.limits
    params = limits.units.take_params(wants, rates)
    rows = await apart(consumer, "take_rates", {"limits": limits.version, **params})
    now = boot()
    granted = {number - 1: (units, wait) for number, units, wait in rows}
    for number, known in enumerate(limits.classes):
        if not wants[number] or not known.rates:
            continue
        units, wait = granted.get(number, (0, ASK_SECONDS))
        wants[number] = units
        if wait > 0:
            known.due_at = now + wait
            if not units:
                known.rest.wait(known.due_at)
    limits.units.in_hand = True
    if not rows:
        ask_beat(consumer)


def received(consumer: Consumer, ask: Ask, got: Got) -> None:
    """Note what a limited exchange brought.

    Args:
        consumer: The queue.
        ask: What was sent.
        got: What came back; its rows are ordered.
    """
    limits, limited, now = consumer.limits, ask.limited, boot()
    limits.units.in_hand = False
    if limited is None:
        return
    if limited.plain:
        _plain(consumer, limited, got, now)
        return
    if limited.version != limits.version:  # they were learnt meanwhile; what was noted then means nothing now
        limits.forget_ids(limited.ids)
        return
    if got.turned is not None and "caps" in got.turned and ask.turn is not None and ask.turn.n:
        _note(consumer, got.turned, limited.members, got.members, now, n=ask.turn.n, took=limited.took)
    if got.told is None:
        return
    rows = [*got.suspects, *got.by_id, *got.rows]
    _note(consumer, got.told, limited.shares, rows, now, n=ask.most, took=limited.took)
    if got.told["state"] is not None:
        limits.give_up_ids(limited.ids)
        return
    limits.settled_ids(limited.ids, got.told, got.by_id)
    for number, of_class in enumerate(limits.by_class(got.rows)):
        floors = limits.classes[number].floors
        floors.claimed(of_class, now)
        if number and got.told["found"] and got.told["found"][number] < got.told["caps"][number]:
            floors.examined(got.told["clock"] - SECONDS_BEHIND, now)


def _plain(consumer: Consumer, limited: Limited, got: Got, now: float) -> None:
    """Note what a claim under rates that count every task has used of its units."""
    units, known = consumer.limits.units, consumer.limits.classes[0]
    if not limited.took or limited.version != consumer.limits.version:
        return
    rows = [*got.suspects, *got.by_id, *got.rows, *got.members]
    granted = limited.shares[0] + limited.members[0]
    units.unused(known.rates, granted - len(rows))
    for token in {row[TOKEN] for row in rows}:
        units.used(token, {row[TASK]: known.rates for row in rows})
    if known.due_at > now and granted and len(rows) >= granted:
        known.rest.wait(known.due_at)
    else:
        known.rest.end()


def _note(consumer: Consumer, told: dict[str, Any], asked: list[int], rows: list[Any], now: float, *, n: int, took: bool) -> None:
    limits, state = consumer.limits, told["state"]
    counts = [len(of_class) for of_class in limits.by_class(rows)]
    for known, share, count in zip(limits.classes, asked, counts, strict=True):
        if known.rates and took:
            limits.units.unused(known.rates, share - count)
    if state is not None:
        limits.refused(state, now)
        if state == "changed":
            ask_beat(consumer)
        return
    limits.took(told, asked, rows, now, n=n)
    for known, share, count in zip(limits.classes, asked, counts, strict=True):
        if known.rates and known.due_at > now and share and count >= share:
            known.rest.wait(known.due_at)
    if rows and took:
        limits.units.used(rows[0][TOKEN], {row[TASK]: limits.rates_of(row[TASK]) for row in rows})


def short(consumer: Consumer, ask: Ask, got: Got) -> bool:
    """Whether everything due of the tasks without limits of their own was seen."""
    told = got.told
    if told is None:
        return ask.by_class is None and ask.scans and len(got.rows) < ask.jobs
    if ask.limited is None or ask.limited.version != consumer.limits.version:
        return False
    return bool(told["found"]) and told["found"][0] < told["caps"][0]


def unstarted(consumer: Consumer, ask: Ask, got: Got) -> None:
    """Units of jobs whose outcome says that they were never started go back."""
    if not consumer.limits.on:
        return
    units = consumer.limits.units
    sent = {o["id"]: o for o in ask.flush.outcomes if o["kind"] in UNSTARTED}
    for ident, result in got.settled:
        told = sent.get(int(ident))
        if told is not None and result not in ("fenced", "busy"):
            units.unstarted(told["token"], told.get("task", ""))
    units.forget(consumer.outbox.held)


async def give_back(consumer: Consumer) -> None:
    """Give units back when no claim comes that would do so. Those that cannot be given back are lost."""
    limits = consumer.limits
    classes = len(limits.classes)
    params = {"limits": limits.version, **limits.units.take_params([0] * classes, [()] * classes)}
    with suppress(*mend.FAULTS):  # a lost connection is found by the next exchange
        async with consumer.work.lock:
            if consumer.work.connected:
                await apart(consumer, "take_rates", params)
