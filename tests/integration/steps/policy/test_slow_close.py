"""Closing a job that runs, where ending what it has on the machine takes long: others go on, and it is not gone before.

The agent is a real one in which one function waits for a file, as a slow disk, a directory service or a kernel would
have it wait.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from remuda.testing.agent_process import AgentProcess, follow, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import JobStart

SLOW = """
import importlib, pathlib, runpy, sys, time
place, module, name = pathlib.Path(sys.argv.pop(1)), importlib.import_module(sys.argv.pop(1)), sys.argv.pop(1)
real, deadline = getattr(module, name), time.monotonic() + 30
def slow(*values):
    (place / "began").touch()
    while not (place / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return real(*values)
setattr(module, name, slow)
runpy.run_module("remuda.steps", run_name="__main__", alter_sys=True)
"""
FILES = ("remuda.steps.policy.user_cleanup", "remove_files")
USERS = ("remuda.steps.policy.user_cleanup", "is_listed")
PROCESSES = ("remuda.steps.process.job_processes", "all_processes")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@asynccontextmanager
async def slow_agent(place: Path, module: str, name: str) -> AsyncIterator[AgentProcess]:
    async with AgentProcess(place / "data", (sys.executable, "-c", SLOW, str(place), module, name)) as process:
        await process.start()
        try:
            yield process
        finally:
            (place / "go").touch()


def a_job(place: Path, script: str = "touch up; sleep 60") -> JobStart:
    steps = steps_text({"name": "s", "script": script})
    return JobStart(id="1", work_dir=str(place / "work"), steps=steps, run_as="123458", own_user=True)


def a_plain_job(place: Path) -> JobStart:
    return JobStart(id="2", work_dir=str(place / "other"), steps=steps_text({"name": "s", "script": "true"}))


@pytest.mark.parametrize("slow", [FILES, USERS, PROCESSES], ids=lambda slow: slow[1])
async def test_others_go_on_and_the_job_is_there_until_it_is_done(place: Path, slow: tuple[str, str]) -> None:
    async with slow_agent(place, *slow) as agent, agent.client() as client, agent.client() as other:
        async with asyncio.timeout(20):
            await client.start(a_job(place))
            await until((place / "work/up").exists)
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            closing = tasks.create_task(client.close_job("1"), name="close")
            await until((place / "began").exists)
            again = tasks.create_task(other.close_job("1"), name="close again")
            await other.start(a_plain_job(place))
            assert (await follow(other, "2")).check().status == "success"
            assert sorted((await other.hello()).jobs) == ["1", "2"]
            assert not closing.done()
            assert not again.done()
            (place / "go").touch()
        assert list((await client.hello()).jobs) == ["2"]


async def test_a_client_that_goes_away_changes_nothing_and_the_id_is_free_after_that(place: Path) -> None:
    async with slow_agent(place, *FILES) as agent, asyncio.timeout(40):
        async with agent.client() as client, asyncio.TaskGroup() as tasks:
            await client.start(a_job(place))
            await until((place / "work/up").exists)
            closing = tasks.create_task(client.close_job("1"), name="close")
            await until((place / "began").exists)
            closing.cancel()
        async with agent.client() as client, asyncio.TaskGroup() as tasks:
            tasks.create_task(client.start(a_job(place, "echo new")), name="start")
            assert list((await client.hello()).jobs) == ["1"]
            (place / "go").touch()
        async with agent.client() as client:
            assert (await follow(client, "1")).lines == [b"new"]


async def test_an_agent_that_is_stopped_carries_it_through(place: Path) -> None:
    """The next one would take up the job again, and end it while the thread of this one goes on."""
    async with slow_agent(place, *FILES) as agent, asyncio.timeout(40):
        async with agent.client() as client, asyncio.TaskGroup() as tasks:
            await client.start(a_job(place))
            await until((place / "work/up").exists)
            closing = tasks.create_task(client.close_job("1"), name="close")
            await until((place / "began").exists)
            closing.cancel()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(agent.stop(), name="stop")
            (place / "go").touch()
        await agent.start()
        async with agent.client() as client:
            assert not (await client.hello()).jobs


async def test_others_go_on_while_users_are_looked_up(place: Path) -> None:
    async with slow_agent(place, "pwd", "getpwuid") as agent, agent.client() as client, agent.client() as other:
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            tasks.create_task(client.start(a_job(place, "echo new")), name="start")
            await until((place / "began").exists)
            await other.start(a_plain_job(place))
            assert (await follow(other, "2")).check().status == "success"
            assert list((await other.hello()).jobs) == ["2"]
            (place / "go").touch()
        assert (await follow(client, "1")).lines == [b"new"]


async def test_shared_memory_goes_with_the_job_whose_user_is_its_own(place: Path) -> None:
    """It has no place in the file system, and would be the next job's in the slot."""
    leave = "import ctypes; assert ctypes.CDLL(None).shmget(0, 4096, 0o1600) >= 0"
    script = f"/usr/bin/python3 -c '{leave}'; touch up; sleep 60"
    async with AgentProcess(place / "data") as agent:
        await agent.start()
        async with agent.client() as client, asyncio.timeout(40):
            await client.start(a_job(place, script))
            await until((place / "work/up").exists)
            assert "123458" in Path("/proc/sysvipc/shm").read_text().split()
            await client.close_job("1")
            assert "123458" not in Path("/proc/sysvipc/shm").read_text().split()
