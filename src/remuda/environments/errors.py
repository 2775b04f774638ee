"""Errors of a plugin's calls, on both sides of the wire. The texts are for people."""


class TemporaryError(Exception):
    """A later try may succeed: the manager tries again."""


class LostError(Exception):
    """No later try can succeed: the job fails with this cause. From `connect`: the machine is gone."""


class ConfigurationError(Exception):
    """The plugin's `config` is wrong; the text names the key and what is right."""


class PluginError(Exception):
    """The plugin cannot be used: it does not start, prints no handshake, or has no common version."""
