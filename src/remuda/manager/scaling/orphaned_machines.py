"""Machines of runners that were taken out of the configuration, or changed, while no manager ran.

A fleet that ends beside a running manager takes its machines along. One that is gone at the next start cannot: so what
its plugins were told is kept beside its state (`remember`), and with that `remuda scale sweep` reaches them. It has
what the section had, in a file for this user only, and goes with the last machine. Decided here: which groups nobody
looks after (`left_of`); what of them is an orphan stands in `remuda.taskscaler.loop.sweep`. `service` has them told of
at the start, `scale_orders` sweeps them.

Invariant: while machines of a fleet are removed here, no environment is made over them (`hold`).
"""

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from remuda.fleeting.errors import TemporaryError
from remuda.fleeting.port import InstanceGroup, Settings
from remuda.lib.clock import Clock
from remuda.lib.files import write_whole
from remuda.manager.config.autoscaler import AutoscalerConfig, ConnectorConfig
from remuda.manager.config.load import RunnerConfig
from remuda.manager.errors import ClosingError, ConfigError
from remuda.manager.scaling.scaling import Scaling
from remuda.manager.scaling.setup import autoscaler_of, fleet_setup, group_names, host_key_path, plugins_of
from remuda.taskscaler.fleet.requests import Phase
from remuda.taskscaler.fleet.status import FOREIGN
from remuda.taskscaler.fleet.stored_values import Changes, Stored
from remuda.taskscaler.loop import FleetSetup, SweepResult, instance_name
from remuda.taskscaler.loop.state import StateError, StateFile, read_state, state_path
from remuda.taskscaler.loop.sweep import AbandonedGroup, join, sweep_abandoned
from remuda.telemetry.logs import logger


class KeptGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What the plugin of a group was told."""

    plugin: str
    config: dict[str, Any] = {}
    login: ConnectorConfig = ConnectorConfig()


class KeptFleet(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept beside the state of a fleet."""

    runner: str = ""
    """The runner's name."""
    owner: str = ""
    groups: dict[str, KeptGroup] = {}
    """Those that are not configured any more, too, as long as machines of theirs may be left."""


class LeftFleet(msgspec.Struct, frozen=True, kw_only=True):
    """Machines of one fleet that nobody looks after."""

    name: str
    file: Path
    kept: KeptFleet
    groups: dict[str, tuple[str, ...]]
    """The ids that its state has, by group."""

    @property
    def title(self) -> str:
        return f"{self.kept.runner} ({self.name})" if self.kept.runner else self.name

    @property
    def machines(self) -> list[str]:
        return [instance_name(group, one) for group, ids in self.groups.items() for one in ids]

    @property
    def unknown(self) -> list[str]:
        """Groups that cannot be asked, since nobody knows how."""
        return sorted(self.groups.keys() - self.kept.groups.keys())


def remember(folder: Path, runner: RunnerConfig, setup: FleetSetup) -> None:
    """Keep what the plugins of a fleet are told, before they make a machine."""
    file = state_path(folder, setup.name)
    path = _kept_path(file)
    known, told = _read_kept(path), dict(_told_groups(runner, setup))
    there = _left_in(file, ())
    before = {name: group for name, group in known.groups.items() if there is None or name in there}
    for name in before.keys() & told.keys():
        if before[name].config != told[name].config:
            _warn_of_change(runner, name, (there or {}).get(name, ()))
    kept = KeptFleet(runner=runner.name, owner=setup.owner, groups={**before, **told})
    if kept == known:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, msgspec.json.format(msgspec.json.encode(kept)), durable=True)
    except OSError as error:
        text = "what a plugin is told cannot be kept; without its section its machines cannot be swept"
        logger("manager").warning(text, file=str(path), cause=str(error))


def _warn_of_change(runner: RunnerConfig, group: str, ids: Iterable[str]) -> None:
    """Which settings say where machines are is the plugin's to know."""
    logger("manager").warning(
        "a plugin is told something else than when its machines were made",
        runner=runner.name or runner.short_token,
        machines=[instance_name(group, one) for one in ids],
        what_to_do=(
            "nothing, if it still shows them; those that it does not are given up, and nobody removes them: then put "
            "the former plugin_config back, and change it again when they are gone"
        ),
    )


def forget(folder: Path, fleet: str) -> None:
    """Nobody has the fleet of this name any more: what is kept of it goes, if no machine is left."""
    file = state_path(folder, fleet)
    if _left_in(file, ()) == {}:
        with suppress(OSError):
            _remove_files(file)


