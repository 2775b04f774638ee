"""Processes of a job that are stopped or frozen keep it from nothing: it ends at its deadline, or when cancelled."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

import pytest

from remuda.steps.policy import sandbox
from remuda.testing.agent_process import AgentProcess, follow, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import JobStart

Build = Callable[..., JobStart]
AFTER = {"name": "after", "script": "echo after", "if": "always()"}
LONG = pytest.mark.long
FREEZER = Path("/sys/fs/cgroup/freezer")


def below(parent: int, name: bytes) -> list[int]:
    """Descendants of a process whose name is this."""
    found = []
    with suppress(OSError):
        for pid in map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()):
            with suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_bytes().strip() == name:
                    found.append(pid)
            found += below(pid, name)
    return found


async def end_of(agent: AgentProcess, job: JobStart, up: Path, stop: Callable[[], object]) -> tuple[str, list[bytes]]:
    """Start a job, do something to it once it is up, and wait for its end."""
    async with agent.client() as client:
        await client.start(job)
        await until(up.exists)
        stop()
        async with asyncio.timeout(60):
            seen = await follow(client, job.id)
    return seen.check().reason, seen.lines


@pytest.mark.parametrize("who", ["shim", *(pytest.param(who, marks=LONG) for who in ("itself", "group"))])
async def test_a_stopped_step_ends_at_the_deadline(agent: AgentProcess, a_job: Build, tmp_path: Path, who: str) -> None:
    stop = {"itself": "kill -STOP $$", "group": "kill -STOP 0", "shim": "kill -STOP $PPID"}[who]
    steps = steps_text({"name": "build", "script": f"touch up; {stop}; sleep 600"}, AFTER)
    job = a_job(steps=steps, timeout_seconds=1)
    assert await end_of(agent, job, tmp_path / "work/up", lambda: None) == ("job_execution_timeout", [b"after"])


async def test_a_stopped_step_may_tidy_up(agent: AgentProcess, a_job: Build, tmp_path: Path) -> None:
    """What is stopped takes no notice of SIGTERM until it goes on."""
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
@pytest.mark.parametrize("which", [(1,), *(pytest.param(which, marks=LONG) for which in ((0,), (0, 1)))])
async def test_a_sandbox_whose_first_process_is_stopped_ends_at_the_deadline(
    agent: AgentProcess, a_job: Build, tmp_path: Path, which: tuple[int, ...]
) -> None:
    """The one that has made the sandbox, the first one in it, or both."""
    steps = steps_text({"name": "build", "script": "touch up; sleep 600"}, AFTER)
    (tmp_path / "work").mkdir()

    def stop() -> None:
        found = below(agent.pid, b"bwrap")
        for number in which:
            os.kill(found[number], signal.SIGSTOP)

    job = a_job(steps=steps, timeout_seconds=1, sandbox=True)
    assert await end_of(agent, job, tmp_path / "work/up", stop) == ("job_execution_timeout", [b"after"])


@pytest.fixture
def frozen() -> Iterator[Callable[[int], None]]:
    """Puts a process into a group that is frozen: as one that waits for a broken device, it cannot even be killed."""
    group = FREEZER / f"remuda-{token_hex(4)}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("needs control groups of version 1, and the right to make one")

    held: list[int] = []

    def freeze(pid: int) -> None:
        held.append(pid)
        (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")

    yield freeze
    (group / "freezer.state").write_text("THAWED")
    for pid in held:
        with suppress(OSError):  # it has been killed
            (FREEZER / "cgroup.procs").write_text(str(pid))
    for _ in range(500):
        with suppress(OSError):
            group.rmdir()
            break
        os.sched_yield()


@LONG
async def test_a_job_ends_though_a_process_cannot_be_killed(
    agent: AgentProcess, a_job: Build, tmp_path: Path, frozen: Callable[[int], None]
) -> None:
    steps = steps_text({"name": "build", "script": "echo $PPID >pid; touch up; sleep 600"}, AFTER)
    async with agent.client() as client:
        await client.start(a_job(steps=steps, timeout_seconds=1))
        await until((tmp_path / "work/up").exists)
        pid = int((tmp_path / "work/pid").read_text())
        frozen(pid)
        async with asyncio.timeout(120):
            seen = await follow(client, "1")
        assert seen.check().reason == "job_execution_timeout"
        assert seen.lines == [b"after"]
        assert any(b"cannot be ended" in line and b" %d (" % pid in b" " + line for line in seen.agent_lines), seen.log
        async with asyncio.timeout(60):
            await client.close_job("1")
        assert not (await client.hello()).jobs
