"""The agent's data folder."""

import logging
import resource
import shutil
import socket
from pathlib import Path

import pytest

from remuda.steps.errors import AgentError
from remuda.steps.job_files.data_folder import announce, occupy, socket_path


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def test_the_socket_goes_with_its_agent(tmp_path: Path) -> None:
    with socket_path(tmp_path, None) as path:
        listen(path)
        announce(tmp_path, path)
    assert list(tmp_path.iterdir()) == []


def test_an_agent_whose_folder_was_made_anew_leaves_the_next_ones_socket_alone(tmp_path: Path) -> None:
    data = tmp_path / "agent"
    data.mkdir()
    with socket_path(data, None) as path:
        data.rmdir()
        data.mkdir()
        listen(path)
        announce(data, path)
    assert path.exists()
    assert (data / "socket").read_text() == f"{path}\n"
    with socket_path(data, None):
        shutil.rmtree(data)


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("text")
    with socket_path(tmp_path, tmp_path / "thesis"):
        pass
    assert (tmp_path / "thesis").read_text() == "text"


def test_a_log_that_cannot_be_written_makes_no_noise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with occupy(tmp_path / "agent"):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            logging.getLogger("remuda.steps").warning("nobody hears this")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert capsys.readouterr().err == ""


@pytest.mark.parametrize("damaged", [b"", bytes(2), b"\xe0\xff\x01"], ids=["empty", "zeros", "garbage"])
def test_a_damaged_format_keeps_no_agent_from_its_jobs(tmp_path: Path, damaged: bytes) -> None:
    data = tmp_path / "agent"
    with occupy(data):
        (data / "jobs").mkdir()
    (data / "format").write_bytes(damaged)
    with occupy(data) as is_there:
        assert is_there()
    assert (data / "format").read_text() == "1\n"


def test_a_folder_of_a_later_agent_is_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "agent"
    with occupy(data):
        pass
    (data / "format").write_text("2\n")
    with pytest.raises(AgentError, match="has format 2, this agent knows 1"), occupy(data):
        pass
