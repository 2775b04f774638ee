"""Scalers in virtual time."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.testing.scalers import Stable


@pytest.fixture
async def stable(tmp_path: Path) -> AsyncIterator[Stable]:
    """Scalers on one cloud, not started yet. They are closed after the test."""
    stable = Stable(tmp_path)
    yield stable
    await stable.close()
