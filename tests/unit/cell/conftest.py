import pytest

from remuda.testing.memory_cell import MemoryCell


@pytest.fixture
async def cell() -> MemoryCell:
    return await MemoryCell.open()
