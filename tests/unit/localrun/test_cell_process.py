"""The cell of a local run as a separate process: serving, errors at its start, and its end."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from remuda.cell.errors import CellError
from remuda.cell.settings import CellSettings
from remuda.cli.exits import first_cause
from remuda.lib.exits import CommandError
from remuda.localrun.cell_process import CellProcess, Task


def task(folder: Path) -> Task:
    settings = CellSettings(data=folder / "cell", port=0)
    return Task(folder=folder, settings=settings, log=folder / "log", log_level="warning", ends_with_run=True)


def is_gone(process: CellProcess) -> bool:
    try:
        os.kill(process._pid, 0)
    except ProcessLookupError:
        return True
    return False


def query_version(process: CellProcess, folder: Path) -> str:
    """Serve a cell until it has answered a request for its version."""

    async def ask() -> str:
        async with process.serve(task(folder), lambda text: None) as cell:
            version = await cell.client.call("GET", "/api/v4/version", None)
            return str(version)

    return asyncio.run(ask())


def test_it_serves_and_stops(tmp_path: Path) -> None:
    process = CellProcess()
    assert "version" in query_version(process, tmp_path)
    assert is_gone(process)


def test_a_failed_start_raises_its_cause(tmp_path: Path) -> None:
    (tmp_path / "cell").write_text("no folder")
    process = CellProcess()
    with pytest.raises(ExceptionGroup) as caught:
        query_version(process, tmp_path)
    assert isinstance(first_cause(caught.value), CellError)
    assert is_gone(process)


def test_a_dead_process_is_reported(tmp_path: Path) -> None:
    process = CellProcess()
    os.kill(process._pid, signal.SIGKILL)
    os.waitid(os.P_PID, process._pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ExceptionGroup) as caught:
        query_version(process, tmp_path)
    error = first_cause(caught.value)
    assert isinstance(error, CommandError)
    assert "the cell has ended" in str(error)
    assert is_gone(process)


def test_without_a_task_it_ends_with_its_parents_connection() -> None:
    process = CellProcess()
    process._connection.close()
    os.waitid(os.P_PID, process._pid, os.WEXITED | os.WNOWAIT)
    process.end()
    assert is_gone(process)


def test_a_second_end_does_not_kill_a_process_that_has_got_the_same_id() -> None:
    process = CellProcess()
    process.end()
    with subprocess.Popen(["sleep", "60"]) as other:
        process._pid = other.pid
        process.end()
        assert other.poll() is None
        other.kill()
