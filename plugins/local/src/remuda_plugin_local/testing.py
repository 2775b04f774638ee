"""Groups of this plugin for tests, with what tests ask of them: nothing may be left of one in the end.

Used by the tests of this plugin, and by those of whoever scales its machines. Only root can have such groups.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from secrets import token_hex
from typing import Any, Self

from remuda.fleeting import InProcess, InstanceState, Settings, TemporaryError
from remuda.fleeting.host import HostedGroup
from remuda.lib.backoff import Backoff
from remuda_plugin_local.config import PROGRAMS, SSHD
from remuda_plugin_local.group import LocalGroup

OWNER = "s_0123456789ab/7"
PROGRAM = Path(sys.executable).parent / "fleeting-plugin-local"
Group = InProcess | HostedGroup


class Yard:
    """A folder with a group of a name that nobody else has, the processes that serve it, and what it left behind."""

    def __init__(self, folder: Path) -> None:
        self.name = f"t{token_hex(4)}"
        self.folder = folder / self.name
        self._stack = AsyncExitStack()

    @staticmethod
    def missing() -> str:
        """Why there can be none here; empty where there can."""
        if os.geteuid() != 0:
            return "only root can make machines"
        absent = [program for program in (*PROGRAMS, "ssh", f"/{SSHD}") if shutil.which(program) is None]
        return f"not installed: {', '.join(absent)}; make packages installs it" if absent else ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self._stack:
            if self.folder.exists():
                await remove_all(await self.group())
        assert not self.left(), self.left()

    async def group(
        self, how: str = "in process", *, settings: Settings | None = None, program: Path = PROGRAM, **config: Any
    ) -> Group:
        """One that serves it, `in process` or `hosted`; it is closed in the end."""
        group: Group
        if how == "in process":
            group = InProcess(LocalGroup())
        else:
            group = HostedGroup(str(program), backoff=Backoff(first_seconds=0.05, ceiling_seconds=0.2))
        self._stack.push_async_callback(self._close, group)
        config = {"name": self.name, "folder": str(self.folder), **config}
        await group.init(config, settings or Settings(owner=OWNER))
        return group

    async def _close(self, group: Group) -> None:
        if isinstance(group, InProcess) and group.info is not None:
            await group.shutdown()
        await group.close()

    def left(self) -> list[str]:
        """Everything that is of this group."""
        found = []
        for process in Path("/proc").iterdir():
            # One that has ended may wait for this host's first process to notice.
            if process.name.isdigit() and ") Z " not in _text(process / "stat"):
                seen = "".join(_text(process / name) for name in ("mountinfo", "cgroup", "cmdline"))
                if f"/{self.name}-" in seen:
                    found.append(f"process {process.name}: {_text(process / 'cmdline')}")
        links = subprocess.run(["ip", "-json", "link"], capture_output=True, text=True, check=True).stdout
        found += [f"link {link['ifname']}" for link in json.loads(links) if self.name in link.get("ifalias", "")]
        found += [f"mount {line}" for line in _text(Path("/proc/mounts")).splitlines() if self.name in line]
        found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/remuda-local/{self.name}-*")]
        found += [str(path) for path in self.folder.glob("machines/*")]
        found += [str(path) for path in self.folder.glob("machines/.*")]
        return found


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


async def remove_all(group: Group) -> None:
    """Remove all machines."""
    names = await until(group, lambda states: True)
    assert await group.decrease(names) == names
    await until(group, lambda states: not states)


async def on(group: Group, machine: str, line: str, *, check: bool = True) -> str:
    """What a command line prints there, over SSH."""
    info = await group.connect_info(machine)
    with tempfile.NamedTemporaryFile() as key:
        key.write(info.connector.key)
        key.flush()
        options = ["-F", "none", "-i", key.name, "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"]
        options += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "ConnectTimeout=10"]
        host, _, port = info.address().partition(":")
        port = port or str(info.connector.port or 22)
        words = ["ssh", *options, "-p", port, f"{info.connector.username}@{host}", line]
        told = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, timeout=60)
        assert told.returncode == 0 or not check, told
        return str(told.stdout).strip()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
