"""The acting side of scaling: keeps a fleet as plans want it. `Scaler` is the way in; `plan` decides."""

from remuda.taskscaler.fleet.setup import (
    AcquireTimeoutError,
    FleetSetup,
    Gauges,
    GroupSetup,
    Machines,
    Told,
    Untold,
    instance_name,
)
from remuda.taskscaler.fleet.status import Decision, GroupStatus, InstanceStatus, ScalerStatus
from remuda.taskscaler.loop.scaler import Scaler
from remuda.taskscaler.loop.sweep import Orphan, Swept, sweep

__all__ = [
    "AcquireTimeoutError",
    "Decision",
    "FleetSetup",
    "Gauges",
    "GroupSetup",
    "GroupStatus",
    "InstanceStatus",
    "Machines",
    "Orphan",
    "Scaler",
    "ScalerStatus",
    "Swept",
    "Told",
    "Untold",
    "instance_name",
    "sweep",
]
