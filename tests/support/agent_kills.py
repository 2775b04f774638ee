"""Kills an agent again and again while it runs a job."""

import asyncio
import os
import signal
from collections.abc import Iterable

from remuda.testing.agent_process import AgentProcess, Seen, through_deaths
from remuda.wire.agent_client import JobStart


async def run_with_kills(agent: AgentProcess, job: JobStart, pauses: Iterable[float]) -> Seen:
    """Run a job to its end. After each pause, which starts when the agent is ready, the agent is killed."""

    async def kill_repeatedly() -> None:
        for pause in pauses:
            await agent.ready.wait()
            await asyncio.sleep(pause)
            agent.ready.clear()
            os.kill(agent.pid, signal.SIGKILL)

    async with asyncio.TaskGroup() as tasks:
        killer = tasks.create_task(kill_repeatedly())
        seen = await through_deaths(agent, job)
        killer.cancel()
    if not agent.ready.is_set():  # killed once more after the end of the job
        await agent.wait()
    return seen
