"""A runner whose jobs cannot run takes none, and says why: in its status, at the cell and in the metrics."""

import asyncio
from typing import Any

import aiohttp
from tests.support.cells.served_cell import ServedCell
from tests.support.runners.manager_harness import ManagerHarness

from remuda.cli.main import call
from remuda.manager.process.control import NoManagerError, ask_status
from remuda.manager.process.status import RunnerStatus
from remuda.testing.lab import free_port
from remuda.testing.waiting import until


async def test_a_docker_runner_without_an_engine_takes_no_job(
    cell: ServedCell, cell_harness: ManagerHarness, capfd: Any
) -> None:
    harness, address = cell_harness, f"127.0.0.1:{free_port()}"
    problem = f"the container engine at unix://{harness.folder}/none.sock cannot be used: the socket does not exist"
    harness.write_config(
        executor="docker",
        top=f'listen_address = "{address}"',
        extra=f'[runners.docker]\nhost = "unix://{harness.folder}/none.sock"\n',
    )
    await asyncio.to_thread(cell.new_project, "app", "build: {image: 'busybox', script: ['true']}")
    await asyncio.to_thread(cell.until_pipelines, 1)
    await harness.spawn()

    async def read_runner() -> RunnerStatus | None:
        try:
            [runner] = (await ask_status(harness.data)).runners
        except NoManagerError:
            return None
        return runner if runner.is_blocked else None

    runner = await until(read_runner, "the status says that the runner is blocked")
    assert runner is not None
    assert problem in runner.problem
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as answer:
        metrics = await answer.text()
    blocked = next(line for line in metrics.splitlines() if line.startswith("remuda_manager_runner_blocked{"))
    assert blocked.endswith(" 1.0")

    [job] = await asyncio.to_thread(lambda: cell.api("GET", "/projects/1/jobs").json())

    async def read_why() -> dict[str, Any] | None:
        path = f"/api/remuda/v1/jobs/{job['id']}/why"
        why = await asyncio.to_thread(lambda: cell.send("GET", path, PRIVATE_TOKEN=cell.token).json())
        return why if why["runners"]["blocked"] else None

    why = await until(read_why, "the cell knows that the runner is blocked")
    assert job["status"] == "pending"
    assert any(problem in advice for advice in why["advice"]), why
    [manager] = await asyncio.to_thread(lambda: cell.api("GET", "/runners/1/managers").json())
    assert problem in manager["problem"]
    assert await asyncio.to_thread(call, ["manager", "status", "--data", str(harness.data)]) == 0
    assert "blocked" in capfd.readouterr().out
