"""The environments with fixed machines behind SSH: `ssh`, one machine for any number of jobs, and `machines`, a list.

An unreachable machine gets no new jobs; connecting is tried again in the background with growing pauses. Its current
jobs wait, and fail after the manager's time limit for unreachable agents. How many jobs a machine has begun, for
`max_use_count`, is stored on the machine, so that it survives restarts and all managers count together."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.lib.tasks import TaskOwner
from remuda.manager.config.ssh import MachineEntry, SshConfig
from remuda.manager.config.values import RunnerConfig
from remuda.manager.core.machine_choice import MachineState, capacity, choose
from remuda.manager.environments.port import Hook, JobPlace, PreparedPlace, Usage
from remuda.manager.environments.remote_machine import RemoteMachine, UsedUpError
from remuda.manager.environments.ssh import Address, SshError
from remuda.manager.errors import EnvironmentLostError, EnvironmentTemporaryError
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import AgentClient

LOOK_SECONDS = 30.0
"""How long a machine's free disk space is valid."""
RECOVER_SECONDS = 60.0
"""Timeout of the search for jobs of an earlier process on a machine."""
_BACKOFF = Backoff(first_seconds=1.0, ceiling_seconds=60.0)


@dataclass
class _Member:
    machine: RemoteMachine
    capacity: int | None
    jobs: set[str] = field(default_factory=set)
    cause: str = ""
    """Why the machine is unreachable; empty if it is reachable or was not tried."""
    uses_left: int | None = None
    """Jobs that it may still begin; None: any number, or not known yet."""
    acquiring: int = 0
    """Number of jobs for which the machine is being reserved now; they are in `jobs`, maybe not yet in `uses_left`."""
    disk_free_bytes: int | None = None
    looked_at: float = 0.0


