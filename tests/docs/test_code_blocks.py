"""Each code block of the README and of the documentation runs, or says in a comment why it does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, RUNNABLE, SHOWN, pages, read_blocks
from tests.docs.runner import Runner
from tests.rig.servers import RigDatabase

# Its commands measure for minutes; tests/bench runs them in small.
MEASURED = "docs/performance.md"

PAGES = [str(page.relative_to(ROOT)) for page in pages()]
WITH_CODE = [page for page in PAGES if any(block.language in RUNNABLE for block in read_blocks(ROOT / page))]


@pytest.mark.parametrize("page", [page for page in PAGES if page != MEASURED])
def test_each_block_has_a_language_and_each_that_is_not_run_a_reason(page: str):
    for block in read_blocks(ROOT / page):
        assert block.language in RUNNABLE | SHOWN or block.reason or block.file, (
            f"{block.place}: a block of {block.language or 'no language'!r} needs a comment `not run: …` before it"
        )


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", WITH_CODE)
def test_the_code_of_a_page_runs(page: str, database: RigDatabase, tmp_path: Path):
    Runner(database, tmp_path).run(read_blocks(ROOT / page))


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://", "#")):
            path = (ROOT / page).parent / target.split("#")[0]
            assert path.exists(), f"{page}: {target} leads nowhere"
