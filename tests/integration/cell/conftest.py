"""Fixtures of the tests of a served cell."""

import gitlab
import pytest
from tests.support.cells.served_cell import ScriptedRunner, ServedCell


@pytest.fixture
def runner(cell: ServedCell) -> ScriptedRunner:
    """A runner that takes every job."""
    return cell.new_runner()


@pytest.fixture
def client(cell: ServedCell) -> gitlab.Gitlab:
    """A client of python-gitlab with the administrator's token."""
    return gitlab.Gitlab(cell.url, private_token=cell.token)
