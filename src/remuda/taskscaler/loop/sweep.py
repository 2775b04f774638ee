"""Finds instances that nobody looks after any more, by the tags of their owners, and removes them if asked to.

An orphan is an instance that is tagged with an owner of this manager (`SYSTEM_ID/RUNNER_KEY`) which is not configured
any more, or with this fleet's own while neither its group shows it nor the fleet's state knows it. What another manager
has made is never one; nor is one that is younger than the grace, since it may be just being made. Groups that cannot
find instances by tags are passed over. Plugins have to be started; called by `remuda scale sweep`.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from remuda.fleeting.errors import PermanentError, TemporaryError, UnsupportedError
from remuda.fleeting.port import CanRecover, InstanceGroup
from remuda.taskscaler.loop.members import is_gone
from remuda.taskscaler.loop.setup import FleetSetup
from remuda.taskscaler.loop.state import StateError, read_state, state_path

GRACE_SECONDS = 600.0


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that nobody looks after."""

    instance: str
    """What its plugin calls it."""
    group: str
    owner: str
    created_at: float | None
    why: str


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    found: tuple[Orphan, ...]
    removed: tuple[str, ...] = ()
    """Ids whose end was accepted."""
    errors: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    """Groups that cannot find instances by tags."""


async def orphans(
    setup: FleetSetup,
    plugins: Mapping[str, InstanceGroup],
    known_owners: Collection[str],
    *,
    folder: Path,
    now: float,
    grace_seconds: float = GRACE_SECONDS,
) -> tuple[Orphan, ...]:
    """All orphans; `known_owners` are those of all runners that are configured. TemporaryError, PermanentError."""
    found: list[Orphan] = []
    for group in plugins:
        try:
            found += await _orphans_of(setup, group, plugins[group], known_owners, folder, now - grace_seconds)
        except UnsupportedError:
            continue
    return tuple(found)


async def sweep(
    setup: FleetSetup,
    plugins: Mapping[str, InstanceGroup],
    known_owners: Collection[str],
    *,
    folder: Path,
    now: float,
    remove: bool,
    grace_seconds: float = GRACE_SECONDS,
) -> Swept:
    """Find orphans, and remove them or not. What goes wrong with one group is told, and keeps no other from it."""
    found: list[Orphan] = []
    removed: list[str] = []
    errors: list[str] = []
    passed_over: list[str] = []
    for group, plugin in plugins.items():
        try:
            own = await _orphans_of(setup, group, plugin, known_owners, folder, now - grace_seconds)
            found += own
            if remove and own:
                removed += await plugin.decrease([one.instance for one in own])
        except UnsupportedError:
            passed_over.append(group)
        except (TemporaryError, PermanentError, StateError) as error:
            errors.append(f"group {group}: {error}")
    return Swept(found=tuple(found), removed=tuple(removed), errors=tuple(errors), passed_over=tuple(passed_over))


async def _orphans_of(
    setup: FleetSetup,
    group: str,
    plugin: InstanceGroup,
    known_owners: Collection[str],
    folder: Path,
    before: float,
) -> list[Orphan]:
    if not isinstance(plugin, CanRecover):
        raise UnsupportedError("the plugin cannot find instances by tags")
    tagged = await plugin.recover()
    shown = {one for one, state in (await plugin.update()).items() if not is_gone(state)}
    # Read last: what is made meanwhile is written first.
    stored = read_state(state_path(folder, setup.name))
    known = {one.id for one in stored.instances if one.group == group}
    is_asking = any(one.group == group for one in stored.requests)
    system = setup.owner.partition("/")[0]
    found = []
    for one in tagged:
        if one.created_at is not None and one.created_at > before:
            continue
        why = ""
        if one.owner == setup.owner:
            if one.instance not in shown and one.instance not in known and not (is_asking and one.created_at is None):
                why = "it is ours by its tag, but its group does not show it, and nothing here knows it"
        elif one.owner.partition("/")[0] == system and one.owner not in known_owners:
            why = f"its owner, {one.owner}, is not configured here any more"
        if why:
            found.append(
                Orphan(instance=one.instance, group=group, owner=one.owner, created_at=one.created_at, why=why)
            )
    return found
