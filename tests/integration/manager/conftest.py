"""Fixtures: a manager that uses the strict coordinator, and a fake environment."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.runners.manager_harness import ManagerHarness

from remuda.testing.coordinator import Coordinator
from remuda.testing.environment import FakeEnvironment


@pytest.fixture
async def harness(tmp_path: Path, coordinator: Coordinator) -> AsyncIterator[ManagerHarness]:
    harness = ManagerHarness(tmp_path, coordinator)
    yield harness
    await harness.close()


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[FakeEnvironment]:
    fake = FakeEnvironment(tmp_path)
    yield fake
    await fake.remove()
