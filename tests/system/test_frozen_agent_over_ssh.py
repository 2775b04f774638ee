"""The manager installs the frozen agent, as `make frozen` builds it, over SSH on a machine without Python."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.built_programs import require_built
from tests.support.machines.machines import Machines
from tests.support.runners.manager_harness import ManagerHarness

from remuda.testing.coordinator import Coordinator

FROZEN = Path(__file__).parents[2] / "build" / f"remuda-agent-linux-{os.uname().machine}"

pytestmark = pytest.mark.skipif(bool(Machines.missing()), reason=Machines.missing() or "not skipped")


@pytest.fixture
def lab() -> Iterator[Machines]:
    require_built(FROZEN, "system")
    with Machines(1) as running, running.enter_network():
        running.machines[0].hide_python()
        yield running


async def test_jobs_run_where_there_is_no_python(lab: Machines, tmp_path: Path) -> None:
    [machine] = lab.machines
    server = Coordinator()
    await server.start()
    harness = ManagerHarness(tmp_path, server)
    harness.write_config(
        extra=f'[runners.remuda]\nfrozen_agent = "{FROZEN}"\n[[runners.remuda.machines]]\nhost = "{machine.address}"\n'
        f'user = "ci"\nidentity_file = "{lab.key}"\nhost_key = "{machine.host_key}"\n'
    )
    harness.config.write_text(harness.config.read_text().replace('executor = "shell"', 'executor = "instance"'))
    steps = [{"name": "script", "script": ["command -v python3 || echo no Python", "hostname", "echo $CI_PROJECT_DIR"]}]
    async with harness.manager():
        job = await server.enqueue(steps=steps, variables=[{"key": "GIT_STRATEGY", "value": "empty"}])
        await server.until_over(job, seconds=60)
    assert job.status == "success", bytes(job.trace)
    assert b"no Python\n" in job.output
    assert b"\nm1\n" in job.output
    assert " frozen " in machine.run("~ci/.remuda/bin/agent-???????????????? version", user="ci").stdout
    await harness.close()
    await server.stop()
    assert server.violations == []
