"""Environment plugins: programs that add a kind of environment (machines, containers) in which jobs run.

For authors of a plugin in Python: the base class `Plugin`, and `serve`; `local_machine` has helpers for plugins whose
jobs run on the plugin's machine. For the manager and `remuda environment check`: `host` starts a plugin in any
language, and `client` calls it. The protocol is `wire/proto/environment.proto`.
"""

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
