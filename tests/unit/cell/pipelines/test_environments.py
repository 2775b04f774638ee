"""Environments that are stopped by users and when their time is over."""

import asyncio

import pytest
from msgspec.structs import replace

from remuda.cell.errors import StoreError
from remuda.cell.pipelines.environments import Environments
from remuda.cell.values.deployments import Environment
from remuda.lib.clock import settle
from remuda.testing.builders import an_artifact
from remuda.testing.memory_cell import MemoryCell

FILE = """
deploy:
  script: [make]
  environment: {name: review/a, url: "https://a.example", on_stop: end, auto_stop_in: 1 hour}
end:
  script: [make]
  when: manual
  environment: {name: review/a, action: stop}
"""


@pytest.fixture
def environments(cell: MemoryCell) -> Environments:
    return Environments(store=cell.store, commands=cell.dispatch.user_commands, clock=cell.clock)


async def load(cell: MemoryCell) -> Environment:
    environment = await cell.store.deployments.find_environment(cell.project.id, "review/a")
    assert environment is not None
    return environment


async def test_the_stop_job_stops_an_environment(cell: MemoryCell, environments: Environments) -> None:
    family = await cell.push_file(FILE)
    await cell.run_next()
    assert (await load(cell)).external_url == "https://a.example"
    assert (await environments.stop(await load(cell))).state == "stopping"
    assert (await environments.stop(await load(cell))).state == "stopping"  # a repeated call
    assert (await cell.statuses(family))["end"] == "pending"
    await cell.run_next()
    assert (await load(cell)).state == "stopped"
    assert (await environments.stop(await load(cell))).state == "stopped"
    await cell.dispatch.user_commands.retry_job(family.jobs[0].id)
    await cell.run_next()
    assert (await load(cell)).state == "available"
    await environments.stop(await load(cell))  # runs the stop job again
    await cell.run_next()
    assert (await load(cell)).state == "stopped"


async def test_without_stop_job_or_by_force_it_is_stopped_at_once(cell: MemoryCell, environments: Environments) -> None:
    family = await cell.push_file(FILE)
    await cell.run_next()
    assert (await environments.stop(await load(cell), force=True)).state == "stopped"
    assert (await cell.statuses(family))["end"] == "manual"
    await cell.push_file(FILE.replace("on_stop: end, ", ""))
    await cell.run_next()
    assert (await environments.stop(await load(cell))).state == "stopped"


async def test_an_environment_stays_if_its_stop_job_fails(cell: MemoryCell, environments: Environments) -> None:
    await cell.push_file(FILE)
    await cell.run_next()
    await environments.stop(await load(cell))
    _, token = await cell.start()
    await cell.put(token, "failed", reason="script_failure")
    assert (await load(cell)).state == "available"


async def test_an_environment_is_stopped_when_its_time_is_over(cell: MemoryCell, environments: Environments) -> None:
    family = await cell.push_file(FILE)
    await cell.run_next()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(environments.watch(stop))
        await cell.clock.advance(3500)
        assert (await load(cell)).state == "available"
        await cell.clock.advance(200)
        await settle()
        environment = await load(cell)
        assert (environment.state, environment.auto_stop_at) == ("stopping", None)
        stop.set()
    assert (await cell.statuses(family))["end"] == "pending"


async def test_a_crash_before_it_is_marked(
    cell: MemoryCell, environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = await cell.push_file(FILE)
    await cell.run_next()
    await cell.clock.advance(3700)

    async def fail(*_: object) -> None:
        raise StoreError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(cell.store.deployments, "change_environment", fail)
        with pytest.raises(StoreError):
            await environments.stop_due()
    assert (await cell.statuses(family))["end"] == "pending"
    assert await environments.stop_due() == 1
    assert (await load(cell)).state == "stopping"
    await cell.run_next()
    assert (await load(cell)).state == "stopped"
    assert await environments.stop_due() == 0


async def test_only_with_an_action(cell: MemoryCell, environments: Environments) -> None:
    await cell.push_file(FILE.replace("on_stop: end, ", ""))
    await cell.run_next()
    await cell.store.deployments.change_environment(
        (await load(cell)).id, lambda row: replace(row, auto_stop_setting="with_action")
    )
    await cell.clock.advance(3700)
    assert await environments.stop_due() == 1
    environment = await load(cell)
    assert (environment.state, environment.auto_stop_at) == ("available", None)


async def test_the_branch_of_the_last_deployment_is_deleted(cell: MemoryCell, environments: Environments) -> None:
    family = await cell.push_file(FILE, ref="refs/heads/side")
    await cell.run_next()
    await environments.stop_of_branch(cell.project, "main")
    assert (await load(cell)).state == "available"
    for _ in range(2):  # again after a crash
        await environments.stop_of_branch(cell.project, "side")
        assert (await load(cell)).state == "stopping"
    assert (await cell.statuses(family))["end"] == "pending"


async def test_a_url_from_a_dotenv_report(cell: MemoryCell) -> None:
    await cell.push_file('deploy: {script: [make], environment: {name: review/a, url: "https://$HOST"}}')
    job, token = await cell.start()
    await cell.store.jobs.put_artifact(an_artifact(job.id, "dotenv", variables={"HOST": "dynamic.example"}))
    await cell.put(token, "success")
    assert (await load(cell)).external_url == "https://dynamic.example"
