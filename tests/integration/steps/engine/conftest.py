from pathlib import Path

import pytest


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """An empty working directory."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder
