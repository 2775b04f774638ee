"""Fixtures of the tests of a served cell."""

import pytest
from tests.support.cells.served_cell import ScriptedRunner, ServedCell


@pytest.fixture
def runner(cell: ServedCell) -> ScriptedRunner:
    """A runner that takes every job."""
    return cell.new_runner()
