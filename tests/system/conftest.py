"""Fixtures of the system tests: a lab in a folder of its own, and an ordinary client (python-gitlab) for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.testing.lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "lab") as running:
        yield running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of these take long."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("long")
