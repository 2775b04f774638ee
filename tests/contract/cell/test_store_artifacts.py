"""Contract tests of the store: changing, deleting, erasing and listing artifacts, and the newest job that has them."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from remuda.cell.store.ports import Store
from remuda.cell.values import Artifact, Job
from remuda.cell.values.changes import Changes, JobArtifacts
from remuda.model.job import JobId, JobState
from remuda.testing.builders import NOW, a_pipeline, a_project, a_spec, an_artifact, new_jobs

TYPES = ("archive", "dotenv", "junit")


@pytest.fixture
async def jobs(store: Store) -> Sequence[Job]:
    """Two jobs with three artifacts each."""
    project = await store.projects.add_project(a_project())
    family = await store.pipelines.add_pipeline(
        a_pipeline(project_id=project.id), new_jobs(a_spec("one"), a_spec("two")), now=1.0
    )
    for number, job in enumerate(family.jobs):
        for index, kind in enumerate(TYPES):
            await store.jobs.put_artifact(an_artifact(job.id, kind, look_at=10.0 * index + number if index else None))
    return family.jobs


async def test_a_job_and_its_artifacts_change_together(store: Store, jobs: Sequence[Job]) -> None:
    def decide(job: Job, artifacts: Sequence[Artifact]) -> JobArtifacts:
        assert job == jobs[0]
        assert [artifact.type for artifact in artifacts] == ["archive", "dotenv", "junit"]
        remaining = replace(artifacts[2], look_at=None)
        return JobArtifacts(job=replace(job, artifacts_gone=True, erased_at=5.0), artifacts=(remaining,))

    removed = await store.jobs.change_artifacts(jobs[0].id, decide)
    assert [artifact.blob for artifact in removed] == [
        f"artifacts/{jobs[0].id}/archive",
        f"artifacts/{jobs[0].id}/dotenv",
    ]
    assert await store.jobs.list_artifacts(jobs[0].id) == [an_artifact(jobs[0].id, "junit")]
    stored = await store.jobs.load_job(jobs[0].id)
    assert stored is not None
    assert (stored.artifacts_gone, stored.erased_at) == (True, 5.0)
    assert [artifact.type for artifact in await store.jobs.list_artifacts(jobs[1].id)] == sorted(TYPES)


async def test_artifacts_of_several_jobs_are_listed_at_once(store: Store, jobs: Sequence[Job]) -> None:
    artifacts = await store.jobs.list_artifacts_of([jobs[1].id, jobs[0].id, JobId(10**9)])
    assert [(artifact.job_id, artifact.type) for artifact in artifacts] == [
        (job.id, kind) for job in jobs for kind in TYPES
    ]
    assert await store.jobs.list_artifacts_of([]) == []


async def test_replaced_attempts_of_a_pipeline_are_listed(store: Store, jobs: Sequence[Job]) -> None:
    retried = replace(jobs[0], retried=True)
    await store.jobs.change_job(jobs[0].id, lambda _: retried)
    pipeline_id = jobs[0].pipeline_id
    assert await store.jobs.list_replaced_attempts(pipeline_id, limit=5) == [retried]
    assert await store.jobs.list_replaced_attempts(pipeline_id, limit=0) == []


async def test_a_decision_may_decline(store: Store, jobs: Sequence[Job]) -> None:
    assert await store.jobs.change_artifacts(jobs[0].id, lambda job, artifacts: None) == ()
    assert (
        await store.jobs.change_artifacts(JobId(10**9), lambda job, artifacts: JobArtifacts(job=job, artifacts=()))
        == ()
    )
    assert len(await store.jobs.list_artifacts(jobs[0].id)) == 3


async def test_a_decision_that_fails_changes_nothing(store: Store, jobs: Sequence[Job]) -> None:
    def fail(job: Job, artifacts: Sequence[Artifact]) -> JobArtifacts:
        raise ValueError

    with pytest.raises(ValueError):
        await store.jobs.change_artifacts(jobs[0].id, fail)
    assert len(await store.jobs.list_artifacts(jobs[0].id)) == 3


async def test_due_artifacts_are_ordered_and_limited(store: Store, jobs: Sequence[Job]) -> None:
    async def due(now: float, limit: int = 10) -> list[tuple[int, str]]:
        return [(artifact.job_id, artifact.type) for artifact in await store.jobs.list_due_artifacts(now, limit=limit)]

    first, second = (job.id for job in jobs)
    assert await due(9) == []
    assert await due(10) == [(first, "dotenv")]
    everything = [(first, "dotenv"), (second, "dotenv"), (first, "junit"), (second, "junit")]
    assert await due(100) == everything
    assert await due(100, limit=3) == everything[:3]

    def put_off(job: Job, artifacts: Sequence[Artifact]) -> JobArtifacts:
        return JobArtifacts(job=job, artifacts=tuple(replace(artifact, look_at=50.0) for artifact in artifacts))

    await store.jobs.change_artifacts(first, put_off)
    assert await due(49) == [(second, "dotenv"), (second, "junit")]
    assert await due(50) == [(second, "dotenv"), (second, "junit"), *((first, kind) for kind in TYPES)]


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
