import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

import pytest

from remuda.cell.core.jobs import lifecycle
from remuda.cell.dispatch.handout import Assignment, NoJob
from remuda.cell.errors import StoreError
from remuda.cell.values import Family, Job
from remuda.cell.values.changes import Applied, Changes
from remuda.lib.clock import settle
from remuda.model.job import ASSIGNED, JobState, PipelineId
from remuda.testing.builders import a_spec
from remuda.testing.memory_cell import MemoryCell


class TestLeases:
    async def test_a_runner_that_never_speaks_loses_its_job(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        async with cell.run_timeouts():
            first, old_token = await cell.take()
            await cell.clock.advance(59)
            assert isinstance(await cell.poll(), NoJob)
            await cell.clock.advance(2)
            second, new_token = await cell.take()
        assert (second.id, second.epoch) == (first.id, first.epoch + 1)
        assert await cell.refusal(old_token) is None
        assert await cell.put(new_token, "success") == (200, "success")

    async def test_an_odd_job_ends_neither_the_sweep_nor_the_cell(
        self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        odd, _ = await cell.push(a_spec("odd")), await cell.push(a_spec("plain"))
        change_family = cell.store.pipelines.change_family

        async def change(pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
            if pipeline_id == odd.pipeline.id:
                raise RuntimeError("odd")
            return await change_family(pipeline_id, decide)

        monkeypatch.setattr(cell.store.pipelines, "change_family", change)
        async with cell.run_timeouts():
            await cell.take()
            await cell.take()
            await cell.clock.advance(61)
            assert (await cell.take())[0].name == "plain"

    async def test_a_held_poll_gets_the_job_when_its_lease_ends(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        async with cell.run_timeouts(), asyncio.TaskGroup() as group:
            await cell.take()
            await cell.clock.advance(30)
            held = group.create_task(cell.poll(hold=True))
            await cell.clock.advance(31)
            assert isinstance(held.result(), Assignment)

    async def test_a_runner_that_sends_only_traces_keeps_its_job(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        async with cell.run_timeouts():
            job, token = await cell.take()
            size = 0
            for _ in range(60):
                await cell.clock.advance(3)
                job = await cell.dispatch.runner_calls.authenticate(token)
                size = (await cell.dispatch.runner_calls.append_trace(job, size, b"line\n")).size
            assert job.state is JobState.RUNNING
            assert isinstance(await cell.poll(), NoJob)
            assert await cell.put(token, "success") == (200, "success")

    async def test_a_client_that_vanished_releases_its_job_at_once(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.take()
        await cell.dispatch.changes.release(job)
        second, _ = await cell.take()
        assert (second.id, second.epoch) == (job.id, 2)
        assert await cell.refusal(token) is None

    async def test_a_release_that_comes_too_late_changes_nothing(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.take()
        await cell.put(token, "running")
        await cell.dispatch.changes.release(job)
        assert await cell.status(job.id) == "running"
        assert isinstance(await cell.poll(), NoJob)

    async def test_a_silent_job_fails_and_its_log_is_kept(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec())
        async with cell.run_timeouts():
            job, token = await cell.start()
            await cell.dispatch.runner_calls.append_trace(job, 0, b"half a li")
            await cell.clock.advance(1800)
            assert await cell.status(job.id) == "running"
            await cell.clock.advance(60)
        finished_job = await cell.job(job.id)
        assert (finished_job.state, finished_job.failure_reason) == (JobState.FAILED, "no_updates_running")
        assert (finished_job.trace_bytes, finished_job.trace_checksum) == (9, "crc32:08785934")
        assert await cell.refusal(token) == "failed"
        assert (await cell.statuses(family))["pipeline"] == "failed"

    async def test_a_restart_forgives_silence_that_was_the_cells_own(self, cell: MemoryCell) -> None:
        await cell.push(a_spec("one"), a_spec("two"))
        running, _ = await cell.start()
        leased, _ = await cell.take()
        await cell.clock.advance(7200)
        cell = await cell.reopen()
        async with cell.run_timeouts():
            await cell.clock.advance(59)
            assert await cell.status(leased.id) == "running"
            await cell.clock.advance(2)
            assert await cell.status(leased.id) == "pending"
            assert await cell.status(running.id) == "running"
            await cell.clock.advance(1800)
            assert await cell.status(running.id) == "failed"

    @pytest.mark.parametrize("seconds", [90, 7200])
    async def test_a_store_that_was_away_costs_nobody_a_job(
        self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch, seconds: float
    ) -> None:
        async def away(*_: object) -> None:
            raise StoreError("away")

        await cell.push(a_spec("one"), a_spec("two"))
        async with cell.run_timeouts():
            running, _ = await cell.start()
            leased, _ = await cell.take()
            with monkeypatch.context() as patched:
                patched.setattr(cell.store.jobs, "list_jobs_in", away)
                patched.setattr(cell.store, "check_writable", away)
                await cell.clock.advance(seconds)
            await cell.clock.advance(55)
            assert await cell.status(leased.id) == "running"
            await cell.clock.advance(15)
            assert await cell.status(leased.id) == "pending"
            assert await cell.status(running.id) == "running"
            await cell.clock.advance(1900)
            assert await cell.status(running.id) == "failed"

    @pytest.mark.parametrize("seconds", [80, 7200])
    async def test_a_process_that_was_stopped_takes_nothing_back_at_once(
        self, cell: MemoryCell, seconds: float
    ) -> None:
        await cell.push(a_spec("one"), a_spec("two"))
        async with cell.run_timeouts():
            running, _ = await cell.start()
            leased, _ = await cell.take()
            cell.clock.jump(seconds)
            await cell.clock.advance(59)
            assert await cell.status(leased.id) == "running"
            await cell.clock.advance(2)
            assert await cell.status(leased.id) == "pending"
            assert await cell.status(running.id) == "running"

    async def test_a_restart_finds_what_waits(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        cursor = cell.dispatch.memory.cursor
        await cell.clock.advance(1)
        cell = await cell.reopen()
        assert len(cell.dispatch.memory.waiting_jobs) == 1
        assert cell.dispatch.memory.cursor != cursor
        assert isinstance(await cell.poll(), Assignment)

    async def test_a_sweep_finds_a_job_that_nobody_announced(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec())
        cell.dispatch.memory.waiting_jobs.discard(family.jobs[0].id)
        async with cell.run_timeouts():
            await cell.clock.advance(61)
        assert isinstance(await cell.poll(), Assignment)

    async def test_sweeps_outlive_a_store_that_fails(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        await cell.push(a_spec())
        job, _ = await cell.take()

        async def fail(*_: object) -> None:
            raise StoreError("disk full")

        async with cell.run_timeouts():
            with monkeypatch.context() as patch:
                patch.setattr(cell.store.jobs, "list_jobs_in", fail)
                await cell.clock.advance(120)
            await cell.clock.advance(10)
        assert await cell.status(job.id) == "pending"


class TestDelayed:
    spec = a_spec("later", when="delayed", start_in_seconds=600)

    async def test_a_job_starts_at_its_very_second(self, cell: MemoryCell) -> None:
        async with cell.run_timeouts():
            await cell.clock.advance(17.5)
            family = await cell.push(self.spec)
            assert await cell.statuses(family) == {"later": "scheduled", "pipeline": "scheduled"}
            await cell.clock.advance(599.9)
            assert isinstance(await cell.poll(), NoJob)
            await cell.clock.advance(0.1)
            job, _ = await cell.take()
        assert (job.pending_at, job.scheduled_at) == (cell.clock.now(), None)

    async def test_a_job_that_is_due_sooner_does_not_wait_for_the_others(self, cell: MemoryCell) -> None:
        async with cell.run_timeouts():
            await cell.push(self.spec)
            await settle()
            family = await cell.push(a_spec("soon", when="delayed", start_in_seconds=1))
            await cell.clock.advance(1)
            assert (await cell.statuses(family))["soon"] == "pending"

    async def test_a_job_whose_time_came_while_the_cell_was_away(self, cell: MemoryCell) -> None:
        await cell.push(self.spec)
        await cell.clock.advance(600 + 3599)
        cell = await cell.reopen()
        async with cell.run_timeouts():
            assert isinstance(await cell.poll(), Assignment)

    async def test_a_job_whose_time_is_long_past_is_not_started(self, cell: MemoryCell) -> None:
        family = await cell.push(self.spec, a_spec("other", when="delayed", start_in_seconds=4300))
        await cell.clock.advance(600 + 3600)
        cell = await cell.reopen()
        async with cell.run_timeouts():
            assert isinstance(await cell.poll(), NoJob)
            job = await cell.newest(family, "later")
            assert (job.state, job.failure_reason) == (JobState.FAILED, "stale_schedule")
            await cell.clock.advance(100)
            assert (await cell.take())[0].name == "other"

    async def test_a_store_that_fails_does_not_lose_it(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fail(*_: object) -> None:
            raise StoreError("disk full")

        async with cell.run_timeouts():
            await cell.push(self.spec)
            with monkeypatch.context() as patch:
                patch.setattr(cell.store.pipelines, "change_family", fail)
                await cell.clock.advance(602)
            await cell.clock.advance(5)
            assert isinstance(await cell.poll(), Assignment)


async def test_a_sweep_passes_on_a_group_that_nobody_passed_on(cell: MemoryCell) -> None:
    first = await cell.push(a_spec("a", resource_group="prod"))
    second = await cell.push(a_spec("b", resource_group="prod"))
    await cell.store.pipelines.change_family(
        first.pipeline.id, lambda family: lifecycle.cancel_all(family, cell.clock.now())
    )  # as by a process that died right after
    assert (await cell.statuses(second))["b"] == "waiting_for_resource"
    cell = await cell.reopen()
    async with cell.run_timeouts():
        await settle()
    assert (await cell.statuses(second))["b"] == "pending"


class TestMeanwhile:
    """What happens between the store's answer to a sweep and what the sweep makes of it."""

    @pytest.mark.parametrize("reads", [ASSIGNED, frozenset({JobState.PENDING})])
    async def test_a_job_is_handed_out(
        self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch, reads: frozenset[JobState]
    ) -> None:
        family = await cell.push(a_spec("one"), a_spec("two"), a_spec("three"))
        await cell.take()
        await self.sweep(cell, monkeypatch, reads, cell.take())
        explanation = await cell.dispatch.explanations.explain_job((await cell.newest(family, "three")).id)
        assert explanation.queue is not None
        assert (explanation.queue.project_running, explanation.queue.competing) == (2, 1)

    async def test_a_job_ends(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        family = await cell.push(a_spec("one"), a_spec("two"))
        _, token = await cell.take()
        await self.sweep(cell, monkeypatch, ASSIGNED, cell.put(token, "success"))
        explanation = await cell.dispatch.explanations.explain_job((await cell.newest(family, "two")).id)
        assert explanation.queue is not None
        assert explanation.queue.project_running == 0

    async def sweep(
        self, cell: MemoryCell, patch: pytest.MonkeyPatch, reads: frozenset[JobState], then: Awaitable[object]
    ) -> None:
        read, pending = cell.store.jobs.list_jobs_in, [then]

        async def reading(states: Collection[JobState]) -> Sequence[Job]:
            jobs = await read(states)
            if frozenset(states) == reads and pending:
                await pending.pop()
            return jobs

        patch.setattr(cell.store.jobs, "list_jobs_in", reading)
        async with cell.run_timeouts():
            await settle()
        assert not pending
