"""Environments and deployments, which every store must keep together with the jobs that cause their changes."""

from typing import Any

import pytest
from msgspec.structs import replace

from remuda.cell.core.jobs import lifecycle
from remuda.cell.core.jobs.family import Outcome
from remuda.cell.errors import ConflictError
from remuda.cell.store.ports import Store
from remuda.cell.values import Family, JobFilter, Page, Project
from remuda.cell.values.changes import Applied, Changes
from remuda.cell.values.deployments import Deployment, DeploymentFilter, Environment, EnvironmentFilter
from remuda.cell.values.jobs import ExternalStatus
from remuda.model.job import JobId, JobState
from remuda.pipeline import JobSpec
from remuda.pipeline.spec import Environment as Keyword
from remuda.testing.builders import NOW, SHA, a_pipeline, a_spec, new_jobs

ALL = Page(size=100)


async def push(store: Store, project: Project, *keywords: Keyword, **spec: Any) -> Family:
    specs = [a_spec(f"job{number}", environment=keyword, **spec) for number, keyword in enumerate(keywords, 1)]
    return await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), new_jobs(*specs), now=NOW)


async def end(store: Store, family: Family, job_id: JobId, *, succeeded: bool = True, **variables: str) -> Applied:
    """Run a pending job to its end, ten seconds after its creation."""

    def decide(stored: Family) -> Changes:
        running = replace(
            stored, jobs=tuple(replace(j, state=JobState.RUNNING) if j.id == job_id else j for j in stored.jobs)
        )
        changes = lifecycle.finish(running, job_id, 0, Outcome(succeeded=succeeded), NOW + 10)
        return replace(changes, url_variables=variables)

    return await store.pipelines.change_family(family.pipeline.id, decide)


async def list_deployments(store: Store, project: Project, **selection: Any) -> list[Deployment]:
    deployments, total = await store.deployments.list_deployments(
        ALL, DeploymentFilter(project_id=project.id, **selection)
    )
    assert total == len(deployments)
    return list(deployments)


async def test_a_pipeline_creates_environments_and_deployments(store: Store, project: Project) -> None:
    family = await push(
        store,
        project,
        Keyword(name="review/a", deployment_tier="testing"),
        Keyword(name="review/a", action="stop"),
        Keyword(name="production"),
    )
    environments, total = await store.deployments.list_environments(ALL, EnvironmentFilter(project_id=project.id))
    assert total == 2
    assert sorted((row.name, row.tier, row.state) for row in environments) == [
        ("production", "production", "available"),
        ("review/a", "testing", "available"),
    ]
    deployments = await list_deployments(store, project)
    assert [(row.iid, row.job_id, row.sha) for row in deployments] == [
        (2, family.jobs[2].id, SHA),
        (1, family.jobs[0].id, SHA),
    ]
    await push(store, project, Keyword(name="production"))
    assert (await store.deployments.list_environments(ALL, EnvironmentFilter(project_id=project.id)))[1] == 2
    assert [row.iid for row in await list_deployments(store, project)] == [3, 2, 1]


async def test_the_end_of_a_job_changes_its_environment(store: Store, project: Project) -> None:
    start = Keyword(name="review", url="https://$HOST.example/$CI_JOB_ID", auto_stop_in="1 day", on_stop="job2")
    family = await push(store, project, start, Keyword(name="review", action="stop"))
    await end(store, family, family.jobs[0].id, HOST="a")
    environment = await store.deployments.find_environment(project.id, "review")
    assert environment is not None
    assert environment.external_url == f"https://a.example/{family.jobs[0].id}"
    assert environment.auto_stop_at == NOW + 10 + 86_400
    assert list(await store.deployments.list_due_environments(NOW + 86_400, limit=10)) == []
    assert list(await store.deployments.list_due_environments(NOW + 90_000, limit=10)) == [environment]
    last = await store.deployments.find_last_deployment(environment)
    assert last is not None
    assert last.job_id == family.jobs[0].id
    await end(store, family, family.jobs[1].id)
    stopped = await store.deployments.load_environment(environment.id)
    assert stopped is not None
    assert (stopped.state, stopped.auto_stop_at) == ("stopped", None)


