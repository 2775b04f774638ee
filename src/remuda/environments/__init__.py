"""Environment plugins: programs that add a kind of place where jobs run.

For authors of a plugin in Python: a class with a few methods (`Plugin`) and `serve`; `on_this_machine` has what a
plugin needs whose jobs run where it runs itself. For the manager and for `remuda environment check`: `host` starts
such a program and speaks with it, whatever language it is written in; the protocol is `wire/proto/environment.proto`.
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
