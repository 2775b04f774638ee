"""The data folder is removed under a running manager: it says so, gives its jobs back and ends."""

import asyncio
import shutil

import pytest

from remuda.testing.coordinator import Coordinator
from remuda.testing.manager_bench import ManagerBench


@pytest.mark.parametrize("whole", [True, False], ids=["folder", "journal"])
async def test_a_manager_without_its_journal_ends(bench: ManagerBench, coordinator: Coordinator, whole: bool) -> None:
    bench.write_config()
    process = await bench.spawn()
    job = await coordinator.enqueue("echo begun", "sleep 600")
    await coordinator.until(lambda: b"begun" in job.output)
    if whole:
        shutil.rmtree(bench.data)
    else:
        (bench.data / "journal.sqlite").unlink()
    async with asyncio.timeout(40):
        assert await process.wait() == 2
    assert job.status == "failed"
    assert job.updates[-1]["failure_reason"] == "runner_system_failure"
    if not whole:  # otherwise the agent, whose files are gone, too, may be the first to end the job
        assert b"data folder is gone" in job.trace
    output = (bench.folder / "manager.out").read_text()
    assert output.count("the data folder is gone") == 1, output
    assert "start it again" in output
    assert "Traceback" not in output
