"""Every path that the pages for contributors name exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs" / "contributing").glob("*.md"))
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.py)`")
PLANNED = {"cellrouter", "fleet", "jobrouter"}


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_path_exists(page: Path) -> None:
    names = PATH.findall(page.read_text())
    assert names
    missing = [
        name for name in names if not any((base / name).exists() for base in (ROOT / "src/remuda", ROOT, ROOT / "src"))
    ]
    assert missing == []


@pytest.mark.parametrize("name", sorted(PLANNED))
def test_a_planned_package_is_not_built(name: str) -> None:
    assert not (ROOT / "src" / "remuda" / name).exists(), f"docs/contributing/seed-documents.md calls {name} not built"
