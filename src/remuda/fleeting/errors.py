"""Errors of calls to a plugin: the plugin raises them, and its host raises them again. The scaler retries calls for a
single job and the preparation of an instance only after TemporaryError; Init, Update, Increase and Decrease also after
PermanentError. The texts are written for operators."""

from remuda.plugins.errors import PermanentError, TemporaryError

__all__ = ["PermanentError", "TemporaryError", "UnhealthyError", "UnsupportedError"]


class UnsupportedError(PermanentError):
    """The plugin does not implement this optional call."""


class UnhealthyError(TemporaryError):
    """A health check found that an instance is unhealthy; not raised when the plugin cannot be reached."""
