"""The machine finds what it is there for: with one guard taken out of the engine, it must fail.

Part of `make machine`. What each mutant breaks stands beside it.
"""

from __future__ import annotations

import os
import re

import psycopg
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tailrace.db.statements import Blocks
from tests.machine.arena import Arena
from tests.machine.machine import machine_on
from tests.machine.test_machine import SHORT
from tests.rig.servers import RigDatabase

BUDGET = settings(SHORT, max_examples=150, phases=[Phase.generate])

BLOCKS = {
    "a late finish is not fenced": ("finish.finish_batch", "and token = %(token)s", ""),
    "a claim takes what runs": ("claim.claim_batch", "and s.token is null", ""),
    "a claim waits for producers": ("claim.claim_batch", "for no key update of s skip locked", "for no key update of s"),
    "a suspect is claimed among others": ("claim.claim_batch", "and s.lost = 0", ""),
    "an exhausted job is charged": ("claim.claim_batch", "attempts + (attempts < max_attempts)::int", "attempts + 1"),
    "a successor is claimed": ("claim.claim_batch", "and s.key_slot = 0", ""),
    "a successor is claimed by its id": ("claim.claim_ids", "and x.key_slot + 0 = 0", ""),
    "a member is claimed past its group": ("claim.claim_batch", "and s.serial_group is null", ""),
    "a claim under older limits takes jobs": ("claim.claim_batch", "or h.limits <> %(limits)s", ""),
}
"""What breaks: block, text, what stands there instead."""

