"""A fleeting plugin whose instances are machines that exist already: it hands them out, and takes them back.

`group` is the plugin; `config` what can be set; `loans` who has which machine, on disk, which is the only state there
is; `reach` says where a machine is, and whether it answers.
"""

from remuda_plugin_static.group import StaticGroup

__all__ = ["StaticGroup"]
