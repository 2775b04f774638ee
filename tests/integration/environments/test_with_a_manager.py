"""Jobs of a manager on machines of an environment plugin; the plugin is the example of the documentation."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.environment_plugins import a_plugin, kill_agents
from tests.support.runners.manager_harness import ManagerHarness

from remuda.testing.coordinator import RUNNER_TOKEN, Coordinator

NO_SOURCES = [{"key": "GIT_STRATEGY", "value": "none"}]


@pytest.fixture
async def harness(tmp_path: Path, coordinator: Coordinator) -> AsyncIterator[ManagerHarness]:
    harness = ManagerHarness(tmp_path, coordinator)
    program = a_plugin(tmp_path / "program")
    harness.config.write_text(
        f'concurrent = 4\ncheck_interval = 0.2\n[[runners]]\nname = "plugged"\nurl = "{coordinator.url}"\n'
        f'token = "{RUNNER_TOKEN}"\nexecutor = "plugin"\nrequest_concurrency = 2\n[runners.remuda]\n'
        'before_job = "echo $REMUDA_JOB >>$HOOKS"\n'.replace("$HOOKS", str(tmp_path / "hooks"))
        + f'[runners.remuda.environment]\nplugin = "{program}"\nconfig = {{machines = ["first", "second"]}}\n'
    )
    yield harness
    kill_agents(tmp_path)


async def test_jobs_run_on_the_plugins_machines(harness: ManagerHarness, coordinator: Coordinator) -> None:
    async with harness.manager():
        jobs = [await coordinator.enqueue("pwd; echo works", variables=NO_SOURCES) for _ in range(4)]
        for job in jobs:
            await coordinator.until_over(job)
    assert [job.status for job in jobs] == ["success"] * 4, jobs[0].trace
    assert all(b"works" in job.output for job in jobs)
    machines = {b"/plugin/first/" in job.output for job in jobs}
    assert machines == {True, False}
    assert len((harness.folder / "hooks").read_text().splitlines()) == 4
