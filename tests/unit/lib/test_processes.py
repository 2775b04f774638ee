"""`reap` returns the exit code of a killed process, even if its pipes are full or open in another process."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator

import pytest

from remuda.lib.processes import reap

FILL_THE_PIPE = "head -c 10000000 /dev/zero; exec sleep 60"
PIPE_OPEN_IN_A_CHILD = "setsid sleep 60 & echo $!; exec sleep 60"


async def start(script: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec("/bin/sh", "-c", script, stdin=DEVNULL, stdout=PIPE)


async def test_reap_a_process_with_unread_output() -> None:
    process = await start(FILL_THE_PIPE)
    await asyncio.sleep(0.5)  # the stream reader has filled its buffer
    process.kill()
    async with asyncio.timeout(10):
        assert await reap(process) == -9


async def test_reap_a_process_whose_pipe_a_child_has_open() -> None:
    process = await start(PIPE_OPEN_IN_A_CHILD)
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
    """Let the event loop collect exit codes, as it does from Python 3.12 on; the thread of older Pythons could do so
    at any moment."""
    if sys.version_info < (3, 12):
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
    yield
    if sys.version_info < (3, 12):
        asyncio.get_event_loop_policy().set_child_watcher(None)  # type: ignore[arg-type]


@pytest.mark.usefixtures("watch_in_the_event_loop")
async def test_reap_a_process_that_died_before_the_event_loop_noticed() -> None:
    process = await start("exec sleep 60")
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - the event loop must not run meanwhile
    assert await reap(process) == -9


async def test_reap_a_process_that_has_ended() -> None:
    process = await start("echo text; exit 3")
    assert (await process.communicate())[0] == b"text\n"
    assert await reap(process) == 3
