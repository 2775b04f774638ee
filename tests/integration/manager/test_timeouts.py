"""`prepare_timeout`: a job that gets no environment in time fails with the cause."""

from pathlib import Path

from tests.support.runners.manager_harness import ManagerHarness

from remuda.testing.coordinator import Coordinator
from remuda.testing.environment import FakeEnvironment


async def test_job_without_machine_times_out(tmp_path: Path, harness: ManagerHarness, coordinator: Coordinator) -> None:
    environment = FakeEnvironment(tmp_path, machines=["only"])
    environment.used["another job"] = "only"
    harness.write_config(extra='prepare_timeout = "1s"')
    async with harness.manager(environment):
        job = await coordinator.enqueue("echo never")
        await coordinator.until_over(job)
    assert (job.status, job.updates[-1]["failure_reason"]) == ("failed", "runner_system_failure")
    assert b"no environment was ready within prepare_timeout (1s)" in job.trace
    assert b"never" not in job.output
    await environment.remove()
