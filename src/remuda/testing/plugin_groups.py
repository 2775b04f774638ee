"""Opens instance groups of a plugin under test, in this process or as a separate program, and requests machines."""

import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from remuda.fleeting import InProcess, InstanceState, Plugin, Settings, TemporaryError
from remuda.fleeting.host import HostedGroup
from remuda.lib.backoff import Backoff
from remuda.testing.instance_groups import a_program
from remuda.testing.waiting import until

OWNER = "s_0123456789ab/7"
"""Default owner tag of the machines."""
Group = InProcess | HostedGroup

# Kills itself right before it would touch the disk, a process or a lock for the `count`th time since the file `armed`
# exists. Only once: it renames the file, so the process that takes its place lives on.
_KILLED_PLUGIN = """#!{python}
import os, signal, sys
EVENTS = {{"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.killpg", "fcntl.flock", "subprocess.Popen"}}
remaining = {count}

def watch(event, arguments):
    global remaining
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if (event in EVENTS or writes) and os.path.exists("{armed}"):
        remaining -= 1
        if remaining == 0:
            os.rename("{armed}", "{died}")
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
from {package}.main import main
main()
"""


class PluginGroups:
    def __init__(self, plugin: type[Plugin[Any]], program: Path) -> None:
        self._plugin = plugin
        self._program = program
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self._stack:
            await self.clean_up()

    async def clean_up(self) -> None:
        """Hook for subclasses, called before the groups are closed. Does nothing by default."""

    def config(self, **config: Any) -> dict[str, Any]:
        """The plugin's configuration for a test. Subclasses add keys that their plugin needs."""
        return config

    async def group(
        self, how: str = "in process", *, settings: Settings | None = None, plugin: Path | None = None, **config: Any
    ) -> Group:
        """Open an instance group with the plugin under test during the context. `how`: "in process", or "hosted": as
        the program `plugin` (None: the constructor's). `settings`: for `init`; `config`: the plugin's own."""
        group: Group
        if how == "in process":
            group = InProcess(self._plugin())
        else:
            backoff = Backoff(first_seconds=0.05, ceiling_seconds=0.2)
            group = HostedGroup(str(plugin or self._program), backoff=backoff)
        self._stack.push_async_callback(_close, group)
        await group.init(self.config(**config), settings or Settings(owner=OWNER))
        return group


async def wait_for_states(
    group: Group, condition: Callable[[Mapping[str, InstanceState]], bool], seconds: float = 60
) -> list[str]:
    """Call `update` of the group until `condition` is true for the states of its machines by name; return the names. A
    failing update is repeated, because a killed plugin may be restarting. Raises WaitError after `seconds`."""
    states: Mapping[str, InstanceState] = {}

    async def holds() -> bool:
        nonlocal states
        try:
            states = await group.update()
        except TemporaryError:
            return False
        return condition(states)

    await until(holds, "the states of the machines", seconds)
    return list(states)


async def start_machines(group: Group, count: int) -> list[str]:
    """Request `count` machines, wait until all run, and return their names."""
    assert await group.increase(count) == count
    return await wait_for_states(group, lambda states: [*states.values()] == [InstanceState.RUNNING] * count)


async def remove_all(group: Group) -> None:
    names = await wait_for_states(group, lambda _: True)
    assert await group.decrease(names) == names
    await wait_for_states(group, lambda states: not states)


def a_killed_plugin(folder: Path, package: str, count: int) -> tuple[Path, Path, Path]:
    """Write a program that runs the plugin in the Python `package`, and kills itself at the `count`th time that it
    changes a file, lock or process. Returns the path of the program, of a file whose creation starts the counting, and
    of a file that the program creates when it dies."""
    armed, died = folder / "armed", folder / "died"
    text = _KILLED_PLUGIN.format(python=sys.executable, package=package, count=count, armed=armed, died=died)
    return a_program(folder, text, name="fleeting-plugin-killed"), armed, died


async def _close(group: Group) -> None:
    if isinstance(group, InProcess) and group.info is not None:
        await group.shutdown()
    await group.close()
