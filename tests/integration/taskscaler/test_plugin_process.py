"""The scaler with a plugin in a process of its own, a real clock and a real disk."""

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

KEPT = """
import json, pathlib
from remuda.fleeting import InstanceState
from remuda.testing import instance_groups as groups

class Kept(groups.TableGroup):
    '''Its table is in a file, as a provider's would be.'''
    name = "kept"
    file = pathlib.Path({file!r})

    async def init(self, config, settings):
        info = await super().init(config, settings)
        if self.file.exists():
            kept = json.loads(self.file.read_text())
            self._states = {{name: InstanceState(state) for name, state in kept.items()}}
            self._made = len(kept) + 100
        return info

    def _write(self):
        self.file.write_text(json.dumps(self._states))

    async def update(self):
        found = await super().update()
        self._write()
        return found

    async def increase(self, count):
        made = await super().increase(count)
        self._write()
        return made

groups.TableGroup = Kept
"""


class Nobody:
    """Machines that are always well."""

    async def prepare(self, instance: str, info: ConnectInfo) -> None:
        info.address()

    async def check(self, instance: str) -> None:
        pass

    async def forget(self, instance: str) -> None:
        pass


def a_kept_plugin(folder: Path) -> Path:
    return a_plugin(folder, first=KEPT.format(file=str(folder / "table.json")))


@asynccontextmanager
async def running(folder: Path, group: HostedGroup) -> AsyncIterator[Scaler]:
    setup = FleetSetup(
        name="7",
        owner="s_1/7",
        groups=(GroupSetup(name="", limits=Limits(max_instances=5)),),
        rules=(PolicyRule(idle_count=2, idle_seconds=600.0, preemptive=True),),
        update_seconds=0.1,
        expecting_seconds=0.05,
    )
    scaler = Scaler(
        setup, {"": group}, host=ScalerHost(machines=Nobody()), folder=folder / "state", clock=SystemClock()
    )
    scaler.end_recovery()
    task = asyncio.create_task(scaler.run(), name="scaler")
    try:
        yield scaler
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await scaler.close()


def ready(scaler: Scaler) -> list[str]:
    return sorted(one.name for one in scaler.status().instances if one.state == "ready")


async def test_plugin_crash_recovers(tmp_path: Path) -> None:
    """Plugin killed: restarted with back-off, no job lost, no job accepted meanwhile beyond ready slots."""
    group = HostedGroup(str(a_kept_plugin(tmp_path)), backoff=Backoff(first_seconds=0.3, ceiling_seconds=0.3))
    async with running(tmp_path, group) as scaler:
        await until(lambda: len(ready(scaler)) == 2)
        names = ready(scaler)
        slot = await scaler.acquire("job")
        await until(lambda: len(ready(scaler)) == 3)
        pid = group.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not scaler.status().groups[0].is_current)
        free = len(ready(scaler)) - 1
        capacity = scaler.capacity()
        assert capacity is not None
        assert capacity <= 1 + free
        await until(lambda: group.starts == 2 and scaler.status().groups[0].is_current)
        assert set(names) <= set(ready(scaler))
        assert await scaler.acquire("job") == slot
    async with running(tmp_path, HostedGroup(str(a_kept_plugin(tmp_path)))) as scaler:
        await until(lambda: set(names) <= set(ready(scaler)))


async def test_plugin_orphan_ends(tmp_path: Path) -> None:
    """Manager killed with -9: the plugin ends within seconds and changes nothing."""
    plugin = a_kept_plugin(tmp_path)
    program = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
import {Path(__file__).stem} as here
from remuda.fleeting.host import HostedGroup

async def main():
    group = HostedGroup({str(plugin)!r})
    async with here.running(Path({str(tmp_path)!r}), group) as scaler:
        await here.until(lambda: len(here.ready(scaler)) == 2)
        Path({str(tmp_path / "pid")!r}).write_text(str(group.pid))
        await asyncio.Event().wait()

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    told = tmp_path / "pid"
    await until(lambda: told.exists() and told.read_text() != "", seconds=60)
    pid = int(told.read_text())
    process.kill()
    await process.wait()
    await until(lambda: not Path(f"/proc/{pid}").exists())
    assert (tmp_path / "table.json").read_text().count("running") == 2
    async with running(tmp_path, HostedGroup(str(plugin))) as scaler:
        await until(lambda: len(ready(scaler)) == 2)
        assert {one.cause for one in scaler.status().instances} == {"requested"}
