"""How calls of an instance group fail, on both sides of the wire; the texts are read by people.

Every error is one of two: temporary or permanent. Whoever retries decides by that alone.
"""


class TemporaryError(Exception):
    """It may work later: the provider is busy, the plugin has ended and is started again, a call took too long."""


class PermanentError(Exception):
    """It will not work until somebody changes something: a wrong setting, a program that is no plugin."""


class UnsupportedError(PermanentError):
    """The plugin does not have this ability."""


class UnhealthyError(TemporaryError):
    """From a heartbeat: the plugin says that the instance is not well. Not raised when the plugin cannot be asked."""
