"""Finding and ending the processes that a step left running, with real `sleep` processes."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.lib.clock import SystemClock
from remuda.steps.job_files.journal import Journal
from remuda.steps.process import leftovers, shim
from remuda.steps.process.job_processes import JobProcesses
from remuda.wire.proto.agent_pb2 import StartRequest


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process in its own session."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as running:
        yield running
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)


def read_start_time(process: subprocess.Popen[bytes]) -> int:
    start = shim.start_time(process.pid)
    assert start is not None
    return start


def test_nothing_is_found_of_a_session_that_has_ended(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    claim = (process.pid, read_start_time(process))
    process.kill()
    process.wait()
    assert leftovers.find(claim) is None


async def test_a_reused_process_id_is_not_killed(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    assert leftovers.find((process.pid, read_start_time(process) - 1)) is None
    leftovers.kill([leftovers.Leftover(session=process.pid, processes=((process.pid, read_start_time(process) - 1),))])
    assert process.poll() is None


async def test_leftover_processes_are_ended(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    leftover = leftovers.find((process.pid, read_start_time(process)))
    assert leftover == leftovers.Leftover(session=process.pid, processes=((process.pid, read_start_time(process)),))
    processes = JobProcesses("key", {leftover.session: leftover.processes})
    await leftovers.terminate(processes, SystemClock())
    assert await leftovers.end(processes) == ()
    assert shim.start_time(process.pid) is None


def test_the_journal_stores_leftovers(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, StartRequest(id="7", steps="x"), 12.5)
    leftover = leftovers.Leftover(session=5, processes=((5, 100), (6, 101)))
    journal.record_leftover(leftover)
    assert Journal(journal.folder).leftovers == [leftover]
