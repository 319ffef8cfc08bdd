"""Every known mistake of this release's suites is guarded by a test, and tests/README.md says by which."""

from __future__ import annotations

from tests.rig import pitfalls
from tests.rig.citations import README


def test_all_of_this_release_are_cited() -> None:
    assert not pitfalls.missing(), "no test cites these ids (see tests/pitfalls.toml)"


def test_cited_ids_exist() -> None:
    assert not pitfalls.unknown()


def test_the_table_is_current() -> None:
    readme = README.read_text(encoding="utf-8")
    assert readme == pitfalls.with_table(readme), "write it anew with: make docs"
