"""The resource usage of a job is reported with its end and among its results."""

from pathlib import Path

from remuda.testing.agent_process import AgentProcess, run_job, steps_text, through_deaths
from remuda.wire.agent_client import JobStart

BUSY = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; head -c 3000000 /dev/zero > made; sync made"


def a_job(work_dir: Path) -> JobStart:
    return JobStart(id="1", work_dir=str(work_dir), steps=steps_text({"name": "busy", "script": BUSY}))


async def test_usage_is_reported_at_the_end_of_a_job(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        seen = await run_job(agent, a_job(tmp_path / "work"))
    used = seen.check().used
    assert (used.cpu_user_seconds or 0) > 0.01
    assert (used.work_dir_bytes or 0) >= 3_000_000
    assert (used.disk_written_bytes or 0) >= 3_000_000
    assert used.source == "rusage"
    assert [event["used"]["work_dir_bytes"] for event in seen.used] == [used.work_dir_bytes]


async def test_usage_is_reported_once_if_the_agent_dies_at_the_end(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start(kill_point="agent.job_ended")
        seen = await through_deaths(agent, a_job(tmp_path / "work"))
    assert len(seen.used) == 1
    assert (seen.check().used.cpu_user_seconds or 0) > 0.01
