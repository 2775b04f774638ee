"""Contract tests of the store: schedules, triggers, releases, downstream pipelines and resource groups."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from remuda.cell.errors import ConflictError, NotFoundError
from remuda.cell.store.ports import Store
from remuda.cell.values import Family, Job, Page, Project, Release, Schedule, TriggerToken
from remuda.cell.values.changes import Changes
from remuda.model.job import JobId, JobState
from remuda.testing.builders import NOW, a_pipeline, a_project, a_spec, new_jobs


def a_schedule(project: Project, **changes: Any) -> Schedule:
    values = {
        "id": 0,
        "project_id": project.id,
        "description": "nightly",
        "ref": "main",
        "cron": "0 3 * * *",
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Schedule(**{**values, **changes})


def a_trigger(project: Project, token_hash: str) -> TriggerToken:
    return TriggerToken(
        id=0,
        project_id=project.id,
        token_hash=token_hash,
        token_start="glpt",
        description="deploys",
        created_at=NOW,
        updated_at=NOW,
    )


async def set_state(store: Store, job: Job, state: JobState) -> None:
    await store.jobs.change_job(job.id, lambda row: replace(row, state=state))


async def add_pipeline_in_group(store: Store, project: Project, group: str) -> Family:
    jobs = [replace(new, resource_group=group) for new in new_jobs(a_spec("deploy"))]
    return await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), jobs, now=NOW)


class TestSchedules:
    async def test_add_list_and_remove(self, store: Store, project: Project) -> None:
        first = await store.schedules.add_schedule(a_schedule(project))
        second = await store.schedules.add_schedule(a_schedule(project, description="weekly"))
        assert first.id != second.id
        assert await store.schedules.load_schedule(first.id) == first
        assert list(await store.schedules.list_schedules(project.id)) == [first, second]
        assert await store.schedules.remove_schedule(first.id)
        assert not await store.schedules.remove_schedule(first.id)
        assert list(await store.schedules.list_schedules(project.id)) == [second]

    async def test_a_change_is_decided_on_what_is_stored(self, store: Store, project: Project) -> None:
        added = await store.schedules.add_schedule(a_schedule(project))
        changed = await store.schedules.change_schedule(added.id, lambda row: replace(row, cron="1 1 * * *"))
        assert changed == await store.schedules.load_schedule(added.id) == replace(added, cron="1 1 * * *")
        assert await store.schedules.change_schedule(added.id, lambda row: None) is None
        assert await store.schedules.change_schedule(added.id + 1, lambda row: row) is None
        assert await store.schedules.load_schedule(added.id) == changed

    async def test_due_schedules_are_active_ones_whose_time_has_come(self, store: Store, project: Project) -> None:
        late = await store.schedules.add_schedule(a_schedule(project, next_run_at=NOW - 5))
        later = await store.schedules.add_schedule(a_schedule(project, next_run_at=NOW - 9))
        await store.schedules.add_schedule(a_schedule(project, next_run_at=NOW + 1))
        await store.schedules.add_schedule(a_schedule(project, next_run_at=None))
        off = await store.schedules.add_schedule(a_schedule(project, next_run_at=NOW - 1, active=False))
        assert list(await store.schedules.list_due_schedules(NOW)) == [later, late]
        await store.schedules.change_schedule(off.id, lambda row: replace(row, active=True))
        await store.schedules.change_schedule(late.id, lambda row: replace(row, next_run_at=NOW + 60))
        assert [schedule.id for schedule in await store.schedules.list_due_schedules(NOW)] == [later.id, off.id]

    async def test_a_pipeline_is_stored_together_with_the_next_time(self, store: Store, project: Project) -> None:
        due = await store.schedules.add_schedule(a_schedule(project, next_run_at=NOW))
        family = await store.pipelines.add_pipeline(
            a_pipeline(project_id=project.id),
            new_jobs(a_spec()),
            now=NOW,
            schedule=replace(due, next_run_at=NOW + 60),
        )
        stored = await store.schedules.load_schedule(due.id)
        assert stored == replace(due, next_run_at=NOW + 60, last_pipeline_id=family.pipeline.id)

    async def test_a_schedule_changed_or_removed_meanwhile_stays_so(self, store: Store, project: Project) -> None:
        schedule = await store.schedules.add_schedule(a_schedule(project, next_run_at=NOW))
        changed = replace(schedule, cron="1 1 * * *", next_run_at=NOW + 5)
        await store.schedules.change_schedule(schedule.id, lambda row: changed)
        ran = replace(schedule, next_run_at=NOW + 60)
        family = await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), [], now=NOW, schedule=ran)
        assert await store.schedules.load_schedule(schedule.id) == replace(changed, last_pipeline_id=family.pipeline.id)
        await store.schedules.remove_schedule(schedule.id)
        await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), [], now=NOW, schedule=ran)
        assert await store.schedules.load_schedule(schedule.id) is None


class TestTriggers:
    async def test_triggers_are_found_by_the_hash_of_their_token(self, store: Store, project: Project) -> None:
        added = await store.schedules.add_trigger(a_trigger(project, "h1"))
        assert await store.schedules.find_trigger("h1") == added
        assert await store.schedules.find_trigger("h2") is None
        with pytest.raises(ConflictError):
            await store.schedules.add_trigger(a_trigger(project, "h1"))
        used = replace(added, last_used_at=NOW)
        await store.schedules.put_trigger(used)
        assert list(await store.schedules.list_triggers(project.id)) == [used]
        assert await store.schedules.remove_trigger(added.id)
        assert not await store.schedules.remove_trigger(added.id)
        assert await store.schedules.find_trigger("h1") is None
        with pytest.raises(NotFoundError):
            await store.schedules.put_trigger(used)


class TestReleases:
    async def test_one_per_tag_newest_first(self, store: Store, project: Project) -> None:
        def release(tag: str, timestamp: float) -> Release:
            return Release(
                project_id=project.id, tag=tag, name=tag, created_at=timestamp, released_at=timestamp, user_id=7
            )

        assert not await store.schedules.put_release(release("v1", NOW), replace=True)
        assert await store.schedules.put_release(release("v1", NOW), replace=False)
        assert not await store.schedules.put_release(release("v1", NOW), replace=False)
        assert await store.schedules.put_release(release("v2", NOW + 1), replace=False)
        assert [row.tag for row in await store.schedules.list_releases(project.id)] == ["v2", "v1"]
        assert await store.schedules.put_release(release("v1", NOW + 2), replace=True)
        assert [row.tag for row in await store.schedules.list_releases(project.id)] == ["v1", "v2"]
        assert await store.schedules.remove_release(project.id, "v1")
        assert not await store.schedules.remove_release(project.id, "v1")
        assert list(await store.schedules.list_releases(project.id)) == [release("v2", NOW + 1)]


class TestDownstream:
    async def test_trigger_job_starts_one_pipeline_however_often_it_tries(self, store: Store, project: Project) -> None:
        new = a_pipeline(project_id=project.id, upstream_job_id=JobId(7))
        first = await store.pipelines.add_pipeline(new, new_jobs(a_spec("a")), now=NOW)
        again = await store.pipelines.add_pipeline(new, new_jobs(a_spec("b")), now=NOW + 1)
        assert again == first
        assert await store.pipelines.find_downstream(JobId(7)) == first.pipeline
        assert await store.pipelines.find_downstream(JobId(8)) is None
        other = await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), new_jobs(a_spec("a")), now=NOW)
        another = await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), new_jobs(a_spec("a")), now=NOW)
        assert len({first.pipeline.id, other.pipeline.id, another.pipeline.id}) == 3

    async def test_open_pipelines_are_those_of_the_ref_that_are_not_over(self, store: Store, project: Project) -> None:
        added = [
            (
                await store.pipelines.add_pipeline(
                    a_pipeline(project_id=project.id, ref=ref), new_jobs(a_spec()), now=NOW
                )
            ).pipeline
            for ref in ("main", "main", "main", "other")
        ]
        for pipeline, status in zip(added, ("running", "success", "manual", "running"), strict=True):
            changed = replace(pipeline, status=status)
            await store.pipelines.change_family(pipeline.id, lambda _, changed=changed: Changes(pipeline=changed))  # type: ignore[misc]
        open_pipelines = await store.pipelines.list_open_pipelines(project.id, "main")
        assert [(pipeline.id, pipeline.status) for pipeline in open_pipelines] == [
            (added[0].id, "running"),
            (added[2].id, "manual"),
        ]


class TestResourceGroups:
    async def test_a_group_is_taken_while_another_pipelines_job_has_it(self, store: Store, project: Project) -> None:
        first = await add_pipeline_in_group(store, project, "production")
        second = await add_pipeline_in_group(store, project, "production")
        elsewhere = await add_pipeline_in_group(
            store, await store.projects.add_project(a_project(path="acme/other")), "production"
        )

        async def load_taken_groups(family: Family) -> frozenset[str]:
            loaded = await store.pipelines.load_family(family.pipeline.id)
            assert loaded is not None
            return loaded.taken

        for state in JobState:
            await set_state(store, first.jobs[0], state)
            is_occupied = state in (JobState.PENDING, JobState.LEASED, JobState.RUNNING, JobState.CANCELING)
            assert await load_taken_groups(second) == (frozenset({"production"}) if is_occupied else frozenset()), state
            assert await load_taken_groups(elsewhere) == frozenset()
        await set_state(store, second.jobs[0], JobState.PENDING)
        assert await load_taken_groups(first) == frozenset({"production"})


class TestSeveralProcesses:
    async def test_a_due_schedule_is_run_by_one_of_several_processes(self, store: Store, project: Project) -> None:
        due = await store.schedules.add_schedule(a_schedule(project, next_run_at=NOW))
        ran = replace(due, next_run_at=NOW + 60)

        async def run() -> Family | None:
            try:
                return await store.pipelines.add_pipeline(
                    a_pipeline(project_id=project.id), new_jobs(a_spec()), now=NOW, schedule=ran, due_at=NOW
                )
            except ConflictError:
                return None

        async with asyncio.TaskGroup() as group:
            runs = [group.create_task(run()) for _ in range(5)]
        started = [run.result() for run in runs if run.result()]
        assert len(started) == 1
        assert (await store.pipelines.list_pipelines(project.id, Page()))[1] == 1
        assert (await store.schedules.load_schedule(due.id) or due).next_run_at == NOW + 60

    async def test_load_jobs_by_ids(self, store: Store, project: Project) -> None:
        jobs = new_jobs(a_spec("a"), a_spec("b"), a_spec("c"))
        family = await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), jobs, now=NOW)
        a, _, c = family.jobs
        assert list(await store.jobs.load_jobs([c.id, JobId(99), a.id])) == [a, c]
        assert list(await store.jobs.load_jobs([])) == []
