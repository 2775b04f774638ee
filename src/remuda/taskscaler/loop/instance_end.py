"""How instances end for the manager, and how a fleet ends with it.

Instances stay when a manager ends, or those without a job are deleted first; then the plugins end. All of it within
`shutdown_seconds`; what is not done then is found by the next process, or by the sweep. `end` is called when nothing
else of the scaler runs any more.
"""

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
"""Between looks whether what was asked to go is gone."""


@runtime_checkable
class CanClose(Protocol):
    """A plugin that has something to end, such as a process."""

    async def close(self) -> None: ...


class GoneInstances:
    """Tells the manager of instances that are gone, so that it closes what it has open there."""

    def __init__(self, machines: Machines, clock: Clock) -> None:
        self._machines = machines
        self._clock = clock
        self._gone: asyncio.Queue[str] = asyncio.Queue()

    def add(self, instance: str) -> None:
        self._gone.put_nowait(instance)

    async def run(self) -> None:
        """Until it is cancelled. All at the same time: whoever comes with the name of one that is gone comes later."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                instance = await self._gone.get()
                tasks.create_task(self._forget(instance), name=f"to forget {instance}")

    async def finish(self) -> None:
        """Those that are left, at the same time: the end waits no longer than for one."""
        async with asyncio.TaskGroup() as tasks:
            while not self._gone.empty():
                instance = self._gone.get_nowait()
                tasks.create_task(self._forget(instance), name=f"to forget {instance}")

    async def _forget(self, instance: str) -> None:
        try:
            await within(self._clock, FORGET_SECONDS, self._machines.forget(instance), what=f"to forget {instance}")
        except (TemporaryError, PermanentError) as error:
            text = "what was open to an instance that is gone could not be closed"
            logger("scaler").info(text, instance=instance, cause=str(error))


async def end(roster: Roster, watches: Mapping[str, GroupWatch], state_writer: StateWriter, clock: Clock) -> None:
    """Let go of a fleet."""
    log = logger("scaler").bind(fleet=roster.setup.name)
    try:
        what = "the end of the fleet"
        await within(clock, roster.setup.shutdown_seconds, _end(roster, watches, state_writer, clock), what=what)
    except (TemporaryError, PermanentError) as error:
        log.warning("the fleet was not ended in order", cause=str(error))
    finally:
        async with asyncio.TaskGroup() as tasks:
            for watch in watches.values():
                tasks.create_task(close_plugin(watch.name, watch.plugin), name=f"end of the plugin of {watch.name}")
        with suppress(TemporaryError):
            await within(clock, WRITE_SECONDS, state_writer.write(), what="the state of the fleet")


async def close_plugin(group: str, plugin: InstanceGroup) -> None:
    """End what a plugin has to end."""
    try:
        if isinstance(plugin, CanClose):
            await plugin.close()
    except Exception as error:  # noqa: BLE001 - what goes wrong with one keeps nothing else from its end
        cause = f"{type(error).__name__}: {error}"
        logger("scaler").error("a plugin could not be ended", group=group, cause=cause)


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
    """All without a job, those that only show up now included."""
    log = logger("scaler").bind(fleet=roster.setup.name, group=watch.name)
    roster.requests.interrupt(watch.name, clock.now())
    roster.requests.take_back(watch.name)
    before, told = set(roster.members), set[str]()
    for attempt in range(roster.setup.shutdown_deletion_retries + 1):
        with suppress(TemporaryError, PermanentError):
            await watch.update()
        names = _deletable(roster, watch.name, before)
        if not names and not roster.requests.of(watch.name):
            break
        if attempt == roster.setup.shutdown_deletion_retries:
            log.warning("instances are left after the end", instances=names)
            break
        for name in names:
            roster.remove(name, clock.now())
        await state_writer.write()
        if fresh := sorted(set(names) - told):
            log.info("instances are removed", instances=fresh, why=roster.setup.delete_because)
            told.update(fresh)
        await watch.decrease(names)
        await _until_gone(roster, watch, before, clock)
    if busy := [name for name, one in roster.members.items() if one.group == watch.name and roster.slots.holders(name)]:
        log.info("instances with jobs stay", instances=sorted(busy))


def _deletable(roster: Roster, group: str, before: Collection[str]) -> list[str]:
    """Those without a job; not what has come since then for somebody else who has the same group."""
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
    """Look soon, and again until nothing is left or it is time to ask anew."""
    until, looks = clock.now() + roster.setup.shutdown_deletion_seconds, 0
    while (left := until - clock.now()) > 0:
        looks += 1
        await clock.sleep(min(LOOKS.delay(looks), left))
        with suppress(TemporaryError, PermanentError):
            await watch.update()
        if not _deletable(roster, watch.name, before) and not roster.requests.of(watch.name):
            return
