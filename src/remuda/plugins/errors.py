"""The two kinds of errors of calls to a plugin. Callers retry after TemporaryError only."""


class TemporaryError(Exception):
    """A later try may succeed: the provider is busy, the plugin is being restarted, a call timed out."""


class PermanentError(Exception):
    """Fails until an operator corrects the cause, such as a wrong setting or a program that is no plugin."""
