"""Finds and removes machines of runners that were removed from the configuration, or changed, while no manager ran.

`remuda scale sweep` removes them with the stored plugin settings (`environments/fleet_record.py`). Invariant: while
machines of a fleet (of one runner) are being removed here, no environment is created for that fleet (`block`)."""

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path

import msgspec

from remuda.fleeting.errors import TemporaryError
from remuda.fleeting.port import InstanceGroup, Settings
from remuda.lib.clock import Clock
from remuda.manager.config.fleet_setup import as_connector, host_key_path, plugins_of
from remuda.manager.environments.fleet_record import (
    FleetRecord,
    GroupRecord,
    read_record,
    record_path,
    remove_files,
    remove_record,
    unattended_groups,
)
from remuda.manager.errors import ClosingError, ConfigError
from remuda.manager.scaling.scaling import Scaling
from remuda.taskscaler.fleet.setup import FleetSetup, instance_name
from remuda.taskscaler.fleet.status import FOREIGN
from remuda.taskscaler.fleet.stored_values import Changes
from remuda.taskscaler.loop.state import StateError, StateFile, read_state, state_path
from remuda.taskscaler.loop.sweep import AbandonedGroup, SweepResult, join, sweep_abandoned
from remuda.telemetry.logs import logger


class OrphanedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet (the machines of one runner) with machines that belong to no configured runner any more."""

    name: str
    file: Path
    record: FleetRecord
    groups: dict[str, tuple[str, ...]]
    """Instance ids in its state, by group."""

    @property
    def title(self) -> str:
        return f"{self.record.runner} ({self.name})" if self.record.runner else self.name

    @property
    def machines(self) -> list[str]:
        return [instance_name(group, instance_id) for group, ids in self.groups.items() for instance_id in ids]

    @property
    def unknown(self) -> list[str]:
        """Names of groups whose machines cannot be listed, because their plugin settings are not stored."""
        return sorted(self.groups.keys() - self.record.groups.keys())


class OrphanedMachines:
    def __init__(
        self,
        folder: Path,
        *,
        scaling: Scaling,
        plugins: Callable[[str], InstanceGroup],
        block: Callable[[str], AbstractContextManager[None]],
        clock: Clock,
    ) -> None:
        """`folder` has the state files of fleets (each: one runner's machines), `scaling` knows the running fleets.
        Within `with block(fleet)` no environment is created for that fleet."""
        self._folder = folder
        self._scaling = scaling
        self._plugins = plugins
        self._block = block
        self._clock = clock
        self._log = logger("manager")

    async def find(self) -> list[OrphanedFleet]:
        setups = {state_path(self._folder, fleet.setup.name): fleet.setup for fleet in self._scaling.all}
        return await asyncio.to_thread(self._find, setups)

    async def report(self) -> None:
        """Log machines of no configured runner, and delete stored data of removed runners without machines."""
        for file in await asyncio.to_thread(lambda: sorted(self._folder.glob("*.json"))):
            with suppress(ClosingError), self._block(file.stem):
                if file.stem not in {fleet.setup.name for fleet in self._scaling.all}:
                    await asyncio.to_thread(remove_record, self._folder, file.stem)
        for fleet in await self.find():
            advice = "list them with: remuda scale sweep; remove them with: remuda scale sweep --remove"
            if fleet.unknown:
                problem = _describe_unknown(fleet)
                advice = f"{problem}; {advice}" if fleet.unknown != sorted(fleet.groups) else problem
            self._log.warning(
                "machines exist that belong to no configured runner; they stay until a sweep removes them",
                runner=fleet.record.runner or fleet.name,
                machines=fleet.machines or f"some that were requested from {', '.join(fleet.groups)}",
                file=str(fleet.file),
                what_to_do=advice,
            )

    async def sweep(self, fleet: OrphanedFleet, *, remove: bool) -> tuple[SweepResult, tuple[str, ...]]:
        """List a fleet's orphaned machines, and with `remove` delete them. Also returns remarks on vanished ones."""
        if not remove:
            return await self._sweep(fleet, remove=False)
        try:
            with self._block(fleet.name):
                # Its runner may have come back a moment ago.
                if fleet not in await self.find():
                    return SweepResult(errors=("its machines have changed meanwhile; try again",)), ()
                return await self._sweep(fleet, remove=True)
        except ClosingError as error:
            return SweepResult(errors=(str(error),)), ()

    async def _sweep(self, fleet: OrphanedFleet, *, remove: bool) -> tuple[SweepResult, tuple[str, ...]]:
        problems = [SweepResult(errors=(_describe_unknown(fleet),))] if fleet.unknown else []
        async with asyncio.TaskGroup() as tasks:
            sweeps = {
                group: tasks.create_task(
                    sweep_abandoned(
                        _sweep_request(fleet, group),
                        self._plugins(record.plugin),
                        taken=partial(self._owned_ids, record.plugin, remove=remove),
                        clock=self._clock,
                        remove=remove,
                    ),
                    name=f"sweep of group {group} of {fleet.name}",
                )
                for group, record in fleet.record.groups.items()
                if group in fleet.groups
            }
        results = {group: task.result() for group, task in sweeps.items()}
        present = {group: ids for group, (_, ids) in results.items() if ids is not None}
        gone = {
            group: [instance_id for instance_id in fleet.groups[group] if instance_id not in ids]
            for group, ids in present.items()
        }
        if remove:
            await self._forget(fleet, gone, {group for group, ids in present.items() if not ids})
        action = "its entry was deleted" if remove else "--remove deletes its entry"
        remarks = tuple(
            f"{fleet.title}: {instance_name(group, instance_id)} is gone, or belongs to somebody else now; {action}"
            for group, ids in gone.items()
            for instance_id in ids
            if instance_id not in results[group][0].removed
        )
        return join((*problems, *(swept for swept, _ in results.values()))), remarks

    def _owned_ids(self, plugin: str, *, remove: bool) -> set[str]:
        """Return the ids of instances of running fleets (configured runners). With `remove`, raises TemporaryError if
        one with the same plugin has not listed its instances yet: machines to remove may belong to it."""
        owned = set()
        for scaled in self._scaling.all:
            status = scaled.status()
            owned |= {instance.id for instance in status.instances if instance.state != FOREIGN}
            updated = {group.name for group in status.groups if group.updated_at}
            if remove and plugin in {name for group, name in plugins_of(scaled.runner).items() if group not in updated}:
                raise TemporaryError(
                    f"{scaled.runner.name or scaled.runner.short_token} has the same plugin and has not listed its "
                    "machines yet, so some of these may belong to it by now: try again in a moment"
                )
        return owned

    async def _forget(self, fleet: OrphanedFleet, gone: Mapping[str, Sequence[str]], empty: Collection[str]) -> None:
        """Delete vanished instances (`gone`, ids by group) and pending requests of groups without instances (`empty`)
        from the state file. If all groups are empty and the fleet is not configured, its files are deleted, too."""
        names = {instance_name(group, instance_id) for group, ids in gone.items() for instance_id in ids}
        try:
            stored = await asyncio.to_thread(read_state, fleet.file)
            file = await asyncio.to_thread(StateFile, fleet.file)
            try:
                await file.write(
                    Changes(
                        instances=dict.fromkeys(names),
                        requests={request.number: None for request in stored.requests if request.group in empty},
                    )
                )
            finally:
                file.close()
            present = {instance.name for scaled in self._scaling.all for instance in scaled.status().instances}
            for name in names - present:
                await asyncio.to_thread(host_key_path(self._folder, name).unlink, missing_ok=True)
            configured = {state_path(self._folder, scaled.setup.name) for scaled in self._scaling.all}
            if fleet.file not in configured and fleet.groups.keys() <= set(empty):
                await asyncio.to_thread(remove_files, fleet.file)
        except (StateError, sqlite3.Error, OSError) as error:
            self._log.warning(
                "cannot remove deleted machines from the state file; the next sweep tries again",
                file=str(fleet.file),
                cause=str(error),
            )

    def _find(self, setups: Mapping[Path, FleetSetup]) -> list[OrphanedFleet]:
        fleets = []
        for file in sorted(self._folder.glob("*.db")):
            record = read_record(record_path(file))
            setup = setups.get(file)
            try:
                attended = {group.name for group in setup.groups} if setup is not None else set()
                groups = unattended_groups(read_state(file), attended, file.stem)
            except (StateError, OSError) as error:
                if setup is None:
                    self._log.warning(
                        "cannot read the state file of a removed fleet; its machines are not deleted",
                        file=str(file),
                        cause=str(error),
                    )
                continue
            if groups:
                fleets.append(OrphanedFleet(name=file.stem, file=file, record=record, groups=groups))
        return fleets


def _sweep_request(fleet: OrphanedFleet, group: str) -> AbandonedGroup:
    record = fleet.record.groups[group]
    return AbandonedGroup(
        fleet=fleet.title,
        owner=fleet.record.owner,
        group=group,
        config=record.config,
        settings=_settings(record, fleet.record.owner),
        instances=fleet.groups[group],
    )


def _settings(record: GroupRecord, owner: str) -> Settings:
    """Return stored plugin settings without a login key whose file is gone: removing machines needs no login."""
    for login in (record.login, msgspec.structs.replace(record.login, key_path="")):
        with suppress(ConfigError):
            return Settings(connector=as_connector(login), owner=owner)
    return Settings(owner=owner)


def _describe_unknown(fleet: OrphanedFleet) -> str:
    return (
        f"the settings of the plugin of {', '.join(fleet.unknown)} are unknown: put the runner's section "
        "back into the configuration, and remove it while the manager runs"
    )
