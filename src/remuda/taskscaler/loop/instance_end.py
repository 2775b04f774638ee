"""Shuts down a fleet, and closes connections to instances that do not exist any more.

When a manager stops, its instances stay, or with `delete_on_shutdown` those without a job are deleted, in at most
`shutdown_seconds`; the next process or a sweep finds the rest. `end` is called after all other tasks of the scaler have
ended."""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Protocol, runtime_checkable

from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.fleeting.port import InstanceGroup
from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.taskscaler.core.values import Cause
from remuda.taskscaler.fleet.roster import Roster
from remuda.taskscaler.fleet.setup import Machines
from remuda.taskscaler.loop.deadlines import within
from remuda.taskscaler.loop.group_watch import GroupWatch
from remuda.taskscaler.loop.state import StateWriter
from remuda.telemetry.logs import logger

WRITE_SECONDS = 10.0
FORGET_SECONDS = 30.0
LOOKS = Backoff(first_seconds=0.25, ceiling_seconds=2.0)
"""Pauses between updates while waiting for deletions."""


@runtime_checkable
class CanClose(Protocol):
    """A plugin that must be closed, for example because it runs in a process of its own."""

    async def close(self) -> None: ...


class GoneInstances:
    """Queue of instances that do not exist any more; calls `Machines.forget` for each to close its connections."""

    def __init__(self, machines: Machines, clock: Clock) -> None:
        self._machines = machines
        self._clock = clock
        self._gone: asyncio.Queue[str] = asyncio.Queue()

    def add(self, instance: str) -> None:
        self._gone.put_nowait(instance)

    async def run(self) -> None:
        """Close the connections to instances as they come into the queue, concurrently, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                instance = await self._gone.get()
                tasks.create_task(self._forget(instance), name=f"to forget {instance}")

    async def finish(self) -> None:
        """Close the connections to the instances that are still in the queue, concurrently, and return."""
        async with asyncio.TaskGroup() as tasks:
            while not self._gone.empty():
                instance = self._gone.get_nowait()
                tasks.create_task(self._forget(instance), name=f"to forget {instance}")

    async def _forget(self, instance: str) -> None:
        try:
            await within(
                self._clock,
                FORGET_SECONDS,
                self._machines.forget(instance),
                what=f"closing the connections to {instance}",
            )
        except (TemporaryError, PermanentError) as error:
            logger("scaler").info(
                "cannot close connections to a deleted instance; not trying again", instance=instance, cause=str(error)
            )


async def end(roster: Roster, watches: Mapping[str, GroupWatch], state_writer: StateWriter, clock: Clock) -> None:
    """Shut down a fleet: delete instances without a job if configured, stop the plugins, write the state file."""
    log = logger("scaler").bind(fleet=roster.setup.name)
    try:
        what = "the shutdown of the fleet"
        await within(clock, roster.setup.shutdown_seconds, _end(roster, watches, state_writer, clock), what=what)
    except (TemporaryError, PermanentError) as error:
        log.warning("cannot shut down the fleet completely; some instances may still exist", cause=str(error))
    finally:
        async with asyncio.TaskGroup() as tasks:
            for watch in watches.values():
                tasks.create_task(close_plugin(watch.name, watch.plugin), name=f"end of the plugin of {watch.name}")
        with suppress(TemporaryError):
            await within(clock, WRITE_SECONDS, state_writer.write(), what="the state of the fleet")


async def close_plugin(group: str, plugin: InstanceGroup) -> None:
    """Stop the plugin of a group. Errors are logged and not raised."""
    try:
        if isinstance(plugin, CanClose):
            await plugin.close()
    except Exception as error:  # noqa: BLE001 - other plugins must still be closed
        cause = f"{type(error).__name__}: {error}"
        logger("scaler").error(
            "cannot stop the plugin of an instance group; its process may still run", group=group, cause=cause
        )


async def _end(roster: Roster, watches: Mapping[str, GroupWatch], state_writer: StateWriter, clock: Clock) -> None:
    async with asyncio.TaskGroup() as tasks:
        for watch in watches.values():
            if watch.is_begun:
                tasks.create_task(_end_group(roster, watch, state_writer, clock), name=f"end of group {watch.name}")


async def _end_group(roster: Roster, watch: GroupWatch, state_writer: StateWriter, clock: Clock) -> None:
    if roster.setup.delete_on_shutdown:
        await _delete_all(roster, watch, state_writer, clock)
    with suppress(TemporaryError, PermanentError):
        await watch.plugin.shutdown()


async def _delete_all(roster: Roster, watch: GroupWatch, state_writer: StateWriter, clock: Clock) -> None:
    """Delete all instances of a group that have no job, also requested instances that appear meanwhile."""
    log = logger("scaler").bind(fleet=roster.setup.name, group=watch.name)
    roster.requests.interrupt(watch.name, clock.now())
    roster.requests.take_back(watch.name)
    before, logged = set(roster.members), set[str]()
    for attempt in range(roster.setup.shutdown_deletion_retries + 1):
        with suppress(TemporaryError, PermanentError):
            await watch.update()
        names = _deletable(roster, watch.name, before)
        if not names and not roster.requests.of(watch.name):
            break
        if attempt == roster.setup.shutdown_deletion_retries:
            log.warning("instances still exist after the last attempt to delete them; leaving them", instances=names)
            break
        for name in names:
            roster.remove(name, clock.now())
        await state_writer.write()
        if fresh := sorted(set(names) - logged):
            log.info("removing instances", instances=fresh, why=roster.setup.delete_because)
            logged.update(fresh)
        await watch.decrease(names)
        await _until_gone(roster, watch, before, clock)
    members = roster.members.items()
    if busy := [name for name, member in members if member.group == watch.name and roster.slots.holders(name)]:
        log.info("fleet ends; instances with running jobs are not deleted", instances=sorted(busy))


def _deletable(roster: Roster, group: str, before: Collection[str]) -> list[str]:
    """Names of a group's instances without a job and other owner, which the shutdown may delete. `before`: those at its
    start; later ones without request and tag are left out: they may belong to another user of the group."""
    owner = roster.setup.owner
    return [
        name
        for name, member in roster.members.items()
        if member.group == group
        and not member.is_foreign(owner)
        and not roster.slots.holders(name)
        and (name in before or member.cause is not Cause.UNEXPECTED or (owner and member.owner == owner))
    ]


async def _until_gone(roster: Roster, watch: GroupWatch, before: Collection[str], clock: Clock) -> None:
    """List the group's instances repeatedly until there is none left to delete and no request is pending, for at most
    `shutdown_deletion_seconds`. `before`: names of the instances at the start of the shutdown."""
    until, looks = clock.now() + roster.setup.shutdown_deletion_seconds, 0
    while (remaining := until - clock.now()) > 0:
        looks += 1
        await clock.sleep(min(LOOKS.delay(looks), remaining))
        with suppress(TemporaryError, PermanentError):
            await watch.update()
        if not _deletable(roster, watch.name, before) and not roster.requests.of(watch.name):
            return
