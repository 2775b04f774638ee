"""Pipes that steps print into."""

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
    made = Drains()
    yield made
    made.close()


def test_what_is_printed_comes_behind_what_was_there(tmp_path: Path) -> None:
    pipe, printing = Pipe.make()
    raw = tmp_path / "raw"
    assert pipe.take(str(raw)) == 0
    assert not raw.exists()
    os.write(printing, b"one\n")
    assert pipe.count_waiting() == 4
    assert pipe.take(str(raw)) == 4
    os.write(printing, b"two\nthree\n")
    assert pipe.take(str(raw), 4) == 4
    assert raw.read_bytes() == b"one\ntwo\n"
    assert pipe.take(str(raw)) == 6
    assert raw.read_bytes() == b"one\ntwo\nthree\n"
    os.close(printing)
    assert pipe.take(str(raw)) == 0
    pipe.close()


def test_a_pipe_that_is_much_used_is_widened(tmp_path: Path) -> None:
    pipe, printing = Pipe.make()
    fill(printing)
    first = pipe.take(str(tmp_path / "raw"))
    fill(printing)
    assert first < pipe.count_waiting() <= TAKE_BYTES
    os.close(printing)
    pipe.close()


def test_whoever_prints_can_open_its_output_anew(tmp_path: Path) -> None:
    pipe, printing = Pipe.make()
    subprocess.run(["/bin/sh", "-c", "echo one; echo two >/dev/stdout; echo three"], stdout=printing, check=True)
    os.close(printing)
    pipe.take(str(tmp_path / "raw"))
    pipe.close()
    assert (tmp_path / "raw").read_text() == "one\ntwo\nthree\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_another_user_can_too(tmp_path: Path) -> None:
    pipe, printing = Pipe.make((65534, 65534))
    command = ["/bin/sh", "-c", "echo two >/dev/stdout"]
    subprocess.run(command, stdout=printing, check=True, user=65534, group=65534, extra_groups=[])
    os.close(printing)
    pipe.take(str(tmp_path / "raw"))
    pipe.close()
    assert (tmp_path / "raw").read_text() == "two\n"


def test_the_next_agent_finds_what_nobody_read(tmp_path: Path) -> None:
    pipe, printing = Pipe.make()
    with subprocess.Popen(["/bin/sh", "-c", "echo ready; kill -STOP $$"], stdout=printing) as process:
        os.close(printing)
        while not pipe.count_waiting():
            os.sched_yield()
        pipe.close()
        found = Pipe.open_of(process.pid)
        assert found is not None
        assert found.take(str(tmp_path / "raw")) == 6
        found.close()
        process.kill()
    assert Pipe.open_of(process.pid) is None


def test_an_ordinary_pipe_is_nobodys_output() -> None:
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert Pipe.open_of(process.pid) is None
        process.kill()


def fill(printing: int) -> None:
    os.set_blocking(printing, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(printing, b"x" * 4096):
            pass


async def test_it_calls_back_once() -> None:
    pipe, printing = Pipe.make()
    called = asyncio.Event()
    pipe.arm(called.set)
    pipe.arm(called.set)
    os.write(printing, b"x")
    await asyncio.wait_for(called.wait(), 10)
    called.clear()
    os.write(printing, b"x")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not called.is_set()
    os.close(printing)
    pipe.close()


PRINTS = "import sys\nfor _ in range(64): sys.stdout.write('x' * 65536)\n"


async def test_what_is_left_running_does_not_wait(drains: Drains) -> None:
    pipe, printing = Pipe.make()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PRINTS, stdout=printing)
    os.close(printing)
    drains.add(pipe)
    assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_what_an_earlier_agent_left_running_does_not_wait_either(drains: Drains) -> None:
    pipe, printing = Pipe.make()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PRINTS, stdout=printing)
    os.close(printing)
    pipe.close()
    start = start_time(process.pid)
    assert start is not None
    drains.adopt([Leftover(session=process.pid, processes=((process.pid, start),))])
    assert await asyncio.wait_for(process.wait(), 60) == 0
