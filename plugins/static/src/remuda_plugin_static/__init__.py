"""A fleeting plugin for machines that exist already: it hands them out and takes them back.

`group` is the plugin, `config` its settings, `loans` the state on disk (who has which machine). `reach` parses
addresses and checks that a machine answers."""

from remuda_plugin_static.group import StaticGroup

__all__ = ["StaticGroup"]
