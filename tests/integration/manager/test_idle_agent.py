"""An agent that nobody needs any more ends after a minute."""

import time
from pathlib import Path

import pytest
from tests.support.runners.manager_bench import ManagerBench

from remuda.testing.coordinator import Coordinator
from remuda.testing.waiting import until

MINUTE = 60.0


def is_alive(pid: int) -> bool:
    try:
        return b"remuda.steps" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_an_agent_whose_manager_died_for_good_ends_a_minute_after_its_last_job(
    bench: ManagerBench, coordinator: Coordinator
) -> None:
    process = await bench.spawn(agent_idle_exit="")
    done = await coordinator.enqueue("echo done")
    await coordinator.until_over(done)
    # The manager has told the server first; its agent keeps the job until it is told, too.
    await until(lambda: not any((bench.jobs / "agent" / "jobs").iterdir()))
    agent, left_at = bench.agent_pid, time.monotonic()
    process.kill()
    await process.wait()
    assert is_alive(agent)
    await until(lambda: not is_alive(agent), seconds=2 * MINUTE)
    assert time.monotonic() - left_at >= MINUTE - 5
    # A manager that comes later starts another.
    process = await bench.spawn()
    other = await coordinator.enqueue("echo goes on")
    await coordinator.until_over(other)
    assert other.status == "success"
