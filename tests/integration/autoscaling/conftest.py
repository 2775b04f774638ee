"""Machines that are off until somebody asks for them, and managers that do."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import ServedCell
from tests.support.machines.lab_group import LabGroup
from tests.support.machines.local_yard import Yard
from tests.support.machines.machines import LAB_ADDRESS, Machines
from tests.support.machines.yard import yard as yard

from remuda.fleeting import InProcess, Plugin
from remuda.manager.process.control import Command, ask, ask_status
from remuda.manager.process.scale_commands import ScaleReport
from remuda.manager.process.service import ManagerService
from remuda.manager.process.status import ManagerStatus
from remuda.taskscaler.fleet.status import ScalerStatus
from remuda.testing.waiting import wait_until
from remuda_plugin_local import LocalGroup

SETTLED = ("success", "failed", "canceled")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Machines]:
    """Three machines that share a folder with the test; this thread is in their network."""
    if missing := Machines.missing():
        pytest.skip(missing)
    with Machines(3, shared=tmp_path, docker=(1,)) as running, running.entered():
        yield running


@pytest.fixture
def group(lab: Machines) -> LabGroup:
    return LabGroup(lab)


@pytest.fixture
def lab_cell(lab: Machines, tmp_path: Path) -> Iterator[ServedCell]:
    """A cell that the machines can reach."""
    with ServedCell(tmp_path / "cell", host=LAB_ADDRESS) as served:
        yield served


@dataclass
class Running:
    """A manager that runs."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    reload: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Site:
    """A cell with one project and one runner, and a place for managers."""

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
    async def manager(self) -> AsyncIterator[Running]:
        """Until the block ends; machines and jobs stay."""
        running, ready = Running(), asyncio.Event()
        service = ManagerService(self.folder / "config.toml", self.data, plugins=lambda _: InProcess(self.group))
        async with asyncio.TaskGroup() as tasks:
            serving = service.run(running.stop, reload=running.reload, ready=ready.set)
            task = tasks.create_task(serving, name="manager")
            await asyncio.wait({task, tasks.create_task(ready.wait(), name="ready")}, return_when="FIRST_COMPLETED")
            try:
                yield running
            finally:
                running.stop.set()

    async def status(self) -> ManagerStatus:
        return await ask_status(self.data)

    async def scaling(self) -> ScalerStatus:
        """Of the only runner."""
        return (await ask(self.data, Command(command="scale"), ScaleReport)).fleets[0].status

    async def push(self, pipeline: str) -> int:
        """A pipeline's number."""

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

    async def used(self, job: int) -> dict[str, Any]:
        """What a job has used, as its results say."""

        def ask() -> dict[str, Any]:
            path = f"/api/remuda/v1/jobs/{job}/steps"
            results = self.cell.send("GET", path, PRIVATE_TOKEN=self.cell.token).json()["results"]
            return next((one["used"] for one in reversed(results) if one.get("event") == "used"), {})

        return await asyncio.to_thread(ask)

    async def jobs(self, pipeline: int, *, until: tuple[str, ...] = SETTLED) -> dict[str, dict[str, Any]]:
        """The jobs by name, with their logs, when the pipeline has come so far."""

        def wait() -> dict[str, dict[str, Any]]:
            path = f"/projects/1/pipelines/{pipeline}"
            wait_until(lambda: self.cell.api("GET", path).json()["status"] in until, f"it is {until}", seconds=90)
            jobs = {job["name"]: job for job in self.cell.api("GET", f"{path}/jobs").json()}
            for job in jobs.values():
                job["log"] = self.cell.api("GET", f"/projects/1/jobs/{job['id']}/trace").body.decode()
            return jobs

        return await asyncio.to_thread(wait)


@pytest.fixture
def site(lab_cell: ServedCell, tmp_path: Path, group: LabGroup) -> Site:
    return Site(lab_cell, tmp_path, group, lab_cell.new_runner().token)


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Site]:
    """A site with one machine, which has no control groups."""
    if missing := Machines.missing():
        pytest.skip(missing)
    with Machines(1) as lab, lab.entered(), ServedCell(tmp_path / "cell", host=LAB_ADDRESS) as served:
        yield Site(served, tmp_path, LabGroup(lab), served.new_runner().token)


@pytest.fixture
def farm(cell: ServedCell, tmp_path: Path, yard: Yard) -> Site:
    """The same with machines of the plugin `local`, which have control groups of their own."""
    return Site(cell, tmp_path, LocalGroup(), cell.new_runner().token)
