"""Stores the plugin settings of a fleet (the machines created for one runner) in a file beside the fleet's state.

If a runner is removed from the configuration while no manager runs, `remuda scale sweep` reads this file to remove the
fleet's machines. Only the manager's user can read it, because settings of the runner's section may be secret."""

from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from remuda.lib.files import write_whole
from remuda.manager.config.autoscaler import ConnectorConfig
from remuda.manager.config.fleet_setup import group_names, login_of, sections_of
from remuda.manager.config.values import RunnerConfig
from remuda.taskscaler.fleet.requests import Phase
from remuda.taskscaler.fleet.setup import FleetSetup, instance_name
from remuda.taskscaler.fleet.stored_values import Stored
from remuda.taskscaler.loop.state import StateError, read_state, state_path
from remuda.telemetry.logs import logger


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    plugin: str
    config: dict[str, Any] = {}
    login: ConnectorConfig = ConnectorConfig()


class FleetRecord(msgspec.Struct, frozen=True, kw_only=True):
    runner: str = ""
    """The runner's name."""
    owner: str = ""
    groups: dict[str, GroupRecord] = {}
    """Includes groups that are no longer configured, as long as they may have machines."""


def record_path(state: Path) -> Path:
    return state.with_suffix(".json")


def read_record(path: Path) -> FleetRecord:
    """Return the stored plugin settings of a runner's machines; an empty record if the file is missing or invalid."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=FleetRecord)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return FleetRecord()


def write_record(folder: Path, runner: RunnerConfig, setup: FleetSetup) -> None:
    """Store the plugin settings of a runner's machines (a fleet) before a machine is created. Settings of groups that
    are no longer configured are kept while these may have machines. A failed write is only logged."""
    state = state_path(folder, setup.name)
    path = record_path(state)
    old, configured = read_record(path), dict(_describe_groups(runner, setup))
    machines = _read_unattended(state)
    former = {name: group for name, group in old.groups.items() if machines is None or name in machines}
    for name in former.keys() & configured.keys():
        if former[name].config != configured[name].config:
            _warn_of_change(runner, name, (machines or {}).get(name, ()))
    record = FleetRecord(runner=runner.name, owner=setup.owner, groups={**former, **configured})
    if record == old:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, msgspec.json.format(msgspec.json.encode(record)), durable=True)
    except OSError as error:
        logger("manager").warning(
            "cannot store plugin settings; if the runner is removed, a sweep cannot find or delete its machines",
            runner=runner.name or runner.short_token,
            file=str(path),
            cause=str(error),
        )


def _warn_of_change(runner: RunnerConfig, group: str, ids: Iterable[str]) -> None:
    """Log that a group's `plugin_config` changed while it has machines (`ids`), which the plugin may no longer find."""
    logger("manager").warning(
        "plugin_config changed since machines of the group were created; the plugin may not find them any more",
        runner=runner.name or runner.short_token,
        group=group,
        machines=[instance_name(group, instance_id) for instance_id in ids],
        what_to_do=(
            "nothing if the plugin still lists these machines; those that it does not list are never removed: to have "
            "them removed, restore the former plugin_config, and change it again when these machines are gone"
        ),
    )


def remove_record(folder: Path, fleet: str) -> None:
    """Delete settings and state of a fleet that is no longer configured, unless it may still have machines."""
    state = state_path(folder, fleet)
    if _read_unattended(state) == {}:
        with suppress(OSError):
            remove_files(state)


def remove_files(state: Path) -> None:
    for path in (record_path(state), *(state.with_name(state.name + ending) for ending in ("-wal", "-shm", ""))):
        path.unlink(missing_ok=True)


def unattended_groups(stored: Stored, attended: Collection[str], fleet: str) -> dict[str, tuple[str, ...]]:
    """Return the groups in a fleet's stored state that no scaler manages (not in `attended`), with the ids of their
    instances; those of other fleets are left out. A group with unfinished requests for instances is included even
    without known instances, because the provider may have created some."""
    groups: dict[str, list[str]] = {}
    for instance in stored.instances:
        if instance.group not in attended and instance.owner.rpartition("/")[2] in ("", fleet):
            groups.setdefault(instance.group, []).append(instance.id)
    for request in stored.requests:
        if request.group not in attended and request.phase is not Phase.QUEUED and request.missing:
            groups.setdefault(request.group, [])
    return {group: tuple(ids) for group, ids in groups.items()}


def _read_unattended(state: Path) -> dict[str, tuple[str, ...]] | None:
    """Read a state file, and return all instance groups that may have instances, with the known ids. Returns None if a
    part of the file is unreadable, because there may be more instances than those that can be read."""
    try:
        stored = read_state(state)
    except (StateError, OSError):
        return None
    return unattended_groups(stored, (), state.stem) if stored.is_whole else None


def _describe_groups(runner: RunnerConfig, setup: FleetSetup) -> Iterable[tuple[str, GroupRecord]]:
    configs = {group.name: msgspec.to_builtins(group.config) for group in setup.groups}
    for group, section in zip(group_names(runner), sections_of(runner), strict=True):
        yield group, GroupRecord(plugin=section.plugin, config=configs[group], login=login_of(runner, section))
