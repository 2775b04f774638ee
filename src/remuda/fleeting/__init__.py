"""Instance groups behind plugins: groups of machines at some provider, which come and go as they are needed.

For authors of a plugin in Python: a class (`Plugin`), values, errors, and `serve`, which makes a program of it that
any host of fleeting launches. For whoever scales: `port` is what a group is, `host.HostedGroup` one in a process of its
own, in whatever language, `InProcess` one in ours. docs/reference/fleeting-protocol.md has the protocol.
"""

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