FUNCTIONS = {
    "a late outcome is not fenced": ("settle_batch_v1", r" and j(?:ob)?\.token = (any \(v_tokens\)|o\.token)", ""),
    "a finish waits for a note": ("conclude_v1", "order by d.job_id for update skip locked", "order by d.job_id for update"),
    "an empty lease stays": ("drop_empty_leases_v1", "e.token = any (tokens)", "false"),
    "a live lease is reaped": ("reap_v1", "w.until < v_cutoff and v_now - v_steady", "v_now - v_steady"),
    "a crash leaves no mark": ("take_over_v1", "k.lost + (k.result <> 'interrupted')::int", "k.lost"),
    "a crash gives the attempt back": ("take_over_v1", "when k.result = 'interrupted' then greatest", "when true then greatest"),
    "a cancel is forgotten": ("conclude_v1", "then 'cancelled'", "then x.result"),
    "an end is not counted": ("conclude_v1", "x.task, x.result, count(*)", "x.task, x.result, 2 * count(*)"),
    "a requeued job leaves its dead letter": ("write_dead_letters_v1", "x.requeues > 0 and x.result = 'succeeded'", "false"),
    "interruptions have no end": ("settle_batch_v1", "j.interrupted < coalesce(o.max_interruptions, 10)", "true"),
    "a late keyed finish is not fenced": ("finish_keyed_v1", r"and j\.token = o\.token(\s+order by)", r"\1"),
    "a keyed finish waits for an enqueue's commit": ("finish_keyed_v1", "for update of j skip locked", "for update of j"),
    "a cancel of a key stops at the holder's end": ("cancel_by_key", "when sqlstate 'TR003'", "when sqlstate 'TR999'"),
    "a keyed finish leaves the successor": ("finish_keyed_v1", r"perform \S+promote_v1\([^;]*;", "null;"),
    "a keyed finish passes over a locked successor": ("finish_keyed_v1", "v_keys, true)", "v_keys, false)"),
    "an end leaves the successor": ("conclude_v1", r"perform \S+promote_v1\([^;]*;", "null;"),
    "an end passes over a locked successor": ("busy_holders_v1", r"array\(select p\.holder [^;]*;", "'{}'::bigint[];"),
    "a successor overlooks the holder's end": ("follow_v1", " for key share", ""),
    "a late successor stays blocked": ("follow_v1", r"perform \S+promote_v1\([^;]*;", "null;"),
    "a holder is replaced before its successor": ("enqueue_keyed_v1", "order by k.key_slot desc", "order by k.key_slot"),
    "an enqueue keeps a lock on what runs": ("enqueue_keyed_v1", "raise exception using errcode = 'TR000'", "null"),
    "a late completion is not fenced": ("complete_v1", "and o.token = complete_v1.job_token", ""),
    "a completion passes over a locked successor": ("complete_v1", "and s.key_slot = 1 for no key update", "and s.key_slot = 2"),
    "a group is taken and not marked": ("hold_groups_v1", "u.tenant, u.name, new_token from", "u.tenant, u.name, null from"),
    "a turn overlooks who waits for a key": ("take_members_v1", "and s.key_slot = 0", ""),
    "a turn waits for producers": ("take_members_v1", r"(s\.id limit k for no key update of s) skip locked", r"\1"),
    "a chain is out of order": ("take_members_v1", r"order by s\.priority desc, (s\.run_at, s\.id limit)", r"order by \1"),
    "a chain goes on behind a last attempt": ("take_members_v1", "or s.attempts + 1 >= s.max_attempts", ""),
    "a suspect member is taken among others": ("take_members_v1", "where x.suspect = take_members_v1.suspect and", "where"),
    "a strict group does not wait": ("take_members_v1", "then j.id end as head", "then null::bigint end as head"),
    "a strict group is overtaken in its own lease": ("take_members_v1", "or s.task = any (strict_tasks)", ""),
    "a group that ended stays taken": ("leave_some_groups_v1", "using unnest", "using (select 1 limit 0) x, unnest"),
    "a settled lease keeps its groups": ("leave_groups_v1", "if exists", "if false and exists"),
    "a group with an open outcome is left": ("turn_groups_v1", "j.id = any (unsettled)", "false"),
    "an ended group is taken from who has it now": ("turn_groups_v1", " and g.token = u.token", ""),
    "a group that nobody holds is not gone on with": ("turn_groups_v1", "filter (where m.gone)", "filter (where false)"),
    "a new limit counts at once": ("note_limits_v1", "new.limits_sure := false", "new.limits_sure := true"),
    "a slot that is used is given again": ("free_slots_v1", "x.token is null or not exists", "true or not exists"),
    "a slot stays used after its run": ("free_slots_v1", "x.token is null or not exists", "x.token is null and not exists"),
    "a claim marks no slots": ("fill_slots_v1", "and s.name = ''", "and s.name = 'none'"),
    "limits are sure before older claims have ended": ("settle_limits_v1", "if cardinality(v_open) > 0", "if false"),
    "a rate grants without counting": ("take_rates_v1", "v_left[v_at] := v_left[v_at] - granted;", "null;"),
    "a turn takes more than its limit": ("turn_limited_v1", "unsettled, v_n, 1,", "unsettled, n, 1,"),
}  # fmt: skip
"""What breaks: function, text, what stands there instead."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.environ.get("TAILRACE_MACHINE") != "long", reason="part of `make machine`"),
]


def found(database: RigDatabase, blocks: dict[str, str] | None = None) -> None:
    """Run the machine on a spoilt engine; it must fail."""
    arena = Arena(database, blocks)
    try:
        with pytest.raises((AssertionError, psycopg.Error)) as failure:
            run_state_machine_as_test(machine_on(arena), settings=BUDGET)
    finally:
        arena.close()
    print(str(failure.value)[:500])


@pytest.mark.parametrize("what", BLOCKS)
def test_a_spoilt_block_is_found(database: RigDatabase, what: str) -> None:
    name, text, instead = BLOCKS[what]
    real = Blocks("tailrace")[name]
    assert text in real, f"{name} has changed; the mutant must, too"
    found(database, {name: real.replace(text, instead)})


@pytest.mark.parametrize("what", FUNCTIONS)
def test_a_spoilt_function_is_found(database: RigDatabase, what: str) -> None:
    name, text, instead = FUNCTIONS[what]
    real = database.value("select pg_get_functiondef(p.oid) from pg_proc p where p.proname = %s", [name])
    spoilt = re.sub(text, instead, real) if "\\" in text else real.replace(text, instead)
    assert spoilt != real, f"{name} has changed; the mutant must, too"
    database.query(spoilt)
    found(database)
