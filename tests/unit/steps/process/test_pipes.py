"""Pipes for the output of steps."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.steps.process.leftovers import Leftover
from remuda.steps.process.pipes import TAKE_BYTES, Drains, Pipe
from remuda.steps.process.shim import start_time


@pytest.fixture
async def drains() -> AsyncIterator[Drains]:
    drains = Drains()
    yield drains
    drains.close()


def test_output_is_appended_to_the_file(tmp_path: Path) -> None:
    pipe, write_end = Pipe.make()
    raw = tmp_path / "raw"
    assert pipe.take(str(raw)) == 0
    assert not raw.exists()
    os.write(write_end, b"one\n")
    assert pipe.count_waiting() == 4
    assert pipe.take(str(raw)) == 4
    os.write(write_end, b"two\nthree\n")
    assert pipe.take(str(raw), 4) == 4
    assert raw.read_bytes() == b"one\ntwo\n"
    assert pipe.take(str(raw)) == 6
    assert raw.read_bytes() == b"one\ntwo\nthree\n"
    os.close(write_end)
    assert pipe.take(str(raw)) == 0
    pipe.close()


def test_a_full_pipe_is_enlarged(tmp_path: Path) -> None:
    pipe, write_end = Pipe.make()
    fill(write_end)
    first = pipe.take(str(tmp_path / "raw"))
    fill(write_end)
    assert first < pipe.count_waiting() <= TAKE_BYTES
    os.close(write_end)
    pipe.close()


def test_a_command_can_reopen_its_output(tmp_path: Path) -> None:
    pipe, write_end = Pipe.make()
    subprocess.run(["/bin/sh", "-c", "echo one; echo two >/dev/stdout; echo three"], stdout=write_end, check=True)
    os.close(write_end)
    pipe.take(str(tmp_path / "raw"))
    pipe.close()
    assert (tmp_path / "raw").read_text() == "one\ntwo\nthree\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_command_of_another_user_can_reopen_its_output(tmp_path: Path) -> None:
    pipe, write_end = Pipe.make((65534, 65534))
    command = ["/bin/sh", "-c", "echo two >/dev/stdout"]
    subprocess.run(command, stdout=write_end, check=True, user=65534, group=65534, extra_groups=[])
    os.close(write_end)
    pipe.take(str(tmp_path / "raw"))
    pipe.close()
    assert (tmp_path / "raw").read_text() == "two\n"


def test_a_new_agent_reads_the_remaining_output(tmp_path: Path) -> None:
    pipe, write_end = Pipe.make()
    with subprocess.Popen(["/bin/sh", "-c", "echo ready; kill -STOP $$"], stdout=write_end) as process:
        os.close(write_end)
        while not pipe.count_waiting():
            os.sched_yield()
        pipe.close()
        reopened = Pipe.open_of(process.pid)
        assert reopened is not None
        assert reopened.take(str(tmp_path / "raw")) == 6
        reopened.close()
        process.kill()
    assert Pipe.open_of(process.pid) is None


def test_an_ordinary_pipe_is_not_the_output_of_a_step() -> None:
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert Pipe.open_of(process.pid) is None
        process.kill()


def fill(write_end: int) -> None:
    os.set_blocking(write_end, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(write_end, b"x" * 4096):
            pass


async def test_an_armed_pipe_calls_back_once() -> None:
    pipe, write_end = Pipe.make()
    called = asyncio.Event()
    pipe.arm(called.set)
    pipe.arm(called.set)
    os.write(write_end, b"x")
    await asyncio.wait_for(called.wait(), 10)
    called.clear()
    os.write(write_end, b"x")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not called.is_set()
    os.close(write_end)
    pipe.close()


PRINT_PROGRAM = "import sys\nfor _ in range(64): sys.stdout.write('x' * 65536)\n"


async def start_printing() -> tuple[asyncio.subprocess.Process, Pipe]:
    """Start a process that prints more than fits into a pipe."""
    pipe, write_end = Pipe.make()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PRINT_PROGRAM, stdout=write_end)
    os.close(write_end)
    return process, pipe


async def test_a_leftover_process_does_not_block_on_its_output(drains: Drains) -> None:
    process, pipe = await start_printing()
    drains.add(pipe)
    assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_a_leftover_process_of_an_earlier_agent_does_not_block_on_its_output(drains: Drains) -> None:
    process, pipe = await start_printing()
    pipe.close()
    start = start_time(process.pid)
    assert start is not None
    drains.adopt([Leftover(session=process.pid, processes=((process.pid, start),))])
    assert await asyncio.wait_for(process.wait(), 60) == 0
