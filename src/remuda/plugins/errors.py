"""The two kinds of errors of calls to a plugin. The scaler retries its start and its list of instances after both
kinds, but Acquire (an instance for a job) and the preparation of an instance only after TemporaryError."""


class TemporaryError(Exception):
    """A later try may succeed: the provider is busy, the plugin is being restarted, a call timed out."""


class PermanentError(Exception):
    """Fails again until an operator corrects the cause, such as a wrong setting or a program that is no plugin."""
