"""Trigger jobs that have started their downstream pipelines: strategies, cancel, retry, and restarts of the cell."""

import pytest

from remuda.cell.errors import StoreError
from remuda.cell.values import Pipeline
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.lib.clock import settle
from remuda.model.job import JobState, PipelineId
from remuda.pipeline import Trigger
from remuda.testing.builders import a_pipeline, a_spec, new_jobs
from remuda.testing.memory_cell import MemoryCell, MemoryStarter

CHILD = "child-job: {script: make}"
DEPEND = "go: {trigger: {include: child.yml, strategy: depend}}\nafter: {stage: deploy, script: x}"
A_TRIGGER = new_jobs(a_spec("go", script=(), trigger=Trigger(include=({"local": "child.yml"},))))


@pytest.fixture
async def cell() -> MemoryCell:
    cell = await MemoryCell.open()
    cell.files[cell.project.path] = {"child.yml": CHILD}
    return cell


class TestStrategies:
    @pytest.mark.parametrize(
        ("end", "status", "after"), [("success", "success", "pending"), ("failed", "failed", "skipped")]
    )
    async def test_a_depending_job_ends_with_the_status_of_its_pipeline(
        self, cell: MemoryCell, end: str, status: str, after: str
    ) -> None:
        async with cell.run_timeouts():
            family = await cell.push_file(DEPEND)
            await settle()
            assert await cell.statuses(family) == {"go": "running", "after": "created", "pipeline": "running"}
            await cell.clock.advance(3500)
            assert (await cell.statuses(family))["go"] == "running"
            await cell.run_next(end)
            job = await cell.newest(family, "go")
            assert (job.state.value, job.finished_at) == (status, cell.clock.now())
            assert (await cell.statuses(family))["after"] == after

    async def test_a_failure_that_is_allowed_does_not_skip_the_next_stage(self, cell: MemoryCell) -> None:
        async with cell.run_timeouts():
            family = await cell.push_file(DEPEND.replace("go: {", "go: {allow_failure: true, "))
            await settle()
            await cell.run_next("failed")
            assert (await cell.statuses(family))["after"] == "pending"

    @pytest.mark.parametrize(("strategy", "status"), [("depend", "failed"), ("mirror", "success")])
    async def test_a_pipeline_with_manual_jobs_only(self, cell: MemoryCell, strategy: str, status: str) -> None:
        cell.files[cell.project.path]["child.yml"] = "a: {script: x, when: manual, allow_failure: true}"
        async with cell.run_timeouts():
            family = await cell.push_file(f"go: {{trigger: {{include: child.yml, strategy: {strategy}}}}}")
            await settle()
        assert (await cell.statuses(family))["go"] == status

    async def test_a_blocking_manual_job_keeps_the_trigger_job_running(self, cell: MemoryCell) -> None:
        cell.files[cell.project.path]["child.yml"] = "a: {script: x, when: manual, allow_failure: false}"
        async with cell.run_timeouts():
            family = await cell.push_file(DEPEND)
            await settle()
            child = await cell.child(family)
            assert child.pipeline.status == "manual"
            assert (await cell.statuses(family))["go"] == "running"
            await cell.dispatch.user_commands.play_job(child.jobs[0].id)
            await cell.run_next()
            assert (await cell.statuses(family))["go"] == "success"

    async def test_a_failure_passes_through_several_pipelines(self, cell: MemoryCell) -> None:
        cell.files[cell.project.path] |= {
            "child.yml": "go: {trigger: {include: grandchild.yml, strategy: depend}}",
            "grandchild.yml": CHILD,
        }
        async with cell.run_timeouts():
            family = await cell.push_file(DEPEND)
            await settle()
            await cell.run_next("failed")
            assert await cell.statuses(family) == {"go": "failed", "after": "skipped", "pipeline": "failed"}

    @pytest.mark.parametrize("end", ["success", "failed"])
    async def test_a_retry_of_the_pipeline_resumes_the_trigger_job(self, cell: MemoryCell, end: str) -> None:
        async with cell.run_timeouts():
            family = await cell.push_file(DEPEND)
            await settle()
            await cell.run_next("failed")
            child = await cell.child(family)
            await cell.dispatch.user_commands.retry_pipeline(child.pipeline.id)
            await settle()
            assert await cell.statuses(family) == {"go": "running", "after": "created", "pipeline": "running"}
            job = await cell.newest(family, "go")
            assert (job.finished_at, job.failure_message, job.downstream_id) == (None, None, child.pipeline.id)
            await cell.run_next(end)
            assert (await cell.statuses(family))["go"] == end

    async def test_a_retry_of_the_trigger_job_starts_another_pipeline(self, cell: MemoryCell) -> None:
        async with cell.run_timeouts():
            family = await cell.push_file(DEPEND)
            await settle()
            await cell.run_next("failed")
            first = await cell.child(family)
            await cell.dispatch.user_commands.retry_job((await cell.newest(family, "go")).id)
            await settle()
            second = await cell.child(family)
            assert second.pipeline.id != first.pipeline.id
            await cell.dispatch.user_commands.retry_pipeline(first.pipeline.id)
            await settle()
            assert (await cell.statuses(family))["go"] == "running"
            assert await cell.run_next() == "child-job"
            assert (await cell.statuses(family))["go"] == "success"


