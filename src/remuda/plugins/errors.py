"""The two kinds of errors of calls to a plugin. The scaler retries the call Acquire (an instance for a job) and the
preparation of an instance after TemporaryError only; the start of a plugin and the list of its instances after both."""


class TemporaryError(Exception):
    """A later try may succeed: the provider is busy, the plugin is being restarted, a call timed out."""


class PermanentError(Exception):
    """Fails until an operator corrects the cause, such as a wrong setting or a program that is no plugin."""
