"""Fixtures of the system tests: a lab, which has a cell, a manager and an agent as real processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.testing.lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "lab") as running:
        yield running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all system tests as long."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("long")
