"""A fleeting plugin for machines on this host: namespaces with an sshd of their own, or QEMU.

`group` is the plugin, `config` its settings, `store` the state on disk, `processes` ends machines. `namespace` and
`qemu` make the start command of each kind; `addresses`, `cgroups` and `keys` serve them."""

from remuda_plugin_local.group import LocalGroup

__all__ = ["LocalGroup"]