async def test_a_retry_is_a_new_deployment(store: Store, project: Project) -> None:
    family = await push(store, project, Keyword(name="production"))
    await end(store, family, family.jobs[0].id)
    applied = await store.pipelines.change_family(
        family.pipeline.id, lambda stored: lifecycle.retry(stored, family.jobs[0].id, NOW + 20)
    )
    retried = next(job for job in applied.jobs if job.id != family.jobs[0].id)
    assert [(row.iid, row.job_id) for row in await list_deployments(store, project)] == [
        (2, retried.id),
        (1, family.jobs[0].id),
    ]
    assert await store.deployments.find_deployment_of_job(retried.id) is not None


async def test_select_and_order_deployments(store: Store, project: Project) -> None:
    family = await push(store, project, Keyword(name="a"), Keyword(name="b"), Keyword(name="c", action="verify"))
    first, second, _ = family.jobs
    await end(store, family, first.id, succeeded=False)
    environment = await store.deployments.find_environment(project.id, "b")
    assert environment is not None
    third = await store.deployments.add_deployment(
        Deployment(
            id=0,
            iid=0,
            project_id=project.id,
            environment_id=environment.id,
            ref="v1",
            tag=True,
            sha=SHA,
            created_at=NOW + 5,
            status="success",
            updated_at=NOW + 20,
            finished_at=NOW + 20,
        ),
        after=lambda row: replace(row, state="stopped"),
    )
    assert third.iid == 3
    stored = await store.deployments.load_environment(environment.id)
    assert stored is not None
    assert stored.state == "stopped"

    async def iids(**selection: Any) -> list[int]:
        return [row.iid for row in await list_deployments(store, project, **selection)]

    assert await iids(environment_id=environment.id) == [3, 2]
    assert await iids(statuses=("failed",)) == [1]
    assert await iids(statuses=("created", "success")) == [3, 2]
    assert await iids(statuses=("blocked",)) == []
    assert await iids(updated_after=NOW + 1) == [3, 1]
    assert await iids(updated_before=NOW + 1) == [2]
    assert await iids(finished_after=NOW + 15) == [3]
    assert await iids(finished_before=NOW + 15) == [1]
    assert await iids(order_by="updated_at", ascending=True) == [2, 1, 3]
    assert await iids(order_by="ref") == [3, 2, 1]
    assert await iids(order_by="iid", ascending=True) == [1, 2, 3]
    assert (await iids(order_by="finished_at", statuses=("failed", "success"))) == [3, 1]
    changed = await store.deployments.change_deployment(
        third.id, lambda row: replace(row, status="failed"), after=lambda row: replace(row, state="available")
    )
    assert changed is not None
    assert await iids(statuses=("failed",)) == [3, 1]
    assert second.id


async def test_removing(store: Store, project: Project) -> None:
    family = await push(store, project, Keyword(name="a"), Keyword(name="b"), resource_group="x")
    environment = await store.deployments.find_environment(project.id, "a")
    assert environment is not None
    assert await store.deployments.remove_environment(environment.id)
    assert not await store.deployments.remove_environment(environment.id)
    assert len(await list_deployments(store, project)) == 1
    await end(store, family, family.jobs[0].id)  # its environment does not exist any more
    await store.pipelines.remove_pipeline(family.pipeline.id)
    assert await list_deployments(store, project) == []
    assert await store.deployments.find_environment(project.id, "b") is not None
    assert await store.deployments.remove_of_project(project.id) == 2
    assert await store.deployments.find_environment(project.id, "b") is None
    assert list(await store.deployments.list_resource_groups(project.id)) == []


async def test_names_are_unique_in_a_project(store: Store, project: Project) -> None:
    new = Environment(id=0, project_id=project.id, name="Prod", slug="prod", created_at=NOW, updated_at=NOW)
    added = await store.deployments.add_environment(new)
    assert added.id
    with pytest.raises(ConflictError):
        await store.deployments.add_environment(new)

    async def names(**selection: Any) -> list[str]:
        page, _ = await store.deployments.list_environments(ALL, EnvironmentFilter(project_id=project.id, **selection))
        return [row.name for row in page]

    assert await names(search="pRO") == ["Prod"]
    assert await names(name="prod") == []
    assert await names(states=("stopped", "stopping")) == []
    await store.deployments.change_environment(added.id, lambda row: replace(row, state="stopping"))
    assert await names(states=("stopped", "stopping")) == ["Prod"]


