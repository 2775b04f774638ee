"""Machines of the plugin `local`, in its own process, for jobs of a manager in its own: both are killed on the way."""

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
from tests.support.machines.local_yard import PROGRAM, Yard

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
async def a_manager(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """As a process; it is stopped in the end, if nobody killed it."""
    words = ["-m", "remuda.manager", "--config", str(folder / "config.toml"), "--data", str(folder / "data")]
    with (folder / "manager.out").open("ab") as out:
        process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=out, stderr=out)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def plugin_of(manager: int) -> int:
    """The process of its plugin, 0 for none."""
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


async def test_plugin_crash_recovers_and_a_killed_manager_goes_on(cell: ServedCell, yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        f'concurrent = 4\ncheck_interval = 0.2\n[[runners]]\nname = "bench"\nurl = "{cell.url}"\n'
        f'token = "{cell.new_runner().token}"\nexecutor = "instance"\nrequest_concurrency = 3\n'
        f'[runners.autoscaler]\nplugin = "{PROGRAM}"\nmax_instances = 3\nupdate_interval_when_expecting = "300ms"\n'
        f'[runners.autoscaler.plugin_config]\nname = "{yard.name}"\nfolder = "{yard.folder}"\n'
        f'[[runners.autoscaler.policy]]\nidle_time = "2s"\n'
    )
    cell.new_project("app", PIPELINE)
    path = "/projects/1/pipelines/1"

    def jobs() -> dict[str, Any]:
        return {job["name"]: job["status"] for job in cell.api("GET", f"{path}/jobs").json()}

    async with a_manager(tmp_path) as first:
        await until(lambda: jobs()["one"] == jobs()["two"] == "running" and bool(plugin_of(first.pid)), seconds=60)
        os.kill(plugin_of(first.pid), signal.SIGKILL)
        await until(lambda: bool(plugin_of(first.pid)), seconds=30)
        first.kill()
    async with a_manager(tmp_path):
        await until(lambda: set(jobs().values()) == {"success"}, seconds=90)
        retried = cell.api("GET", f"{path}/jobs?include_retried=true").json()
        assert len(retried) == 3
        await until(lambda: not list(yard.folder.glob("machines/*")), seconds=60)


async def test_machines_of_a_runner_that_was_renamed_while_no_manager_ran_are_swept(
    cell: ServedCell, yard: Yard, tmp_path: Path
) -> None:
    """The manager is killed, and its plugin with it; the next one has no runner with machines."""
    text = (
        f'concurrent = 2\n[[runners]]\nname = "bench"\nurl = "{cell.url}"\n'
        f'token = "{cell.new_runner().token}"\nexecutor = "instance"\n'
    )
    scaling = (
        f'[runners.autoscaler]\nplugin = "{PROGRAM}"\nmax_instances = 2\nupdate_interval_when_expecting = "300ms"\n'
        f'[runners.autoscaler.plugin_config]\nname = "{yard.name}"\nfolder = "{yard.folder}"\n'
        f"[[runners.autoscaler.policy]]\nidle_count = 2\n"
    )
    (tmp_path / "config.toml").write_text(text + scaling)

    def machines() -> list[Path]:
        return list(yard.folder.glob("machines/*"))

    def said(text: str) -> int:
        return (tmp_path / "manager.out").read_text().count(text)

    async with a_manager(tmp_path) as first:
        await until(lambda: said("machine is ready") == len(machines()) == 2, seconds=60)
        first.kill()
    (tmp_path / "config.toml").write_text(text.replace('"instance"', '"shell"'))
    words = ["scale", "sweep", "--data", str(tmp_path / "data")]
    async with a_manager(tmp_path):
        await until(lambda: said("machines exist that belong to no configured runner") == 1, seconds=60)
        assert await asyncio.to_thread(call, words) == 0
        assert len(machines()) == 2
        assert await asyncio.to_thread(call, [*words, "--remove"]) == 0
        await until(lambda: not machines(), seconds=30)
