"""A simulated cloud provider with real autoscalers, for tests in virtual time.

`Cloud` is the provider, which survives restarts of scalers, `CloudGroup` its plugin; `Mechanic` replaces the login to
machines. `Stable` runs real `Scaler`s, one after another, and checks that none deletes an instance that has a job."""

import asyncio
import sqlite3
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from remuda.fleeting import (
    ConnectInfo,
    Connector,
    InProcess,
    InstanceState,
    Plugin,
    ProviderInfo,
    Settings,
    TaggedInstance,
    TemporaryError,
    UnhealthyError,
)
from remuda.lib.clock import VirtualClock, settle
from remuda.lib.tasks import TaskOwner
from remuda.taskscaler.core.policy import PolicyRule
from remuda.taskscaler.core.slots import Slot
from remuda.taskscaler.core.values import Demand, Limits
from remuda.taskscaler.fleet.setup import FleetSetup, GroupSetup, NoMetrics, ScalerHost, ScalerMetrics
from remuda.taskscaler.fleet.status import InstanceStatus
from remuda.taskscaler.loop.group_watch import Deadlines
from remuda.taskscaler.loop.scaler import Scaler

OWNER = "s_test/7"
T = TypeVar("T")


class InlineWriter:
    """A database writer that runs in the caller's thread, so that virtual time does not advance during a write."""

    broken: str = ""
    """Error text of all writes; empty: writes succeed."""

    def __init__(self, db: sqlite3.Connection, _name: str) -> None:
        self._db = db
        # As for a process that dies: tests that kill a scaler do not close its state.
        weakref.finalize(self, db.close)

    async def run(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        if type(self).broken:
            raise sqlite3.OperationalError(type(self).broken)
        self._db.execute("begin immediate")
        with self._db:
            return operation(self._db)

    def close(self) -> None:
        self._db.close()


class Machine(msgspec.Struct, kw_only=True):
    id: str
    owner: str
    created_at: float
    gone_at: float | None = None
    state: InstanceState | None = None
    """State that `update` reports; None: the real state."""


class Cloud:
    def __init__(self, clock: VirtualClock, *, boot_seconds: float = 30.0, delete_seconds: float = 10.0) -> None:
        self.clock = clock
        self.boot_seconds = boot_seconds
        self.delete_seconds = delete_seconds
        self.max_size = 1000
        self.machines: dict[str, Machine] = {}
        self.made = 0
        self.most = 0
        self.calls: list[str] = []
        self.broken: dict[str, Exception] = {}
        """Calls that fail, by name. `increase, late` fails after it has created the instances."""
        self.hung: set[str] = set()
        self.accepts = 1000
        """Maximum number of instances that one `increase` accepts."""
        self.shows = True
        """If False, `update` lists no instances, neither new nor old ones."""
        self.first_state: InstanceState | None = None
        """State that `update` reports of new instances; None: the real state."""
        self.on_delete: Callable[[str], None] = lambda _: None

    def make(self, count: int, owner: str = "") -> list[str]:
        """Create instances and return their ids. `owner`: the manager that requested them; '' if an operator created
        them in the provider's console."""
        made = []
        for _ in range(count):
            self.made += 1
            machine = Machine(id=f"i-{self.made}", owner=owner, created_at=self.clock.now(), state=self.first_state)
            self.machines[machine.id] = machine
            made.append(machine.id)
        self.most = max(self.most, len(self.list_instances()))
        return made

    def lose(self, instance: str) -> None:
        """Remove an instance at once, as if the provider had lost it."""
        self.machines.pop(instance, None)

    def list_instances(self) -> dict[str, InstanceState]:
        now = self.clock.now()
        for machine in list(self.machines.values()):
            if machine.gone_at is not None and machine.gone_at <= now:
                del self.machines[machine.id]
        return {machine.id: self._state(machine, now) for machine in self.machines.values()}

    def _state(self, machine: Machine, now: float) -> InstanceState:
        if machine.state is not None:
            return machine.state
        if machine.gone_at is not None:
            return InstanceState.DELETING
        is_up = now - machine.created_at >= self.boot_seconds
        return InstanceState.RUNNING if is_up else InstanceState.CREATING


class CloudConfig(msgspec.Struct, frozen=True, kw_only=True):
    anything: Any = None


class CloudGroup(Plugin[CloudConfig]):
    name = "cloud"
    version = "1.0.0"
    config_type = CloudConfig

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self._owner = ""

    async def init(self, config: CloudConfig, settings: Settings) -> ProviderInfo:
        self._owner = settings.owner
        await self._begin("init")
        return ProviderInfo(id="cloud", max_size=self.cloud.max_size)

    async def update(self) -> Mapping[str, InstanceState]:
        await self._begin("update")
        return self.cloud.list_instances() if self.cloud.shows else {}

    async def increase(self, count: int) -> int:
        await self._begin("increase")
        accepted = min(count, self.cloud.accepts)
        self.cloud.make(accepted, self._owner)
        await self._begin("increase, late")
        return accepted

    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:
        await self._begin("decrease")
        accepted = list(instances)[: self.cloud.accepts]
        for name in accepted:
            self.cloud.on_delete(name)
            if (machine := self.cloud.machines.get(name)) and machine.gone_at is None:
                machine.gone_at = self.cloud.clock.now() + self.cloud.delete_seconds
        return accepted

    async def connect_info(self, instance: str) -> ConnectInfo:
        await self._begin("connect_info")
        if instance not in self.cloud.machines:
            raise TemporaryError(f"there is no instance {instance}")
        return ConnectInfo(connector=Connector(), internal_addr=f"10.0.0.1:{1000 + len(instance)}")

    async def heartbeat(self, instance: str) -> None:
        await self._begin("heartbeat")
        if instance not in self.cloud.machines:
            raise UnhealthyError(f"{instance} is gone")

    async def recover(self) -> Sequence[TaggedInstance]:
        await self._begin("recover")
        return [
            TaggedInstance(instance=machine.id, owner=machine.owner, created_at=machine.created_at)
            for machine in self.cloud.machines.values()
            if machine.owner
        ]

    async def shutdown(self) -> None:
        await self._begin("shutdown")

    async def _begin(self, call: str) -> None:
        if call != "increase, late":
            self.cloud.calls.append(call)
        if call in self.cloud.hung:
            await asyncio.Event().wait()
        if error := self.cloud.broken.get(call):
            raise error


class Mechanic:
    """A fake of the part of the manager that logs in to instances, prepares them and checks their health."""

    def __init__(self) -> None:
        self.prepared: list[str] = []
        self.forgotten: list[str] = []
        self.broken: dict[str, Exception] = {}
        """Instances that cannot be prepared, with the error; `*` means all."""
        self.ill: set[str] = set()
        self.hung: set[str] = set()
        self.at_once = 0
        self.most_at_once = 0

    async def prepare(self, instance: str, _info: ConnectInfo) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0)
            if instance in self.hung:
                await asyncio.Event().wait()
            if error := self.broken.get(instance, self.broken.get("*")):
                raise error
        finally:
            self.at_once -= 1
        self.prepared.append(instance)

    async def check(self, instance: str) -> None:
        if instance in self.ill:
            raise UnhealthyError(f"{instance} does not answer")

    async def forget(self, instance: str) -> None:
        self.forgotten.append(instance)