def left_of(stored: Stored, looked_after: Collection[str], fleet: str) -> dict[str, tuple[str, ...]]:
    """The groups of a fleet's state that nobody looks after, with the instances that are not another's; also those of
    which instances may have come that nobody has seen."""
    found: dict[str, list[str]] = {}
    for one in stored.instances:
        if one.group not in looked_after and one.owner.rpartition("/")[2] in ("", fleet):
            found.setdefault(one.group, []).append(one.id)
    for asked in stored.requests:
        if asked.group not in looked_after and asked.phase is not Phase.QUEUED and asked.missing:
            found.setdefault(asked.group, [])
    return {group: tuple(ids) for group, ids in found.items()}


class LeftMachines:
    """All of a manager's."""

    def __init__(
        self,
        folder: Path,
        *,
        scaling: Scaling,
        plugins: Callable[[str], InstanceGroup],
        hold: Callable[[str], AbstractContextManager[None]],
        clock: Clock,
    ) -> None:
        """`plugins` makes the group of a plugin; within `hold` no environment is made for the fleet of that name."""
        self._folder = folder
        self._scaling = scaling
        self._plugins = plugins
        self._hold = hold
        self._clock = clock
        self._log = logger("manager")

    async def find(self) -> list[LeftFleet]:
        """What is left now."""
        known = {state_path(self._folder, one.setup.name): one.setup for one in self._scaling.all}
        return await asyncio.to_thread(self._find, known)

    async def tell(self) -> None:
        """Say in the log what is left. What is kept of fleets that have left nothing goes."""
        for file in await asyncio.to_thread(lambda: sorted(self._folder.glob("*.json"))):
            with suppress(ClosingError), self._hold(file.stem):
                if file.stem not in {one.setup.name for one in self._scaling.all}:
                    await asyncio.to_thread(forget, self._folder, file.stem)
        for left in await self.find():
            what = "list them with: remuda scale sweep; remove them with: remuda scale sweep --remove"
            if left.unknown:
                what = f"{_unknown(left)}; {what}" if left.unknown != sorted(left.groups) else _unknown(left)
            self._log.warning(
                "machines are left that no runner looks after",
                runner=left.kept.runner or left.name,
                machines=left.machines or f"some that were asked for from {', '.join(left.groups)}",
                file=str(left.file),
                what_to_do=what,
            )

    async def sweep(self, left: LeftFleet, *, remove: bool) -> tuple[SweepResult, tuple[str, ...]]:
        """Find its machines, and remove them or not; with remarks on what is gone already."""
        if not remove:
            return await self._sweep(left, remove=False)
        try:
            with self._hold(left.name):
                # Its runner may have come back a moment ago.
                if left not in await self.find():
                    return SweepResult(errors=("something has changed meanwhile; try again",)), ()
                return await self._sweep(left, remove=True)
        except ClosingError as error:
            return SweepResult(errors=(str(error),)), ()

    async def _sweep(self, left: LeftFleet, *, remove: bool) -> tuple[SweepResult, tuple[str, ...]]:
        problems = [SweepResult(errors=(_unknown(left),))] if left.unknown else []
        async with asyncio.TaskGroup() as tasks:
            looks = {
                group: tasks.create_task(
                    sweep_abandoned(
                        _left(left, group),
                        self._plugins(kept.plugin),
                        taken=partial(self._taken, kept.plugin, remove=remove),
                        clock=self._clock,
                        remove=remove,
                    ),
                    name=f"sweep of group {group} of {left.name}",
                )
                for group, kept in left.kept.groups.items()
                if group in left.groups
            }
        done = {group: look.result() for group, look in looks.items()}
        there = {group: still for group, (_, still) in done.items() if still is not None}
        gone = {group: [one for one in left.groups[group] if one not in still] for group, still in there.items()}
        if remove:
            await self._forget(left, gone, {group for group, still in there.items() if not still})
        verb = "is forgotten" if remove else "can be forgotten with --remove"
        remarks = tuple(
            f"{left.title}: {instance_name(group, one)} is gone, or somebody else's by now, and {verb}"
            for group, ids in gone.items()
            for one in ids
            if one not in done[group][0].removed
        )
        return join((*problems, *(swept for swept, _ in done.values()))), remarks

    def _taken(self, plugin: str, *, remove: bool) -> set[str]:
        """Ids that are somebody's here. TemporaryError: one who may have taken some over has not looked yet."""
        found = set()
        for scaled in self._scaling.all:
            now = scaled.status()
            found |= {one.id for one in now.instances if one.state != FOREIGN}
            looked = {group.name for group in now.groups if group.updated_at}
            if remove and plugin in {one for group, one in plugins_of(scaled.runner).items() if group not in looked}:
                who = scaled.runner.name or scaled.runner.short_token
                raise TemporaryError(
                    f"{who} has the same plugin, and has not seen yet which machines there are and may be its own by "
                    "now: try again when it has"
                )
        return found

    async def _forget(self, left: LeftFleet, gone: Mapping[str, Sequence[str]], over: Collection[str]) -> None:
        """Strike out what is no more, and what was asked for of groups that have nothing any more (`over`); with the
        last of them, the files of a fleet that nobody has."""
        try:
            stored = await asyncio.to_thread(read_state, left.file)
            file = await asyncio.to_thread(StateFile, left.file)
            try:
                await file.write(
                    Changes(
                        instances={instance_name(group, one): None for group, ids in gone.items() for one in ids},
                        requests={one.number: None for one in stored.requests if one.group in over},
                    )
                )
            finally:
                file.close()
            there = {one.name for scaled in self._scaling.all for one in scaled.status().instances}
            for name in {instance_name(group, one) for group, ids in gone.items() for one in ids} - there:
                await asyncio.to_thread(host_key_path(self._folder, name).unlink, missing_ok=True)
            known = {state_path(self._folder, one.setup.name) for one in self._scaling.all}
            if left.file not in known and left.groups.keys() <= set(over):
                await asyncio.to_thread(_remove_files, left.file)
        except (StateError, sqlite3.Error, OSError) as error:
            self._log.warning("what is gone could not be struck out", file=str(left.file), cause=str(error))

    def _find(self, known: Mapping[Path, FleetSetup]) -> list[LeftFleet]:
        found = []
        for file in sorted(self._folder.glob("*.db")):
            kept = _read_kept(_kept_path(file))
            setup = known.get(file)
            try:
                looked_after = {one.name for one in setup.groups} if setup is not None else set()
                groups = left_of(read_state(file), looked_after, file.stem)
            except (StateError, OSError) as error:
                if setup is None:
                    self._log.warning("a state cannot be read", file=str(file), cause=str(error))
                continue
            if groups:
                found.append(LeftFleet(name=file.stem, file=file, kept=kept, groups=groups))
        return found


