"""A job prints 256 MiB: memory and disk space of the agent stay within limits."""

import os
from pathlib import Path

from remuda.testing.agent_process import AgentProcess, steps_text
from remuda.wire.agent_client import JobEnded, JobStart, LogChunk

TEXT_BYTES = 256 * 1024 * 1024
MEMORY_BYTES = DISK_BYTES = 64 * 1024 * 1024
LINE = "what a build says while it goes on and on, line after line"


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


async def test_a_large_log_uses_limited_memory_and_disk(tmp_path: Path) -> None:
    entry = {"name": "print", "script": f"{{ yes '{LINE}' || true; }} | head -c {TEXT_BYTES}"}
    job = JobStart(
        id="large", work_dir=str(tmp_path / "work"), steps=steps_text(entry), log_waiting_limit_bytes=DISK_BYTES
    )
    received = confirmed = most_memory = most_disk = 0
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        before = resident_bytes(agent.pid)
        async with agent.client() as client:
            await client.start(job)
            async with client.watch() as watch:
                await watch.subscribe("large")
                async for event in watch:
                    match event:
                        case LogChunk(offset=offset, data=data):
                            assert offset == received
                            received += len(data)
                            if received - confirmed >= 1024 * 1024:
                                confirmed = received
                                await watch.confirm("large", log_offset=received, result_seq=1)
                                most_memory = max(most_memory, resident_bytes(agent.pid) - before)
                            if not most_disk or received % (64 * 1024 * 1024) < len(data):
                                most_disk = max(most_disk, disk_bytes(agent.data))
                        case JobEnded(status=status, log_bytes=log_bytes):
                            assert (status, log_bytes) == ("success", received)
                            break
    assert received > TEXT_BYTES
    assert most_memory < MEMORY_BYTES
    assert most_disk < 2 * DISK_BYTES
