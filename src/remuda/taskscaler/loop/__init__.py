"""Tasks that carry plans out: plugins, machines, state file. `Scaler` is the entry point."""

from remuda.taskscaler.fleet.setup import (
    AcquireTimeoutError,
    FleetSetup,
    Gauges,
    GroupSetup,
    Machines,
    NoMetrics,
    ScalerMetrics,
    instance_name,
)
from remuda.taskscaler.fleet.status import Decision, GroupStatus, InstanceStatus, ScalerStatus
from remuda.taskscaler.loop.scaler import Scaler
from remuda.taskscaler.loop.sweep import Orphan, SweepResult, sweep

__all__ = [
    "AcquireTimeoutError",
    "Decision",
    "FleetSetup",
    "Gauges",
    "GroupSetup",
    "GroupStatus",
    "InstanceStatus",
    "Machines",
    "NoMetrics",
    "Orphan",
    "Scaler",
    "ScalerMetrics",
    "ScalerStatus",
    "SweepResult",
    "instance_name",
    "sweep",
]
