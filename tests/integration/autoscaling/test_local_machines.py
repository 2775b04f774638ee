"""Kills the manager and the process of the plugin `local` while jobs run; jobs succeed, and no machine is left."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import ServedCell
from tests.support.machines.local_groups import PROGRAM, LocalGroups

from remuda.cli.main import call
from remuda.testing.waiting import until

pytestmark = pytest.mark.long

PIPELINE = """
variables: {GIT_STRATEGY: none}
one: {script: [hostname, sleep 8, echo done]}
two: {script: [hostname, sleep 8, echo done]}
three: {script: [hostname, sleep 1, echo done]}
"""


@asynccontextmanager
async def run_manager(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a manager as a process until the block ends."""
    arguments = ["-m", "remuda.manager", "--config", str(folder / "config.toml"), "--data", str(folder / "data")]
    with (folder / "manager.out").open("ab") as out:
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=out, stderr=out)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def plugin_pid(manager: int) -> int:
    """Return the pid of the plugin of a manager; 0 if it does not run."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            line = (folder / "cmdline").read_text()
        except (OSError, ValueError):
            continue
        if parent == manager and str(PROGRAM) in line:
            return int(folder.name)
    return 0


async def test_jobs_survive_two_kinds_of_crash(cell: ServedCell, local_groups: LocalGroups, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        f'concurrent = 4\ncheck_interval = 0.2\n[[runners]]\nname = "bench"\nurl = "{cell.url}"\n'
        f'token = "{cell.new_runner().token}"\nexecutor = "instance"\nrequest_concurrency = 3\n'
        f'[runners.autoscaler]\nplugin = "{PROGRAM}"\nmax_instances = 3\nupdate_interval_when_expecting = "300ms"\n'
        f'[runners.autoscaler.plugin_config]\nname = "{local_groups.name}"\nfolder = "{local_groups.folder}"\n'
        f'[[runners.autoscaler.policy]]\nidle_time = "2s"\n'
    )
    cell.new_project("app", PIPELINE)
    path = "/projects/1/pipelines/1"

    def jobs() -> dict[str, Any]:
        return {job["name"]: job["status"] for job in cell.api("GET", f"{path}/jobs").json()}

    async with run_manager(tmp_path) as first:
        await until(lambda: jobs()["one"] == jobs()["two"] == "running" and bool(plugin_pid(first.pid)), seconds=60)
        os.kill(plugin_pid(first.pid), signal.SIGKILL)
        await until(lambda: bool(plugin_pid(first.pid)), seconds=30)
        first.kill()
    async with run_manager(tmp_path):
        await until(lambda: set(jobs().values()) == {"success"}, seconds=90)
        retried = cell.api("GET", f"{path}/jobs?include_retried=true").json()
        assert len(retried) == 3
        await until(lambda: not list(local_groups.folder.glob("machines/*")), seconds=60)


async def test_renamed_runners_machines_are_swept(cell: ServedCell, local_groups: LocalGroups, tmp_path: Path) -> None:
    """The manager and its plugin are killed; the next manager has no runner with machines."""
    text = (
        f'concurrent = 2\n[[runners]]\nname = "bench"\nurl = "{cell.url}"\n'
        f'token = "{cell.new_runner().token}"\nexecutor = "instance"\n'
    )
    scaling = (
        f'[runners.autoscaler]\nplugin = "{PROGRAM}"\nmax_instances = 2\nupdate_interval_when_expecting = "300ms"\n'
        f'[runners.autoscaler.plugin_config]\nname = "{local_groups.name}"\nfolder = "{local_groups.folder}"\n'
        f"[[runners.autoscaler.policy]]\nidle_count = 2\n"
    )
    (tmp_path / "config.toml").write_text(text + scaling)

    def machines() -> list[Path]:
        return list(local_groups.folder.glob("machines/*"))

    def count_in_output(text: str) -> int:
        return (tmp_path / "manager.out").read_text().count(text)

    async with run_manager(tmp_path) as first:
        await until(lambda: count_in_output("machine is ready") == len(machines()) == 2, seconds=60)
        first.kill()
    (tmp_path / "config.toml").write_text(text.replace('"instance"', '"shell"'))
    arguments = ["scale", "sweep", "--data", str(tmp_path / "data")]
    async with run_manager(tmp_path):
        await until(lambda: count_in_output("machines exist that belong to no configured runner") == 1, seconds=60)
        assert await asyncio.to_thread(call, arguments) == 0
        assert len(machines()) == 2
        assert await asyncio.to_thread(call, [*arguments, "--remove"]) == 0
        await until(lambda: not machines(), seconds=30)
