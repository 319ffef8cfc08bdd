"""Every reported fault of the groups that are due is tried by a test, or cases.toml says why not."""

from __future__ import annotations

from tests.rig import cases
from tests.rig.citations import README


def test_all_of_the_groups_that_are_due_are_tried_or_explained() -> None:
    assert not cases.missing(), "no test cites these ids, and tests/cases.toml has no word why"


def test_cited_ids_exist() -> None:
    assert not cases.unknown()


def test_each_case_says_what_must_hold_and_where_it_was_seen() -> None:
    assert set(cases.due()) <= {ident[0] for ident in cases.cases()}
    for ident, case in cases.cases().items():
        assert set(case) - {"left"} == {"seen", "holds"}, ident
        assert "#" in case["seen"], ident


def test_the_table_is_current() -> None:
    readme = README.read_text(encoding="utf-8")
    assert readme == cases.with_table(readme), "write it anew with: make docs"
