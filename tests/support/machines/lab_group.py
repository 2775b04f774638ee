"""An instance group of real machines, for tests: those of a `Machines` lab, started when they are asked for.

A plugin object for use in this process; the thread has to be in the lab's network. An instance that goes takes its
disk along, and the next one that gets its machine has a new name.
"""

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.support.machines.machines import Machine, Machines

from remuda.fleeting import (
    ConnectInfo,
    Connector,
    InstanceState,
    NoConfig,
    Plugin,
    ProviderInfo,
    Settings,
    TaggedInstance,
    TemporaryError,
)


class LabGroup(Plugin[NoConfig]):
    """Machines of a lab; all of them are off at first."""

    name = "lab"
    config_type = NoConfig

    def __init__(self, lab: Machines) -> None:
        self._lab = lab
        self.instances: dict[str, Machine] = {}
        self.owners: dict[str, str] = {}
        """By whose tags."""
        self.made = 0
        self.events: list[str] = []
        """What it was asked: init, delete INSTANCE, shutdown."""
        self.is_down = False
        """Whether calls fail, as those of a plugin that cannot reach its provider."""
        self.may_end = asyncio.Event()
        """While it is not set, shutdown takes."""
        self.may_end.set()
        for machine in lab.machines:
            machine.kill()

    async def init(self, config: NoConfig, settings: Settings) -> ProviderInfo:
        self._settings = settings
        self.events.append("init")
        return ProviderInfo(id="lab", max_size=len(self._lab.machines))

    async def update(self) -> Mapping[str, InstanceState]:
        self._answer()
        return dict.fromkeys(self.instances, InstanceState.RUNNING)

    async def increase(self, count: int) -> int:
        self._answer()
        free = [one for one in self._lab.machines if one not in self.instances.values()][:count]
        for machine in free:
            self.made += 1
            machine.start()
            self.instances[f"{machine.name}-{self.made}"] = machine
            self.owners[f"{machine.name}-{self.made}"] = self._settings.owner
        return len(free)

    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:
        self._answer()
        for instance in instances:
            self.events.append(f"delete {instance}")
            self.vanish(instance)
        return instances

    async def connect_info(self, instance: str) -> ConnectInfo:
        self._answer()
        machine = self.instances.get(instance)
        if machine is None:
            raise TemporaryError(f"there is no instance {instance}")
        return ConnectInfo(connector=self.login, internal_addr=machine.address)

    async def shutdown(self) -> None:
        self.events.append("shutdown")
        await self.may_end.wait()

    async def heartbeat(self, instance: str) -> None:
        if instance not in self.instances:
            raise TemporaryError(f"{instance} is gone")

    async def recover(self) -> Sequence[TaggedInstance]:
        return [TaggedInstance(instance=one, owner=self.owners.get(one, "")) for one in self.instances]

    @property
    def login(self) -> Connector:
        """With the operator's own, if there is one."""
        given = self._settings.connector
        if given.use_static_credentials:
            return given
        return replace(given, username="root", key=self._lab.key.read_bytes())

    def vanish(self, instance: str) -> None:
        """It is gone, disk and all."""
        if (machine := self.instances.pop(instance, None)) is not None:
            machine.kill()
            inside = ["nsenter", f"--target={self._lab.pid}", "--mount", "rm", "-rf"]
            subprocess.run([*inside, f"{self._lab.folder}/disks/{machine.name}"], check=True)

    def _answer(self) -> None:
        if self.is_down:
            raise TemporaryError("the provider does not answer")
