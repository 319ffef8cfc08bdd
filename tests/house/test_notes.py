"""Every limitation of kopf that the design names has a test of what we do instead, or notes.toml says why not."""

from __future__ import annotations

from tests.rig import notes
from tests.rig.citations import README


def test_all_are_shown_or_explained() -> None:
    assert not notes.missing(), "no test cites these numbers, and tests/notes.toml has no word why"


def test_cited_numbers_exist() -> None:
    assert not notes.unknown()


def test_the_list_is_whole() -> None:
    assert list(notes.notes()) == [str(number) for number in range(1, 20)]


def test_the_table_is_current() -> None:
    readme = README.read_text(encoding="utf-8")
    assert readme == notes.with_table(readme), "write it anew with: make docs"
