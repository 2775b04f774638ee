"""Closes a running job while its cleanup is slow: other jobs continue, and the job exists until the cleanup is done.

The agent is real; one of its functions waits for a file, as on a slow disk, directory service or kernel.
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
async def slow_agent(public_folder: Path, module: str, name: str) -> AsyncIterator[AgentProcess]:
    async with AgentProcess(
        public_folder / "data", (sys.executable, "-c", SLOW, str(public_folder), module, name)
    ) as process:
        await process.start()
        try:
            yield process
        finally:
            (public_folder / "go").touch()


def a_job(public_folder: Path, script: str = "touch up; sleep 60") -> JobStart:
    steps = steps_text({"name": "s", "script": script})
    return JobStart(id="1", work_dir=str(public_folder / "work"), steps=steps, run_as="123458", own_user=True)


def a_plain_job(public_folder: Path) -> JobStart:
    return JobStart(id="2", work_dir=str(public_folder / "other"), steps=steps_text({"name": "s", "script": "true"}))


@pytest.mark.parametrize("slow", [FILES, USERS, PROCESSES], ids=lambda slow: slow[1])
async def test_other_jobs_continue_and_it_exists_until_cleanup_ends(public_folder: Path, slow: tuple[str, str]) -> None:
    async with slow_agent(public_folder, *slow) as agent, agent.client() as client, agent.client() as other:
        async with asyncio.timeout(20):
            await client.start(a_job(public_folder))
            await until((public_folder / "work/up").exists)
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            closing = tasks.create_task(client.close_job("1"), name="close")
            await until((public_folder / "began").exists)
            second_closing = tasks.create_task(other.close_job("1"), name="close again")
            await other.start(a_plain_job(public_folder))
            assert (await follow(other, "2")).check().status == "success"
            assert sorted((await other.hello()).jobs) == ["1", "2"]
            assert not closing.done()
            assert not second_closing.done()
            (public_folder / "go").touch()
        assert list((await client.hello()).jobs) == ["2"]


async def test_cleanup_continues_without_the_client_and_frees_the_id(public_folder: Path) -> None:
    async with slow_agent(public_folder, *FILES) as agent, asyncio.timeout(40):
        async with agent.client() as client, asyncio.TaskGroup() as tasks:
            await client.start(a_job(public_folder))
            await until((public_folder / "work/up").exists)
            closing = tasks.create_task(client.close_job("1"), name="close")
            await until((public_folder / "began").exists)
            closing.cancel()
        async with agent.client() as client, asyncio.TaskGroup() as tasks:
            tasks.create_task(client.start(a_job(public_folder, "echo new")), name="start")
            assert list((await client.hello()).jobs) == ["1"]
            (public_folder / "go").touch()
        async with agent.client() as client:
            assert (await follow(client, "1")).lines == [b"new"]


async def test_a_stopping_agent_completes_the_cleanup(public_folder: Path) -> None:
    """Otherwise the next agent would continue the job and end it while a thread of this agent still works."""
    async with slow_agent(public_folder, *FILES) as agent, asyncio.timeout(40):
        async with agent.client() as client, asyncio.TaskGroup() as tasks:
            await client.start(a_job(public_folder))
            await until((public_folder / "work/up").exists)
            closing = tasks.create_task(client.close_job("1"), name="close")
            await until((public_folder / "began").exists)
            closing.cancel()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(agent.stop(), name="stop")
            (public_folder / "go").touch()
        await agent.start()
        async with agent.client() as client:
            assert not (await client.hello()).jobs


async def test_other_jobs_continue_during_a_user_lookup(public_folder: Path) -> None:
    async with slow_agent(public_folder, "pwd", "getpwuid") as agent, agent.client() as client, agent.client() as other:
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            tasks.create_task(client.start(a_job(public_folder, "echo new")), name="start")
            await until((public_folder / "began").exists)
            await other.start(a_plain_job(public_folder))
            assert (await follow(other, "2")).check().status == "success"
            assert list((await other.hello()).jobs) == ["2"]
            (public_folder / "go").touch()
        assert (await follow(client, "1")).lines == [b"new"]


async def test_shared_memory_of_a_job_with_its_own_user_is_removed(public_folder: Path) -> None:
    """Shared memory is not in the file system, and the slot's next job would have access to it."""
    leave = "import ctypes; assert ctypes.CDLL(None).shmget(0, 4096, 0o1600) >= 0"
    script = f"/usr/bin/python3 -c '{leave}'; touch up; sleep 60"
    async with AgentProcess(public_folder / "data") as agent:
        await agent.start()
        async with agent.client() as client, asyncio.timeout(40):
            await client.start(a_job(public_folder, script))
            await until((public_folder / "work/up").exists)
            assert "123458" in Path("/proc/sysvipc/shm").read_text().split()
            await client.close_job("1")
            assert "123458" not in Path("/proc/sysvipc/shm").read_text().split()
