"""The plugin: hands out configured machines that answer and that nobody has, and takes them back.

The loans are read from disk each time. In memory are only the order in which machines came back, because the latest
is handed out last, and instances that `update` must return as deleted once. Nothing is changed on a machine."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from remuda.fleeting import (
    ConnectInfo,
    Connector,
    GroupStats,
    InstanceState,
    PermanentError,
    Plugin,
    ProviderInfo,
    Settings,
    TaggedInstance,
    TemporaryError,
    UnhealthyError,
)
from remuda_plugin_static.config import Config, Instance, check
from remuda_plugin_static.loans import Loan, Loans
from remuda_plugin_static.reach import PORTS, answers, parse_address

PROBES = 32
"""Limit on concurrent connection attempts."""
_log = logging.getLogger("fleeting-plugin-static")


class StaticGroup(Plugin[Config]):
    """A group of configured machines."""

    name = "static"
    version = "0.1.0"
    config_type = Config

    def __init__(self) -> None:
        self._gone: set[str] = set()
        """Instances that were taken back and that `update` has not returned as deleted yet. One that is only missing
        would be suspect."""
        self._returned: dict[str, int] = {}
        """Number of the last return of each machine. The last one is handed out last, because it may have failed."""
        self._probes = asyncio.Semaphore(PROBES)

    async def init(self, config: Config, settings: Settings) -> ProviderInfo:
        check(config)
        if settings.connector.protocol not in PORTS:
            raise PermanentError(
                f"protocol = {settings.connector.protocol!r}: one of ssh, winrm, winrm+https is needed"
            )
        self._config = config
        self._settings = settings
        self._loans = Loans(config.place)
        try:
            await asyncio.to_thread(self._loans.prepare)
        except OSError as error:
            raise PermanentError(f"folder = {str(config.place)!r} cannot be used: {error.strerror}") from error
        return ProviderInfo(id=f"static/{config.name}", max_size=len(config.instances))

    async def update(self) -> Mapping[str, InstanceState]:
        loans = await asyncio.to_thread(self._loans.all)
        gone = dict.fromkeys(self._gone, InstanceState.DELETED)
        self._gone.difference_update(gone)
        return gone | {loan.id: InstanceState.RUNNING for loan in loans if self._is_ours(loan)}

    async def increase(self, count: int) -> int:
        free = self._free(await asyncio.to_thread(self._loans.all))
        async with asyncio.TaskGroup() as tasks:
            checks = {
                name: tasks.create_task(self._answers(self._config.instances[name]), name=f"check {name}")
                for name in free
            }
        silent = [name for name, check in checks.items() if not check.result()]
        if silent:
            _log.warning("not handing out machines that do not answer: %s", ", ".join(silent))

        def choose(loans: Sequence[Loan]) -> Sequence[Loan]:
            names = [name for name in self._free(loans) if name in free and name not in silent]
            return [self._loan(name) for name in names[:count]]

        new_loans = await asyncio.to_thread(self._loans.give, choose)
        if not new_loans and silent and count:
            raise TemporaryError(f"no machine that is free answers: {', '.join(silent)}")
        return len(new_loans)

    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:
        for instance in instances:
            loan = self._loans.find(instance)
            if await asyncio.to_thread(self._loans.take_back, instance):
                self._gone.add(instance)
            if loan is not None:
                self._returned[loan.machine] = max(self._returned.values(), default=0) + 1
        return instances

    async def connect_info(self, instance: str) -> ConnectInfo:
        machine = self._machine(instance)
        return ConnectInfo(
            connector=self._connector(instance, machine),
            internal_addr=machine.internal_addr,
            external_addr=machine.external_addr,
        )

    async def heartbeat(self, instance: str) -> None:
        machine = self._machine(instance)
        if not await self._answers(machine):
            raise UnhealthyError(f"{instance} does not answer at {' and '.join(machine.addresses)}")

    async def stats(self) -> GroupStats:
        """The quota: number of machines that are handed out to this group, plus the free ones."""
        loans = await asyncio.to_thread(self._loans.all)
        ours = sum(self._is_ours(loan) for loan in loans)
        return GroupStats(quota=ours + len(self._free(loans)))

    async def recover(self) -> Sequence[TaggedInstance]:
        loans = await asyncio.to_thread(self._loans.all)
        return [
            TaggedInstance(instance=loan.id, owner=loan.owner, created_at=loan.given_at)
            for loan in loans
            if not loan.is_broken
        ]

    def _is_ours(self, loan: Loan) -> bool:
        return not loan.is_broken and (loan.owner, loan.group) == (self._settings.owner, self._config.name)

    def _loan(self, name: str) -> Loan:
        return Loan(
            id="",
            machine=name,
            addresses=self._config.instances[name].addresses,
            group=self._config.name,
            owner=self._settings.owner,
            given_at=time.time(),
        )

    def _free(self, loans: Sequence[Loan]) -> list[str]:
        """Names of free machines: those that were never given back in the order of the configuration, then the others
        in the order of their return."""
        lent = {(loan.machine, loan.addresses) for loan in loans}
        broken = {loan.machine for loan in loans if loan.is_broken}
        # The address of a machine may have changed while it was handed out.
        ours = {loan.machine for loan in loans if self._is_ours(loan)}
        free = [
            name
            for name, machine in self._config.instances.items()
            if (name, machine.addresses) not in lent and name not in broken and name not in ours
        ]
        return sorted(free, key=lambda name: self._returned.get(name, 0))

    def _machine(self, instance: str) -> Instance:
        loan = self._loans.find(instance)
        if loan is None:
            raise PermanentError(f"there is no instance {instance}: it was given back, or never handed out")
        if (machine := self._config.instances.get(loan.machine)) is None:
            raise PermanentError(f"{loan.machine}, the machine of {instance}, is not in instances any more")
        return machine

    def _connector(self, instance: str, machine: Instance) -> Connector:
        default = self._settings.connector
        connector = replace(default, os=default.os or "linux", protocol=default.protocol or "ssh")
        if machine.username:
            connector = replace(connector, username=machine.username)
        if machine.password or machine.key_path:
            # Credentials of a machine replace all others: the operator's key may be another user's.
            connector = replace(connector, password=machine.password, key=b"")
        if machine.key_path:
            try:
                connector = replace(connector, key=Path(machine.key_path).expanduser().read_bytes())
            except OSError as error:
                raise PermanentError(f"key_path of {instance}, {machine.key_path}: {error.strerror}") from error
        return connector

    async def _answers(self, machine: Instance) -> bool:
        default_port = self._settings.connector.port or PORTS[self._settings.connector.protocol]
        async with self._probes:
            for address in machine.addresses:
                if await answers(*parse_address(address, default_port)):
                    return True
        return False
