"""The fixture `local_groups`: groups of the plugin `local`. A conftest that imports it provides it to its tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.machines.local_groups import LocalGroups


@pytest.fixture
async def local_groups(tmp_path: Path) -> AsyncIterator[LocalGroups]:
    """Groups in a temporary folder; their machines are removed after the test."""
    if missing := LocalGroups.missing():
        pytest.skip(missing)
    async with LocalGroups(tmp_path) as local_groups:
        yield local_groups
