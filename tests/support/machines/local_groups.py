"""Instance groups of the plugin `local` for tests, which check at the end that no leftovers exist. Needs root."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from secrets import token_hex
from typing import Any

from remuda.testing.plugin_groups import Group, PluginGroups, remove_all
from remuda_plugin_local.config import PROGRAMS, SSHD
from remuda_plugin_local.group import LocalGroup
from remuda_plugin_local.store import read_text

PROGRAM = Path(sys.executable).parent / "fleeting-plugin-local"


class LocalGroups(PluginGroups):
    """Opens groups that share one folder and one unique name, in one or several processes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(LocalGroup, PROGRAM)
        self.name = f"t{token_hex(4)}"
        self.folder = folder / self.name

    @staticmethod
    def missing() -> str:
        """Why a group cannot run here; empty if it can."""
        if os.geteuid() != 0:
            return "only root can create machines"
        absent = [program for program in (*PROGRAMS, "ssh", f"/{SSHD}") if shutil.which(program) is None]
        return f"not installed: {', '.join(absent)}; make packages installs it" if absent else ""

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        assert not self.leftovers(), self.leftovers()

    async def clean_up(self) -> None:
        if self.folder.exists():
            await remove_all(await self.group())

    def config(self, **config: Any) -> dict[str, Any]:
        return {"name": self.name, "folder": str(self.folder), **config}

    def leftovers(self) -> list[str]:
        """Processes, network links, mounts, control groups and files of this group that still exist."""
        leftovers = []
        for process in Path("/proc").iterdir():
            # Ignore zombies, which wait until init reaps them.
            if process.name.isdigit() and ") Z " not in read_text(process / "stat"):
                details = "".join(read_text(process / name) for name in ("mountinfo", "cgroup", "cmdline"))
                if f"/{self.name}-" in details:
                    leftovers.append(f"process {process.name}: {read_text(process / 'cmdline')}")
        links = subprocess.run(["ip", "-json", "link"], capture_output=True, text=True, check=True).stdout
        leftovers += [f"link {link['ifname']}" for link in json.loads(links) if self.name in link.get("ifalias", "")]
        leftovers += [f"mount {line}" for line in read_text(Path("/proc/mounts")).splitlines() if self.name in line]
        leftovers += [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/remuda-local/{self.name}-*")]
        leftovers += [str(path) for path in self.folder.glob("machines/*")]
        leftovers += [str(path) for path in self.folder.glob("machines/.*")]
        return leftovers


async def run_on_machine(group: Group, machine: str, line: str, *, check: bool = True) -> str:
    """Run a command line on a machine over SSH, and return its output."""
    info = await group.connect_info(machine)
    with tempfile.NamedTemporaryFile() as key:
        key.write(info.connector.key)
        key.flush()
        options = ["-F", "none", "-i", key.name, "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"]
        options += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "ConnectTimeout=10"]
        host, _, port = info.address().partition(":")
        port = port or str(info.connector.port or 22)
        words = ["ssh", *options, "-p", port, f"{info.connector.username}@{host}", line]
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or not check, done
        return str(done.stdout).strip()
