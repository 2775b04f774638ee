"""Job changes and what follows from them: resource groups, and a state machine over several pipelines."""

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from remuda.cell.errors import StoreError
from remuda.cell.values import Family, Job
from remuda.model.job import ASSIGNED, FINAL, OCCUPYING, JobState
from remuda.model.progress import OVER
from remuda.testing.builders import a_project, a_spec
from remuda.testing.memory_cell import MemoryCell


class TestResourceGroups:
    async def test_pipelines_take_turns_the_oldest_first(self, cell: MemoryCell) -> None:
        families = [await cell.push(a_spec("deploy", resource_group="prod")) for _ in range(3)]
        for _ in families:
            states = [(await cell.statuses(family))["deploy"] for family in families]
            assert Counter(states)["pending"] == 1
            assert states == sorted(states, key=["success", "pending", "waiting_for_resource"].index)
            await cell.run_next()
        assert [(await cell.statuses(family))["pipeline"] for family in families] == ["success"] * 3

    async def test_a_pipeline_that_waits_for_a_resource_has_that_status(self, cell: MemoryCell) -> None:
        await cell.push(a_spec("deploy", resource_group="prod"))
        family = await cell.push(a_spec("build"), a_spec("deploy", stage_index=2, resource_group="prod"))
        job, token = await cell.take()
        assert job.name == "deploy"
        await cell.run_next()
        assert await cell.statuses(family) == {
            "build": "success",
            "deploy": "waiting_for_resource",
            "pipeline": "waiting_for_resource",
        }
        await cell.put(token, "failed", reason="script_failure")
        assert (await cell.statuses(family))["deploy"] == "pending"

    async def test_groups_of_another_name_or_project_are_independent(self, cell: MemoryCell) -> None:
        await cell.push(a_spec("deploy", resource_group="prod"))
        other = await cell.push(a_spec("deploy", resource_group="test"))
        assert (await cell.statuses(other))["deploy"] == "pending"
        cell.project = await cell.store.projects.add_project(a_project(path="acme/other"))
        elsewhere = await cell.push(a_spec("deploy", resource_group="prod"))
        assert (await cell.statuses(elsewhere))["deploy"] == "pending"

    async def test_an_expired_lease_keeps_the_group(self, cell: MemoryCell) -> None:
        await cell.push(a_spec("deploy", resource_group="prod"))
        second = await cell.push(a_spec("deploy", resource_group="prod"))
        async with cell.run_timeouts():
            await cell.take()
            await cell.clock.advance(61)
        assert (await cell.statuses(second))["deploy"] == "waiting_for_resource"

    async def test_job_ends_if_its_group_is_not_passed(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        await cell.push(a_spec("deploy", resource_group="prod"))
        second = await cell.push(a_spec("deploy", resource_group="prod"))
        _, token = await cell.start()

        async def fail(*_: object) -> None:
            raise StoreError("disk full")

        with monkeypatch.context() as patch:
            patch.setattr(cell.store.jobs, "find_first_of_group", fail)
            assert await cell.put(token, "success") == (200, "success")
        assert (await cell.statuses(second))["deploy"] == "waiting_for_resource"
        async with cell.run_timeouts():
            assert (await cell.statuses(second))["deploy"] == "pending"


class TestProcessModes:
    async def set_mode(self, cell: MemoryCell, mode: str) -> None:
        group = await cell.store.deployments.find_resource_group(cell.project.id, "prod")
        assert group is not None
        await cell.store.deployments.put_resource_group(msgspec.structs.replace(group, process_mode=mode))
        await cell.dispatch.changes.hand_on_resource_group(cell.project.id, "prod")

    async def run_all(self, cell: MemoryCell, families: list[Family]) -> list[int]:
        """Run all jobs of the group; return the places of their pipelines in the order in which they ran."""
        order = []
        for _ in families:
            job, token = await cell.start()
            order.append([family.pipeline.id for family in families].index(job.pipeline_id))
            await cell.put(token, "success")
        return order

    @pytest.mark.parametrize(
        ("mode", "order"),
        [
            ("unordered", [0, 1, 2]),
            ("oldest_first", [0, 1, 2]),
            ("newest_first", [0, 2, 1]),
            ("newest_ready_first", [0, 2, 1]),
        ],
    )
    async def test_which_waiting_job_is_next(self, cell: MemoryCell, mode: str, order: list[int]) -> None:
        families = [await cell.push(a_spec("deploy", resource_group="prod")) for _ in range(3)]
        await self.set_mode(cell, mode)
        assert await self.run_all(cell, families) == order

    @pytest.mark.parametrize(("mode", "state"), [("unordered", "pending"), ("oldest_first", "waiting_for_resource")])
    async def test_oldest_first_waits_for_jobs_that_are_not_ready(
        self, cell: MemoryCell, mode: str, state: str
    ) -> None:
        specs = a_spec("build"), a_spec("deploy", stage_index=2, resource_group="prod")
        older = await cell.push(*specs)
        await self.set_mode(cell, mode)
        newer = await cell.push(a_spec("deploy", resource_group="prod"))
        assert (await cell.statuses(newer))["deploy"] == state
        await self.set_mode(cell, "unordered")
        assert (await cell.statuses(newer))["deploy"] == "pending"
        assert (await cell.statuses(older))["deploy"] == "created"

    async def test_a_canceled_job_is_not_waited_for(self, cell: MemoryCell) -> None:
        older = await cell.push(a_spec("build"), a_spec("deploy", stage_index=2, resource_group="prod"))
        await self.set_mode(cell, "oldest_first")
        newer = await cell.push(a_spec("deploy", resource_group="prod"))
        await cell.dispatch.changes.cancel_pipeline(older.pipeline.id)
        assert (await cell.statuses(newer))["deploy"] == "pending"


SPECS = st.lists(
    st.builds(
        lambda when, group, stage, optional, tries: {
            "when": when,
            "resource_group": group,
            "stage_index": stage,
            "allow_failure": optional,
            "retry_max": tries,
            "start_in_seconds": 30,
        },
        st.sampled_from(["on_success", "on_success", "on_failure", "always", "manual", "delayed"]),
        st.sampled_from(["", "prod", "prod", "test"]),
        st.integers(1, 3),
        st.booleans(),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=5,
)


class Pipelines(RuleBasedStateMachine):
    """Several pipelines of a project in parallel, changed by users, runners and timeouts."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.cell: MemoryCell = self.run(MemoryCell.open())
        self.assigned: list[tuple[Job, str]] = []

    def teardown(self) -> None:
        with self.loop:
            self.finish_everything()

    def run(self, work: Any) -> Any:
        return self.loop.run(work)

    def jobs(self, *states: JobState) -> list[Job]:
        return [job for job in self.run(self.cell.store.jobs.list_jobs_in(states or list(JobState))) if not job.retried]

    @rule(specs=SPECS)
    def push(self, specs: list[dict[str, Any]]) -> None:
        self.run(self.cell.push(*(a_spec(f"job{number}", **options) for number, options in enumerate(specs))))

    @precondition(lambda self: bool(self.cell.dispatch.memory.waiting_jobs))
    @rule(acknowledged=st.booleans())
    def hand_out(self, acknowledged: bool) -> None:
        self.assigned.append(self.run(self.cell.start() if acknowledged else self.cell.take()))

    @precondition(lambda self: self.assigned)
    @rule(data=st.data(), state=st.sampled_from(["success", "failed"]))
    def end(self, data: st.DataObject, state: str) -> None:
        self._end(*self.assigned.pop(data.draw(st.integers(0, len(self.assigned) - 1))), state)

    def _end(self, job: Job, token: str, state: str) -> None:
        current = self.run(self.cell.job(job.id))
        if current.state in ASSIGNED and current.epoch == job.epoch:
            self.run(self.cell.put(token, state, reason="script_failure"))

    @precondition(lambda self: self.jobs())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.run(self.cell.dispatch.user_commands.cancel_job(data.draw(st.sampled_from(self.jobs())).id))

    @precondition(lambda self: self.jobs())
    @rule(data=st.data())
    def cancel_pipeline(self, data: st.DataObject) -> None:
        self.run(self.cell.dispatch.changes.cancel_pipeline(data.draw(st.sampled_from(self.jobs())).pipeline_id))

    @precondition(lambda self: self.jobs(JobState.SUCCESS, JobState.FAILED, JobState.CANCELED))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        finished = self.jobs(JobState.SUCCESS, JobState.FAILED, JobState.CANCELED)
        self.run(self.cell.dispatch.user_commands.retry_job(data.draw(st.sampled_from(finished)).id))

    @precondition(lambda self: self.jobs())
    @rule(data=st.data())
    def retry_pipeline(self, data: st.DataObject) -> None:
        self.run(self.cell.dispatch.user_commands.retry_pipeline(data.draw(st.sampled_from(self.jobs())).pipeline_id))

    @precondition(lambda self: self.jobs(JobState.MANUAL, JobState.SCHEDULED))
    @rule(data=st.data())
    def play(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.jobs(JobState.MANUAL, JobState.SCHEDULED)))
        self.run(self.cell.dispatch.user_commands.play_job(job.id))

    @rule(seconds=st.sampled_from([10, 31]))
    def pass_time(self, seconds: int) -> None:
        async def watch() -> None:
            async with self.cell.run_timeouts():
                await self.cell.clock.advance(seconds)

        self.run(watch())

    @invariant()
    def a_group_has_one_job_at_most_and_no_job_waits_for_a_free_group(self) -> None:
        occupied = Counter(job.resource_group for job in self.jobs(*OCCUPYING) if job.resource_group)
        assert all(count == 1 for count in occupied.values())
        assert {job.resource_group for job in self.jobs(JobState.WAITING_FOR_RESOURCE)} <= occupied.keys()

    @invariant()
    def a_pipeline_is_over_when_no_job_is_active(self) -> None:
        for job in self.jobs():
            pipeline = self.run(self.cell.store.pipelines.load_pipeline(job.pipeline_id))
            assert (pipeline.finished_at is not None) == (pipeline.status in OVER)
            if pipeline.status in OVER:
                assert job.state in FINAL or (job.state is JobState.MANUAL and job.allow_failure)

    def finish_everything(self) -> None:
        """Without user commands every pipeline ends, or waits for a manual job."""
        for _ in range(500):
            if self.assigned:
                self._end(*self.assigned.pop(), "success")
            elif len(self.cell.dispatch.memory.waiting_jobs):
                self.assigned.append(self.run(self.cell.start()))
            elif self.jobs(JobState.SCHEDULED):
                self.pass_time(31)
            else:
                break
        open_states = {job.state for job in self.jobs()} - FINAL
        assert open_states <= {JobState.MANUAL, JobState.CREATED}
        assert JobState.CREATED not in open_states or JobState.MANUAL in open_states


Pipelines.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestPipelines = Pipelines.TestCase
