"""One agent runs 5000 jobs at once for a client with one connection; its memory and open files stay within limits."""

import asyncio
import os
from collections.abc import Awaitable
from pathlib import Path

import pytest

from remuda.testing.agent_process import AgentProcess, Seen, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import JobEnded, JobStart, LogChunk, StepResultEvent, Watch

JOBS = 5000
AT_A_TIME = 50
"""Concurrent calls; a connection has at most 100 streams."""
LARGEST_BYTES_PER_JOB = 64 * 1024
"""Limit for the memory of the agent process."""


@pytest.mark.timeout(900)
async def test_5000_jobs_at_once_over_one_connection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # Each job blocks until the test opens the FIFO for writing.
    script = f'echo job "$NUMBER"; echo >>{tmp_path}/started; exec cat {gate}'
    ids = [f"job-{number}" for number in range(JOBS)]
    seen = {job_id: Seen() for job_id in ids}
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        async with agent.client() as client, client.watch() as watch:
            before = await client.usage()
            calls = asyncio.Semaphore(AT_A_TIME)

            async def limited(call: Awaitable[None]) -> None:
                async with calls:
                    await call

            async def start(job_id: str) -> None:
                steps = steps_text({"name": "wait", "script": script})
                job = JobStart(id=job_id, work_dir=str(tmp_path / "work"), steps=steps, env={"NUMBER": job_id})
                await limited(client.start(job))
                await watch.subscribe(job_id)

            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(read_events(watch, seen), name="reader")
                async with asyncio.TaskGroup() as starts:
                    for job_id in ids:
                        starts.create_task(start(job_id), name=f"start {job_id}")
                await until(lambda: size_of(tmp_path / "started") == JOBS, seconds=600)
                while_running = await client.usage()
                assert len(while_running.jobs) == JOBS
                assert while_running.open_files < while_running.open_files_limit
                open_gate(gate)
                await reader
            after = await client.usage()
            per_job = (while_running.memory_bytes - before.memory_bytes) // JOBS
            with capsys.disabled():
                print(
                    f"\n{JOBS} jobs of one agent: {per_job / 1024:.1f} KiB of its memory each, "
                    f"{(while_running.open_files - before.open_files) / JOBS:.2f} descriptors each, "
                    f"{sum(job.processes for job in while_running.jobs.values())} processes"
                )
            assert per_job < LARGEST_BYTES_PER_JOB
            assert after.open_files < before.open_files + 100
            for job_id in ids:
                end = seen[job_id].check()
                assert end.status == "success"
                assert seen[job_id].lines == [f"job {job_id}".encode()]
            async with asyncio.TaskGroup() as closes:
                for job_id in ids:
                    closes.create_task(limited(client.close_job(job_id)), name=f"close {job_id}")
        assert not list((agent.data / "jobs").iterdir())
    assert size_of(tmp_path / "started") == JOBS


async def read_events(watch: Watch, seen: dict[str, Seen]) -> None:
    """Collect the events of all jobs until the last one has ended."""
    running = set(seen)
    async for event in watch:
        match event:
            case LogChunk():
                assert event.offset == len(seen[event.job_id].log)
                seen[event.job_id].log += event.data
            case StepResultEvent():
                seen[event.job_id].results.append({"seq": event.seq})
            case JobEnded():
                seen[event.job_id].end = event
                running.remove(event.job_id)
                if not running:
                    return


def open_gate(gate: Path) -> None:
    os.close(os.open(gate, os.O_WRONLY))


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
