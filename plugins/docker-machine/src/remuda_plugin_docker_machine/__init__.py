"""A fleeting plugin that makes machines with docker-machine and any of its drivers.

`group` is the plugin, `config` its settings, `store` the state on disk beside docker-machine's own. `program` runs
docker-machine and reads its files; `pacing` limits creation after failures."""

from remuda_plugin_docker_machine.group import DockerMachineGroup

__all__ = ["DockerMachineGroup"]
