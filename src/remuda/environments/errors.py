"""How calls of a plugin fail, on both sides of the wire; the texts are read by people."""


class TemporaryError(Exception):
    """It may work later: the manager tries again."""


class LostError(Exception):
    """It will never work: the job ends with this cause; from `connect`: the machine is gone for good."""


class ConfigurationError(Exception):
    """`config` of the plugin is wrong; says which key and what is right."""


class PluginError(Exception):
    """A plugin cannot be used: it does not start, says no handshake, or speaks no common version."""
