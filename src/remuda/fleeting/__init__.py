"""Instance group plugins: groups of machines at a provider that are created and deleted on demand.

For authors of a plugin in Python: `Plugin`, values, errors, and `serve`, which turns the class into a program that
Remuda and gitlab-runner can start. For the scaler: `port` defines the interface; `host` calls a plugin in a process of
its own, `InProcess` one in the manager's. The protocol: docs/reference/fleeting-protocol.md."""

from remuda.fleeting.errors import PermanentError, TemporaryError, UnhealthyError, UnsupportedError
from remuda.fleeting.in_process import InProcess
from remuda.fleeting.port import (
    ConnectInfo,
    Connector,
    GroupStats,
    InstanceGroup,
    InstanceState,
    ProviderInfo,
    Provides,
    RoomAtProvider,
    Settings,
    TaggedInstance,
    Wanted,
    Wishes,
)
from remuda.fleeting.sdk import NoConfig, Plugin
from remuda.fleeting.serving import serve

__all__ = [
    "ConnectInfo",
    "Connector",
    "GroupStats",
    "InProcess",
    "InstanceGroup",
    "InstanceState",
    "NoConfig",
    "PermanentError",
    "Plugin",
    "ProviderInfo",
    "Provides",
    "RoomAtProvider",
    "Settings",
    "TaggedInstance",
    "TemporaryError",
    "UnhealthyError",
    "UnsupportedError",
    "Wanted",
    "Wishes",
    "serve",
]
