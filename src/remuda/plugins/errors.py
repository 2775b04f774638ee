"""The two kinds of error at the boundary to a plugin. Callers retry on TemporaryError only."""


class TemporaryError(Exception):
    """A later try may succeed: the provider is busy, the plugin is being restarted, a call timed out."""


class PermanentError(Exception):
    """No try succeeds until somebody changes something: a wrong setting, a program that is not a plugin."""
