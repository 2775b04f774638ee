"""The program `fleeting-plugin-docker-machine`, which a runner manager starts."""

import sys

from remuda.fleeting import serve
from remuda_plugin_docker_machine.group import DockerMachineGroup


def main() -> None:
    sys.exit(serve(DockerMachineGroup()))
