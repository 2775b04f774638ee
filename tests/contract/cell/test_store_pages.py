"""Contract tests of the store: paging by ids, and removing a pipeline with everything that belongs to it."""

from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace

from remuda.cell.store.ports import Store
from remuda.cell.values import Family, JobFilter, Page, StepResult
from remuda.cell.values.changes import Changes, Retry
from remuda.cell.values.people import RunnerFilter
from remuda.model.job import JobId, PipelineId
from remuda.testing.builders import a_pipeline, a_project, a_runner, a_spec, an_artifact, new_jobs


@pytest.fixture
async def family(store: Store) -> Family:
    """A project with a pipeline of five jobs; there are two more projects and two more pipelines."""
    projects = [await store.projects.add_project(a_project(path=f"acme/{name}")) for name in ("one", "two", "three")]
    specs = new_jobs(*(a_spec(f"job{number}") for number in range(5)))
    first = await store.pipelines.add_pipeline(a_pipeline(project_id=projects[0].id), specs, now=1.0)
    for _ in range(2):
        await store.pipelines.add_pipeline(a_pipeline(project_id=projects[0].id), new_jobs(a_spec("other")), now=2.0)
    return first


async def walk(store: Store, family: Family, kind: str, page: Page) -> list[int]:
    """Return all ids of a list, read page by page; each page begins after the last id of the one before."""
    ids: list[int] = []
    project_id = family.pipeline.project_id
    while True:
        rows: Sequence[object]
        match kind:
            case "projects":
                rows, total = await store.projects.list_projects(page)
            case "pipelines":
                rows, total = await store.pipelines.list_pipelines(project_id, page)
            case "users":
                rows, total = await store.people.list_users(page)
            case _:
                rows, total = await store.jobs.list_jobs(page, JobFilter(project_id=project_id))
        assert total == 0
        assert len(rows) <= page.size
        if not rows:
            return ids
        ids += [getattr(row, "id") for row in rows]  # noqa: B009 - of four kinds, all with ids
        page = replace(page, after=ids[-1]) if page.ascending else replace(page, before=ids[-1])


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(("kind", "count"), [("projects", 3), ("pipelines", 3), ("jobs", 7), ("users", 1)])
async def test_paging_by_id_returns_every_row_once(
    store: Store, family: Family, kind: str, count: int, size: int
) -> None:
    up = await walk(store, family, kind, Page(size=size, ascending=True, counted=False))
    down = await walk(store, family, kind, Page(size=size, ascending=False, counted=False))
    assert len(up) == count
    assert up == sorted(up)
    assert down == up[::-1]


async def test_rows_added_meanwhile_do_not_shift_pages(store: Store, family: Family) -> None:
    page = Page(size=2, ascending=False, counted=False)
    first, _ = await store.projects.list_projects(page)
    added = await store.projects.add_project(a_project(path="acme/four"))
    rest, _ = await store.projects.list_projects(replace(page, before=first[-1].id))
    assert added not in rest
    assert {project.id for project in first}.isdisjoint(project.id for project in rest)


async def test_id_bounds_work_with_numbered_pages(store: Store, family: Family) -> None:
    ids = [job.id for job in family.jobs]
    jobs, total = await store.jobs.list_jobs(
        Page(after=ids[0], before=ids[4], ascending=True), JobFilter(project_id=family.pipeline.project_id)
    )
    assert ([job.id for job in jobs], total) == (ids[1:4], 3)


async def test_removing_a_pipeline_removes_its_jobs_results_and_artifacts(store: Store, family: Family) -> None:
    job = family.jobs[0]
    again = replace(job, id=JobId(0))
    retried = replace(job, retried=True)
    applied = await store.pipelines.change_family(
        family.pipeline.id, lambda _: Changes(jobs=(retried,), retries=(Retry(of=job.id, job=again),))
    )
    new = next(row for row in applied.jobs if row.id != job.id)
    await store.jobs.add_results(job.id, [StepResult(job_id=job.id, seq=1, body=msgspec.Raw(b"{}"))], limit_bytes=1000)
    await store.jobs.put_artifact(an_artifact(job.id))
    others, _ = await store.pipelines.list_pipelines(family.pipeline.project_id, Page())

    assert await store.pipelines.remove_pipeline(family.pipeline.id)
    assert not await store.pipelines.remove_pipeline(family.pipeline.id)
    assert await store.pipelines.load_pipeline(family.pipeline.id) is None
    assert await store.pipelines.load_family(family.pipeline.id) is None
    for job_id in (job.id, new.id):
        assert await store.jobs.load_job(job_id) is None
        assert await store.jobs.load_spec(job_id) is None
        assert await store.jobs.list_results(job_id) == []
        assert await store.jobs.list_artifacts(job_id) == []
    remaining, _ = await store.pipelines.list_pipelines(family.pipeline.project_id, Page())
    assert [pipeline.id for pipeline in remaining] == [
        pipeline.id for pipeline in others if pipeline.id != family.pipeline.id
    ]
    assert len((await store.jobs.list_jobs(Page(), JobFilter(project_id=family.pipeline.project_id)))[0]) == 2
    assert not await store.pipelines.remove_pipeline(PipelineId(10**9))


async def test_a_tag_filter_with_a_null_byte_matches_no_runner(store: Store) -> None:
    await store.runners.add_runner(a_runner(tags=("linux",)))
    assert await store.runners.list_runners(Page(), RunnerFilter(tags=("linux",))) != ([], 0)
    assert await store.runners.list_runners(Page(), RunnerFilter(tags=("\0",))) == ([], 0)
