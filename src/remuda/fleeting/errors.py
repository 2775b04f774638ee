"""Errors of calls to a plugin, raised both in the plugin and in its host. Callers retry after TemporaryError only. The
texts are written for operators."""

from remuda.plugins.errors import PermanentError, TemporaryError

__all__ = ["PermanentError", "TemporaryError", "UnhealthyError", "UnsupportedError"]


class UnsupportedError(PermanentError):
    """The plugin does not implement this optional call."""


class UnhealthyError(TemporaryError):
    """A health check found that an instance is unhealthy; not raised when the plugin cannot be reached."""
