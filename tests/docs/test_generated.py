"""The pages that are made from the code are current and complete."""

from __future__ import annotations

import pytest

from docs import generate
from docs.sources import ROOT, SqlObject, functions, views

REMEDY = "run `make docs` and commit"


@pytest.mark.parametrize("page", generate.PAGES)
def test_a_generated_page_is_current(page: str):
    assert generate.is_current(page), REMEDY


@pytest.mark.parametrize("one", [*functions(), *views()], ids=lambda one: one.name)
def test_each_public_sql_object_says_what_it_does(one: SqlObject):
    assert one.comment, f"write a comment above tailrace.{one.name} in its migration"


def test_each_row_of_a_generated_table_says_something():
    for page in generate.PAGES:
        for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
            if line.startswith("| ") and page != "docs/reference/errors.md":
                assert not line.endswith("|  |"), f"{page}: nothing is said in {line}"
