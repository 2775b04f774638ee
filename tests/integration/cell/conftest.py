"""A real cell for each test, and what tests of its edge begin with."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

from remuda.telemetry.logs import configure


@pytest.fixture(scope="session", autouse=True)
def _quiet() -> None:
    """A cell in a thread logs while pytest swaps the standard streams."""
    configure(level="error", log_format="text", stream=sys.__stderr__)


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[ServedCell]:
    """A cell that serves."""
    with ServedCell(tmp_path / "cell") as served:
        yield served


@pytest.fixture
def runner(cell: ServedCell) -> ScriptedRunner:
    """A runner that takes every job."""
    return cell.new_runner()