def _left_in(file: Path, looked_after: Collection[str]) -> dict[str, tuple[str, ...]] | None:
    """`left_of` what a file has; None: not all of it can be read, and there may be more."""
    try:
        stored = read_state(file)
    except (StateError, OSError):
        return None
    return left_of(stored, looked_after, file.stem) if stored.is_whole else None


def _told_groups(runner: RunnerConfig, setup: FleetSetup) -> Iterable[tuple[str, KeptGroup]]:
    scaling, plugins = autoscaler_of(runner), plugins_of(runner)
    logins = [scaling.connector_config]
    logins += [one.connector_config or scaling.connector_config for one in runner.remuda.fallback]
    configs = {one.name: msgspec.to_builtins(one.config) for one in setup.groups}
    for group, login in zip(group_names(runner), logins, strict=True):
        yield group, KeptGroup(plugin=plugins[group], config=configs[group], login=login)


def _left(left: LeftFleet, group: str) -> AbandonedGroup:
    kept = left.kept.groups[group]
    return AbandonedGroup(
        fleet=left.title,
        owner=left.kept.owner,
        group=group,
        config=kept.config,
        settings=_settings(kept, left.kept.owner),
        instances=left.groups[group],
    )


def _settings(kept: KeptGroup, owner: str) -> Settings:
    """As the plugin had them; without the key if that is gone meanwhile: nobody logs in to what goes."""
    for login in (kept.login, msgspec.structs.replace(kept.login, key_path="")):
        scaling = AutoscalerConfig(plugin=kept.plugin, plugin_config=kept.config, connector_config=login)
        with suppress(ConfigError):
            made = fleet_setup(RunnerConfig(executor="instance", autoscaler=scaling), system_id="")
            return Settings(connector=made.groups[0].settings.connector, owner=owner)
    return Settings(owner=owner)


def _unknown(left: LeftFleet) -> str:
    return (
        f"nobody knows how the plugin of {', '.join(left.unknown)} was set up: put the runner's section "
        "back, and take it out while the manager runs"
    )


def _kept_path(state: Path) -> Path:
    return state.with_suffix(".json")


def _read_kept(path: Path) -> KeptFleet:
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeptFleet)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return KeptFleet()


def _remove_files(state: Path) -> None:
    for path in (_kept_path(state), *(state.with_name(state.name + ending) for ending in ("-wal", "-shm", ""))):
        path.unlink(missing_ok=True)
