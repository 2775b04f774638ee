"""A configuration with machines that is read again and cannot be used: the old one counts for all of them."""

import asyncio
from pathlib import Path

from remuda.fleeting import InProcess
from remuda.manager.control import Order, ask, ask_status
from remuda.manager.scale_orders import ScaleReport
from remuda.manager.service import ManagerService
from remuda.testing.coordinator import OTHER_TOKEN, RUNNER_TOKEN, Coordinator
from remuda.testing.instance_groups import PlainGroup


def write_config(folder: Path, coordinator: Coordinator, *, most: int, key: str) -> None:
    runners = [
        f'[[runners]]\nname = "{name}"\nurl = "{coordinator.url}"\ntoken = "{token}"\nexecutor = "instance"\n'
        f'[runners.autoscaler]\nplugin = "table"\nmax_instances = {most}\n'
        f'[runners.autoscaler.connector_config]\nkey_path = "{folder}/{path}"\n'
        for name, token, path in (("first", RUNNER_TOKEN, "kept"), ("second", OTHER_TOKEN, key))
    ]
    (folder / "config.toml").write_text("".join(runners))


async def test_a_key_that_has_gone_leaves_all_fleets_as_they_were(tmp_path: Path, coordinator: Coordinator) -> None:
    for name in ("kept", "old", "new"):
        (tmp_path / name).write_bytes(b"PRIVATE")
    write_config(tmp_path, coordinator, most=2, key="old")
    stop, reload, ready = asyncio.Event(), asyncio.Event(), asyncio.Event()
    service = ManagerService(tmp_path / "config.toml", tmp_path / "data", plugins=lambda _: InProcess(PlainGroup()))

    async def limits() -> list[int]:
        report = await ask(tmp_path / "data", Order(command="scale"), ScaleReport)
        return [fleet.status.groups[0].max_instances for fleet in report.fleets]

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(service.run(stop, reload=reload, ready=ready.set), name="manager")
        await ready.wait()
        try:
            assert await limits() == [2, 2]
            # The new key counts after a restart, so that the old one is still wanted.
            (tmp_path / "old").unlink()
            write_config(tmp_path, coordinator, most=5, key="new")
            reload.set()
            while not (error := (await ask_status(tmp_path / "data")).config.error):
                pass
            assert "old cannot be read" in error
            assert await limits() == [2, 2]
            (tmp_path / "old").write_bytes(b"PRIVATE")
            reload.set()
            while (await ask_status(tmp_path / "data")).config.error:
                pass
            assert await limits() == [5, 5]
        finally:
            stop.set()
