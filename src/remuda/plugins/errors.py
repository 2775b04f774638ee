"""The two kinds of errors of calls to a plugin. Callers retry after TemporaryError only."""


class TemporaryError(Exception):
    """The call failed, but a later try may succeed: the provider is busy, the plugin is being restarted, a call timed
    out."""


class PermanentError(Exception):
    """The call fails until an operator corrects the cause, such as a wrong setting or a program that is not a
    plugin."""
