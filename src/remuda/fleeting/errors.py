"""Errors of calls to a plugin, also raised by its host. The scaler retries Init, Update, Increase and Decrease after
both; calls for one job and the preparation of an instance only after TemporaryError. Texts are for operators."""

from remuda.plugins.errors import PermanentError, TemporaryError

__all__ = ["PermanentError", "TemporaryError", "UnhealthyError", "UnsupportedError"]


class UnsupportedError(PermanentError):
    """The plugin does not implement this optional call."""


class UnhealthyError(TemporaryError):
    """A health check found that an instance is unhealthy; not raised when the plugin cannot be reached."""
