"""Contract tests of the store port: settings, projects, pipelines, jobs, hand-outs, runners and results."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from remuda.cell.errors import ConflictError, InvalidError, NotFoundError
from remuda.cell.store import paging
from remuda.cell.store.ports import Store
from remuda.cell.values import (
    Family,
    Job,
    JobFilter,
    Page,
    PipelineFilter,
    Project,
    ProjectVariable,
    RunnerManager,
    StepResult,
    UserToken,
)
from remuda.cell.values.changes import Changes, PayloadParts, Retry
from remuda.cell.values.people import ProjectFilter
from remuda.model.job import ASSIGNED, JobId, JobState, PipelineId, ProjectId, RunnerId
from remuda.pipeline import JobSpec, Trigger
from remuda.testing.builders import NOW, a_pipeline, a_project, a_runner, a_spec, an_artifact, new_jobs


async def push(store: Store, project: Project, *specs: JobSpec) -> Family:
    return await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), new_jobs(*specs), now=NOW)


class TestSettingsAndTokens:
    async def test_signing_keys_are_listed_in_the_order_of_creation(self, store: Store) -> None:
        assert await store.settings.load_signing_keys() == {}
        await store.settings.add_signing_key("b", b"1")
        await store.settings.add_signing_key("a", b"2")
        assert list((await store.settings.load_signing_keys()).items()) == [("b", b"1"), ("a", b"2")]
        with pytest.raises(ConflictError):
            await store.settings.add_signing_key("a", b"3")
        assert (await store.settings.load_signing_keys())["a"] == b"2"
        await store.settings.remove_signing_key("b")
        await store.settings.remove_signing_key("b")
        assert await store.settings.load_signing_keys() == {"a": b"2"}
        await store.settings.add_signing_key("b", b"4")
        assert list(await store.settings.load_signing_keys()) == ["a", "b"]

    async def test_settings(self, store: Store) -> None:
        assert await store.settings.load_setting("x") is None
        await store.settings.put_setting("x", "1")
        await store.settings.put_setting("x", "2")
        assert await store.settings.load_setting("x") == "2"

    async def test_user_tokens(self, store: Store) -> None:
        first = await store.people.add_user_token(UserToken(token_hash="h1", name="root"))
        await store.people.add_user_token(UserToken(token_hash="h2", name="other"))
        await store.people.change_user_token(first.id, lambda row: replace(row, name="admin"))
        assert await store.people.find_user_token("h1") == replace(first, name="admin")
        assert await store.people.find_user_token("h3") is None
        assert [token.name for token in await store.people.list_user_tokens()] == ["admin", "other"]

    async def test_check_writable(self, store: Store) -> None:
        await store.check_writable()
        await store.check_writable()


class TestProjects:
    async def test_a_project_gets_an_id_of_the_cell(self, store: Store) -> None:
        first = await store.projects.add_project(a_project(id=ProjectId(77)))
        second = await store.projects.add_project(a_project(path="acme/other"))
        assert (first.id, second.id) == (1, 2)
        assert await store.projects.load_project(first.id) == first
        assert await store.projects.load_project(ProjectId(77)) is None

    async def test_paths_are_unique_without_regard_to_case(self, store: Store, project: Project) -> None:
        assert await store.projects.find_project("ACME/Shop") == project
        with pytest.raises(ConflictError, match="Acme/SHOP"):
            await store.projects.add_project(a_project(path="Acme/SHOP"))
        assert await store.projects.find_project("acme/none") is None

    async def test_lists_are_pages_newest_first(self, store: Store) -> None:
        for number in range(5):
            await store.projects.add_project(a_project(path=f"acme/p{number}", name=f"Näme {number}"))
        page, total = await store.projects.list_projects(Page(number=2, size=2))
        assert ([project.path for project in page], total) == (["acme/p2", "acme/p1"], 5)
        page, total = await store.projects.list_projects(Page(), ProjectFilter(search="NÄME 3"))
        assert ([project.path for project in page], total) == (["acme/p3"], 1)
        assert await store.projects.list_projects(Page(), ProjectFilter(search="%")) == ([], 0)
        assert await store.projects.list_projects(Page(number=9)) == ([], 5)

    async def test_variables(self, store: Store, project: Project) -> None:
        variable = ProjectVariable(project_id=project.id, key="B", value="1", masked=True)
        assert not await store.projects.put_variable(variable, replace=True)
        assert await store.projects.put_variable(variable, replace=False)
        assert not await store.projects.put_variable(replace(variable, value="2"), replace=False)
        assert await store.projects.put_variable(replace(variable, value="3"), replace=True)
        assert await store.projects.put_variable(replace(variable, key="A"), replace=False)
        assert [(each.key, each.value) for each in await store.projects.list_variables(project.id)] == [
            ("A", "1"),
            ("B", "3"),
        ]
        assert await store.projects.remove_variable(project.id, "A")
        assert not await store.projects.remove_variable(project.id, "A")
        assert await store.projects.list_variables(ProjectId(9)) == []

    async def test_seen_refs(self, store: Store, project: Project) -> None:
        await store.projects.put_seen_refs(project.id, {"refs/heads/a": "1", "refs/heads/b": "2"})
        await store.projects.put_seen_refs(
            project.id, {"refs/heads/a": None, "refs/heads/b": "3", "refs/heads/c": None}
        )
        assert await store.projects.load_seen_refs(project.id) == {"refs/heads/b": "3"}


class TestPipelines:
    async def test_jobs_of_the_first_stage_are_pending_at_once(self, store: Store, project: Project) -> None:
        family = await push(store, project, a_spec("a"), a_spec("b", stage="deploy", stage_index=2))
        assert [(job.id, job.name, job.state) for job in family.jobs] == [
            (1, "a", JobState.PENDING),
            (2, "b", JobState.CREATED),
        ]
        assert (family.pipeline.id, family.pipeline.iid, family.pipeline.status) == (1, 1, "pending")
        assert await store.pipelines.load_family(family.pipeline.id) == family
        assert await store.pipelines.load_pipeline(family.pipeline.id) == family.pipeline

    async def test_iids_count_per_project(self, store: Store, project: Project) -> None:
        other = await store.projects.add_project(a_project(path="acme/other"))
        iids = [(await push(store, owner)).pipeline.iid for owner in (project, project, other, project)]
        assert iids == [1, 2, 1, 3]

    async def test_a_pipeline_without_jobs_keeps_its_status(self, store: Store, project: Project) -> None:
        broken = a_pipeline(project_id=project.id, status="failed", yaml_errors="line 3")
        family = await store.pipelines.add_pipeline(broken, [], now=NOW)
        assert (family.pipeline.status, family.pipeline.yaml_errors, family.jobs) == ("failed", "line 3", ())

    async def test_the_ref_is_seen_with_the_pipeline(self, store: Store, project: Project) -> None:
        pipeline = a_pipeline(project_id=project.id)
        await store.pipelines.add_pipeline(pipeline, new_jobs(a_spec()), now=NOW, sees=("refs/heads/main", "abc"))
        assert await store.projects.load_seen_refs(project.id) == {"refs/heads/main": "abc"}

    async def test_a_project_must_exist(self, store: Store) -> None:
        with pytest.raises(NotFoundError):
            await push(store, a_project(id=ProjectId(9)), a_spec())
        assert await store.jobs.count_jobs() == {}

    async def test_lists(self, store: Store, project: Project) -> None:
        for ref, status in (("main", "created"), ("topic", "failed"), ("main", "failed")):
            await store.pipelines.add_pipeline(a_pipeline(project_id=project.id, ref=ref, status=status), [], now=NOW)

        async def ids(**filters: Any) -> list[int]:
            pipelines, total = await store.pipelines.list_pipelines(project.id, Page(), PipelineFilter(**filters))
            assert total == len(pipelines)
            return [pipeline.id for pipeline in pipelines]

        assert await ids() == [3, 2, 1]
        assert await ids(ref="main") == [3, 1]
        assert await ids(ref="main", statuses=("failed",)) == [3]
        assert await ids(order_by="ref") == [2, 3, 1]
        assert await ids(order_by="status", ascending=True) == [1, 2, 3]
        assert await ids(sha="none") == []
        assert await ids(statuses=()) == []
        assert await store.pipelines.list_pipelines(ProjectId(9), Page()) == ([], 0)
        assert await store.pipelines.count_pipelines() == {"created": 1}, "only unfinished pipelines are counted"

    async def test_lists_by_other_filters(self, store: Store, project: Project) -> None:
        for changes in (
            {"tag": True, "updated_at": NOW + 10},
            {"source": "schedule", "schedule_id": 7, "name": "nightly"},
            {"source": "parent_pipeline", "is_child": True, "upstream_job_id": JobId(5)},
            {"yaml_errors": "line 3", "created_at": NOW - 10},
        ):
            await store.pipelines.add_pipeline(
                a_pipeline(project_id=project.id, status="failed", **changes), [], now=NOW
            )

        async def ids(**filters: Any) -> list[int]:
            pipelines, total = await store.pipelines.list_pipelines(project.id, Page(), PipelineFilter(**filters))
            assert total == len(pipelines)
            return [pipeline.id for pipeline in pipelines]

        assert await ids() == [4, 2, 1]
        assert await ids(source="parent_pipeline") == [3]
        assert await ids(source="schedule", name="nightly") == [2]
        assert await ids(name="weekly") == []
        assert await ids(schedule_id=7) == [2]
        assert await ids(tag=True) == [1]
        assert await ids(tag=False, has_mistakes=False) == [2]
        assert await ids(has_mistakes=True) == [4]
        assert await ids(updated_after=NOW) == [1]
        assert await ids(updated_before=NOW + 1, created_after=NOW - 1) == [2]
        assert await ids(created_before=NOW) == [4]
        assert await ids(order_by="updated_at") == [1, 4, 2]
        assert await ids(order_by="user_id", ascending=True) == [1, 2, 4]

    async def test_lists_of_several_projects(self, store: Store, project: Project) -> None:
        other = await store.projects.add_project(a_project(path="acme/other"))
        for owner in (project, other, project):
            await push(store, owner, a_spec("one"))

        async def list_ids(*projects: ProjectId, **filters: Any) -> list[PipelineId]:
            pipelines, total = await store.pipelines.list_recent_pipelines(
                projects or None, Page(), PipelineFilter(**filters)
            )
            assert total == len(pipelines)
            return [pipeline.id for pipeline in pipelines]

        assert await list_ids() == [3, 2, 1]
        assert await list_ids(project.id) == [3, 1]
        assert await list_ids(statuses=("success",)) == []
        assert (await store.pipelines.list_recent_pipelines((), Page()))[0] == []

    async def test_missing_pipelines(self, store: Store) -> None:
        assert await store.pipelines.load_family(PipelineId(9)) is None
        assert await store.pipelines.load_pipeline(PipelineId(9)) is None
        with pytest.raises(NotFoundError):
            await store.pipelines.change_family(PipelineId(9), lambda family: Changes())


class TestJobs:
    async def test_a_job_has_its_spec_beside_it(self, store: Store, project: Project) -> None:
        spec = a_spec(script=("make",), variables={"A": "$B"})
        family = await push(store, project, spec)
        assert await store.jobs.load_spec(family.jobs[0].id) == spec
        assert await store.jobs.load_job(family.jobs[0].id) == family.jobs[0]
        assert await store.jobs.load_job(JobId(9)) is None
        assert await store.jobs.load_spec(JobId(9)) is None

    async def test_a_change_may_be_declined(self, store: Store, project: Project) -> None:
        job = (await push(store, project, a_spec())).jobs[0]
        assert await store.jobs.change_job(job.id, lambda row: None) is None
        assert await store.jobs.change_job(JobId(9), lambda row: row) is None
        assert await store.jobs.load_job(job.id) == job

    async def test_a_job_keeps_that_it_is_traced(self, store: Store, project: Project) -> None:
        job = (await push(store, project, a_spec())).jobs[0]
        await store.jobs.change_job(job.id, lambda row: replace(row, is_traced=True), known=job)
        stored = await store.jobs.load_job(job.id)
        assert stored is not None
        assert (job.is_traced, stored.is_traced) == (False, True)

    async def test_load_payload_parts(self, store: Store, project: Project) -> None:
        spec = a_spec("build")
        family = await push(store, project, spec)
        for variable in (
            ProjectVariable(project_id=project.id, key="B", value="own"),
            ProjectVariable(project_id=project.id, key="A", value="own"),
            ProjectVariable(project_id=ProjectId(0), group_id=7, key="G", value="group"),
            ProjectVariable(project_id=ProjectId(0), group_id=8, key="O", value="another group"),
            ProjectVariable(project_id=ProjectId(0), key="C", value="cell"),
        ):
            assert await store.projects.put_variable(variable, replace=False)
        await store.settings.put_setting("policy", "strict")
        job = replace(family.jobs[0], group_ids=(7,))
        parts = await store.jobs.load_payload_parts(job, ["policy", "none"])
        assert (parts.spec, parts.pipeline, parts.project) == (spec, family.pipeline, project)
        assert [variable.key for variable in parts.variables] == ["C", "G", "A", "B"]
        assert parts.settings == {"policy": "strict"}
        missing = replace(job, id=JobId(99), pipeline_id=PipelineId(99), project_id=ProjectId(99), group_ids=())
        assert await store.jobs.load_payload_parts(missing) == PayloadParts(
            spec=None, pipeline=None, project=None, variables=[parts.variables[0]], settings={}
        )
        runner = await store.runners.add_runner(a_runner())
        leased = replace(job, state=JobState.LEASED, runner_id=runner.id)
        assert await store.jobs.lease_job(family.jobs[0], leased, runner, ["policy", "none"]) == parts

    async def test_change_job_with_an_outdated_known_job(self, store: Store, project: Project) -> None:
        original = (await push(store, project, a_spec("build"))).jobs[0]

        def add_try(job: Job) -> Job | None:
            return replace(job, tries=job.tries + 1)

        first = await store.jobs.change_job(original.id, add_try, known=original)
        assert first is not None
        assert first.tries == 2
        again = await store.jobs.change_job(original.id, add_try, known=original)
        assert again is not None
        assert again.tries == 3
        assert await store.jobs.load_job(original.id) == again
        # The known job may be too old for the decision, which is then made on the stored job.
        changed = await store.jobs.change_job(original.id, lambda job: job if job.tries == 3 else None, known=original)
        assert changed == again

    async def test_exactly_one_of_many_concurrent_leases_wins(self, store: Store, project: Project) -> None:
        job = (await push(store, project, a_spec())).jobs[0]

        def lease(number: int) -> Callable[[Job], Job | None]:
            def decide(row: Job) -> Job | None:
                if row.state is not JobState.PENDING:
                    return None
                return replace(row, state=JobState.LEASED, epoch=row.epoch + 1, system_id=f"s_{number}")

            return decide

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(store.jobs.change_job(job.id, lease(n))) for n in range(50)]
        winners = [task.result() for task in tasks if task.result()]
        assert len(winners) == 1
        assert await store.jobs.load_job(job.id) == winners[0]

    async def test_a_decision_that_raises_fails_only_its_own_write(self, store: Store, project: Project) -> None:
        family = await push(store, project, a_spec("a"), a_spec("b"))

        def refuse(family: Family) -> Changes:
            raise InvalidError("no")

        async with asyncio.TaskGroup() as group:
            good = group.create_task(store.jobs.change_job(family.jobs[0].id, lambda row: replace(row, epoch=5)))
            bad = group.create_task(_catch_invalid(store.pipelines.change_family(family.pipeline.id, refuse)))
            other = group.create_task(store.settings.put_setting("after", "all"))
        assert isinstance(bad.result(), InvalidError)
        assert good.result() is not None
        assert other.done()
        assert await store.settings.load_setting("after") == "all"
        assert (await store.jobs.load_job(family.jobs[0].id) or family.jobs[0]).epoch == 5

    async def test_changes_of_a_family_are_applied_together(self, store: Store, project: Project) -> None:
        family = await push(store, project, a_spec("a"), a_spec("b"))
        a, b = family.jobs

        def decide(now: Family) -> Changes:
            assert now == family
            return Changes(
                jobs=(replace(a, state=JobState.FAILED, retried=True), replace(b, state=JobState.SUCCESS)),
                retries=(Retry(of=a.id, job=replace(a, id=JobId(0), tries=2)),),
                pipeline=replace(now.pipeline, status="running"),
            )

        applied = await store.pipelines.change_family(family.pipeline.id, decide)
        assert [(job.id, job.state, job.tries) for job in applied.jobs] == [
            (1, JobState.FAILED, 1),
            (2, JobState.SUCCESS, 1),
            (3, JobState.PENDING, 2),
        ]
        now = await store.pipelines.load_family(family.pipeline.id)
        assert now is not None
        assert now.pipeline == applied.pipeline
        assert sorted(job.id for job in now.jobs) == [2, 3]
        assert await store.jobs.load_spec(JobId(3)) == await store.jobs.load_spec(a.id)

    async def test_lists(self, store: Store, project: Project) -> None:
        first = await push(store, project, a_spec("a"), a_spec("b"))
        other = await store.projects.add_project(a_project(path="acme/other"))
        await push(store, other, a_spec("c"))
        await store.jobs.change_job(first.jobs[0].id, lambda row: replace(row, state=JobState.FAILED, retried=True))

        async def names(**filters: Any) -> list[str]:
            jobs, total = await store.jobs.list_jobs(Page(), JobFilter(**filters))
            assert total == len(jobs)
            return [job.name for job in jobs]

        assert await names() == ["c", "b"]
        assert await names(with_retried=True) == ["c", "b", "a"]
        assert await names(project_id=project.id, with_retried=True) == ["b", "a"]
        assert await names(project_ids=[project.id, other.id]) == ["c", "b"]
        assert await names(project_ids=[other.id]) == ["c"]
        assert await names(project_ids=[]) == []
        assert await names(pipeline_id=first.pipeline.id) == ["b"]
        assert await names(states=["failed"], with_retried=True) == ["a"]
        assert await names(states=["failed", "pending"], with_retried=True) == ["c", "b", "a"]
        assert await names(states=["failed", "pending", "failed"], with_retried=True) == ["c", "b", "a"]
        assert await names(states=["failed", "pending"], project_id=project.id, with_retried=True) == ["b", "a"]
        assert await names(states=["failed", "pending"], pipeline_id=first.pipeline.id, with_retried=True) == ["b", "a"]
        assert await names(states=["failed", "pending"], project_ids=[other.id], with_retried=True) == ["c"]
        assert await names(is_trigger=True) == []
        await push(store, project, a_spec("t", trigger=Trigger(project="acme/other")))
        assert await names(is_trigger=True) == ["t"]
        assert await names(is_trigger=False) == ["c", "b"]
        page, total = await store.jobs.list_jobs(Page(number=2, size=1), JobFilter(with_retried=True))
        assert ([job.name for job in page], total) == (["c"], 4)

    async def test_jobs_by_state(self, store: Store, project: Project) -> None:
        states = (JobState.PENDING, JobState.LEASED, JobState.RUNNING, JobState.CANCELING, JobState.SUCCESS)
        family = await push(store, project, *(a_spec(state.value) for state in states))
        for job, state in zip(family.jobs, states, strict=True):
            await store.jobs.change_job(job.id, partial(replace, state=state))
        assert [job.name for job in await store.jobs.list_jobs_in([JobState.PENDING])] == ["pending"]
        assert [job.name for job in await store.jobs.list_jobs_in(ASSIGNED)] == ["leased", "running", "canceling"]
        assert await store.jobs.count_jobs() == dict.fromkeys((state.value for state in states[:-1]), 1)

    async def test_jobs_read_in_pieces(self, store: Store, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(paging, "PIECE", 2)
        family = await push(store, project, *(a_spec(f"job{number}") for number in range(7)))
        assert [job.id for job in await store.jobs.list_jobs_in([JobState.PENDING])] == [job.id for job in family.jobs]

    async def test_find_leased_job_by_request_id(self, store: Store, project: Project) -> None:
        job = (await push(store, project, a_spec())).jobs[0]
        leased = replace(job, state=JobState.LEASED, runner_id=RunnerId(4), request_id="r1")
        await store.jobs.change_job(job.id, lambda row: leased)
        assert await store.jobs.find_leased_job(RunnerId(4), "r1") == leased
        assert await store.jobs.find_leased_job(RunnerId(5), "r1") is None
        assert await store.jobs.find_leased_job(RunnerId(4), "r2") is None
        await store.jobs.change_job(job.id, lambda row: replace(row, state=JobState.RUNNING))
        assert await store.jobs.find_leased_job(RunnerId(4), "r1") is None


class TestHandOuts:
    async def test_a_lease_requires_an_unchanged_job_and_runner(self, store: Store, project: Project) -> None:
        job = (await push(store, project, a_spec())).jobs[0]
        runner = await store.runners.add_runner(a_runner())
        leased = replace(job, state=JobState.LEASED, runner_id=runner.id, request_id="r1", epoch=1)
        assert not await store.jobs.lease_job(replace(job, tries=2), leased, runner)
        assert not await store.jobs.lease_job(job, leased, replace(runner, paused=True))
        assert await store.jobs.load_job(job.id) == job
        assert await store.jobs.lease_job(job, leased, runner)
        assert await store.jobs.load_job(job.id) == leased
        assert not await store.jobs.lease_job(job, leased, runner)

    async def test_a_removed_runner_gets_no_job(self, store: Store, project: Project) -> None:
        job = (await push(store, project, a_spec())).jobs[0]
        runner = await store.runners.add_runner(a_runner())
        await store.runners.remove_runner(runner.id)
        leased = replace(job, state=JobState.LEASED, runner_id=runner.id)
        assert not await store.jobs.lease_job(job, leased, runner)
        assert await store.jobs.load_job(job.id) == job

    async def test_a_request_id_gets_at_most_one_job(self, store: Store, project: Project) -> None:
        first, second = (await push(store, project, a_spec("one"), a_spec("two"))).jobs
        runner = await store.runners.add_runner(a_runner())

        def lease_for(job: Job, request_id: str | None) -> Job:
            return replace(job, state=JobState.LEASED, runner_id=runner.id, request_id=request_id)

        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(store.jobs.lease_job(job, lease_for(job, "r1"), runner)) for job in (first, second)
            ]
        assert [task.result() is None for task in tasks].count(True) == 1
        remaining = first if tasks[0].result() is None else second
        assert not await store.jobs.lease_job(remaining, lease_for(remaining, "r1"), runner)
        assert await store.jobs.lease_job(remaining, lease_for(remaining, "r2"), runner)

    async def test_requests_without_an_id_may_get_several_jobs(self, store: Store, project: Project) -> None:
        jobs = (await push(store, project, a_spec("one"), a_spec("two"))).jobs
        runner = await store.runners.add_runner(a_runner())
        for job in jobs:
            leased = replace(job, state=JobState.LEASED, runner_id=runner.id)
            assert await store.jobs.lease_job(job, leased, runner)


class TestEndBeside:
    async def test_it_requires_a_later_job_under_way(self, store: Store, project: Project) -> None:
        first, second, third = (await push(store, project, *map(a_spec, ("one", "two", "three")))).jobs

        def finish(job: Job) -> Job:
            return replace(job, state=JobState.SUCCESS)

        assert not await store.jobs.end_beside(third, finish(third))
        assert not await store.jobs.end_beside(replace(second, tries=2), finish(second))
        assert await store.jobs.end_beside(second, finish(second))
        assert not await store.jobs.end_beside(second, finish(second))
        await store.jobs.change_job(third.id, lambda row: replace(row, state=JobState.RUNNING))
        assert await store.jobs.end_beside(first, finish(first))
        states = [job.state for job in await store.jobs.load_jobs([first.id, second.id, third.id])]
        assert states == [JobState.SUCCESS, JobState.SUCCESS, JobState.RUNNING]

    @pytest.mark.parametrize(
        "state", [JobState.CREATED, JobState.MANUAL, JobState.SCHEDULED, JobState.CANCELING, JobState.FAILED]
    )
    async def test_others_not_under_way_do_not_count(self, store: Store, project: Project, state: JobState) -> None:
        first, second = (await push(store, project, a_spec("one"), a_spec("two"))).jobs
        await push(store, project, a_spec("of another pipeline"))
        await store.jobs.change_job(second.id, lambda row: replace(row, state=state))
        assert not await store.jobs.end_beside(first, replace(first, state=JobState.SUCCESS))

    async def test_a_retried_job_does_not_count(self, store: Store, project: Project) -> None:
        first, second = (await push(store, project, a_spec("one"), a_spec("two"))).jobs
        await store.jobs.change_job(second.id, lambda row: replace(row, retried=True))
        assert not await store.jobs.end_beside(first, replace(first, state=JobState.SUCCESS))

    async def test_the_last_of_concurrent_ends_finishes_the_pipeline(self, store: Store, project: Project) -> None:
        jobs = (await push(store, project, *(a_spec(f"job{number}") for number in range(20)))).jobs

        async def end(job: Job) -> None:
            over = replace(job, state=JobState.SUCCESS)
            if not await store.jobs.end_beside(job, over):
                await store.pipelines.change_family(job.pipeline_id, lambda family: _end_job(family, over))

        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(end(job))
        pipeline = await store.pipelines.load_pipeline(jobs[0].pipeline_id)
        assert pipeline is not None
        assert pipeline.status == "success"


def _end_job(family: Family, over: Job) -> Changes:
    """Store the end of a job, and of its pipeline if that was the last one."""
    others = [job for job in family.jobs if job.id != over.id]
    is_over = all(job.state is JobState.SUCCESS for job in others)
    return Changes(jobs=(over,), pipeline=replace(family.pipeline, status="success") if is_over else None)


class TestRunners:
    async def test_runners(self, store: Store) -> None:
        first = await store.runners.add_runner(a_runner(token_hash="a", tags=("x",)))
        second = await store.runners.add_runner(a_runner(token_hash="b"))
        with pytest.raises(ConflictError):
            await store.runners.add_runner(a_runner(token_hash="a"))
        assert await store.runners.load_runner(first.id) == first
        assert await store.runners.find_runner("b") == second
        assert await store.runners.list_runners(Page()) == ([second, first], 2)
        await store.runners.change_runner(first.id, lambda row: replace(row, paused=True, token_hash="c"))
        assert await store.runners.find_runner("a") is None
        assert (await store.runners.find_runner("c")) == replace(first, paused=True, token_hash="c")
        assert await store.runners.remove_runner(second.id)
        assert not await store.runners.remove_runner(second.id)
        assert await store.runners.load_runner(second.id) is None
        assert await store.runners.change_runner(second.id, lambda row: row) is None

    async def test_an_id_is_never_used_twice(self, store: Store) -> None:
        first = await store.runners.add_runner(a_runner())
        await store.runners.remove_runner(first.id)
        assert (await store.runners.add_runner(a_runner())).id == first.id + 1

    async def test_managers(self, store: Store) -> None:
        runner = await store.runners.add_runner(a_runner())
        for system_id in ("s_2", "s_1"):
            await store.runners.put_manager(RunnerManager(runner_id=runner.id, system_id=system_id, contacted_at=NOW))
        later = RunnerManager(runner_id=runner.id, system_id="s_1", contacted_at=NOW + 1, features=("cancelable",))
        await store.runners.put_manager(later)
        assert await store.runners.load_manager(runner.id, "s_1") == later
        assert [manager.system_id for manager in await store.runners.list_managers(runner.id)] == ["s_1", "s_2"]
        assert await store.runners.remove_manager(runner.id, "s_2")
        assert not await store.runners.remove_manager(runner.id, "s_2")
        await store.runners.remove_runner(runner.id)
        assert await store.runners.list_managers(runner.id) == []
        with pytest.raises(NotFoundError):
            await store.runners.put_manager(later)


class TestResultsAndArtifacts:
    async def test_results_have_no_gap(self, store: Store, project: Project) -> None:
        job = (await push(store, project, a_spec())).jobs[0]

        def result(seq: int, text: str = "{}") -> StepResult:
            return StepResult(job_id=job.id, seq=seq, body=Raw(text.encode()))

        assert await store.jobs.list_results(job.id) == []
        assert await store.jobs.add_results(job.id, [], limit_bytes=1000) == 1
        assert await store.jobs.add_results(job.id, [result(2)], limit_bytes=1000) == 1
        assert await store.jobs.add_results(job.id, [result(1, '{"a": 1}'), result(2)], limit_bytes=1000) == 3
        assert (
            await store.jobs.add_results(job.id, [result(1, '{"other": 1}'), result(3), result(5)], limit_bytes=1000)
            == 4
        )
        stored = await store.jobs.list_results(job.id)
        assert [each.seq for each in stored] == [1, 2, 3]
        assert bytes(stored[0].body) == b'{"a": 1}'
        with pytest.raises(NotFoundError):
            await store.jobs.add_results(JobId(9), [result(1)], limit_bytes=1000)

    async def test_an_artifact_is_stored_once(self, store: Store, project: Project) -> None:
        job = (await push(store, project, a_spec())).jobs[0]
        archive = an_artifact(job.id)
        assert await store.jobs.put_artifact(archive) == archive
        assert await store.jobs.put_artifact(replace(archive, sha256="y", blob="l")) == archive
        junit = replace(archive, type="junit", blob="m")
        await store.jobs.put_artifact(junit)
        assert await store.jobs.list_artifacts(job.id) == [archive, junit]
        assert await store.jobs.list_artifacts(JobId(9)) == []
        with pytest.raises(NotFoundError):
            await store.jobs.put_artifact(replace(archive, job_id=JobId(9)))


async def _catch_invalid(call: Awaitable[object]) -> InvalidError | None:
    try:
        await call
    except InvalidError as error:
        return error
    return None
