"""Executes docs/tutorial.md and every page of docs/how-to as it stands (`tests.support.pages` has the rules).

A new page is executed without a change here. If it needs something that its reader already has, such as a cell, put the
commands for that into `stages/NAME.sh`; if it takes long, its name into LONG."""

import os
from pathlib import Path

import pytest
from tests.support.page_runs import run_page
from tests.support.pages import OWN_TESTS, executed_pages

ROOT = Path(__file__).parents[3]
STAGES = Path(__file__).parent / "stages"
LONG = frozenset({"run-a-cell"})
"""Pages that take more than half a minute; `make system` executes them."""
PAGES = [
    pytest.param(page, id=page.stem, marks=[pytest.mark.long] if page.stem in LONG else [])
    for page in executed_pages(ROOT)
    if page.stem not in OWN_TESTS
]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a machine for a page")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_works_as_it_stands(page: Path, tmp_path: Path) -> None:
    result = run_page(page, STAGES / f"{page.stem}.sh", tmp_path, within_seconds=280)
    assert result.returncode == 0, f"{result.stdout[-4000:]}\n---- stderr\n{result.stderr[-6000:]}"
    assert result.stdout.endswith("== the page is at its end\n"), "a command of the page ended its shell"


def test_stages_belong_to_pages() -> None:
    assert {stage.stem for stage in STAGES.glob("*.sh")} <= {page.stem for page in executed_pages(ROOT)}