@pytest.mark.parametrize(
    ("mode", "third_state", "fourth_state"),
    [
        ("unordered", "pending", "waiting_for_resource"),
        ("oldest_first", "waiting_for_resource", "waiting_for_resource"),
        ("newest_first", "waiting_for_resource", "pending"),
        ("newest_ready_first", "waiting_for_resource", "pending"),
    ],
)
async def test_the_process_mode_of_a_resource_group(
    store: Store, project: Project, mode: str, third_state: str, fourth_state: str
) -> None:
    async def add(*specs: JobSpec) -> Family:
        return await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), new_jobs(*specs), now=NOW)

    async def resume_both() -> list[str]:
        for family in (third, fourth):
            await store.pipelines.change_family(family.pipeline.id, lambda stored: lifecycle.resume(stored, NOW + 20))
        jobs = await store.jobs.load_jobs([third.jobs[0].id, fourth.jobs[0].id])
        return [job.state.value for job in jobs]

    deploy = a_spec("deploy", resource_group="prod", stage_index=2)
    first = await add(deploy)
    [group] = await store.deployments.list_resource_groups(project.id)
    assert (group.key, group.process_mode) == ("prod", "unordered")
    assert await store.deployments.put_resource_group(replace(group, process_mode=mode))
    second = await add(a_spec("build"), deploy)
    third, fourth = await add(deploy), await add(deploy)
    waiting = await store.jobs.list_jobs_of_group(project.id, "prod", [JobState.WAITING_FOR_RESOURCE])
    assert [job.id for job in waiting] == [third.jobs[0].id, fourth.jobs[0].id]
    await end(store, first, first.jobs[0].id)
    assert await resume_both() == [third_state, fourth_state]
    if mode == "oldest_first":  # until the second, which is not ready, cannot come any more
        await store.pipelines.change_family(second.pipeline.id, lambda stored: lifecycle.cancel_all(stored, NOW + 30))
        assert await resume_both() == ["pending", "waiting_for_resource"]


async def test_a_pipeline_of_another_system(store: Store, project: Project) -> None:
    new = a_pipeline(project_id=project.id, source="external", ref="main")
    status = ExternalStatus(
        id=await store.pipelines.draw_status_id(),
        name="ci",
        state=JobState.RUNNING,
        created_at=NOW,
        updated_at=NOW,
    )
    added = await store.pipelines.add_external_pipeline(replace(new, external=(status,), status="running"))
    assert added.external == (status,)
    assert await store.pipelines.add_external_pipeline(new) == added
    other = await store.pipelines.add_external_pipeline(replace(new, ref="side"))
    assert other.id != added.id
    assert await store.pipelines.load_pipeline(added.id) == added


async def test_select_jobs_of_several_pipelines(store: Store, project: Project) -> None:
    families = [
        await store.pipelines.add_pipeline(
            a_pipeline(project_id=project.id), new_jobs(a_spec("a", stage="x"), a_spec("b")), now=NOW
        )
        for _ in range(3)
    ]
    ids = [family.pipeline.id for family in families[1:]]

    async def names(**selection: Any) -> list[str]:
        jobs, total = await store.jobs.list_jobs(
            Page(ascending=True), JobFilter(project_id=project.id, pipeline_ids=ids, **selection)
        )
        assert total == len(jobs)
        return [job.name for job in jobs]

    assert await names() == ["a", "b", "a", "b"]
    assert await names(name="a") == ["a", "a"]
    assert await names(stage="test") == ["b", "b"]
    assert await names(name="a", stage="test") == []
    assert await names(name="a", ref="main") == ["a", "a"]
    assert await names(ref="ma") == []
    assert await store.jobs.list_jobs(ALL, JobFilter(pipeline_ids=[])) == ([], 0)
