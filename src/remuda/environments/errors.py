"""Errors of calls to an environment plugin, raised in the plugin and in the manager. The texts are for operators."""


class TemporaryError(Exception):
    """The call failed, but a later try may succeed; the manager tries again."""


class LostError(Exception):
    """No later try can succeed; the job fails with this text. From `connect`: the machine does not exist any more."""


class ConfigurationError(Exception):
    """The plugin's `config` is wrong; the text names the key and what is right."""


class PluginError(Exception):
    """The plugin cannot be used: it does not start, prints no valid handshake, or shares no protocol version."""
