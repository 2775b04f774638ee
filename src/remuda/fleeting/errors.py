"""Errors of an instance group's calls, on both sides of the wire. Callers retry on TemporaryError only.

The texts are for people.
"""

from remuda.plugins.errors import PermanentError, TemporaryError

__all__ = ["PermanentError", "TemporaryError", "UnhealthyError", "UnsupportedError"]


class UnsupportedError(PermanentError):
    """The plugin does not have this ability."""


class UnhealthyError(TemporaryError):
    """From a heartbeat: the plugin reports that the instance is unhealthy.

    Not raised when the plugin cannot be reached.
    """
