"""Environment plugins: programs that add a kind of environment (machines, containers) in which jobs run.

For authors of a plugin in Python: the base class `Plugin`, `serve`, and helpers in `local_machine`. For the manager and
`remuda environment check`: `host` and `client`. The protocol is `wire/proto/environment.proto`."""

from remuda.environments.errors import ConfigurationError, LostError, TemporaryError
from remuda.environments.plugin import Connection, Plugin, through
from remuda.environments.serving import serve
from remuda.environments.values import Folders, Place

__all__ = [
    "ConfigurationError",
    "Connection",
    "Folders",
    "LostError",
    "Place",
    "Plugin",
    "TemporaryError",
    "serve",
    "through",
]
