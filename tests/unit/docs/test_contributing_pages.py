"""Every path and function that the pages for contributors name exists."""

import ast
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


HOP = re.compile(r"`([\w/]+\.py)`\s+`([A-Za-z_][\w.]*)`")
WAY = (ROOT / "docs" / "contributing" / "a-jobs-way.md").read_text()


@pytest.mark.parametrize(("file", "name"), sorted(set(HOP.findall(WAY))))
def test_every_function_on_a_jobs_way_exists(file: str, name: str) -> None:
    nodes: list[ast.AST] = [ast.parse((ROOT / "src" / "remuda" / file).read_text())]
    for part in name.split("."):
        inner = [child for node in nodes for child in ast.iter_child_nodes(node)]
        named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        nodes = [child for child in inner if isinstance(child, named) and child.name == part]
    assert nodes, f"{file} has no {name}"


def test_a_jobs_way_is_short() -> None:
    assert len(re.findall(r"^\d+\. ", WAY, re.MULTILINE)) < 60, "hops"
    assert len({file for file, _ in HOP.findall(WAY)}) <= 80, "modules"
