"""The end of a child process is noticed without a pidfd, and after the child has closed its connection."""

import asyncio
import errno
import os
import signal
import socket
import sys

import pytest

from remuda.steps.process.kernel import Pulse
from remuda.steps.process.step_process import StepProcess


def spawn_sleeper() -> int:
    return os.posix_spawn(sys.executable, [sys.executable, "-c", "import signal; signal.pause()"], {})


async def test_a_child_without_pidfd_is_polled_by_the_pulse_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_pid: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    pulse, delays = Pulse(), list[float]()
    pid = spawn_sleeper()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", fail)
        process = StepProcess(pid, start=None, child=True, pulse=pulse, wake=lambda: None)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "call_later", lambda delay, *_: delays.append(delay))
            for _ in range(3):
                process._check()
        assert delays == []
    finally:
        os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        await process.exited.wait()
    assert process.status == -signal.SIGKILL


async def test_a_child_that_has_closed_its_connection_is_reaped_when_it_ends() -> None:
    ours, theirs = socket.socketpair()
    pid = spawn_sleeper()
    process = StepProcess(pid, start=None, child=True, pulse=Pulse(), wake=lambda: None, line=os.dup(ours.fileno()))
    ours.close()
    theirs.close()
    await asyncio.sleep(0)
    assert not process.exited.is_set()
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        await process.exited.wait()
    assert process.status == -signal.SIGKILL
