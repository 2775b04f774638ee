"""A fleeting plugin whose instances are real machines on this host: namespaces with an sshd of their own, or QEMU.

`group` is the plugin; `config` what can be set; `store` the machines' state on disk, which is the only state there is;
`processes` ends them; `namespace` and `qemu` say how a machine of either kind is started, `addresses` which addresses
it may have, `cgroups` its limits, `keys` who may log in.
"""

from remuda_plugin_local.group import LocalGroup

__all__ = ["LocalGroup"]
