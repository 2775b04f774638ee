"""Autoscaled runners: reloads with configurations that cannot be used, and problems of plugins in the status."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from remuda.fleeting import InProcess, InstanceState
from remuda.manager.config.fleet_setup import runner_key
from remuda.manager.config.values import RunnerConfig
from remuda.manager.jobs import links
from remuda.manager.process import supervision
from remuda.manager.process.control import Command, ask, ask_status
from remuda.manager.process.scale_commands import ScaleReport
from remuda.manager.process.service import ManagerService
from remuda.manager.process.status import ManagerStatus
from remuda.testing.coordinator import OTHER_TOKEN, RUNNER_TOKEN, Coordinator
from remuda.testing.instance_groups import PlainGroup


class PopulatedGroup(PlainGroup):
    """A group that already has an instance."""

    def __init__(self) -> None:
        super().__init__()
        self._states["left"] = InstanceState.RUNNING

    @property
    def instances(self) -> list[str]:
        return list(self._states)


def runner(coordinator: Coordinator, name: str, token: str, section: str) -> str:
    return (
        f'[[runners]]\nname = "{name}"\nurl = "{coordinator.url}"\ntoken = "{token}"\nexecutor = "instance"\n'
        f'[runners.autoscaler]\nplugin = "table"\n{section}\n'
    )


@asynccontextmanager
async def manager(folder: Path, plugins: Callable[[], PlainGroup] = PlainGroup) -> AsyncIterator[asyncio.Event]:
    """Run a manager with plugins in its own process. Yields the event that reloads the configuration."""
    stop, reload, ready = asyncio.Event(), asyncio.Event(), asyncio.Event()
    service = ManagerService(folder / "config.toml", folder / "data", plugins=lambda _: InProcess(plugins()))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(service.run(stop, reload=reload, ready=ready.set), name="manager")
        await ready.wait()
        try:
            yield reload
        finally:
            stop.set()


async def status(folder: Path) -> ManagerStatus:
    return await ask_status(folder / "data")


async def test_a_missing_key_file_leaves_all_fleets_unchanged(tmp_path: Path, coordinator: Coordinator) -> None:
    def write_config(maximum: int, key: str) -> None:
        login = f'max_instances = {maximum}\n[runners.autoscaler.connector_config]\nkey_path = "{tmp_path}'
        (tmp_path / "config.toml").write_text(
            runner(coordinator, "first", RUNNER_TOKEN, f'{login}/kept"')
            + runner(coordinator, "second", OTHER_TOKEN, f'{login}/{key}"')
        )

    async def limits() -> list[int]:
        report = await ask(tmp_path / "data", Command(command="scale"), ScaleReport)
        return [fleet.status.groups[0].max_instances for fleet in report.fleets]

    for name in ("kept", "old", "new"):
        (tmp_path / name).write_bytes(b"PRIVATE")
    write_config(2, "old")
    async with manager(tmp_path) as reload:
        assert await limits() == [2, 2]
        # The new key is used only after a restart, so the old one is still needed.
        (tmp_path / "old").unlink()
        write_config(5, "new")
        reload.set()
        while not (error := (await status(tmp_path)).config.error):
            pass
        assert "old cannot be read" in error
        assert await limits() == [2, 2]
        (tmp_path / "old").write_bytes(b"PRIVATE")
        reload.set()
        while (await status(tmp_path)).config.error:
            pass
        assert await limits() == [5, 5]


async def test_a_fleet_that_cannot_be_created_does_not_affect_others(
    tmp_path: Path, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fleets that were created for an invalid file are closed, and created again with the next valid one."""

    def write_config(*runners: tuple[str, str]) -> None:
        sections = [runner(coordinator, name, token, "max_instances = 2") for name, token in runners]
        (tmp_path / "config.toml").write_text("".join(sections))

    monkeypatch.setattr(supervision, "TEND_SECONDS", 0.01)
    broken = tmp_path / "data" / "machines" / f"{runner_key(RunnerConfig(name='broken', url=coordinator.url))}.db"
    broken.mkdir(parents=True)
    write_config(("old", RUNNER_TOKEN))
    async with manager(tmp_path) as reload:
        write_config(("new", OTHER_TOKEN), ("broken", RUNNER_TOKEN))
        reload.set()
        while not (error := (manager_status := await status(tmp_path)).config.error):
            pass
        assert "runner broken: the stored state of its machines" in error
        assert (
            [runner.name for runner in manager_status.runners]
            == [fleet.name for fleet in manager_status.fleets]
            == ["old"]
        )
        broken.rmdir()
        reload.set()
        while (manager_status := await status(tmp_path)).config.error:
            reload.set()
        assert [runner.name for runner in manager_status.runners] == ["new", "broken"]
        assert {runner.health for runner in manager_status.runners} == {"well"}


async def test_a_runner_whose_plugin_refuses_its_settings_is_troubled(tmp_path: Path, coordinator: Coordinator) -> None:
    wrong = "[runners.autoscaler.plugin_config]\nmax_sise = 3"
    (tmp_path / "config.toml").write_text(
        runner(coordinator, "right", RUNNER_TOKEN, "max_instances = 2")
        + runner(coordinator, "wrong", OTHER_TOKEN, wrong)
    )
    async with manager(tmp_path):
        while not (manager_status := await status(tmp_path)).fleets[1].problems:
            pass
        assert {runner.name: runner.health for runner in manager_status.runners} == {
            "right": "well",
            "wrong": "troubled",
        }
        [problem] = manager_status.fleets[1].problems
        assert "there is no setting max_sise; did you mean max_size?" in problem
        assert [runner.disk_free_bytes for runner in manager_status.runners] == [None, None]


async def test_a_runner_requests_jobs_while_the_machines_of_another_cannot_be_searched(
    tmp_path: Path, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "RECOVERY_SECONDS", 1e6)
    sick = "[runners.autoscaler.plugin_config]\nbroken = ['init']"
    (tmp_path / "config.toml").write_text(
        runner(coordinator, "sick", OTHER_TOKEN, sick) + runner(coordinator, "well", RUNNER_TOKEN, "max_instances = 2")
    )

    def has_requested() -> bool:
        return any(
            name.endswith("/jobs/request") and headers["runner-token"] == RUNNER_TOKEN
            for name, headers in coordinator.requests
        )

    async with manager(tmp_path):
        await coordinator.until(has_requested)


async def test_a_fleet_with_unreachable_machines_ends_with_its_runner(
    tmp_path: Path, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs of an earlier process are searched there only as long as the runner is configured."""
    monkeypatch.setattr(supervision, "TEND_SECONDS", 0.01)
    monkeypatch.setattr(supervision, "RECOVERY_SECONDS", 0.01)
    monkeypatch.setattr(links, "LINGER_SECONDS", 0.01)
    group = PopulatedGroup()
    groups = [PlainGroup(), group]
    sick = "[runners.autoscaler.plugin_config]\nbroken = ['connect_info']"
    (tmp_path / "config.toml").write_text(runner(coordinator, "sick", RUNNER_TOKEN, sick))
    async with manager(tmp_path, groups.pop) as reload:
        while not [link for link in (await status(tmp_path)).machines if link.problem]:
            pass
        (tmp_path / "config.toml").write_text(runner(coordinator, "well", OTHER_TOKEN, "max_instances = 2"))
        reload.set()
        while [fleet.name for fleet in (await status(tmp_path)).fleets] != ["well"]:
            pass
    assert group.instances == []
