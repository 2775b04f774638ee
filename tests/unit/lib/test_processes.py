"""Processes that were killed are waited for, whatever lies in their pipes and whoever else has these open."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator

import pytest

from remuda.lib.processes import reap

FLOOD = "head -c 10000000 /dev/zero; exec sleep 60"
HELD_BY_ANOTHER = "setsid sleep 60 & echo $!; exec sleep 60"


async def start(script: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec("/bin/sh", "-c", script, stdin=DEVNULL, stdout=PIPE)


async def test_a_process_whose_output_nobody_reads() -> None:
    process = await start(FLOOD)
    await asyncio.sleep(0.5)  # the reader has taken as much as it takes by itself
    process.kill()
    async with asyncio.timeout(10):
        assert await reap(process) == -9


async def test_a_process_whose_pipe_a_child_has_open() -> None:
    process = await start(HELD_BY_ANOTHER)
    assert process.stdout is not None
    child = (await process.stdout.readline()).decode().strip()
    process.kill()
    try:
        async with asyncio.timeout(10):
            assert await reap(process) == -9
    finally:
        await (await asyncio.create_subprocess_exec("kill", child)).wait()


@pytest.fixture
def watch_in_the_event_loop() -> Iterator[None]:
    """Let the event loop collect exit codes, as it does from Python 3.12 on, and not a thread at any moment."""
    if sys.version_info < (3, 12):
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
    yield
    if sys.version_info < (3, 12):
        asyncio.get_event_loop_policy().set_child_watcher(None)  # type: ignore[arg-type]


@pytest.mark.usefixtures("watch_in_the_event_loop")
async def test_a_process_that_died_before_the_event_loop_saw_it() -> None:
    process = await start("exec sleep 60")
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - meant
    assert await reap(process) == -9


async def test_a_process_that_has_ended() -> None:
    process = await start("echo text; exit 3")
    assert (await process.communicate())[0] == b"text\n"
    assert await reap(process) == 3
