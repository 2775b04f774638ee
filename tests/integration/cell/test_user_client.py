"""The client of the command line against a real cell: it starts, follows and lints pipelines."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

from remuda.testing.waiting import wait_until
from remuda.wire.user_api import NewPipelineRequest
from remuda.wire.user_client import RefusedError, UserApiError, UserClient

PARENT = """
go:
  trigger: {include: child.yml, strategy: depend}
ask:
  script: [x]
  when: manual
"""
CHILD = "c:\n  script: [x]\n"


async def until_bridge(cell: ServedCell, pipeline_id: int, condition: Callable[[Any], bool]) -> None:
    """Wait until the only trigger job of a pipeline fulfils a condition."""
    path = f"/projects/root%2Fapp/pipelines/{pipeline_id}/bridges"
    await asyncio.to_thread(wait_until, lambda: condition(cell.api("GET", path).json()[0]), "the trigger job")


async def test_a_pipeline_from_its_request_to_its_children(cell: ServedCell, runner: ScriptedRunner) -> None:
    project_id = await asyncio.to_thread(cell.new_project, "app", **{"ci.yml": PARENT, "child.yml": CHILD})
    async with UserClient(cell.url, cell.token) as client:
        request = NewPipelineRequest(ref="main", file="ci.yml", variables={"A": "1"}, source="web")
        pipeline = await client.create_pipeline(project_id, request)
        assert (pipeline.source, pipeline.ref) == ("web", "main")
        [ask] = await client.pipeline_jobs(project_id, pipeline.id)
        await until_bridge(cell, pipeline.id, lambda bridge: bridge["downstream_pipeline"] is not None)
        child = (await client.pipeline_bridges(project_id, pipeline.id))[0].downstream_pipeline
        assert child is not None
        assert [job.name for job in await client.pipeline_jobs(project_id, child.id)] == ["c"]
        assert (await client.play(project_id, ask.id, {"WHO": "me"})).status == "pending"
        taken = {job["job_info"]["name"]: job for job in [await asyncio.to_thread(runner.take) for _ in range(2)]}
        sent = {variable["key"]: variable["value"] for variable in taken["ask"]["variables"]}
        assert (sent["A"], sent["WHO"]) == ("1", "me")
        await asyncio.to_thread(runner.put, taken["c"], "success")
        assert (await client.pipeline(project_id, child.id)).status == "success"


async def test_trigger_jobs_are_canceled_and_retried_by_id(cell: ServedCell) -> None:
    project_id = await asyncio.to_thread(cell.new_project, "app", PARENT, **{"child.yml": CHILD})
    async with UserClient(cell.url, cell.token) as client:
        [pipeline] = await client.pipelines(project_id)
        [bridge] = await client.pipeline_bridges(project_id, pipeline.id)
        path = f"/api/v4/projects/{project_id}/jobs/{bridge.id}"
        await client.call("POST", f"{path}/cancel")
        await until_bridge(cell, pipeline.id, lambda bridge: bridge["status"] == "canceled")
        assert (await client.call("POST", f"{path}/retry"))["id"] != bridge.id
        [newest] = await client.pipeline_bridges(project_id, pipeline.id)
        assert newest.id != bridge.id


async def test_a_refusal_contains_the_mistakes(cell: ServedCell) -> None:
    project_id = await asyncio.to_thread(cell.new_project, "app", CHILD)
    async with UserClient(cell.url, cell.token) as client:
        with pytest.raises(RefusedError) as refused:
            await client.create_pipeline(project_id, NewPipelineRequest(ref="main", text="a:\n  scrip: x\n"))
        assert (2, "a:scrip") in [(mistake.line, mistake.key) for mistake in refused.value.mistakes]
        assert str(refused.value).startswith(".gitlab-ci.yml:")
        with pytest.raises(RefusedError, match="no branch or tag 'nowhere'") as refused:
            await client.create_pipeline(project_id, NewPipelineRequest(ref="nowhere"))
        assert refused.value.mistakes == ()


async def test_a_rate_limit_is_not_a_refusal(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", requests_per_minute=1) as cell:
        async with UserClient(cell.url, cell.token) as client:
            await client.call("GET", "/api/v4/version")
            with pytest.raises(UserApiError, match="try again in") as caught:
                await client.call("GET", "/api/v4/version")
    assert not isinstance(caught.value, RefusedError)


async def test_lint(cell: ServedCell) -> None:
    project_id = await asyncio.to_thread(cell.new_project, "app", CHILD)
    async with UserClient(cell.url, cell.token) as client:
        good = await client.lint(project_id, CHILD, include_jobs=True)
        assert (good.valid, [job["name"] for job in good.jobs]) == (True, ["c"])
        assert good.merged_yaml
        bad = await client.lint(project_id, "a:\n  scrip: x\n", ref="main")
        assert bad.valid is False
        assert len(bad.mistakes) == len(bad.errors) > 0


async def test_tag_runner(cell: ServedCell) -> None:
    async with UserClient(cell.url, cell.token) as client:
        runner = await client.add_instance_runner("mine", tags=["a"])
        await client.tag_runner(runner.id, ["b", "c"])
        assert (await client.call("GET", f"/api/v4/runners/{runner.id}"))["tag_list"] == ["b", "c"]
