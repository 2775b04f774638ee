"""Errors of calls to a plugin, raised both in the plugin and in its host. Calls for a single job and the preparation of
an instance are retried after TemporaryError only; Init, Update and Decrease after both. The texts are written for
operators."""

from remuda.plugins.errors import PermanentError, TemporaryError

__all__ = ["PermanentError", "TemporaryError", "UnhealthyError", "UnsupportedError"]


class UnsupportedError(PermanentError):
    """The plugin does not implement this optional call."""


class UnhealthyError(TemporaryError):
    """A health check found that an instance is unhealthy; not raised when the plugin cannot be reached."""
