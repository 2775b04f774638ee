"""A stand-in for docker-machine, and groups that use it, for tests: the same words, exit codes and store.

What it does with a machine tests say by files beside it: `hold` lets creates hang, `fail-create` and `refuse-create`
fail with their text (half made, as real ones do, or before anything is made), `fail-rm` lets `rm -y` fail. `calls` has
what it was asked for. Machines it makes are at the address given by `--stand-in-address` and `--stand-in-port`.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from remuda.fleeting import InProcess, InstanceState, Settings, TemporaryError
from remuda.fleeting.host import HostedGroup
from remuda.lib.backoff import Backoff
from remuda_plugin_docker_machine.group import DockerMachineGroup

OWNER = "s_0123456789ab/7"
PROGRAM = Path(sys.executable).parent / "fleeting-plugin-docker-machine"
KEY = "a private key\n"
Group = InProcess | HostedGroup
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


class Yard:
    """A stand-in with its store, and the groups that use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.program = folder / "docker-machine"
        self.program.write_text(_STAND_IN)
        self.program.chmod(0o755)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in ("hold", "fail-rm", "fail-create"):
            self.let(name)
        async with self._stack:
            pass

    def say(self, name: str, text: str = "") -> None:
        """Have it behave so from now on."""
        (self.folder / name).write_text(text)

    def let(self, name: str) -> None:
        """No longer."""
        (self.folder / name).unlink(missing_ok=True)

    def calls(self, verb: str = "") -> list[str]:
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(verb)]

    def machines(self) -> list[str]:
        """In docker-machine's store."""
        return sorted(path.name for path in self.store.glob("machines/*"))

    def records(self) -> list[str]:
        """In ours."""
        return sorted(path.name for path in self.store.glob("remuda/*") if not path.name.startswith("."))

    async def group(
        self, how: str = "in process", *, settings: Settings | None = None, plugin: Path = PROGRAM, **config: Any
    ) -> Group:
        """One, `in process` or `hosted`; it is closed in the end."""
        group: Group
        if how == "in process":
            group = InProcess(DockerMachineGroup())
        else:
            group = HostedGroup(str(plugin), backoff=Backoff(first_seconds=0.05, ceiling_seconds=0.2))
        self._stack.push_async_callback(self._close, group)
        await group.init(self.config(**config), settings or Settings(owner=OWNER))
        return group

    def config(self, **config: Any) -> dict[str, Any]:
        own = {"program": str(self.program), "storage_path": str(self.store), "machine_driver": "stand-in"}
        return own | config

    async def _close(self, group: Group) -> None:
        if isinstance(group, InProcess) and group.info is not None:
            await group.shutdown()
        await group.close()


async def until(group: Group, true: Callable[[Mapping[str, InstanceState]], bool], seconds: float = 60) -> list[str]:
    """Look until it is so; the machines that there are then. Calls of a plugin that was killed may fail meanwhile."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                states = await group.update()
            except TemporaryError:
                states = None
            if states is not None and true(states):
                return list(states)
            await asyncio.sleep(0.02)


async def start_machines(group: Group, count: int) -> list[str]:
    """Ask for machines and wait until all run."""
    assert await group.increase(count) == count
    return await until(group, lambda states: [*states.values()] == [InstanceState.RUNNING] * count)
