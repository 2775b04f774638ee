"""No client reads a job's log: the job's steps wait, no line is lost, and the log on disk stays near its limit."""

from pathlib import Path

from remuda.testing.agent_process import AgentProcess, Seen, follow, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import AgentClient, JobEnded, JobStart, LogChunk

LINES = 200_000
LIMIT = 500_000
SCRIPT = f"i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo $i; done; echo done > printed"


def a_job(work_dir: Path) -> JobStart:
    entry = {"name": "tell", "script": SCRIPT}
    return JobStart(id="large", work_dir=str(work_dir), steps=steps_text(entry), log_waiting_limit_bytes=LIMIT)


def log_bytes(agent: AgentProcess) -> int:
    return sum(path.stat().st_size for path in (agent.data / "jobs").glob("*/log"))


async def read_and_confirm(client: AgentClient, seen: Seen) -> None:
    """Read the log to the end and confirm it as a manager does."""
    async with client.watch() as watch:
        await watch.subscribe("large", log_offset=len(seen.log))
        async for event in watch:
            match event:
                case LogChunk(data=data):
                    seen.log += data
                    await watch.confirm("large", log_offset=len(seen.log), result_seq=1)
                case JobEnded():
                    seen.end = event
                    return


async def test_the_step_waits_until_a_client_reads_its_log(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        async with agent.client() as client:
            await client.start(a_job(tmp_path))
            await until(lambda: log_bytes(agent) >= LIMIT)
            for _ in range(20):
                await client.hello()
            # The content of the pipe may still have come after the limit was reached.
            assert log_bytes(agent) < LIMIT + 2_000_000
            assert not (tmp_path / "printed").exists()
            seen = Seen()
            await read_and_confirm(client, seen)
    assert seen.lines == [str(number + 1).encode() for number in range(LINES)]
    assert any(b"output was held back for" in line for line in seen.agent_lines)
    assert (tmp_path / "printed").exists()


async def test_a_restarted_agent_also_holds_the_output_back(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        async with agent.client() as client:
            await client.start(a_job(tmp_path))
            await until(lambda: log_bytes(agent) >= LIMIT)
        await agent.kill()
        await agent.start()
        async with agent.client() as client:
            assert log_bytes(agent) < LIMIT + 2_000_000
            seen = Seen()
            await read_and_confirm(client, seen)
    assert seen.lines == [str(number + 1).encode() for number in range(LINES)]


async def test_a_job_that_waits_can_be_cancelled(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        async with agent.client() as client:
            await client.start(a_job(tmp_path))
            await until(lambda: log_bytes(agent) >= LIMIT)
            await client.cancel("large")
            seen = await follow(client, "large")
    assert seen.check().status == "cancelled"
    assert not (tmp_path / "printed").exists()
