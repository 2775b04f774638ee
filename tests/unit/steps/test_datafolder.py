"""The agent's data folder."""

import shutil
from pathlib import Path

from remuda.steps.datafolder import announce, socket_path


def test_the_socket_goes_with_its_agent(tmp_path: Path) -> None:
    with socket_path(tmp_path, None) as path:
        path.touch()
        announce(tmp_path, path)
    assert list(tmp_path.iterdir()) == []


def test_an_agent_whose_folder_was_made_anew_leaves_the_next_ones_socket_alone(tmp_path: Path) -> None:
    data = tmp_path / "agent"
    data.mkdir()
    with socket_path(data, None) as path:
        data.rmdir()
        data.mkdir()
        path.touch()
        announce(data, path)
    assert path.exists()
    assert (data / "socket").read_text() == f"{path}\n"
    with socket_path(data, None):
        shutil.rmtree(data)
