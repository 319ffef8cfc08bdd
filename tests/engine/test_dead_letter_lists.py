"""What a filter of dead letters selects, in whatever pages and along whatever index."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from tailrace.db import Statement, run
from tailrace.errors import InvalidOption
from tests.engine.letters import Letters
from tests.engine.rows import Rows

ROWS = 240
WHERE = {
    "queue": "queue = %(queue)s",
    "task": "task = %(task)s",
    "key": "key = %(key)s",
    "tenant": "tenant = %(tenant)s",
    "reason": "reason = %(reason)s",
    "error_type": "error_type = %(error_type)s",
    "fingerprint": "fingerprint = %(fingerprint)s",
    "failed_after": "failed_at >= %(failed_after)s",
    "failed_before": "failed_at <= %(failed_before)s",
    "meta": "meta @> %(meta)s::jsonb",
    "text": "strpos(lower(errors -> 0 ->> 'message'), lower(%(text)s)) > 0",
}
VALUES: dict[str, Any] = {
    "queue": "q1",
    "task": "t2",
    "key": "k4-18",
    "tenant": "acme",
    "reason": "timeout",
    "error_type": "network",
    "fingerprint": "f3",
    "failed_after": "2026-01-01T00:20:00Z",
    "failed_before": "2026-01-01T01:00:00Z",
    "meta": {"shard": 2},
    "text": 'SAY "hi" to 1',
}


@pytest.fixture
def letters(rows: Rows) -> Letters:
    made = Letters(rows)
    made.fill(ROWS, first=1)
    rows.conn.execute("update tailrace.dead_letter set state = (array['dead', 'dead', 'requeued', 'resolved'])[1 + job_id % 4]")
    return made


def expected(letters: Letters, which: dict[str, Any], *, forward: bool = False) -> list[int]:
    """The ids by a plain look at all rows."""
    state = which.get("state", "dead")
    conditions = [WHERE[name] for name in which if name != "state"] + (["state = %(state)s"] if state != "all" else [])
    order = "failed_at, job_id" if forward else "failed_at desc, job_id desc"
    text = f"select job_id from tailrace.dead_letter where {' and '.join(conditions) or 'true'} order by {order}"
    params = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in which.items()}
    return [ident for (ident,) in letters.rows.conn.execute(text, {**params, "state": state}).fetchall()]


def pages(letters: Letters, *, n: int, forward: bool = False, examine: int = 4000, **which: Any) -> list[int]:
    """All ids, page by page."""
    found: list[int] = []
    after = None
    for _ in range(1000):
        page, until = letters.find(n=n + 1, forward=forward, after=after, examine=examine, **which)
        found += [ident for ident, _ in page[:n]]
        if len(page) > n:
            after = (page[n - 1][1], page[n - 1][0])
        elif until is None:
            return found
        else:
            after = until
    raise AssertionError("the pages do not end")


@pytest.mark.parametrize("state", ["dead", "requeued", "all"])
def test_every_filter_selects_what_a_plain_look_does(letters: Letters, state: str) -> None:
    """BF-25, BF-27: each filter alone and each pair of them, newest first, three failures at the same time."""
    for names in itertools.chain(*(itertools.combinations(VALUES, n) for n in (0, 1, 2))):
        which = {name: VALUES[name] for name in names} | {"state": state}
        assert pages(letters, n=7, **which) == expected(letters, which), which


def test_pages_with_a_small_budget_find_the_same(letters: Letters) -> None:
    """BF-27: a walk that is cut goes on from there, in both directions, with any mix of filters."""
    chance = random.Random(7)
    for _ in range(60):
        names = chance.sample(sorted(VALUES), chance.randint(0, 3))
        which = {name: VALUES[name] for name in names} | {"state": chance.choice(["dead", "all", "resolved"])}
        forward, n, examine = chance.random() < 0.5, chance.choice([1, 3, 50]), chance.choice([1, 5, 20])
        found = pages(letters, n=n, forward=forward, examine=examine, **which)
        assert found == expected(letters, which, forward=forward), (which, forward, n, examine)


def test_a_rare_text_is_found_in_several_bounded_pages(letters: Letters) -> None:
    page, until = letters.find(n=5, examine=30, text="hi", queue="q1", failed_before="2026-01-01T00:10:00Z")
    assert len(page) == 5
    page, until = letters.find(n=5, examine=30, text="to 17.", queue="q2")
    assert (page, until is not None) == ([], True), "thirty rows were looked at; it says where to go on"
    assert 17 in pages(letters, n=5, examine=30, text="to 17.", queue="q2")


def test_names_of_fields_are_no_words_of_the_error(letters: Letters) -> None:
    assert pages(letters, n=50, text="message") == []
    letters.change("note", 1, note="The Message was lost")
    assert pages(letters, n=50, text="message", state="all") == [1]


def test_the_count_is_that_of_the_filter(letters: Letters) -> None:
    """BF-25, BF-50: by the kept counts or by the rows, with the tasks of most of them."""
    for names in itertools.chain(*(itertools.combinations(VALUES, n) for n in (0, 1, 2))):
        which = {name: VALUES[name] for name in names}
        found = letters.rows.value("select tailrace.count_dead_letters_v1(%s::jsonb)", [json.dumps(which)])
        assert found["n"] == len(expected(letters, which)) == sum(task["dead"] for task in found["tasks"]), which


@pytest.mark.parametrize(
    ("which", "field"),
    [
        ({"state": "sleepy"}, "state"),
        ({"colour": "red"}, "colour"),
        ({"task": 7}, "task"),
        ({"meta": "x"}, "meta"),
        ({"failed_after": "yesterday"}, "failed_after"),
        ({"failed_before": "2026-01-01 00:00"}, "failed_before"),
    ],
)
def test_a_wrong_filter_is_refused_by_its_field(letters: Letters, which: dict[str, Any], field: str) -> None:
    """BF-26: bad values are told, not guessed."""
    statement = "select * from tailrace.find_dead_letters_v1(%(f)s::jsonb, false, 5)"
    with pytest.raises(InvalidOption) as caught:
        run(letters.rows.conn, Statement(statement, {"f": json.dumps(which)}, list))
    assert caught.value.field == field


def test_names_are_values_never_sql(letters: Letters) -> None:
    """BF-41: what a filter says is data."""
    for name in ("queue", "task", "key", "tenant", "fingerprint", "text"):
        which: dict[str, Any] = {name: "x' or true --"}
        assert pages(letters, n=5, **which) == []
