"""Jobs on machines that come and go; with real machines, see tests/integration/autoscaling."""

from pathlib import Path

import pytest

from remuda.fleeting import InProcess
from remuda.lib.clock import VirtualClock
from remuda.manager.adapters.autoscaled import AutoscaledEnvironment
from remuda.manager.autoscaler_config import AutoscalerConfig
from remuda.manager.config import RunnerConfig
from remuda.manager.errors import EnvironmentLostError
from remuda.manager.ports import JobPlace
from remuda.testing.scalers import Cloud, CloudGroup


async def test_nothing_is_cleaned_up_on_a_machine_that_was_removed_since(tmp_path: Path) -> None:
    """As after a first try that failed, when the machine had nothing more to do."""
    clock = VirtualClock()
    environment = AutoscaledEnvironment(
        RunnerConfig(url="http://cell.invalid", executor="instance", autoscaler=AutoscalerConfig(plugin="cloud")),
        folder=tmp_path,
        system_id="s_1",
        clock=clock,
        plugins=lambda _: InProcess(CloudGroup(Cloud(clock))),
    )
    place = JobPlace(key="1-abc", runner="runner", slot=0, project="group/project")
    with pytest.raises(EnvironmentLostError, match="there is no instance cloud/i-1 any more"):
        await environment.clean_up(place, "cloud/i-1")
    await environment.close()
