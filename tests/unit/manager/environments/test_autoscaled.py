"""Jobs on machines that come and go; with real machines, see tests/integration/autoscaling."""

import asyncio
from pathlib import Path

import pytest
from tests.support.manager_values import a_place

from remuda.fleeting import InProcess
from remuda.lib.clock import VirtualClock, settle
from remuda.manager.config.autoscaler import AutoscalerConfig
from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.autoscaled import AutoscaledEnvironment
from remuda.manager.environments.instances import Instances
from remuda.manager.environments.port import JobPlace
from remuda.manager.environments.ssh import SshError
from remuda.manager.errors import EnvironmentLostError, EnvironmentTemporaryError
from remuda.testing.scalers import Cloud, CloudGroup


def an_environment(folder: Path, cloud: Cloud) -> AutoscaledEnvironment:
    scaling = AutoscalerConfig(plugin="cloud", max_instances=1, capacity_per_instance=2)
    return AutoscaledEnvironment(
        RunnerConfig(url="http://cell.invalid", executor="instance", autoscaler=scaling),
        folder=folder,
        system_id="s_1",
        clock=cloud.clock,
        plugins=lambda _: InProcess(CloudGroup(cloud)),
    )


async def test_nothing_is_cleaned_up_on_a_machine_that_was_removed_since(tmp_path: Path) -> None:
    """As after a first try that failed, when the machine had nothing more to do."""
    clock = VirtualClock()
    environment = an_environment(tmp_path, Cloud(clock))
    place = a_place(key="1-abc")
    with pytest.raises(EnvironmentLostError, match="there is no instance cloud/i-1 any more"):
        await environment.clean_up(place, "cloud/i-1")
    await environment.close()


async def test_a_job_on_a_machine_that_came_back_does_not_end_for_what_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> None:
        pass

    async def silent(*_: object) -> None:
        raise SshError("nobody answers")

    monkeypatch.setattr(Instances, "prepare", nothing)
    monkeypatch.setattr(Instances, "connect", silent)
    cloud = Cloud(VirtualClock(), boot_seconds=1.0)
    environment = an_environment(tmp_path, cloud)
    environment.end_recovery()
    running = asyncio.create_task(environment.run(), name="scaler")

    async def acquired(place: JobPlace) -> str:
        task = asyncio.create_task(environment.acquire(place), name=place.key)
        while not task.done():
            await passed(1)
        return task.result()

    async def passed(seconds: int) -> None:
        for _ in range(seconds):
            await cloud.clock.advance(1.0)
            await settle(50)
            await asyncio.sleep(0.001)  # the state is written in a thread

    machine = await acquired(a_place(key="old"))
    kept = cloud.machines.pop("i-1")
    environment.refresh()
    await passed(15)
    with pytest.raises(EnvironmentLostError, match="this manager did not remove it"):
        await environment.prepare(a_place(key="old"), machine)
    cloud.machines["i-1"] = kept
    environment.refresh()
    assert await acquired(a_place(key="new")) == machine
    with pytest.raises(EnvironmentTemporaryError, match="nobody answers"):
        await environment.prepare(a_place(key="new"), machine)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await environment.close()
