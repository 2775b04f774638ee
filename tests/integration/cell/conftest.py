"""What tests of the cell's edge begin with."""

import pytest
from tests.support.cells.served_cell import ScriptedRunner, ServedCell


@pytest.fixture
def runner(cell: ServedCell) -> ScriptedRunner:
    """A runner that takes every job."""
    return cell.new_runner()
