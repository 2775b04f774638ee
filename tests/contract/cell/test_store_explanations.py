"""Contract tests of the store queries for explanations, policies and demand, of paging, and of removing a pipeline."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from remuda.cell.store.ports import Store
from remuda.cell.values import Family, Job, JobFilter, Page, Project, RunnerManager, StepResult
from remuda.cell.values.changes import Changes, Retry
from remuda.cell.values.people import RunnerFilter
from remuda.model.job import OCCUPYING, JobId, JobState, PipelineId, ProjectId, RunnerId
from remuda.testing.builders import NOW, a_pipeline, a_project, a_runner, a_spec, an_artifact, new_jobs


async def a_stored_job(store: Store, project: Project, **spec: Any) -> Job:
    family = await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), new_jobs(a_spec(**spec)), now=NOW)
    return family.jobs[0]


class TestSettings:
    async def test_several_at_once(self, store: Store) -> None:
        await store.settings.put_setting("a", "1")
        await store.settings.put_setting("b", "2")
        assert await store.settings.load_settings(["a", "b", "c"]) == {"a": "1", "b": "2"}
        assert await store.settings.load_settings([]) == {}

    async def test_a_change_is_made_from_the_old_value(self, store: Store) -> None:
        seen: list[str | None] = []

        def append_x(old: str | None) -> str | None:
            seen.append(old)
            return (old or "") + "x"

        assert await store.settings.change_setting("a", append_x) == "x"
        assert await store.settings.change_setting("a", append_x) == "xx"
        assert seen == [None, "x"]
        assert await store.settings.change_setting("a", lambda old: None) is None
        assert await store.settings.load_setting("a") == "xx"

    async def test_a_decision_that_fails_changes_nothing(self, store: Store) -> None:
        await store.settings.put_setting("a", "1")

        def refuse(old: str | None) -> str | None:
            raise ValueError(old)

        with pytest.raises(ValueError):
            await store.settings.change_setting("a", refuse)
        assert await store.settings.load_setting("a") == "1"


async def test_results_in_pages(store: Store, project: Project) -> None:
    job = await a_stored_job(store, project)
    results = [StepResult(job_id=job.id, seq=number, body=msgspec.Raw(b"{}")) for number in range(1, 8)]
    await store.jobs.add_results(job.id, results, limit_bytes=100)

    async def numbers(**options: Any) -> list[int]:
        return [result.seq for result in await store.jobs.list_results(job.id, **options)]

    assert await numbers() == [1, 2, 3, 4, 5, 6, 7]
    assert await numbers(after=5) == [6, 7]
    assert await numbers(after=2, limit=3) == [3, 4, 5]
    assert await numbers(limit=2) == [1, 2]
    assert await numbers(after=7) == []
    assert await store.jobs.list_results(JobId(99), after=1, limit=1) == []


async def test_results_up_to_a_limit(store: Store, project: Project) -> None:
    job = await a_stored_job(store, project)

    def result(number: int, body: bytes = b'{"a": 1}') -> StepResult:
        return StepResult(job_id=job.id, seq=number, body=msgspec.Raw(body))

    async def add(*results: StepResult) -> int:
        return await store.jobs.add_results(job.id, results, limit_bytes=20)

    assert await add(result(1)) == 2
    assert await add(result(1), result(2)) == 3
    assert await add(result(3), result(4)) == 5, "results above the limit are acknowledged, but not stored"
    for _ in range(2):
        assert await add(result(5), result(6)) == 7
    stored = await store.jobs.list_results(job.id)
    assert [(row.seq, row.total_bytes, row.is_note) for row in stored] == [(1, 8, False), (2, 16, False), (3, 0, True)]
    assert msgspec.json.decode(stored[2].body)["event"] == "cut"


async def test_managers_of_all_runners(store: Store) -> None:
    assert await store.runners.list_all_managers() == []
    runners = [await store.runners.add_runner(a_runner(token_hash=str(number) * 64)) for number in range(2)]
    managers = [
        RunnerManager(runner_id=runner.id, system_id=system_id, contacted_at=NOW, capacity=4)
        for runner in runners
        for system_id in ("r_a", "s_b")
    ]
    for manager in reversed(managers):
        await store.runners.put_manager(manager)
    assert await store.runners.list_all_managers() == managers
    await store.runners.remove_runner(runners[0].id)
    assert await store.runners.list_all_managers() == managers[2:]


async def test_find_first_job_of_a_resource_group(store: Store, project: Project) -> None:
    first = await a_stored_job(store, project, resource_group="production")
    second = await a_stored_job(store, project, resource_group="production")
    assert (first.state, second.state) == (JobState.PENDING, JobState.WAITING_FOR_RESOURCE)
    await a_stored_job(store, project, resource_group="production")
    assert await store.jobs.find_first_of_group(project.id, "production", OCCUPYING) == first
    assert await store.jobs.find_first_of_group(project.id, "production", [JobState.WAITING_FOR_RESOURCE]) == second
    assert await store.jobs.find_first_of_group(project.id, "staging", OCCUPYING) is None
    assert await store.jobs.find_first_of_group(ProjectId(99), "production", OCCUPYING) is None


async def test_upcoming_jobs(store: Store, project: Project) -> None:
    """Lists jobs of pipelines under way; of pipelines that wait for a user only recently updated ones."""
    states = (JobState.CREATED, JobState.MANUAL)

    async def add(status: str, updated_at: float, *states: JobState) -> None:
        specs = [a_spec(f"{status} {state}") for state in states]
        family = await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), new_jobs(*specs), now=NOW)
        for job, state in zip(family.jobs, states, strict=True):
            await store.jobs.change_job(job.id, partial(replace, state=state))
        await store.pipelines.change_family(
            family.pipeline.id,
            lambda now: Changes(jobs=(), pipeline=replace(now.pipeline, status=status, updated_at=updated_at)),
        )

    await add("running", NOW - 999, JobState.RUNNING, *states)
    await add("success", NOW, JobState.SUCCESS, JobState.MANUAL)
    await add("manual", NOW - 10, *states)
    await add("manual", NOW - 11, *states)
    await add("waiting_for_resource", NOW - 999, *states)
    coming = await store.jobs.list_coming_jobs(states, held_since=NOW - 11)
    assert [job.name for job in coming] == [
        f"{status} {state}" for status in ("running", "manual", "waiting_for_resource") for state in states
    ]
    assert [job.id for job in coming] == sorted(job.id for job in coming)
    assert len(await store.jobs.list_coming_jobs([JobState.CREATED], held_since=NOW)) == 2
    assert await store.pipelines.count_pipelines() == {"running": 1, "manual": 2, "waiting_for_resource": 1}


async def test_jobs_of_a_runner(store: Store, project: Project) -> None:
    specs = [a_spec(state) for state in JobState]
    family = await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), new_jobs(*specs), now=NOW)
    for job, state in zip(family.jobs, JobState, strict=True):
        await store.jobs.change_job(job.id, partial(replace, state=state, runner_id=RunnerId(4)))
    await a_stored_job(store, project)
    newest = [job.name for job in reversed(family.jobs)]

    async def names(page: Page, *states: str) -> tuple[list[str], int]:
        jobs, total = await store.jobs.list_jobs(page, JobFilter(runner_id=RunnerId(4), states=states))
        return [job.name for job in jobs], total

    assert await names(Page()) == (newest, len(newest))
    assert await names(Page(size=3, number=2)) == (newest[3:6], len(newest))
    assert await names(Page(size=3, counted=False, ascending=True)) == (newest[-1:-4:-1], 0)
    assert await names(Page(), "failed", "running") == ([name for name in newest if name in ("failed", "running")], 2)
    assert await store.jobs.list_jobs(Page(), JobFilter(runner_id=RunnerId(5))) == ([], 0)


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
async def test_pages_by_id_have_every_row_once(store: Store, family: Family, kind: str, count: int, size: int) -> None:
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
