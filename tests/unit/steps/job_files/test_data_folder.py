"""The agent's data folder: its socket, log and format."""

import logging
import resource
import shutil
import socket
from pathlib import Path

import pytest

from remuda.steps.errors import AgentError
from remuda.steps.job_files.data_folder import announce, occupy, socket_path


def create_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def test_the_socket_is_removed_with_its_agent(tmp_path: Path) -> None:
    with socket_path(tmp_path, None) as path:
        create_socket(path)
        announce(tmp_path, path)
    assert list(tmp_path.iterdir()) == []


def test_an_agent_whose_folder_was_replaced_keeps_the_socket_of_the_next_agent(tmp_path: Path) -> None:
    data = tmp_path / "agent"
    data.mkdir()
    with socket_path(data, None) as path:
        data.rmdir()
        data.mkdir()
        create_socket(path)
        announce(data, path)
    assert path.exists()
    assert (data / "socket").read_text() == f"{path}\n"
    with socket_path(data, None):
        shutil.rmtree(data)


def test_a_file_that_is_not_a_socket_is_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("text")
    with socket_path(tmp_path, tmp_path / "thesis"):
        pass
    assert (tmp_path / "thesis").read_text() == "text"


def test_a_log_that_cannot_be_written_prints_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with occupy(tmp_path / "agent"):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            logging.getLogger("remuda.steps").warning("this is lost")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert capsys.readouterr().err == ""


@pytest.mark.parametrize("damaged", [b"", bytes(2), b"\xe0\xff\x01"], ids=["empty", "zeros", "garbage"])
def test_a_damaged_format_file_is_replaced(tmp_path: Path, damaged: bytes) -> None:
    data = tmp_path / "agent"
    with occupy(data):
        (data / "jobs").mkdir()
    (data / "format").write_bytes(damaged)
    with occupy(data) as exists:
        assert exists()
    assert (data / "format").read_text() == "1\n"


def test_the_folder_of_a_newer_agent_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "agent"
    with occupy(data):
        pass
    (data / "format").write_text("2\n")
    with pytest.raises(AgentError, match="has format 2, this agent knows 1"), occupy(data):
        pass
