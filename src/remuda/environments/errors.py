"""Errors of calls to an environment plugin, raised in the plugin and in the manager. The texts are for operators."""


class TemporaryError(Exception):
    """The call failed, but a later try may succeed; the manager tries again."""


class LostError(Exception):
    """No later try can succeed: the job fails, and its user sees this text. From `connect`: the machine does not exist
    any more, and all jobs on it fail. From `after` or `clean_up`: the manager only logs it."""


class ConfigurationError(Exception):
    """The runner's `config` for the plugin is wrong; the text names the key and says what is right."""


class PluginError(Exception):
    """Unusable plugin: it does not start, prints no valid handshake, or supports no protocol version of the manager."""
