"""The autoscaled environment with a simulated cloud; tests/integration/autoscaling uses real machines."""

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


async def test_cleaning_up_on_a_removed_machine_is_an_error(tmp_path: Path) -> None:
    """For example, the first attempt failed and the idle machine was removed before the next one."""
    clock = VirtualClock()
    environment = an_environment(tmp_path, Cloud(clock))
    place = a_place(key="1-abc")
    with pytest.raises(EnvironmentLostError, match="there is no instance cloud/i-1 any more"):
        await environment.clean_up(place, "cloud/i-1")
    await environment.close()


async def test_a_lost_machine_that_returns_can_run_new_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def do_nothing(*_: object) -> None:
        pass

    async def refuse_connection(*_: object) -> None:
        raise SshError("nobody answers")

    monkeypatch.setattr(Instances, "prepare", do_nothing)
    monkeypatch.setattr(Instances, "connect", refuse_connection)
    cloud = Cloud(VirtualClock(), boot_seconds=1.0)
    environment = an_environment(tmp_path, cloud)
    environment.end_recovery()
    running = asyncio.create_task(environment.run(), name="scaler")

    async def acquire(place: JobPlace) -> str:
        task = asyncio.create_task(environment.acquire(place), name=place.key)
        while not task.done():
            await advance(1)
        return task.result()

    async def advance(seconds: int) -> None:
        for _ in range(seconds):
            await cloud.clock.advance(1.0)
            await settle(50)
            await asyncio.sleep(0.001)  # the state is written in a thread

    machine = await acquire(a_place(key="old"))
    removed = cloud.machines.pop("i-1")
    environment.refresh()
    await advance(15)
    with pytest.raises(EnvironmentLostError, match="this manager did not remove it"):
        await environment.prepare(a_place(key="old"), machine)
    cloud.machines["i-1"] = removed
    environment.refresh()
    assert await acquire(a_place(key="new")) == machine
    with pytest.raises(EnvironmentTemporaryError, match="nobody answers"):
        await environment.prepare(a_place(key="new"), machine)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await environment.close()