class MachinesEnvironment:
    def __init__(
        self, machines: Sequence[tuple[RemoteMachine, int | None]], *, clock: Clock, least_disk_bytes: int = 0
    ) -> None:
        """`machines` has each machine with the number of jobs that it runs at the same time (None: any number). A
        machine with less than `least_disk_bytes` of free disk gets no jobs."""
        self._clock = clock
        self._least_disk_bytes = least_disk_bytes
        self._machines = {machine.name: _Member(machine, most) for machine, most in machines}
        self._held: dict[str, str] = {}
        self._changed = asyncio.Condition()
        self._reconnects = TaskOwner()
        self._log = logger("manager")
        is_one = len(machines) == 1 and machines[0][1] is None
        self.fixed_machine = machines[0][0].name if is_one else ""
        """See `port.fixed_machine`."""

    def capacity(self) -> int | None:
        return capacity(self._states())

    async def acquire(self, place: JobPlace) -> str:
        while place.key not in self._held:
            name = choose(self._states())
            if name is None:
                await self._wait_for_room()
            else:
                await self._reserve(self._machines[name], place)
        return self._held[place.key]

    def adopt(self, place: JobPlace, machine: str) -> None:
        self._hold(place.key, machine)

    async def prepare(self, place: JobPlace, machine: str) -> PreparedPlace:
        with self._use(machine) as remote:
            return await remote.prepare(place)

    async def run_hook(self, hook: Hook, place: JobPlace, machine: str) -> str:
        with self._use(machine) as remote:
            return await remote.run_hook(hook, place)

    async def connect(self, machine: str) -> AgentClient:
        with self._use(machine) as remote:
            client = await remote.connect()
        await self._mark_usable(self._machines[machine])
        return client

    async def recover(self) -> Sequence[str]:
        """Return the machines that may have jobs of an earlier process: they have jobs, or do not answer."""
        names = []

        async def look(name: str, machine: RemoteMachine) -> None:
            try:
                async with asyncio.timeout(RECOVER_SECONDS):
                    has_jobs = await machine.has_jobs()
            except (SshError, TimeoutError):
                has_jobs = True
            if has_jobs:
                names.append(name)

        async with asyncio.TaskGroup() as group:
            for name, member in self._machines.items():
                group.create_task(look(name, member.machine), name=f"look for jobs on {name}")
        return sorted(names)

    async def usage(self, folders: Sequence[str] = ()) -> Usage:
        """Return the least free disk space of the machines that have at least `least_disk_bytes`, as only these get
        jobs. If all have less, return the most. Raises EnvironmentTemporaryError if no machine answers."""
        free_bytes = await self._look_at_all()
        if not free_bytes:
            raise EnvironmentTemporaryError(self._causes())
        enough = [free for free in free_bytes if free >= self._least_disk_bytes]
        return Usage(disk_free_bytes=min(enough) if enough else max(free_bytes))

    async def clean_up(self, place: JobPlace, machine: str) -> None:
        try:
            with self._use(machine) as remote:
                await remote.remove(place)
        finally:
            self._let_go(place.key)
            await self._notify()

    async def close(self) -> None:
        await self._reconnects.close()
        for member in self._machines.values():
            await member.machine.close()

    def _states(self) -> list[MachineState]:
        return [
            MachineState(
                name=name,
                capacity=member.capacity,
                jobs=len(member.jobs),
                is_usable=not member.cause and not self._is_full(member),
                uses_left=None if member.uses_left is None else max(member.uses_left - member.acquiring, 0),
            )
            for name, member in self._machines.items()
        ]

    def _is_full(self, member: _Member) -> bool:
        return member.disk_free_bytes is not None and member.disk_free_bytes < self._least_disk_bytes

    def _is_stale(self, member: _Member) -> bool:
        return member.disk_free_bytes is None or self._clock.monotonic() - member.looked_at >= LOOK_SECONDS

    def _hold(self, key: str, machine: str) -> None:
        self._held[key] = machine
        if machine in self._machines:
            self._machines[machine].jobs.add(key)

    def _let_go(self, key: str) -> None:
        machine = self._held.pop(key, "")
        if machine in self._machines:
            self._machines[machine].jobs.discard(key)

    async def _reserve(self, member: _Member, place: JobPlace) -> None:
        """Reserve room for a job on a machine. If the machine is unreachable or has reached `max_use_count`, nothing is
        reserved, and the machine is marked so that it gets no jobs; the caller then tries another one."""
        self._hold(place.key, member.machine.name)
        member.acquiring += 1
        try:
            await member.machine.reach()
            self._set_uses_left(member, await member.machine.uses_left(claiming=place.key))
        except SshError as error:
            self._let_go(place.key)
            self._mark_unusable(member, str(error))
        except UsedUpError:
            self._let_go(place.key)
            self._set_uses_left(member, 0)
        except BaseException:
            self._let_go(place.key)
            raise
        finally:
            member.acquiring -= 1
        await self._notify()

    def _set_uses_left(self, member: _Member, uses_left: int | None) -> None:
        if uses_left == 0 != member.uses_left:
            name = member.machine.name
            self._log.info(
                "machine has reached its maximum number of uses; it gets no more jobs",
                machine=name,
                cause=member.machine.used_up,
                jobs=len(member.jobs),
            )
        member.uses_left = uses_left

    async def _wait_for_room(self) -> None:
        """Wait until the state or the jobs of a machine change. Raises EnvironmentLostError if all machines have
        reached `max_use_count`, EnvironmentTemporaryError if those that have not are all unreachable."""
        async with self._changed:
            if choose(self._states()) is not None:
                return
            unused = [member for member in self._machines.values() if member.uses_left != 0]
            if not unused:
                raise EnvironmentLostError(f"no machine may be used any more: {self._causes()}")
            if all(member.cause for member in unused):
                raise EnvironmentTemporaryError(f"no machine can be reached: {self._causes()}")
            await self._changed.wait()

    def _causes(self) -> str:
        causes = [
            member.cause or (member.machine.used_up if member.uses_left == 0 else "")
            for member in self._machines.values()
        ]
        return "; ".join(cause for cause in causes if cause) or "no machine has reported its free disk space"

    @contextmanager
    def _use(self, name: str) -> Iterator[RemoteMachine]:
        member = self._machines.get(name)
        if member is None:
            raise EnvironmentLostError(f"the machine {name} is not in the runner's configuration any more")
        try:
            yield member.machine
        except SshError as error:
            self._mark_unusable(member, str(error))
            raise EnvironmentTemporaryError(str(error)) from error

    async def _look_at_all(self) -> list[int]:
        """Return the free disk space, in bytes, of machines where it is known. First measures connected machines with
        an old value or an unknown use count; if no value is known then, asks others until one answers."""
        async with asyncio.TaskGroup() as group:
            for member in self._machines.values():
                is_new = member.machine.use_count and member.uses_left is None and not member.cause
                if is_new or (member.machine.is_up and self._is_stale(member)):
                    group.create_task(self._look(member), name=f"look at the disk of {member.machine.name}")
        while not (
            free_bytes := [
                member.disk_free_bytes for member in self._machines.values() if member.disk_free_bytes is not None
            ]
        ):
            name = choose(self._states())
            if name is None:
                break
            await self._look(self._machines[name])
        return free_bytes

    async def _look(self, member: _Member) -> None:
        try:
            member.disk_free_bytes = await member.machine.disk_free_bytes()
            uses_left = await member.machine.uses_left()
        except SshError as error:
            self._mark_unusable(member, str(error))
            return
        member.looked_at = self._clock.monotonic()
        if not member.acquiring:
            self._set_uses_left(member, uses_left)
        if self._is_full(member):
            free = f"{member.disk_free_bytes >> 20} MiB free, {self._least_disk_bytes >> 20} wanted"
            self._log.warning(
                "machine has too little free disk; it gets no jobs until more is free",
                machine=member.machine.name,
                cause=free,
            )

    def _mark_unusable(self, member: _Member, cause: str) -> None:
        """Give the machine no more jobs until it is reachable, and try to connect to it in the background."""
        name = member.machine.name
        if cause != member.cause:
            self._log.warning(
                "machine unreachable; it gets no jobs until it answers again",
                machine=name,
                cause=cause,
                jobs=len(member.jobs),
            )
        member.cause, member.disk_free_bytes = cause, None
        self._reconnects.start_once(self._reconnect(member), name=f"reconnect {name}")

    async def _reconnect(self, member: _Member) -> None:
        """Try to connect until the machine is reachable. Must not await after the last check of `member.cause`: while
        this task exists, `_mark_unusable` starts no other one, so a failure in that time would never be retried."""
        failures = 1
        while member.cause:
            await self._clock.sleep(_BACKOFF.delay(failures))
            try:
                await member.machine.reach()
                self._set_uses_left(member, await member.machine.uses_left())
            except SshError as error:
                failures += 1
                self._mark_unusable(member, str(error))
            else:
                await self._mark_usable(member)

    async def _mark_usable(self, member: _Member) -> None:
        if member.cause:
            member.cause = ""
            self._log.info("machine reachable again; it gets jobs", machine=member.machine.name)
            await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def ssh_environment(runner: RunnerConfig, clock: Clock) -> MachinesEnvironment:
    ssh = runner.ssh
    address = replace(_address(ssh), checks_host_key=ssh.disable_strict_host_key_checking is not True)
    machine = RemoteMachine(ssh.host, address, frozen=_frozen_agent(runner))
    return MachinesEnvironment([(machine, None)], clock=clock, least_disk_bytes=runner.remuda.least_disk_bytes)


def machines_environment(runner: RunnerConfig, clock: Clock) -> MachinesEnvironment:
    make = partial(_machine, frozen=_frozen_agent(runner))
    machines = [(make(entry), entry.capacity) for entry in runner.remuda.machines]
    return MachinesEnvironment(machines, clock=clock, least_disk_bytes=runner.remuda.least_disk_bytes)


def _machine(entry: MachineEntry, frozen: Path | None) -> RemoteMachine:
    address = replace(_address(entry), host_key=entry.host_key)
    return RemoteMachine(entry.name, address, frozen=frozen, use_count=entry.use_count)


def _address(login: SshConfig | MachineEntry) -> Address:
    return Address(
        host=login.host,
        port=int(login.port),
        user=login.user,
        identity_file=login.identity_file,
        password=login.password,
        known_hosts_file=login.known_hosts_file,
    )


def _frozen_agent(runner: RunnerConfig) -> Path | None:
    return Path(runner.remuda.frozen_agent) if runner.remuda.frozen_agent else None
