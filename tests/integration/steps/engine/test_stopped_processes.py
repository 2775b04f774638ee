"""Stopped or frozen processes do not block a job: it ends at its deadline, or when it is cancelled."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

import pytest
from tests.support.step_jobs import Build

from remuda.steps.policy import sandbox
from remuda.testing.agent_process import AgentProcess, follow, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import JobStart

AFTER = {"name": "after", "script": "echo after", "if": "always()"}
LONG = pytest.mark.long
FREEZER = Path("/sys/fs/cgroup/freezer")


def find_descendants(parent: int, name: bytes) -> list[int]:
    """Descendants of a process that have this name."""
    pids = []
    with suppress(OSError):
        for pid in map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()):
            with suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_bytes().strip() == name:
                    pids.append(pid)
            pids += find_descendants(pid, name)
    return pids


async def run_and_disturb(
    agent: AgentProcess, job: JobStart, up: Path, stop: Callable[[], object]
) -> tuple[str, list[bytes]]:
    """Start a job, call `stop` once its script runs, and wait for its end. Returns the reason and the output lines."""
    async with agent.client() as client:
        await client.start(job)
        await until(up.exists)
        stop()
        async with asyncio.timeout(60):
            seen = await follow(client, job.id)
    return seen.check().reason, seen.lines


@pytest.mark.parametrize("target", ["shim", *(pytest.param(target, marks=LONG) for target in ("itself", "group"))])
async def test_stopped_step_ends_at_deadline(agent: AgentProcess, a_job: Build, tmp_path: Path, target: str) -> None:
    stop = {"itself": "kill -STOP $$", "group": "kill -STOP 0", "shim": "kill -STOP $PPID"}[target]
    steps = steps_text({"name": "build", "script": f"touch up; {stop}; sleep 600"}, AFTER)
    job = a_job(steps=steps, timeout_seconds=1)
    assert await run_and_disturb(agent, job, tmp_path / "work/up", lambda: None) == (
        "job_execution_timeout",
        [b"after"],
    )


async def test_a_stopped_step_may_tidy_up(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    """A stopped process handles SIGTERM only after it continues."""
    script = "trap 'touch tidied; exit 1' TERM; touch up; kill -STOP $$; while :; do sleep 0.05; done"
    job = a_job(steps=steps_text({"name": "build", "script": script}, AFTER))

    async with agent.client() as client:
        await client.start(job)
        await until((tmp_path / "work/up").exists)
        await client.cancel(job.id)
        async with asyncio.timeout(60):
            seen = await follow(client, job.id)
    assert seen.check().reason == "job_canceled"
    assert (tmp_path / "work/tidied").exists()


@pytest.mark.skipif(sandbox.problem() is not None, reason=f"no sandbox here: {sandbox.problem()}")
@pytest.mark.parametrize("indexes", [(1,), *(pytest.param(indexes, marks=LONG) for indexes in ((0,), (0, 1)))])
async def test_a_sandbox_with_a_stopped_process_ends_at_the_deadline(
    agent: AgentProcess, a_job: Build, tmp_path: Path, indexes: tuple[int, ...]
) -> None:
    """Stops the process that created the sandbox, the first process in it, or both."""
    steps = steps_text({"name": "build", "script": "touch up; sleep 600"}, AFTER)
    (tmp_path / "work").mkdir()

    def stop() -> None:
        pids = find_descendants(agent.pid, b"bwrap")
        for index in indexes:
            os.kill(pids[index], signal.SIGSTOP)

    job = a_job(steps=steps, timeout_seconds=1, sandbox=True)
    assert await run_and_disturb(agent, job, tmp_path / "work/up", stop) == ("job_execution_timeout", [b"after"])


@pytest.fixture
def freeze() -> Iterator[Callable[[int], None]]:
    """Put a process into a frozen cgroup. Like a process that waits for a broken device, it cannot be killed."""
    group = FREEZER / f"remuda-{token_hex(4)}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("needs control groups of version 1, and the right to make one")

    pids: list[int] = []

    def freeze_process(pid: int) -> None:
        pids.append(pid)
        (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")

    yield freeze_process
    (group / "freezer.state").write_text("THAWED")
    for pid in pids:
        with suppress(OSError):  # the process has been killed
            (FREEZER / "cgroup.procs").write_text(str(pid))
    for _ in range(500):
        with suppress(OSError):
            group.rmdir()
            break
        os.sched_yield()


@LONG
async def test_a_job_ends_though_a_process_cannot_be_killed(
    agent: AgentProcess, a_job: Build, tmp_path: Path, freeze: Callable[[int], None]
) -> None:
    steps = steps_text({"name": "build", "script": "echo $PPID >pid; touch up; sleep 600"}, AFTER)
    async with agent.client() as client:
        await client.start(a_job(steps=steps, timeout_seconds=1))
        await until((tmp_path / "work/up").exists)
        pid = int((tmp_path / "work/pid").read_text())
        freeze(pid)
        async with asyncio.timeout(120):
            seen = await follow(client, "1")
        assert seen.check().reason == "job_execution_timeout"
        assert seen.lines == [b"after"]
        assert any(b"cannot be ended" in line and b" %d (" % pid in b" " + line for line in seen.agent_lines), seen.log
        async with asyncio.timeout(60):
            await client.close_job("1")
        assert not (await client.hello()).jobs