class TestCancel:
    async def statuses(self, cell: MemoryCell, *pipeline_ids: PipelineId) -> list[str]:
        pipelines = [await cell.store.pipelines.load_pipeline(pipeline_id) for pipeline_id in pipeline_ids]
        return [pipeline.status for pipeline in pipelines if pipeline]

    @pytest.mark.parametrize("strategy", ["", ", strategy: depend"])
    async def test_cancel_of_a_pipeline_cancels_its_children(self, cell: MemoryCell, strategy: str) -> None:
        cell.files[cell.project.path] |= {
            "child.yml": f"go: {{trigger: {{include: grandchild.yml{strategy}}}}}\nb: {{script: x}}",
            "grandchild.yml": CHILD,
        }
        async with cell.run_timeouts():
            family = await cell.push_file(f"go: {{trigger: {{include: child.yml{strategy}}}}}\na: {{script: x}}")
            await settle()
            child = await cell.child(family)
            grandchild = await cell.child(child)
            await cell.dispatch.changes.cancel_pipeline(family.pipeline.id)
            await settle()
            assert len(cell.dispatch.memory.waiting_jobs) == 0
            pipeline_ids = (family.pipeline.id, child.pipeline.id, grandchild.pipeline.id)
            assert await self.statuses(cell, *pipeline_ids) == ["canceled"] * 3

    async def test_cancel_of_a_trigger_job_cancels_its_child_and_waits_for_it(self, cell: MemoryCell) -> None:
        async with cell.run_timeouts():
            family = await cell.push_file(DEPEND)
            await settle()
            _, token = await cell.start(graceful=True)
            await cell.dispatch.user_commands.cancel_job((await cell.newest(family, "go")).id)
            await settle()
            assert await cell.statuses(family) == {"go": "canceling", "after": "created", "pipeline": "running"}
            await cell.put(token, "failed", reason="job_canceled")
            await settle()
            assert await cell.statuses(family) == {"go": "canceled", "after": "skipped", "pipeline": "canceled"}

    async def test_auto_cancel_after_a_failure_cancels_the_children(self, cell: MemoryCell) -> None:
        text = """
            workflow: {auto_cancel: {on_job_failure: all}}
            go: {trigger: {include: child.yml}}
            depends: {trigger: {include: child.yml, strategy: depend}}
            bad: {stage: build, script: x, tags: [linux]}
            worse: {script: x, needs: []}
        """
        async with cell.run_timeouts():
            family = await cell.push_file(text)
            assert await cell.run_next() == "bad"
            children = [await cell.child(family, name) for name in ("go", "depends")]
            await cell.run_next("failed")
            assert await cell.statuses(family) == {
                "go": "success",
                "depends": "canceled",
                "bad": "success",
                "worse": "failed",
                "pipeline": "failed",
            }
            assert await self.statuses(cell, *(child.pipeline.id for child in children)) == ["canceled"] * 2

    async def test_cancel_before_the_pipeline_is_started(self, cell: MemoryCell) -> None:
        family = await cell.push_file(DEPEND)
        await cell.dispatch.user_commands.cancel_job((await cell.newest(family, "go")).id)
        async with cell.run_timeouts():
            await settle()
        assert (await cell.statuses(family))["go"] == "canceled"
        assert await cell.store.pipelines.find_downstream((await cell.newest(family, "go")).id) is None

    async def test_cancel_while_the_pipeline_is_being_started(
        self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        family = await cell.push_file(DEPEND)
        start = MemoryStarter.start

        async def start_slowly(starter: MemoryStarter, request: PipelineRequest) -> Pipeline:
            await cell.dispatch.changes.cancel_pipeline(family.pipeline.id)
            return await start(starter, request)

        monkeypatch.setattr(MemoryStarter, "start", start_slowly)
        async with cell.run_timeouts():
            await settle()
        assert await cell.statuses(family) == {"go": "canceled", "after": "canceled", "pipeline": "canceled"}
        assert (await cell.child(family)).pipeline.status == "canceled"


class TestRestarts:
    """The process may die between any two changes; the next one continues from the store."""

    async def test_death_between_the_changes_of_pipeline_and_trigger_job(
        self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        family = await cell.push_file(DEPEND)
        job = await cell.newest(family, "go")
        change, changes = cell.store.pipelines.change_family, 0

        async def fail_second_change(*args: object) -> object:
            nonlocal changes
            changes += 1
            if changes == 2:
                raise StoreError("gone")
            return await change(*args)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(cell.store.pipelines, "change_family", fail_second_change)
            with pytest.raises(StoreError):
                await cell.trigger_jobs.advance(job.id)
        downstream = await cell.store.pipelines.find_downstream(job.id)
        assert downstream is not None
        job = await cell.job(job.id)
        assert (job.state, job.downstream_id) == (JobState.RUNNING, None)

        cell = await cell.reopen()
        async with cell.run_timeouts():
            await settle()
            assert (await cell.job(job.id)).downstream_id == downstream.id
            await cell.run_next()
            assert (await cell.statuses(family))["go"] == "success"
            assert await cell.store.pipelines.find_downstream(job.id) == await cell.store.pipelines.load_pipeline(
                downstream.id
            )
            assert len(cell.dispatch.memory.waiting_jobs) == 1, "only the job of the next stage waits, no second child"

    async def test_death_after_the_end_of_the_downstream_pipeline(self, cell: MemoryCell) -> None:
        family = await cell.push_file(DEPEND)
        job = await cell.newest(family, "go")
        await cell.trigger_jobs.advance(job.id)
        assert await cell.run_next() == "child-job"
        assert await cell.status(job.id) == "running"
        cell = await cell.reopen()
        async with cell.run_timeouts():
            await settle()
        assert await cell.status(job.id) == "success"

    async def test_death_while_a_trigger_job_is_canceled(self, cell: MemoryCell) -> None:
        family = await cell.push_file(DEPEND)
        job = await cell.newest(family, "go")
        await cell.trigger_jobs.advance(job.id)
        await cell.dispatch.user_commands.cancel_job(job.id)
        cell = await cell.reopen()
        async with cell.run_timeouts():
            await settle()
        assert await cell.status(job.id) == "canceled"
        assert (await cell.child(family)).pipeline.status == "canceled"

    async def test_death_before_the_pipeline_is_started(self, cell: MemoryCell) -> None:
        family = await cell.push_file(DEPEND)
        cell = await cell.reopen()
        async with cell.run_timeouts():
            await settle()
        assert (await cell.child(family)).pipeline.is_child

    async def test_a_store_error_delays_the_start(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fail(*_: object) -> None:
            raise StoreError("disk full")

        family = await cell.push_file(DEPEND)
        with monkeypatch.context() as patch:
            patch.setattr(cell.store.jobs, "load_spec", fail)
            async with cell.run_timeouts():
                await settle()
        assert (await cell.statuses(family))["go"] == "pending"
        async with cell.run_timeouts():
            await cell.clock.advance(61)
            assert (await cell.statuses(family))["go"] == "running"

    async def test_an_unexpected_error_of_the_starter_fails_the_job(
        self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def fail(*_: object) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(MemoryStarter, "start", fail)
        family = await cell.store.pipelines.add_pipeline(a_pipeline(project_id=cell.project.id), A_TRIGGER, now=0)
        cell.dispatch.memory.announce(family.jobs)
        async with cell.run_timeouts():
            await settle()
        assert (await cell.newest(family, "go")).failure_reason == "data_integrity_failure"


async def test_a_trigger_job_keeps_its_resource_group_until_its_pipeline_ends(cell: MemoryCell) -> None:
    text = DEPEND.replace("go: {", "go: {resource_group: prod, ")
    async with cell.run_timeouts():
        first = await cell.push_file(text)
        await settle()
        second = await cell.push_file(text)
        await settle()
        assert (await cell.statuses(second))["go"] == "waiting_for_resource"
        await cell.run_next()
        assert (await cell.statuses(first))["go"] == "success"
        assert (await cell.statuses(second))["go"] == "running"
