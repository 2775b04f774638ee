"""Template of a new environment plugin (`remuda environment new`): a program that runs without changes, and its README.
Pure. examples/environment-plugin has the same text."""

import re

from remuda.environments.host import PREFIX

_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")
_PROGRAM = '''#!@PYTHON@
"""An environment plugin for Remuda: each machine is a folder of this computer with an agent of its own.

Put your own kind of machine in its place: make or find one in `acquire`, reach its agent in `connect` (any command that
runs `remuda-agent proxy --start` there will do, such as ssh), give it back in `clean_up`.
"""

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

from remuda.environments import ConfigurationError, Connection, Folders, LostError, Place, Plugin, serve
from remuda.environments.local_machine import (
    connect_agent,
    folders_of,
    has_jobs,
    make_folders,
    remove_folders,
    run_hook,
)


class @CLASS@(Plugin):
    """`config`: `machines`, a list of names; `folder`, where they are (default: the manager's folder for plugins)."""

    async def open(self, config: dict[str, Any], folder: Path) -> None:
        for key in config:
            if key not in ("machines", "folder"):
                raise ConfigurationError(f"{key}: unknown; this plugin knows machines and folder")
        names = config.get("machines", ["one"])
        if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
            raise ConfigurationError("machines: a list of at least one name is needed")
        self.machines = [name.replace("/", "_") for name in names]
        self.folder = Path(config.get("folder") or folder)
        self.held: dict[str, str] = {}  # the key of a job, and its machine
        self.changed = asyncio.Condition()

    def capacity(self) -> int | None:
        return len(self.machines)

    async def acquire(self, place: Place) -> str:
        async with self.changed:
            if place.key not in self.held:
                await self.changed.wait_for(self.free)
                self.held[place.key] = self.free()[0]
            return self.held[place.key]

    def free(self) -> list[str]:
        return [name for name in self.machines if name not in self.held.values()]

    async def adopt(self, place: Place, machine: str) -> None:
        self.held[place.key] = machine

    async def prepare(self, place: Place, machine: str) -> Folders:
        return make_folders(self.base(machine), place)

    async def before(self, place: Place, machine: str) -> str:
        work_dir = folders_of(self.base(machine), place).work_dir
        return await run_hook("before_job", place.before_job, place, work_dir)

    async def after(self, place: Place, machine: str) -> str:
        work_dir = folders_of(self.base(machine), place).work_dir
        return await run_hook("after_job", place.after_job, place, work_dir)

    async def connect(self, machine: str) -> Connection:
        return await connect_agent(self.base(machine))

    async def recover(self) -> list[str]:
        return [name for name in self.machines if has_jobs(self.base(name))]

    async def usage(self) -> int:
        self.folder.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(self.folder).free

    async def clean_up(self, place: Place, machine: str) -> None:
        await remove_folders(self.base(machine), place)
        async with self.changed:
            self.held.pop(place.key, None)
            self.changed.notify_all()

    def base(self, machine: str) -> Path:
        if machine not in self.machines:
            raise LostError(f"there is no machine {machine} (any more); there are {', '.join(self.machines)}")
        return self.folder / machine


if __name__ == "__main__":
    sys.exit(serve(@CLASS@()))
'''
_README = """# @PROGRAM@

An environment plugin for Remuda: this program decides where the jobs of a runner run. As it is, its machines are
folders of this computer, each with an agent of its own and one job at a time.

Try it out, without a manager:

```
remuda environment check ./@PROGRAM@ --config '{"machines": ["one", "two"]}'
```

Use it: put the program into a folder of PATH (or give its path) and name it in `config.toml`:

```toml
[[runners]]
executor = "plugin"
[runners.remuda.environment]
plugin = "@NAME@"
config = {machines = ["one", "two"]}
```

Change it: every method of the class is described in `remuda.environments.Plugin`; the protocol, for any other language,
by `remuda docs environment-plugins`.
"""


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def files(name: str, *, python: str = "/usr/bin/env python3") -> dict[str, str]:
    """Texts of a new plugin by file name, the program first. `python`: interpreter in the program's first line."""
    words = {
        "@PYTHON@": python,
        "@NAME@": name,
        "@PROGRAM@": f"{PREFIX}{name}",
        "@CLASS@": "".join(part.capitalize() for part in name.split("-")) + "Environment",
    }
    contents = {f"{PREFIX}{name}": _PROGRAM, "README.md": _README}
    for mark, word in words.items():
        contents = {path: text.replace(mark, word) for path, text in contents.items()}
    return contents