class Stable:
    """Runs scalers in virtual time on a simulated provider per group; checks that no instance with a job is deleted."""

    def __init__(self, folder: Path, *groups: str, boot_seconds: float = 30.0, **limits: Any) -> None:
        self.clock = VirtualClock()
        self.folder = folder
        self.clouds = {name: Cloud(self.clock, boot_seconds=boot_seconds) for name in groups or ("",)}
        self.mechanic = Mechanic()
        self.setup = FleetSetup(
            name="runner-7",
            owner=OWNER,
            groups=tuple(GroupSetup(name=name, limits=Limits(**limits)) for name in self.clouds),
        )
        self.lost: list[tuple[str, list[str]]] = []
        self.causes: list[str] = []
        """Probable causes of the losses in `lost`, in the same order."""
        self.metrics: ScalerMetrics = NoMetrics()
        self.demand: Callable[[], Demand] | None = None
        self.deadlines = Deadlines()
        self._tasks = TaskOwner()
        self._task: asyncio.Task[None] | None = None
        self._scaler: Scaler | None = None
        self._watched: Scaler | None = None
        for name, cloud in self.clouds.items():
            cloud.on_delete = lambda instance, name=name: self._check_deletion(name, instance)  # type: ignore[misc]

    @property
    def cloud(self) -> Cloud:
        return next(iter(self.clouds.values()))

    @property
    def scaler(self) -> Scaler:
        assert self._scaler is not None, "not started"
        return self._scaler

    def policy(self, **rule: Any) -> None:
        """Replace the scaling policy, also that of a running scaler. `rule`: fields of `PolicyRule`."""
        self.setup = replace(self.setup, rules=(PolicyRule(**rule),))
        if self._scaler is not None:
            self._scaler.change(self.setup)

    async def start(self, *, is_recovered: bool = True) -> Scaler:
        """Start a scaler. `is_recovered`: all earlier jobs are known again, so it releases the slots of others."""
        self._scaler = Scaler(
            self.setup,
            {name: InProcess(CloudGroup(cloud)) for name, cloud in self.clouds.items()},
            host=ScalerHost(
                machines=self.mechanic,
                fetch_demand=None if self.demand is None else self._ask,
                on_lost=self._note_lost,
            ),
            folder=self.folder,
            clock=self.clock,
            metrics=self.metrics,
            writer=InlineWriter,
            deadlines=self.deadlines,
        )
        self._watched = self._scaler
        if is_recovered:
            self._scaler.end_recovery()
        self._task = self._tasks.start(self._scaler.run(), name="scaler under test")
        await settle(200)
        return self._scaler

    async def kill(self) -> None:
        """Cancel the scaler's task, as if its process had died."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = self._scaler = None

    async def rerun(self) -> None:
        """Cancel the scaler's `run` and call it again on the same object, as the scaler's supervisor does."""
        scaler = self.scaler
        await self.kill()
        self._scaler = scaler
        self._task = self._tasks.start(scaler.run(), name="scaler under test, anew")
        await settle(200)

    async def close(self) -> None:
        scaler = self.scaler
        await self.kill()
        closing = self._tasks.start(scaler.close(), name="close")
        await settle(200)
        while not closing.done():
            await self.run(1)
        await closing

    async def run(self, seconds: float, *, step: float = 5.0) -> None:
        while seconds > 0:
            await self.clock.advance(min(step, seconds))
            await settle(50)
            seconds -= step
            if self._task is not None and self._task.done():
                self._task.result()

    async def acquire(self, *holders: str, **how: Any) -> dict[str, Slot]:
        """Acquire a slot (a place for one job on an instance) for each job id in `holders`, and advance virtual time
        until all have one. `how`: arguments of `Scaler.acquire`. Returns the slots by job id."""
        tasks = [self._tasks.start(self.scaler.acquire(holder, **how), name=holder) for holder in holders]
        await settle(100)
        while not all(task.done() for task in tasks):
            await self.run(5)
        return {holder: task.result() for holder, task in zip(holders, tasks, strict=True)}

    def release(self, *holders: str, **how: Any) -> None:
        for holder in holders:
            self.scaler.release(holder, **how)

    def instances(self, *states: str) -> dict[str, InstanceStatus]:
        """Instances that the scaler knows, by name: those in one of these states, or all."""
        return {
            instance.name: instance
            for instance in self.scaler.status().instances
            if not states or instance.state in states
        }

    def _note_lost(self, instance: str, holders: Sequence[str], why: str) -> None:
        self.lost.append((instance, list(holders)))
        self.causes.append(why)

    async def _ask(self, _waiting: Mapping[str, int]) -> Demand:
        assert self.demand is not None
        return self.demand()

    def _check_deletion(self, group: str, instance: str) -> None:
        name = f"{group}/{instance}" if group else instance
        assert self._watched is not None
        busy = {each.name: each.holders for each in self._watched.status().instances if each.holders}
        if name in busy:
            raise AssertionError(f"{name} is deleted although it has jobs: {busy[name]}")
