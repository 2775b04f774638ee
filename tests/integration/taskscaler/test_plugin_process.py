"""The scaler with a plugin process that is killed or loses its host, with a real clock and a real disk."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from remuda.fleeting import ConnectInfo
from remuda.fleeting.host import HostedGroup
from remuda.lib.backoff import Backoff
from remuda.lib.clock import SystemClock
from remuda.taskscaler.core.policy import PolicyRule
from remuda.taskscaler.core.values import Limits
from remuda.taskscaler.fleet.setup import FleetSetup, GroupSetup, ScalerHost
from remuda.taskscaler.loop.scaler import Scaler
from remuda.testing.instance_groups import a_plugin
from remuda.testing.waiting import until

PERSISTENT_GROUP = """
import json, pathlib
from remuda.fleeting import InstanceState
from remuda.testing import instance_groups as groups

class PersistentGroup(groups.TableGroup):
    '''A fake group that keeps its instances in a file.'''
    name = "kept"
    file = pathlib.Path({file!r})

    async def init(self, config, settings):
        info = await super().init(config, settings)
        if self.file.exists():
            states = json.loads(self.file.read_text())
            self._states = {{name: InstanceState(state) for name, state in states.items()}}
            self._made = len(states) + 100
        return info

    def _write(self):
        self.file.write_text(json.dumps(self._states))

    async def update(self):
        states = await super().update()
        self._write()
        return states

    async def increase(self, count):
        accepted = await super().increase(count)
        self._write()
        return accepted

groups.TableGroup = PersistentGroup
"""


class HealthyMachines:
    """Machines that always pass all checks."""

    async def prepare(self, instance: str, info: ConnectInfo) -> None:
        info.address()

    async def check(self, instance: str) -> None:
        pass

    async def forget(self, instance: str) -> None:
        pass


def write_plugin(folder: Path) -> Path:
    return a_plugin(folder, first=PERSISTENT_GROUP.format(file=str(folder / "table.json")))


@asynccontextmanager
async def run_scaler(folder: Path, group: HostedGroup) -> AsyncIterator[Scaler]:
    setup = FleetSetup(
        name="7",
        owner="s_1/7",
        groups=(GroupSetup(name="", limits=Limits(max_instances=5)),),
        rules=(PolicyRule(idle_count=2, idle_seconds=600.0, preemptive=True),),
        update_seconds=0.1,
        expecting_seconds=0.05,
    )
    scaler = Scaler(
        setup, {"": group}, host=ScalerHost(machines=HealthyMachines()), folder=folder / "state", clock=SystemClock()
    )
    scaler.end_recovery()
    task = asyncio.create_task(scaler.run(), name="scaler")
    try:
        yield scaler
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await scaler.close()


def ready_instances(scaler: Scaler) -> list[str]:
    return sorted(instance.name for instance in scaler.status().instances if instance.state == "ready")


async def test_a_killed_plugin_is_restarted_and_keeps_its_instances(tmp_path: Path) -> None:
    """A killed plugin is restarted with back-off and loses no slot; meanwhile the capacity counts only ready slots."""
    group = HostedGroup(str(write_plugin(tmp_path)), backoff=Backoff(first_seconds=0.3, ceiling_seconds=0.3))
    async with run_scaler(tmp_path, group) as scaler:
        await until(lambda: len(ready_instances(scaler)) == 2)
        names = ready_instances(scaler)
        slot = await scaler.acquire("job")
        await until(lambda: len(ready_instances(scaler)) == 3)
        pid = group.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not scaler.status().groups[0].is_current)
        free = len(ready_instances(scaler)) - 1
        capacity = scaler.capacity()
        assert capacity is not None
        assert capacity <= 1 + free
        await until(lambda: group.starts == 2 and scaler.status().groups[0].is_current)
        assert set(names) <= set(ready_instances(scaler))
        assert await scaler.acquire("job") == slot
    async with run_scaler(tmp_path, HostedGroup(str(write_plugin(tmp_path)))) as scaler:
        await until(lambda: set(names) <= set(ready_instances(scaler)))


async def test_a_plugin_ends_when_its_manager_is_killed(tmp_path: Path) -> None:
    """The plugin ends within seconds after its manager is killed, and changes no instance."""
    plugin = write_plugin(tmp_path)
    program = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
import {Path(__file__).stem} as module
from remuda.fleeting.host import HostedGroup

async def main():
    group = HostedGroup({str(plugin)!r})
    async with module.run_scaler(Path({str(tmp_path)!r}), group) as scaler:
        await module.until(lambda: len(module.ready_instances(scaler)) == 2)
        Path({str(tmp_path / "pid")!r}).write_text(str(group.pid))
        await asyncio.Event().wait()

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    pid_file = tmp_path / "pid"
    await until(lambda: pid_file.exists() and pid_file.read_text() != "", seconds=60)
    pid = int(pid_file.read_text())
    process.kill()
    await process.wait()
    await until(lambda: not Path(f"/proc/{pid}").exists())
    assert (tmp_path / "table.json").read_text().count("running") == 2
    async with run_scaler(tmp_path, HostedGroup(str(plugin))) as scaler:
        await until(lambda: len(ready_instances(scaler)) == 2)
        assert {instance.cause for instance in scaler.status().instances} == {"requested"}
