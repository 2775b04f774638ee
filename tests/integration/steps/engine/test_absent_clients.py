"""Jobs whose client is absent: the agent keeps their owner data, and cleans up jobs whose client does not come back."""

import asyncio
from pathlib import Path

import pytest
from tests.support.step_jobs import Build

from remuda.testing.agent_process import AgentProcess, follow
from remuda.testing.waiting import until
from remuda.wire.agent_client import KeptJob


async def list_jobs(agent: AgentProcess, *ids: str) -> list[KeptJob]:
    async with agent.client() as client:
        return [job async for job in client.jobs(ids)]


async def test_owner_data_of_a_job_survives_an_agent_kill(agent: AgentProcess, a_job: Build) -> None:
    async with agent.client() as client:
        await client.start(a_job("1", script="true", owner=b"\x00whose it is"))
        await client.start(a_job("2", script="env; sleep 60"))
        assert (await follow(client, "1")).check().status == "success"
    await agent.kill()
    await agent.start()
    jobs = {job.id: job for job in await list_jobs(agent)}
    assert jobs["1"] == KeptJob(id="1", owner=b"\x00whose it is", ended=True, attended=False)
    assert jobs["2"] == KeptJob(id="2", owner=b"", ended=False, attended=False)
    assert [job.id for job in await list_jobs(agent, "2", "never heard of")] == ["2"]


async def test_a_watched_job_is_listed_as_attended(agent: AgentProcess, a_job: Build) -> None:
    async with agent.client() as client:
        await client.start(a_job("1", script="sleep 60"))
        async with client.watch() as watch:
            await watch.confirm("1", log_offset=0, result_seq=0)

            async def is_attended() -> bool:
                return (await list_jobs(agent, "1"))[0].attended

            async with asyncio.timeout(20):
                while not await is_attended():
                    pass
        async with asyncio.timeout(20):
            while await is_attended():
                pass


@pytest.mark.long
async def test_jobs_whose_client_does_not_come_back_are_removed_and_agent_ends(tmp_path: Path, a_job: Build) -> None:
    agent, marks = AgentProcess(tmp_path / "data"), tmp_path / "marks"
    marks.mkdir()
    await agent.start("--idle-exit", "1")
    async with agent.client() as client:
        script = f"trap 'touch {marks}/ended; exit 1' TERM; touch {marks}/begun; while :; do sleep 0.1; done"
        await client.start(a_job("1", script=script, patience_seconds=1))
        await client.start(a_job("2", script="true", patience_seconds=1))
    await until((marks / "begun").exists)
    assert await agent.wait() == 0
    assert (marks / "ended").exists()
    assert list((tmp_path / "data" / "jobs").iterdir()) == []
