"""An idle agent without a manager ends after a minute."""

import time
from pathlib import Path

import pytest
from tests.support.runners.manager_harness import ManagerHarness

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
async def test_agent_ends_a_minute_after_a_killed_manager(harness: ManagerHarness, coordinator: Coordinator) -> None:
    process = await harness.spawn(agent_idle_exit="")
    first = await coordinator.enqueue("echo done")
    await coordinator.until_over(first)
    # The manager updates the server first; the agent keeps the job until the manager closes it.
    await until(lambda: not any((harness.jobs / "agent" / "jobs").iterdir()))
    agent, killed_at = harness.agent_pid, time.monotonic()
    process.kill()
    await process.wait()
    assert is_alive(agent)
    await until(lambda: not is_alive(agent), seconds=2 * MINUTE)
    assert time.monotonic() - killed_at >= MINUTE - 5
    # A new manager starts another agent.
    process = await harness.spawn()
    second = await coordinator.enqueue("echo goes on")
    await coordinator.until_over(second)
    assert second.status == "success"
