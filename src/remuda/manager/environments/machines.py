"""Environments of machines behind SSH: `ssh`, one machine for any number of jobs, and `machines`, a list of them.

Decides nothing purely (`core.machine_choice` does) and does nothing on a machine (`remote_machine` does): this keeps
who holds which machine, and which of them can be used. A machine that cannot be reached gets no job; it is tried
again in the background, with growing pauses, until it can be, and the log says why it could not. Jobs that it holds
meanwhile wait for it as long as the manager's reconnect limit lets them. What a machine has been used for is kept on
the machine itself, so that neither a restart nor another manager forgets it.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.manager.config.load import MachineEntry, RunnerConfig
from remuda.manager.core.machine_choice import MachineState, capacity, choose
from remuda.manager.environments.port import JobPlace, PreparedPlace, Usage
from remuda.manager.environments.remote_machine import RemoteMachine, UsedUpError
from remuda.manager.environments.ssh import Address, SshError
from remuda.manager.errors import EnvironmentLostError, EnvironmentTemporaryError
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import AgentClient

LOOK_SECONDS = 30.0
"""How long what a machine said of its disk counts."""
RECOVER_SECONDS = 60.0
"""How long to wait for machines that may have jobs of an earlier process."""
_BACKOFF = Backoff(first_seconds=1.0, ceiling_seconds=60.0)


@dataclass
class _Kept:
    """A machine, and what is known of it."""

    machine: RemoteMachine
    capacity: int | None
    held: set[str] = field(default_factory=set)
    cause: str = ""
    """Why it cannot be reached; empty: it can, or nobody has tried."""
    uses_left: int | None = None
    """Jobs that it may still begin, by what it said last; None: any number, or it has not been asked."""
    claiming: int = 0
    """Jobs that are being counted there now."""
    disk_free_bytes: int | None = None
    looked_at: float = 0.0


class MachinesEnvironment:
    """Jobs on machines behind SSH."""

    def __init__(
        self, machines: Sequence[tuple[RemoteMachine, int | None]], *, clock: Clock, least_disk_bytes: int = 0
    ) -> None:
        """Machines with the number of jobs that each takes at the same time; None: any number."""
        self._clock = clock
        self._least_disk_bytes = least_disk_bytes
        self._machines = {machine.name: _Kept(machine, most) for machine, most in machines}
        self._held: dict[str, str] = {}
        self._changed = asyncio.Condition()
        self._mending: dict[str, asyncio.Task[None]] = {}
        self._log = logger("manager")
        is_one = len(machines) == 1 and machines[0][1] is None
        self.standing = machines[0][0].name if is_one else ""
        """The one machine, whose agent is connected before a job is asked for; see `ports.standing_machine`."""

    def capacity(self) -> int | None:
        return capacity(self._standings())

    async def acquire(self, place: JobPlace) -> str:
        while place.key not in self._held:
            name = choose(self._standings())
            if name is None:
                await self._wait_for_room()
            else:
                await self._try(self._machines[name], place)
        return self._held[place.key]

    def adopt(self, place: JobPlace, machine: str) -> None:
        self._hold(place.key, machine)

    async def prepare(self, place: JobPlace, machine: str) -> PreparedPlace:
        with self._using(machine) as there:
            return await there.prepare(place)

    async def before(self, place: JobPlace, machine: str) -> str:
        with self._using(machine) as there:
            return await there.hook("before_job", place.before_job, place)

    async def after(self, place: JobPlace, machine: str) -> str:
        with self._using(machine) as there:
            return await there.hook("after_job", place.after_job, place)

    async def connect(self, machine: str) -> AgentClient:
        with self._using(machine) as there:
            client = await there.connect()
        await self._mended(self._machines[machine])
        return client

    async def recover(self) -> Sequence[str]:
        """Those whose agents have jobs, and those that cannot be asked."""
        found = []

        async def look(name: str, machine: RemoteMachine) -> None:
            try:
                async with asyncio.timeout(RECOVER_SECONDS):
                    has_jobs = await machine.has_jobs()
            except (SshError, TimeoutError):
                has_jobs = True
            if has_jobs:
                found.append(name)

        async with asyncio.TaskGroup() as group:
            for name, kept in self._machines.items():
                group.create_task(look(name, kept.machine), name=f"look for jobs on {name}")
        return sorted(found)

    async def usage(self, folders: Sequence[str] = ()) -> Usage:
        """One machine with a full disk does not stop the others: it gets no job, and does not count unless all are."""
        known = await self._look_at_all()
        if not known:
            raise EnvironmentTemporaryError(self._causes())
        enough = [free for free in known if free >= self._least_disk_bytes]
        return Usage(disk_free_bytes=min(enough) if enough else max(known))

    async def clean_up(self, place: JobPlace, machine: str) -> None:
        try:
            with self._using(machine) as there:
                await there.remove(place)
        finally:
            self._let_go(place.key)
            await self._tell()

    async def close(self) -> None:
        for task in self._mending.values():
            task.cancel()
        await asyncio.gather(*self._mending.values(), return_exceptions=True)
        for kept in self._machines.values():
            await kept.machine.close()

    def _standings(self) -> list[MachineState]:
        return [
            MachineState(
                name=name,
                capacity=kept.capacity,
                jobs=len(kept.held),
                is_usable=not kept.cause and not self._is_full(kept),
                uses_left=None if kept.uses_left is None else max(kept.uses_left - kept.claiming, 0),
            )
            for name, kept in self._machines.items()
        ]

    def _is_full(self, kept: _Kept) -> bool:
        return kept.disk_free_bytes is not None and kept.disk_free_bytes < self._least_disk_bytes

    def _is_stale(self, kept: _Kept) -> bool:
        return kept.disk_free_bytes is None or self._clock.monotonic() - kept.looked_at >= LOOK_SECONDS

    def _hold(self, key: str, machine: str) -> None:
        self._held[key] = machine
        if machine in self._machines:
            self._machines[machine].held.add(key)

    def _let_go(self, key: str) -> None:
        machine = self._held.pop(key, "")
        if machine in self._machines:
            self._machines[machine].held.discard(key)

    async def _try(self, kept: _Kept, place: JobPlace) -> None:
        """Have the machine for the job, unless it turns out that it cannot be had."""
        self._hold(place.key, kept.machine.name)
        kept.claiming += 1
        try:
            await kept.machine.reach()
            self._counted(kept, await kept.machine.uses_left(claiming=place.key))
        except SshError as error:
            self._let_go(place.key)
            self._failed(kept, str(error))
        except UsedUpError:
            self._let_go(place.key)
            self._counted(kept, 0)
        except BaseException:
            self._let_go(place.key)
            raise
        finally:
            kept.claiming -= 1
        await self._tell()

    def _counted(self, kept: _Kept, uses_left: int | None) -> None:
        if uses_left == 0 != kept.uses_left:
            name = kept.machine.name
            self._log.info("a machine gets no more jobs", machine=name, cause=kept.machine.used_up, jobs=len(kept.held))
        kept.uses_left = uses_left

    async def _wait_for_room(self) -> None:
        """Until something changed; raises where nothing that happens here would help."""
        async with self._changed:
            if choose(self._standings()) is not None:
                return
            unused = [kept for kept in self._machines.values() if kept.uses_left != 0]
            if not unused:
                raise EnvironmentLostError(f"no machine may be used any more: {self._causes()}")
            if all(kept.cause for kept in unused):
                raise EnvironmentTemporaryError(f"no machine can be reached: {self._causes()}")
            await self._changed.wait()

    def _causes(self) -> str:
        causes = [
            kept.cause or (kept.machine.used_up if kept.uses_left == 0 else "") for kept in self._machines.values()
        ]
        return "; ".join(cause for cause in causes if cause) or "none has said how much room it has"

    @contextmanager
    def _using(self, name: str) -> Iterator[RemoteMachine]:
        kept = self._machines.get(name)
        if kept is None:
            raise EnvironmentLostError(f"the machine {name} is not in the runner's configuration any more")
        try:
            yield kept.machine
        except SshError as error:
            self._failed(kept, str(error))
            raise EnvironmentTemporaryError(str(error)) from error

    async def _look_at_all(self) -> list[int]:
        """The room of those that are connected, or have to say whether they are used up; else of the first to reach."""
        async with asyncio.TaskGroup() as group:
            for kept in self._machines.values():
                is_new = kept.machine.use_count and kept.uses_left is None and not kept.cause
                if is_new or (kept.machine.is_up and self._is_stale(kept)):
                    group.create_task(self._look(kept), name=f"look at the disk of {kept.machine.name}")
        while not (
            known := [one.disk_free_bytes for one in self._machines.values() if one.disk_free_bytes is not None]
        ):
            name = choose(self._standings())
            if name is None:
                break
            await self._look(self._machines[name])
        return known

    async def _look(self, kept: _Kept) -> None:
        try:
            kept.disk_free_bytes = await kept.machine.disk_free_bytes()
            uses_left = await kept.machine.uses_left()
        except SshError as error:
            self._failed(kept, str(error))
            return
        kept.looked_at = self._clock.monotonic()
        if not kept.claiming:
            self._counted(kept, uses_left)
        if self._is_full(kept):
            free = f"{kept.disk_free_bytes >> 20} MiB free, {self._least_disk_bytes >> 20} wanted"
            self._log.warning("a machine gets no jobs: its disk is full", machine=kept.machine.name, cause=free)

    def _failed(self, kept: _Kept, cause: str) -> None:
        """It gets no jobs until it can be reached again, which is tried from now on."""
        name = kept.machine.name
        if cause != kept.cause:
            self._log.warning("a machine cannot be used", machine=name, cause=cause, jobs=len(kept.held))
        kept.cause, kept.disk_free_bytes = cause, None
        if name not in self._mending:
            self._mending[name] = asyncio.get_running_loop().create_task(self._mend(kept), name=f"mend {name}")

    async def _mend(self, kept: _Kept) -> None:
        """Ends when it can be reached; nothing is awaited between seeing that and saying that nobody tries any more."""
        failures = 1
        while kept.cause:
            await self._clock.sleep(_BACKOFF.delay(failures))
            try:
                await kept.machine.reach()
                self._counted(kept, await kept.machine.uses_left())
            except SshError as error:
                failures += 1
                self._failed(kept, str(error))
            else:
                await self._mended(kept)
        del self._mending[kept.machine.name]

    async def _mended(self, kept: _Kept) -> None:
        if kept.cause:
            kept.cause = ""
            self._log.info("a machine can be used again", machine=kept.machine.name)
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def ssh_environment(runner: RunnerConfig, clock: Clock) -> MachinesEnvironment:
    """Of `executor = "ssh"`: the machine of `[runners.ssh]`, for as many jobs as the runner may have."""
    ssh = runner.ssh
    address = Address(
        host=ssh.host,
        port=ssh.port_number,
        user=ssh.user,
        identity_file=ssh.identity_file,
        password=ssh.password,
        known_hosts_file=ssh.known_hosts_file,
        checks_host_key=ssh.disable_strict_host_key_checking is not True,
    )
    machine = RemoteMachine(ssh.host, address, frozen=_frozen(runner))
    return MachinesEnvironment([(machine, None)], clock=clock, least_disk_bytes=runner.remuda.least_disk_bytes)


def machines_environment(runner: RunnerConfig, clock: Clock) -> MachinesEnvironment:
    """Of executors whose machines are a list, `[[runners.remuda.machines]]`."""
    make = partial(_machine, frozen=_frozen(runner))
    machines = [(make(entry), entry.capacity) for entry in runner.remuda.machines]
    return MachinesEnvironment(machines, clock=clock, least_disk_bytes=runner.remuda.least_disk_bytes)


def _machine(entry: MachineEntry, frozen: Path | None) -> RemoteMachine:
    address = Address(
        host=entry.host,
        port=entry.port,
        user=entry.user,
        identity_file=entry.identity_file,
        password=entry.password,
        known_hosts_file=entry.known_hosts_file,
        host_key=entry.host_key,
    )
    return RemoteMachine(entry.name, address, frozen=frozen, use_count=entry.use_count)


def _frozen(runner: RunnerConfig) -> Path | None:
    return Path(runner.remuda.frozen_agent) if runner.remuda.frozen_agent else None
