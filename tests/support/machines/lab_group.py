"""A fleeting plugin object for tests whose instances are machines of a `Machines` lab, started on demand.

The calling thread must be in the lab's network. With an instance its disk is deleted, and the next instance on the same
machine has a new name.
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
    """Instance group of the machines of a lab. It switches off all machines at first."""

    name = "lab"
    config_type = NoConfig

    def __init__(self, lab: Machines) -> None:
        self._lab = lab
        self.instances: dict[str, Machine] = {}
        self.owners: dict[str, str] = {}
        """Owner tags by instance."""
        self.created = 0
        self.events: list[str] = []
        """Calls that it received: init, delete INSTANCE, shutdown."""
        self.is_down = False
        """True: calls fail, as those of a plugin that cannot reach its provider."""
        self.may_end = asyncio.Event()
        """`shutdown` waits until it is set."""
        self.may_end.set()
        for machine in lab.machines:
            machine.kill()

    async def init(self, config: NoConfig, settings: Settings) -> ProviderInfo:
        self._settings = settings
        self.events.append("init")
        return ProviderInfo(id="lab", max_size=len(self._lab.machines))

    async def update(self) -> Mapping[str, InstanceState]:
        self._fail_if_down()
        return dict.fromkeys(self.instances, InstanceState.RUNNING)

    async def increase(self, count: int) -> int:
        self._fail_if_down()
        free = [machine for machine in self._lab.machines if machine not in self.instances.values()][:count]
        for machine in free:
            self.created += 1
            machine.start()
            self.instances[f"{machine.name}-{self.created}"] = machine
            self.owners[f"{machine.name}-{self.created}"] = self._settings.owner
        return len(free)

    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:
        self._fail_if_down()
        for instance in instances:
            self.events.append(f"delete {instance}")
            self.vanish(instance)
        return instances

    async def connect_info(self, instance: str) -> ConnectInfo:
        self._fail_if_down()
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
        return [TaggedInstance(instance=name, owner=self.owners.get(name, "")) for name in self.instances]

    @property
    def login(self) -> Connector:
        """Login data: the operator's, if there are any, otherwise those of the lab."""
        connector = self._settings.connector
        if connector.use_static_credentials:
            return connector
        return replace(connector, username="root", key=self._lab.key.read_bytes())

    def vanish(self, instance: str) -> None:
        """Remove an instance and its disk."""
        if (machine := self.instances.pop(instance, None)) is not None:
            machine.kill()
            remove = ["nsenter", f"--target={self._lab.pid}", "--mount", "rm", "-rf"]
            subprocess.run([*remove, f"{self._lab.folder}/disks/{machine.name}"], check=True)

    def _fail_if_down(self) -> None:
        if self.is_down:
            raise TemporaryError("the provider does not answer")
