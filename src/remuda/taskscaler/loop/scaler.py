"""The acting scaler (signatures; see the contract)."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path

from remuda.fleeting.port import ConnectInfo, InstanceGroup
from remuda.lib.clock import Clock
from remuda.taskscaler.loop.setup import FleetSetup, Machines, Told, Untold
from remuda.taskscaler.loop.status import ScalerStatus
from remuda.taskscaler.slots import Slot
from remuda.taskscaler.values import Demand

AskDemand = Callable[[Mapping[str, int]], Awaitable[Demand]]


class Scaler:
    """One fleet, kept as its policies want it."""

    def __init__(
        self,
        setup: FleetSetup,
        plugins: Mapping[str, InstanceGroup],
        *,
        machines: Machines,
        folder: Path,
        demand: AskDemand | None = None,
        clock: Clock,
        told: Told = Untold(),
        on_lost: Callable[[str, Sequence[str]], None] = lambda instance, holders: None,
    ) -> None:
        raise NotImplementedError

    async def run(self) -> None:
        """Init plugins, then look, plan and act until it is cancelled."""
        raise NotImplementedError

    async def close(self) -> None:
        """After `run` was cancelled."""
        raise NotImplementedError

    def capacity(self) -> int | None:
        """Jobs that may be here at the same time, those that are included; None: any number; 0 before a plan."""
        raise NotImplementedError

    def reserved(self, count: int) -> None:
        """How many requests for jobs are open now that may need a slot here."""
        raise NotImplementedError

    async def acquire(self, holder: str, *, key: str = "", caches: Collection[str] = ()) -> Slot:
        raise NotImplementedError

    def adopt(self, holder: str, instance: str) -> bool:
        raise NotImplementedError

    def recovered(self) -> None:
        """All jobs of earlier processes have been adopted: who else holds a slot does so no more."""
        raise NotImplementedError

    def release(self, holder: str, *, is_used: bool = True, warmed: Collection[str] = ()) -> None:
        raise NotImplementedError

    async def connect_info(self, instance: str) -> ConnectInfo:
        raise NotImplementedError

    def report(self, instance: str, *, is_well: bool) -> None:
        raise NotImplementedError

    def change(self, setup: FleetSetup) -> None:
        raise NotImplementedError

    def status(self) -> ScalerStatus:
        raise NotImplementedError
