"""A strict server and a manager to point at it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.runners.manager_bench import ManagerBench

from remuda.testing.coordinator import Coordinator
from remuda.testing.environment import FakeEnvironment


@pytest.fixture
async def bench(tmp_path: Path, coordinator: Coordinator) -> AsyncIterator[ManagerBench]:
    bench = ManagerBench(tmp_path, coordinator)
    yield bench
    await bench.close()


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[FakeEnvironment]:
    fake = FakeEnvironment(tmp_path)
    yield fake
    await fake.remove()
