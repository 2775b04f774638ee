"""A fleeting plugin that has machines made by docker-machine, with whatever driver and options there are for it.

`group` is the plugin; `config` what can be set; `store` what is known of the machines, on disk beside docker-machine's
own, which is the only state there is; `program` the command lines, and what docker-machine wrote about a machine;
`pacing` decides how fast machines are asked for when they fail.
"""

from remuda_plugin_docker_machine.group import DockerMachineGroup

__all__ = ["DockerMachineGroup"]
