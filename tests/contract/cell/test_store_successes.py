"""Whose artifacts others find by a ref and a name."""

from msgspec.structs import replace

from remuda.cell.ports import Changes, Store
from remuda.cell.values import Job
from remuda.model.job import JobState
from remuda.testing.builders import NOW, a_pipeline, a_project, a_spec, new_jobs


async def test_the_newest_success_of_a_name_on_a_ref(store: Store) -> None:
    project = await store.add_project(a_project())
    other = await store.add_project(a_project(path="acme/other"))

    async def ended(state: JobState, ref: str = "main", project_id: int = project.id) -> Job:
        pipeline = a_pipeline(project_id=project_id, ref=ref)
        family = await store.add_pipeline(pipeline, new_jobs(a_spec("build"), a_spec("test")), now=NOW)
        job = replace(family.jobs[0], state=state)
        await store.change_family(family.pipeline.id, lambda _: Changes(jobs=(job,)))
        return job

    assert await store.newest_success(project.id, "main", "build") is None
    await ended(JobState.SUCCESS)
    newest = await ended(JobState.SUCCESS)
    await ended(JobState.FAILED)
    await ended(JobState.SUCCESS, ref="other")
    await ended(JobState.SUCCESS, project_id=other.id)
    assert await store.newest_success(project.id, "main", "build") == newest
    assert await store.newest_success(project.id, "main", "test") is None
