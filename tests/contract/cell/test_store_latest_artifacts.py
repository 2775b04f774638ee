"""Contract tests of the store: the newest successful job by ref and name, whose artifacts others download."""

from msgspec.structs import replace

from remuda.cell.store.ports import Store
from remuda.cell.values import Job
from remuda.cell.values.changes import Changes
from remuda.model.job import JobState
from remuda.testing.builders import NOW, a_pipeline, a_project, a_spec, new_jobs


async def test_the_newest_success_of_a_name_on_a_ref(store: Store) -> None:
    project = await store.projects.add_project(a_project())
    other = await store.projects.add_project(a_project(path="acme/other"))

    async def add_job(state: JobState, ref: str = "main", project_id: int = project.id) -> Job:
        pipeline = a_pipeline(project_id=project_id, ref=ref)
        family = await store.pipelines.add_pipeline(pipeline, new_jobs(a_spec("build"), a_spec("test")), now=NOW)
        job = replace(family.jobs[0], state=state)
        await store.pipelines.change_family(family.pipeline.id, lambda _: Changes(jobs=(job,)))
        return job

    assert await store.jobs.find_newest_success(project.id, "main", "build") is None
    await add_job(JobState.SUCCESS)
    newest = await add_job(JobState.SUCCESS)
    await add_job(JobState.FAILED)
    await add_job(JobState.SUCCESS, ref="other")
    await add_job(JobState.SUCCESS, project_id=other.id)
    assert await store.jobs.find_newest_success(project.id, "main", "build") == newest
    assert await store.jobs.find_newest_success(project.id, "main", "test") is None


async def test_the_newest_success_of_a_branch_or_a_tag_of_the_same_name(store: Store) -> None:
    project = await store.projects.add_project(a_project())
    newest: dict[bool, Job] = {}
    for is_tag in (False, True):
        pipeline = a_pipeline(project_id=project.id, ref="main", tag=is_tag)
        family = await store.pipelines.add_pipeline(pipeline, new_jobs(a_spec("build")), now=NOW)
        newest[is_tag] = job = replace(family.jobs[0], state=JobState.SUCCESS)
        await store.pipelines.change_family(family.pipeline.id, lambda _, job=job: Changes(jobs=(job,)))  # type: ignore[misc]
    assert await store.jobs.find_newest_success(project.id, "main", "build") == newest[True]
    for is_tag, job in newest.items():
        assert await store.jobs.find_newest_success(project.id, "main", "build", tag=is_tag) == job


async def test_is_ref_seen(store: Store) -> None:
    project = await store.projects.add_project(a_project())
    other = await store.projects.add_project(a_project(path="acme/other"))
    await store.projects.put_seen_refs(project.id, {"refs/heads/main": "a" * 40, "refs/tags/v1": "b" * 40})
    assert await store.projects.is_ref_seen(project.id, "refs/heads/main")
    assert not await store.projects.is_ref_seen(project.id, "refs/heads/v1")
    assert not await store.projects.is_ref_seen(other.id, "refs/heads/main")
    await store.projects.put_seen_refs(project.id, {"refs/heads/main": None})
    assert not await store.projects.is_ref_seen(project.id, "refs/heads/main")
    assert not await store.projects.is_ref_seen(project.id, "refs/heads/\0")
