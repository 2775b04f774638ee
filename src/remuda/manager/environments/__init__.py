"""Environments, the places where jobs run: this machine, machines behind SSH, autoscaled machines, or a plugin.

`port.py` is the interface; each other module is one kind of environment or a part of one.
"""
