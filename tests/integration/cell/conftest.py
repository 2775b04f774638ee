"""Fixtures of the tests of a served cell."""

from collections.abc import Iterator

import gitlab
import pytest
from tests.support.cells.served_cell import ScriptedRunner, ServedCell
from tests.support.servers.hook_receiver import Receiver, receive_hooks


@pytest.fixture
def runner(cell: ServedCell) -> ScriptedRunner:
    """A runner that takes every job."""
    return cell.new_runner()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A server that receives the requests of webhooks."""
    with receive_hooks() as server:
        yield server


@pytest.fixture
def client(cell: ServedCell) -> gitlab.Gitlab:
    """A client of python-gitlab with the administrator's token."""
    return gitlab.Gitlab(cell.url, private_token=cell.token)
