"""The fixture `yard`: machines of the plugin `local`. A conftest that imports it gives it to its tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.machines.local_yard import Yard


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[Yard]:
    """A folder for one group of machines; everything of it is removed after the test."""
    if missing := Yard.missing():
        pytest.skip(missing)
    async with Yard(tmp_path) as yard:
        yield yard
