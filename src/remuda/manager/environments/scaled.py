"""The interface of autoscaled environments: the methods that they have in addition to those of `Environment`.
`autoscaled.py` documents them."""

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.cell_demand import CellDemand
from remuda.manager.environments.port import Environment

if TYPE_CHECKING:
    from remuda.taskscaler.fleet.setup import FleetSetup
    from remuda.taskscaler.fleet.status import ScalerStatus
    from remuda.taskscaler.loop.sweep import SweepResult


@runtime_checkable
class Scaled(Protocol):
    """An autoscaled environment: a scaler creates and removes its machines."""

    demand: CellDemand | None

    @property
    def runner(self) -> RunnerConfig: ...

    @property
    def setup(self) -> "FleetSetup": ...

    @property
    def is_closed(self) -> bool: ...

    async def run(self) -> None: ...

    def setup_for(self, runner: RunnerConfig) -> "FleetSetup": ...

    def change(self, runner: RunnerConfig, setup: "FleetSetup") -> None: ...

    def set_taken(self, slots: int) -> None: ...

    def end_recovery(self) -> None: ...

    def discard(self) -> None: ...

    def drain(self, *, is_draining: bool, is_ending: bool = False) -> None: ...

    def refresh(self) -> None: ...

    def status(self) -> "ScalerStatus": ...

    async def sweep(self, owners: Callable[[], Collection[str]], *, remove: bool) -> "SweepResult": ...


def end_recovery(environments: Iterable[Environment]) -> None:
    """Let autoscaled environments free places of lost jobs: the search for jobs of earlier processes is over."""
    for environment in environments:
        if isinstance(environment, Scaled):
            environment.end_recovery()
