"""A stand-in for docker-machine with its commands, exit codes and store, and instance groups that use it, for tests.

Control files in its folder change its behaviour. While `hold` exists, `create` hangs. With `fail-create` or
`refuse-create` it fails with the text of the file, either with a half created machine, as real drivers do, or before
anything is created. With `fail-rm`, `rm -y` fails. It appends its calls to `calls`. Its machines have the address of
`--stand-in-address` and `--stand-in-port`.
"""

import sys
from pathlib import Path
from typing import Any

from remuda.testing.plugin_groups import PluginGroups
from remuda_plugin_docker_machine.group import DockerMachineGroup

PROGRAM = Path(sys.executable).parent / "fleeting-plugin-docker-machine"
KEY = "a private key\n"
_STAND_IN = r"""#!/bin/sh
here=$(dirname "$0") store=$MACHINE_STORAGE_PATH
[ "$MACHINE_BUGSNAG_API_TOKEN" = no-report ] || { echo "it would report" >&2; exit 1; }
echo "$*" >>"$here/calls"
verb=$1; shift
for name; do :; done
machine=$store/machines/$name
case $verb in
create)
    address=127.0.0.1 port=22
    for word; do case $word in
        --stand-in-address=*) address=${word#*=} ;;
        --stand-in-port=*) port=${word#*=} ;;
    esac; done
    mkdir -p "$store/certs" "$store/machines"
    for file in ca ca-key cert key; do [ -e "$store/certs/$file.pem" ] || echo made >"$store/certs/$file.pem"; done
    if [ -e "$here/refuse-create" ]; then cat "$here/refuse-create" >&2; exit 3; fi
    mkdir "$machine" 2>/dev/null || { echo "Docker machine \"$name\" already exists" >&2; exit 1; }
    echo "a private key" >"$machine/id_rsa"
    printf '{"ConfigVersion": 3, "DriverName": "stand-in", "Driver": {"IPAddress": "%s", "SSHUser": "docker-user",
        "SSHPort": %s, "SSHKeyPath": "%s/id_rsa"}}' "$address" "$port" "$machine" >"$machine/config.json"
    echo "Creating machine..."
    while [ -e "$here/hold" ]; do sleep 0.02; done
    if [ -e "$here/fail-create" ]; then cat "$here/fail-create" >&2; exit 1; fi
    echo "Docker is up and running!" ;;
rm)
    case $1 in -f) [ -d "$machine" ] || exit 0 ;; esac
    [ -d "$machine" ] || { echo "Docker machine \"$name\" does not exist." >&2; exit 1; }
    if [ "$1" = -y ] && [ -e "$here/fail-rm" ]; then cat "$here/fail-rm" >&2; exit 1; fi
    rm -rf "$machine"
    echo "Successfully removed $name" ;;
ls) echo Stopped ;;
ip) cat "$here/ip" ;;
*) echo "what is $verb?" >&2; exit 1 ;;
esac
"""


class DockerMachineGroups(PluginGroups):
    """The stand-in with its store, and groups that use it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(DockerMachineGroup, PROGRAM)
        self.folder = folder
        self.store = folder / "store"
        self.program = folder / "docker-machine"
        self.program.write_text(_STAND_IN)
        self.program.chmod(0o755)

    async def clean_up(self) -> None:
        for name in ("hold", "fail-rm", "fail-create"):
            self.remove_control_file(name)

    def write_control_file(self, name: str, text: str = "") -> None:
        """Write a control file of the stand-in."""
        (self.folder / name).write_text(text)

    def remove_control_file(self, name: str) -> None:
        """Remove a control file of the stand-in."""
        (self.folder / name).unlink(missing_ok=True)

    def calls(self, verb: str = "") -> list[str]:
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(verb)]

    def machines(self) -> list[str]:
        """Names of the machines in docker-machine's store."""
        return sorted(path.name for path in self.store.glob("machines/*"))

    def records(self) -> list[str]:
        """Names of the machines in the plugin's own store."""
        return sorted(path.name for path in self.store.glob("remuda/*") if not path.name.startswith("."))

    def config(self, **config: Any) -> dict[str, Any]:
        own = {"program": str(self.program), "storage_path": str(self.store), "machine_driver": "stand-in"}
        return own | config
