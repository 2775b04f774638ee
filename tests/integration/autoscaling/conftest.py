"""Sites for tests of autoscaling: a cell, a manager with an autoscaler, and machines that are started on demand."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import ServedCell
from tests.support.machines.lab_group import LabGroup
from tests.support.machines.local_groups import LocalGroups
from tests.support.machines.local_groups_fixture import local_groups as local_groups
from tests.support.machines.machines import LAB_ADDRESS, Machines
from tests.support.servers.docker_engine import BUSYBOX, busybox_files

from remuda.fleeting import InProcess, Plugin
from remuda.manager.process.control import Command, ask, ask_status
from remuda.manager.process.scale_commands import ScaleReport
from remuda.manager.process.service import ManagerService
from remuda.manager.process.status import ManagerStatus
from remuda.taskscaler.fleet.status import ScalerStatus
from remuda.testing.waiting import wait_until
from remuda_plugin_local import LocalGroup

FINAL_STATUSES = ("success", "failed", "canceled")


def docker_start_command(folder: Path) -> str:
    """Write an image to a folder that machines share, and return a shell command that starts Docker and imports it."""
    (folder / "image.tar").write_bytes(busybox_files())
    return (
        "setsid dockerd --shutdown-timeout 1 >/root/dockerd.log 2>&1 </dev/null & "
        "until docker info >/dev/null 2>&1; do sleep 0.1; done; "
        f"docker import {folder}/image.tar {BUSYBOX} >&2"
    )


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Machines]:
    """Three machines that share a folder with the test. The test's thread joins their network namespace."""
    if missing := Machines.missing():
        pytest.skip(missing)
    with Machines(3, shared=tmp_path, docker=(1,)) as machines, machines.enter_network():
        yield machines


@pytest.fixture
def group(lab: Machines) -> LabGroup:
    return LabGroup(lab)


@pytest.fixture
def lab_cell(lab: Machines, tmp_path: Path) -> Iterator[ServedCell]:
    """A cell at an address that the machines can reach."""
    with ServedCell(tmp_path / "cell", host=LAB_ADDRESS) as served:
        yield served


@dataclass
class ManagerSignals:
    """Events that stop a running manager, or make it read its configuration again."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    reload: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Site:
    """A cell with one project and one runner, and a folder for the configuration and data of a manager."""

    cell: ServedCell
    folder: Path
    group: Plugin[Any]
    token: str
    pushed: int = 0

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def configure(
        self,
        *,
        executor: str = "instance",
        autoscaler: str = "",
        runner: str = "",
        policy: str = "",
        token: str = "",
        plugin: str = "lab",
        top: str = "",
    ) -> None:
        (self.folder / "config.toml").write_text(
            f'concurrent = 6\ncheck_interval = 0.2\n{top}\n[[runners]]\nname = "bench"\nurl = "{self.cell.url}"\n'
            f'token = "{token or self.token}"\nexecutor = "{executor}"\nrequest_concurrency = 3\n{runner}\n'
            f'[runners.autoscaler]\nplugin = "{plugin}"\nupdate_interval_when_expecting = "200ms"\n{autoscaler}\n'
            f"[[runners.autoscaler.policy]]\n{policy}\n"
        )

    @asynccontextmanager
    async def manager(self) -> AsyncIterator[ManagerSignals]:
        """Run a manager until the block ends; its machines and jobs stay."""
        signals, ready = ManagerSignals(), asyncio.Event()
        service = ManagerService(self.folder / "config.toml", self.data, plugins=lambda _: InProcess(self.group))
        async with asyncio.TaskGroup() as tasks:
            serving = service.run(signals.stop, reload=signals.reload, ready=ready.set)
            task = tasks.create_task(serving, name="manager")
            await asyncio.wait({task, tasks.create_task(ready.wait(), name="ready")}, return_when="FIRST_COMPLETED")
            try:
                yield signals
            finally:
                signals.stop.set()

    async def status(self) -> ManagerStatus:
        return await ask_status(self.data)

    async def scaling(self) -> ScalerStatus:
        """Return the status of the only runner's scaler."""
        return (await ask(self.data, Command(command="scale"), ScaleReport)).fleets[0].status

    async def push(self, pipeline: str) -> int:
        """Push a pipeline file, and return the id of the pipeline."""

        def push() -> int:
            self.pushed += 1
            if self.pushed == 1:
                self.cell.new_project("app", pipeline)
            else:
                file = {"action": "update", "file_path": ".gitlab-ci.yml", "content": pipeline}
                body = {"branch": "main", "commit_message": "Another commit", "actions": [file]}
                assert self.cell.api("POST", "/projects/1/repository/commits", body).status == 201
            return int(self.cell.until_pipelines(self.pushed)[0]["id"])

        return await asyncio.to_thread(push)

    async def resource_usage(self, job: int) -> dict[str, Any]:
        """Return the resource usage in a job's results; empty if it has none."""

        def fetch() -> dict[str, Any]:
            path = f"/api/remuda/v1/jobs/{job}/steps"
            results = self.cell.send("GET", path, PRIVATE_TOKEN=self.cell.token).json()["results"]
            return next((result["used"] for result in reversed(results) if result.get("event") == "used"), {})

        return await asyncio.to_thread(fetch)

    async def jobs(self, pipeline: int, *, until: tuple[str, ...] = FINAL_STATUSES) -> dict[str, dict[str, Any]]:
        """Wait until the pipeline has one of the statuses `until`, and return its jobs by name, with their logs."""

        def wait() -> dict[str, dict[str, Any]]:
            path = f"/projects/1/pipelines/{pipeline}"
            wait_until(
                lambda: self.cell.api("GET", path).json()["status"] in until, f"the pipeline is {until}", seconds=90
            )
            jobs = {job["name"]: job for job in self.cell.api("GET", f"{path}/jobs").json()}
            for job in jobs.values():
                job["log"] = self.cell.api("GET", f"/projects/1/jobs/{job['id']}/trace").body.decode()
            return jobs

        return await asyncio.to_thread(wait)


@pytest.fixture
def site(lab_cell: ServedCell, tmp_path: Path, group: LabGroup) -> Site:
    return Site(lab_cell, tmp_path, group, lab_cell.new_runner().token)


@pytest.fixture
def bare_site(tmp_path: Path) -> Iterator[Site]:
    """A site with one machine that has no control groups."""
    if missing := Machines.missing():
        pytest.skip(missing)
    with Machines(1) as lab, lab.enter_network(), ServedCell(tmp_path / "cell", host=LAB_ADDRESS) as served:
        yield Site(served, tmp_path, LabGroup(lab), served.new_runner().token)


@pytest.fixture
def local_site(cell: ServedCell, tmp_path: Path, local_groups: LocalGroups) -> Site:
    """A site with machines of the plugin `local`, which have their own control groups."""
    return Site(cell, tmp_path, LocalGroup(), cell.new_runner().token)
