"""What the builders make of each sample, compared with files that people have read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.operator.children import GOLDEN, REMEDY, rendered
from tests.operator.samples import VALID


@pytest.mark.parametrize("sample", VALID, ids=lambda path: path.stem)
def test_the_children_of_a_sample_are_those_that_were_read(sample: Path) -> None:
    """operator.md 3: a release changes no template unless its notes say so."""
    assert rendered(sample) == (GOLDEN / sample.name).read_text(encoding="utf-8"), REMEDY


def test_each_golden_file_has_its_sample() -> None:
    assert sorted(path.name for path in GOLDEN.glob("*.yaml")) == [path.name for path in VALID]
