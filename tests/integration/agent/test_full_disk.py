"""The agent's own disk is full: jobs wait for room, and one that cannot be gone on with ends with its cause."""

import asyncio
import errno
import os
import resource
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from remuda.testing.agent_process import AgentProcess, follow, run_job, steps_text, until
from remuda.wire.agent_client import JobStart

Build = Callable[..., JobStart]
WAIT = "touch up; until [ -e {go} ]; do sleep 0.02; done; "


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("needs the right to mount a disk")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.fixture
async def small(disk: Path) -> AsyncIterator[AgentProcess]:
    """An agent on a disk of its own."""
    async with AgentProcess(disk / "data") as process:
        await process.start()
        yield process


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


async def test_jobs_wait_for_room(small: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    script = WAIT.format(go="go") + "for n in $(seq 2000); do echo line $n; done; touch printed"
    job = a_job(steps=steps_text({"name": "a", "script": script}, {"name": "b", "script": "echo next"}))
    async with small.client() as client:
        await client.start(job)
        await until((tmp_path / "work/up").exists)
        fill(small.data / "ballast")
        (tmp_path / "work/go").touch()
        await until((tmp_path / "work/printed").exists)
        (small.data / "ballast").unlink()
        seen = await follow(client, "1")
    assert seen.check().status == "success"
    assert seen.lines == [b"line %d" % n for n in range(1, 2001)] + [b"next"]
    assert any(b"for room on the disk" in line for line in seen.agent_lines)


async def test_a_job_whose_log_cannot_be_written_says_why(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    inner = {"name": "inner", "script": WAIT.format(go="go") + "echo lost; sleep 600"}
    job = a_job(steps=steps_text({"name": "outer", "parallel": [inner]}))
    async with agent.client() as client:
        await client.start(job)
        await until((tmp_path / "work/up").exists)
        # As a full disk, only for all files of this agent, and at once.
        before = resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        (tmp_path / "work/go").touch()
        async with asyncio.timeout(20):
            seen = await follow(client, "1")
        end = seen.check()
        assert (end.status, end.reason) == ("failure", "runner_system_failure")
        assert seen.agent_lines[-1].startswith(b"ERROR: Job failed (system failure): ")
        assert os.strerror(errno.EFBIG).encode() in seen.agent_lines[-1]
        assert seen.statuses == {"inner": "failure", "outer": "failure"}
        resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, before)
        await client.close_job("1")
    assert (await run_job(agent, a_job("2", script="echo next"))).lines == [b"next"]
