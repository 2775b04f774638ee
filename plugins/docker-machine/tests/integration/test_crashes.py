"""kill -9 of the plugin, at any line: every machine is known to the next one, and none is left in the store."""

import sys
from pathlib import Path

import pytest

from remuda.fleeting import InstanceState, TemporaryError
from remuda.testing.plugin_groups import start_machines, until
from remuda_plugin_docker_machine.testing import Yard

pytestmark = pytest.mark.long

RUNNING = InstanceState.RUNNING
# Ends itself right before it would touch the disk, a process or a lock for the given time since it was told to. Only
# once: the process that takes its place lives on.
DYING = """#!{python}
import os, signal, sys
EVENTS = {{"os.mkdir", "os.rename", "os.remove", "os.rmdir", "fcntl.flock", "subprocess.Popen"}}
left = {count}

def watch(event, arguments):
    global left
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if (event in EVENTS or writes) and os.path.exists("{armed}"):
        left -= 1
        if left == 0:
            os.rename("{armed}", "{died}")
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
from remuda_plugin_docker_machine.main import main
main()
"""


def dying(folder: Path, count: int) -> tuple[Path, Path, Path]:
    """The program, the file that tells it to count, and the file that says that it died."""
    program, armed, died = folder / "fleeting-plugin-dying", folder / "armed", folder / "died"
    program.write_text(DYING.format(python=sys.executable, count=count, armed=armed, died=died))
    program.chmod(0o755)
    return program, armed, died


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 9, 12, 15, 18, 22, 30])
async def test_killed_while_machines_are_made(yard: Yard, tmp_path: Path, count: int) -> None:
    program, armed, died = dying(tmp_path, count)
    group = await yard.group("hosted", plugin=program, max_size=3)
    armed.touch()
    try:
        assert await group.increase(3) == 3
    except TemporaryError:
        assert died.exists()
    await until(group, lambda _: died.exists())
    names = await until(group, lambda states: set(states.values()) <= {RUNNING})
    assert yard.machines() == yard.records() == sorted(names)
    assert await group.increase(3) == 3 - len(names)
    names = await until(group, lambda states: [*states.values()] == [RUNNING] * 3)
    assert await group.decrease(names) == names
    await until(group, lambda states: not states)
    assert yard.machines() == yard.records() == []


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 8, 10, 13])
async def test_killed_while_machines_are_removed(yard: Yard, tmp_path: Path, count: int) -> None:
    program, armed, died = dying(tmp_path, count)
    group = await yard.group("hosted", plugin=program)
    one, two, three = await start_machines(group, 3)
    armed.touch()
    try:
        assert await group.decrease([one, two]) == [one, two]
    except TemporaryError:
        assert died.exists()
    await until(group, lambda _: died.exists())
    # Who asked was told nothing, so it asks again.
    await until(group, lambda _: True)
    assert await group.decrease([one, two]) == [one, two]
    await until(group, lambda states: states == {three: RUNNING})
    assert yard.machines() == yard.records() == [three]
