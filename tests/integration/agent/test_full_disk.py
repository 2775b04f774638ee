"""The agent's own disk is full: jobs wait for room, and one that cannot be gone on with ends with its cause."""

import asyncio
import errno
import os
import resource
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from remuda.steps.disk import has_room
from remuda.testing.agent_process import AgentProcess, follow, run_job, steps_text, until
from remuda.wire.agent_client import JobStart

Build = Callable[..., JobStart]
WAIT = "touch up; until [ -e {go} ]; do sleep 0.02; done; "


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,nr_inodes=2000", "tmpfs", disk], capture_output=True
    ).returncode:
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


async def fill_up(agent: AgentProcess) -> None:
    """By somebody who is no job, and with what the agent holds in reserve."""
    assert (agent.data / "reserve").is_dir()
    fill(agent.data / "ballast1")
    await until(lambda: not (agent.data / "reserve").exists())
    fill(agent.data / "ballast2")


async def test_jobs_wait_for_room(small: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    script = WAIT.format(go="go") + "for n in $(seq 2000); do echo line $n; done; touch printed"
    job = a_job(steps=steps_text({"name": "a", "script": script}, {"name": "b", "script": "echo next"}))
    async with small.client() as client:
        await client.start(job)
        await until((tmp_path / "work/up").exists)
        await fill_up(small)
        (tmp_path / "work/go").touch()
        await until((tmp_path / "work/printed").exists)
        for path in small.data.glob("ballast*"):
            path.unlink()
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


FILL = "dd if=/dev/zero of=fill bs=4096 2>/dev/null"
MANY = "n=0; while : >file$n; do n=$((n+1)); done"
WELL = "until [ -e {go} ]; do sleep 0.05; done; for n in $(seq 200); do echo line $n; done"


@pytest.mark.parametrize(
    "script",
    [
        f"{FILL} || sleep 600",
        pytest.param(f"{FILL}", marks=pytest.mark.long),
        pytest.param(f"while :; do {FILL}; sleep 0.01; done", marks=pytest.mark.long),
        pytest.param(f"({MANY}) 2>/dev/null; sleep 600", marks=pytest.mark.long),
        pytest.param(f"setsid sh -c 'while :; do {FILL}; sleep 0.01; done' & sleep 600", marks=pytest.mark.long),
    ],
)
async def test_a_job_that_fills_the_disk_stalls_no_other_and_may_free_it(
    small: AgentProcess, a_job: Build, disk: Path, tmp_path: Path, script: str
) -> None:
    free = {"name": "after", "script": "rm -f fill file*; echo freed", "if": "always()"}
    bad = a_job("bad", work_dir=str(disk / "bad"), steps=steps_text({"name": "build", "script": script}, free))
    steps = [{"name": "a", "script": WELL.format(go=tmp_path / "go")}, {"name": "b", "script": "echo next"}]
    good = a_job("good", work_dir=str(disk / "good"), steps=steps_text(*steps))
    async with small.client() as client:
        await client.start(good)
        await client.start(bad)
        await until(lambda: not has_room(disk))
        (tmp_path / "go").touch()
        async with asyncio.timeout(100):
            seen = await follow(client, "good")
            assert seen.check().status == "success", seen.log
            assert seen.lines == [b"line %d" % n for n in range(1, 201)] + [b"next"]
            spoilt = await follow(client, "bad")
    end = spoilt.check()
    assert spoilt.lines == [b"freed"]
    assert spoilt.statuses == {"build": "failure", "after": "success"}
    assert (end.status, end.reason) == ("failure", "script_failure")
    assert "has filled the disk" in end.message
    assert has_room(disk)
