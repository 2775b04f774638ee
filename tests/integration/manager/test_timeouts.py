"""`prepare_timeout`: a job that gets no environment in time ends, and says why."""

from pathlib import Path

from tests.support.runners.manager_bench import ManagerBench

from remuda.testing.coordinator import Coordinator
from remuda.testing.environment import FakeEnvironment


async def test_a_job_without_a_machine_ends_after_its_time(
    tmp_path: Path, bench: ManagerBench, coordinator: Coordinator
) -> None:
    environment = FakeEnvironment(tmp_path, machines=["only"])
    environment.used["another job"] = "only"
    bench.write_config(extra='prepare_timeout = "1s"')
    async with bench.manager(environment):
        job = await coordinator.enqueue("echo never")
        await coordinator.until_over(job)
    assert (job.status, job.updates[-1]["failure_reason"]) == ("failed", "runner_system_failure")
    assert b"there was no environment for it within prepare_timeout (1s)" in job.trace
    assert b"never" not in job.output
    await environment.remove()
