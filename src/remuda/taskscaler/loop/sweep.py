"""Finds orphaned instances by the tags of their owners, and removes them on request (`remuda scale sweep`).

An orphan is tagged with an owner name of this manager (`SYSTEM_ID/RUNNER_KEY`) that is not configured any more, or with
this fleet's owner although neither its group nor the state file has it. Instances of other managers, or younger than
the grace time, are no orphans. `sweep` needs started plugins; `sweep_abandoned` starts the plugin of a group that is
not configured any more. Groups are asked concurrently, every call has a deadline."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from remuda.fleeting.errors import PermanentError, TemporaryError, UnsupportedError
from remuda.fleeting.port import CanRecover, InstanceGroup, Settings, TaggedInstance
from remuda.lib.clock import Clock
from remuda.taskscaler.fleet.members import is_gone
from remuda.taskscaler.fleet.setup import FleetSetup
from remuda.taskscaler.fleet.stored_values import Stored
from remuda.taskscaler.loop.deadlines import within
from remuda.taskscaler.loop.instance_end import LOOKS, close_plugin
from remuda.taskscaler.loop.state import StateError, read_state, state_path
from remuda.telemetry.logs import logger

GRACE_SECONDS = 600.0
INIT_SECONDS, ASK_SECONDS, REMOVE_SECONDS, END_SECONDS = 70.0, 40.0, 90.0, 10.0
"""Deadlines for the calls of one group. Their sum is below the time limit of the command."""
GONE_SECONDS = 30.0
"""How long to wait for deletions."""
T = TypeVar("T")


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """An instance of this manager at a provider that no configured fleet manages."""

    instance: str
    """The plugin's name for it."""
    group: str
    owner: str
    created_at: float | None
    why: str


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    found: tuple[Orphan, ...] = ()
    removed: tuple[str, ...] = ()
    """Ids of instances whose deletion was accepted."""
    errors: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    """Groups that cannot find instances by tags."""


class AbandonedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group that is not configured any more, with instances in a state file."""

    fleet: str
    owner: str
    group: str
    config: Mapping[str, Any] = {}
    """`plugin_config` of its plugin."""
    settings: Settings = Settings()
    instances: tuple[str, ...] = ()
    """Ids in the state file."""


async def sweep(
    setup: FleetSetup,
    plugins: Mapping[str, InstanceGroup],
    known_owners: Callable[[], Collection[str]],
    *,
    folder: Path,
    clock: Clock,
    remove: bool,
    grace_seconds: float = GRACE_SECONDS,
    not_begun: Mapping[str, str] | None = None,
) -> SweepResult:
    """Find orphaned instances (tagged by this manager, but in no configured fleet), and delete them if `remove`. An
    error of one group does not affect others. `known_owners`: owner names of all runners. `folder`: of the state file.
    `grace_seconds`: younger ones are left alone. `not_begun`: groups whose plugins did not start, with the cause."""

    async def look(group: str, plugin: InstanceGroup) -> SweepResult:
        if cause := (not_begun or {}).get(group):
            return SweepResult(errors=(f"group {group}: {cause}",))
        calls = _Calls(group, plugin, clock)
        try:
            tagged = await calls.recover()
            shown = await calls.update()
            # State and owners are read last: new instances are stored before they exist, and runners may come back.
            stored = await asyncio.to_thread(read_state, state_path(folder, setup.name))
            orphans = _orphans_of(setup, group, tagged, shown, stored, known_owners(), clock.now() - grace_seconds)
            return await calls.remove_orphans(orphans, remove=remove)
        except UnsupportedError:
            return SweepResult(passed_over=(group,))
        except (TemporaryError, PermanentError, StateError, OSError) as error:
            return SweepResult(errors=(f"group {group}: {error}",))

    async with asyncio.TaskGroup() as tasks:
        looks = [
            tasks.create_task(look(group, plugin), name=f"sweep of group {group}") for group, plugin in plugins.items()
        ]
    return join(task.result() for task in looks)


async def sweep_abandoned(
    abandoned: AbandonedGroup,
    plugin: InstanceGroup,
    *,
    taken: Callable[[], Collection[str]],
    clock: Clock,
    remove: bool,
) -> tuple[SweepResult, frozenset[str] | None]:
    """Find, and with `remove` delete, the instances of a group that is not configured any more. Starts and stops its
    plugin. `taken` returns the ids of instances that other fleets use; these are left alone. Returns the result, and
    the ids of instances that still exist, or None if that is unknown."""
    calls = _Calls(abandoned.group, plugin, clock)
    try:
        await calls.within(plugin.init(abandoned.config, abandoned.settings), INIT_SECONDS, "Init")
        owners: dict[str, TaggedInstance] = {}
        with suppress(UnsupportedError):
            owners = {instance.instance: instance for instance in await calls.recover()}
        shown = await calls.update()
        # Called last: an instance may have been taken over meanwhile.
        theirs = taken()
        ours = [name for name in sorted(shown) if _is_left(abandoned, name, owners.get(name)) and name not in theirs]
        ours += [
            name
            for name, tag in sorted(owners.items())
            if tag.owner == abandoned.owner and name not in (*shown, *theirs)
        ]
        why = f"no configured runner manages it any more; it was created for {abandoned.fleet}"
        orphans = [
            Orphan(
                instance=name,
                group=abandoned.group,
                owner=abandoned.owner,
                created_at=owners[name].created_at if name in owners else None,
                why=why,
            )
            for name in ours
        ]
        result = await calls.remove_orphans(orphans, remove=remove)
        still = set(ours)
        if result.removed:
            with suppress(TemporaryError, PermanentError):
                still = await calls.until_gone(ours)
        return result, None if result.errors else frozenset(still)
    except (TemporaryError, PermanentError) as error:
        return SweepResult(errors=(f"group {abandoned.group}: {error}",)), None
    finally:
        await calls.end()


def join(parts: Iterable[SweepResult]) -> SweepResult:
    results = list(parts)
    return SweepResult(
        found=tuple(orphan for result in results for orphan in result.found),
        removed=tuple(name for result in results for name in result.removed),
        errors=tuple(error for result in results for error in result.errors),
        passed_over=tuple(group for result in results for group in result.passed_over),
    )


class _Calls:
    """Calls of one group's plugin during a search for orphaned instances, each with a deadline."""

    def __init__(self, group: str, plugin: InstanceGroup, clock: Clock) -> None:
        self._group = group
        self._plugin = plugin
        self._clock = clock

    async def within(self, call: Coroutine[Any, Any, T], seconds: float, what: str) -> T:
        return await within(self._clock, seconds, call, what=f"{what} of group {self._group}")

    async def recover(self) -> Sequence[TaggedInstance]:
        if not isinstance(self._plugin, CanRecover):
            raise UnsupportedError("the plugin cannot find instances by tags")
        return await self.within(self._plugin.recover(), ASK_SECONDS, "Recover")

    async def update(self) -> set[str]:
        shown = await self.within(self._plugin.update(), ASK_SECONDS, "Update")
        return {name for name, state in shown.items() if not is_gone(state)}

    async def remove_orphans(self, orphans: Sequence[Orphan], *, remove: bool) -> SweepResult:
        """Delete orphans if `remove` is set. The result lists all orphans, also if the deletion fails."""
        if not remove or not orphans:
            return SweepResult(found=tuple(orphans))
        try:
            call = self._plugin.decrease([orphan.instance for orphan in orphans])
            removed = await self.within(call, REMOVE_SECONDS, "Decrease")
        except (TemporaryError, PermanentError) as error:
            return SweepResult(found=tuple(orphans), errors=(f"group {self._group}: {error}",))
        why = sorted({orphan.why for orphan in orphans})
        logger("scaler").info(
            "removed orphaned instances", group=self._group, instances=list(removed), why="; ".join(why)
        )
        return SweepResult(found=tuple(orphans), removed=tuple(removed))

    async def until_gone(self, instances: Collection[str]) -> set[str]:
        """Wait until instances are deleted. Returns those that still exist after `GONE_SECONDS`."""
        until, looks = self._clock.now() + GONE_SECONDS, 0
        while (still := set(instances) & await self.update()) and self._clock.now() < until:
            looks += 1
            await self._clock.sleep(LOOKS.delay(looks))
        return still

    async def end(self) -> None:
        with suppress(TemporaryError, PermanentError):
            await self.within(self._plugin.shutdown(), END_SECONDS, "Shutdown")
        await close_plugin(self._group, self._plugin)


def _is_left(abandoned: AbandonedGroup, instance: str, tag: TaggedInstance | None) -> bool:
    return tag.owner == abandoned.owner if tag is not None and tag.owner else instance in abandoned.instances


def _orphans_of(
    setup: FleetSetup,
    group: str,
    tagged: Sequence[TaggedInstance],
    shown: Collection[str],
    stored: Stored,
    known_owners: Collection[str],
    before: float,
) -> list[Orphan]:
    stored_ids = {instance.id for instance in stored.instances if instance.group == group}
    is_asking = any(request.group == group for request in stored.requests)
    system = setup.owner.partition("/")[0]
    orphans = []
    for instance in tagged:
        if instance.created_at is not None and instance.created_at > before:
            continue
        why = ""
        if instance.owner == setup.owner:
            if (
                instance.instance not in shown
                and instance.instance not in stored_ids
                and not (is_asking and instance.created_at is None)
            ):
                why = "it is ours by its tag, but neither its group nor the state file has it"
        elif instance.owner.partition("/")[0] == system and instance.owner not in known_owners:
            why = f"its owner, {instance.owner}, is not configured here any more"
        if why:
            orphans.append(
                Orphan(
                    instance=instance.instance,
                    group=group,
                    owner=instance.owner,
                    created_at=instance.created_at,
                    why=why,
                )
            )
    return orphans
