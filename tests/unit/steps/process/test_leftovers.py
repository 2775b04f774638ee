"""What is touched and what is not, with real processes: sessions of `sleep` that each test ends."""

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
    """A process in a session of its own."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as running:
        yield running
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)


def started(process: subprocess.Popen[bytes]) -> int:
    start = shim.start_time(process.pid)
    assert start is not None
    return start


def test_nothing_is_left_of_a_session_that_is_gone(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    claim = (process.pid, started(process))
    process.kill()
    process.wait()
    assert leftovers.find(claim) is None


async def test_a_number_that_was_given_away_again_is_somebody_elses(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    assert leftovers.find((process.pid, started(process) - 1)) is None
    leftovers.kill([leftovers.Leftover(session=process.pid, processes=((process.pid, started(process) - 1),))])
    assert process.poll() is None


async def test_what_is_left_ends(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    found = leftovers.find((process.pid, started(process)))
    assert found == leftovers.Leftover(session=process.pid, processes=((process.pid, started(process)),))
    processes = JobProcesses("key", {found.session: found.processes})
    await leftovers.terminate(processes, SystemClock())
    assert await leftovers.end(processes) == ()
    assert shim.start_time(process.pid) is None


def test_the_journal_remembers(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, StartRequest(id="7", steps="x"), 12.5)
    leftover = leftovers.Leftover(session=5, processes=((5, 100), (6, 101)))
    journal.record_leftover(leftover)
    assert Journal(journal.folder).leftovers == [leftover]
