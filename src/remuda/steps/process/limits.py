"""Data types for the resource limits of a step, which a policy sets, and for the resources it has used."""

import json
from dataclasses import fields
from typing import Any

from remuda.lib.dataclass import dataclass

AllowList = tuple[str, ...]
"""Hosts that may be reached, as patterns: `example.com`, `*.example.com`, `example.com:443`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The resource limits of one step; None means no limit."""

    network: tuple[AllowList, ...] | None = None
    """Only hosts that are on all of these lists may be reached; with an empty list none may."""
    memory_bytes: int | None = None
    cpus: float | None = None
    disk_bytes: int | None = None
    pids: int | None = None
    timeout_seconds: float | None = None

    def names(self) -> tuple[str, ...]:
        return tuple(NAMES[limit.name] for limit in fields(self) if getattr(self, limit.name) is not None)

    def to_json(self) -> str:
        """Serialize the limits that are set, for a step that opens an environment and applies them inside."""
        values = {
            limit.name: getattr(self, limit.name) for limit in fields(self) if getattr(self, limit.name) is not None
        }
        return json.dumps(values)


NAMES = {
    "network": "network",
    "memory_bytes": "memory",
    "cpus": "cpu",
    "disk_bytes": "disk",
    "pids": "pids",
    "timeout_seconds": "timeout",
}
"""Names of limits in a policy and in results."""


NO_LIMITS = Limits()


def stricter(first: Limits, second: Limits) -> Limits:
    """Combine two sets of limits: the lower value of each limit; hosts must be on the network allow lists of both."""
    lists = dict.fromkeys((*(first.network or ()), *(second.network or ())))
    values: dict[str, Any] = {}
    for name in (name for name in NAMES if name != "network"):
        limits = [value for value in (getattr(first, name), getattr(second, name)) if value is not None]
        values[name] = min(limits, default=None)
    return Limits(network=tuple(lists) if lists else None, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUsage:
    """Resources that a step and its processes have used; None means unknown."""

    cpu_user_seconds: float | None = None
    cpu_system_seconds: float | None = None
    memory_peak_bytes: int | None = None
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
