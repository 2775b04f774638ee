"""Timeouts in virtual time: leases, silent, delayed and stuck jobs, restarts, and store failures."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

import pytest

from remuda.cell.core.jobs import lifecycle
from remuda.cell.dispatch.handout import Assignment, NoJob
from remuda.cell.errors import StoreError
from remuda.cell.values import Family, Job, RunnerManager
from remuda.cell.values.changes import Applied, Changes
from remuda.lib.clock import settle
from remuda.model.job import ASSIGNED, JobState, PipelineId
from remuda.testing.builders import a_spec
from remuda.testing.memory_cell import MemoryCell


class TestLeases:
    async def test_a_runner_that_never_calls_loses_its_job(self, cell: MemoryCell) -> None:
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

    async def test_error_of_one_job_stops_no_sweep(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        odd, _ = await cell.push(a_spec("odd")), await cell.push(a_spec("plain"))
        change_family = cell.store.pipelines.change_family

        async def fail_for_odd(pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
            if pipeline_id == odd.pipeline.id:
                raise RuntimeError("odd")
            return await change_family(pipeline_id, decide)

        monkeypatch.setattr(cell.store.pipelines, "change_family", fail_for_odd)
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

    async def test_a_disconnected_client_releases_its_job_at_once(self, cell: MemoryCell) -> None:
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

    async def test_downtime_of_the_cell_does_not_count_as_silence(self, cell: MemoryCell) -> None:
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
    async def test_downtime_of_the_store_does_not_count_as_silence(
        self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch, seconds: float
    ) -> None:
        async def fail(*_: object) -> None:
            raise StoreError("unavailable")

        await cell.push(a_spec("one"), a_spec("two"))
        async with cell.run_timeouts():
            running, _ = await cell.start()
            leased, _ = await cell.take()
            with monkeypatch.context() as patched:
                patched.setattr(cell.store.jobs, "list_jobs_in", fail)
                patched.setattr(cell.store, "check_writable", fail)
                await cell.clock.advance(seconds)
            await cell.clock.advance(55)
            assert await cell.status(leased.id) == "running"
            await cell.clock.advance(15)
            assert await cell.status(leased.id) == "pending"
            assert await cell.status(running.id) == "running"
            await cell.clock.advance(1900)
            assert await cell.status(running.id) == "failed"

    @pytest.mark.parametrize("seconds", [80, 7200])
    async def test_a_suspended_process_does_not_end_leases_at_once(self, cell: MemoryCell, seconds: float) -> None:
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

    async def test_a_restart_finds_waiting_jobs(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        cursor = cell.dispatch.memory.cursor
        await cell.clock.advance(1)
        cell = await cell.reopen()
        assert len(cell.dispatch.memory.waiting_jobs) == 1
        assert cell.dispatch.memory.cursor != cursor
        assert isinstance(await cell.poll(), Assignment)

    async def test_a_sweep_finds_a_job_that_was_not_announced(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec())
        cell.dispatch.memory.waiting_jobs.discard(family.jobs[0].id)
        async with cell.run_timeouts():
            await cell.clock.advance(61)
        assert isinstance(await cell.poll(), Assignment)

    async def test_sweeps_continue_after_store_errors(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
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

    async def test_a_job_starts_exactly_at_its_time(self, cell: MemoryCell) -> None:
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

    async def test_a_job_that_became_due_while_the_cell_was_down_starts(self, cell: MemoryCell) -> None:
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

    async def test_a_store_error_does_not_lose_the_job(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fail(*_: object) -> None:
            raise StoreError("disk full")

        async with cell.run_timeouts():
            await cell.push(self.spec)
            with monkeypatch.context() as patch:
                patch.setattr(cell.store.pipelines, "change_family", fail)
                await cell.clock.advance(602)
            await cell.clock.advance(5)
            assert isinstance(await cell.poll(), Assignment)


async def test_a_sweep_passes_on_a_free_resource_group(cell: MemoryCell) -> None:
    first = await cell.push(a_spec("a", resource_group="prod"))
    second = await cell.push(a_spec("b", resource_group="prod"))
    await cell.store.pipelines.change_family(
        first.pipeline.id, lambda family: lifecycle.cancel_all(family, cell.clock.now())
    )  # as a process that dies right after this change
    assert (await cell.statuses(second))["b"] == "waiting_for_resource"
    cell = await cell.reopen()
    async with cell.run_timeouts():
        await settle()
    assert (await cell.statuses(second))["b"] == "pending"


class TestConcurrentChanges:
    """A job changes after a sweep has read the store and before the sweep uses the result."""

    @pytest.mark.parametrize("states_read", [ASSIGNED, frozenset({JobState.PENDING})])
    async def test_a_job_is_handed_out(
        self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch, states_read: frozenset[JobState]
    ) -> None:
        family = await cell.push(a_spec("one"), a_spec("two"), a_spec("three"))
        await cell.take()
        await self.sweep(cell, monkeypatch, states_read, cell.take())
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
        self, cell: MemoryCell, patch: pytest.MonkeyPatch, states_read: frozenset[JobState], change: Awaitable[object]
    ) -> None:
        read, pending = cell.store.jobs.list_jobs_in, [change]

        async def read_then_change(states: Collection[JobState]) -> Sequence[Job]:
            jobs = await read(states)
            if frozenset(states) == states_read and pending:
                await pending.pop()
            return jobs

        patch.setattr(cell.store.jobs, "list_jobs_in", read_then_change)
        async with cell.run_timeouts():
            await settle()
        assert not pending


HOUR = 3600.0


async def keep_in_touch(cell: MemoryCell, hours: int) -> None:
    """Advance the clock while the runner's manager contacts the cell every hour."""
    for _ in range(hours):
        manager = RunnerManager(runner_id=cell.runner.id, system_id="s_1", contacted_at=cell.clock.now())
        await cell.store.runners.put_manager(manager)
        await cell.clock.advance(HOUR)


async def test_a_job_that_no_runner_fits_fails_after_an_hour(cell: MemoryCell) -> None:
    async with cell.run_timeouts():
        family = await cell.push(a_spec("odd", tags=("gpu",)), a_spec("plain", tags=("linux",)))
        await keep_in_touch(cell, 1)
        await cell.clock.advance(61)
        job = await cell.newest(family, "odd")
        assert (job.state, job.failure_reason) == (JobState.FAILED, "stuck_pending_no_matching_runners")
        assert job.failure_message == "no runner that could take it has been available for 1 hour"
        assert (await cell.take())[0].name == "plain"
        assert isinstance(await cell.poll(), NoJob)


async def test_an_offline_runner_does_not_count_but_a_busy_one_does(cell: MemoryCell) -> None:
    async with cell.run_timeouts():
        family = await cell.push(a_spec("first", timeout_seconds=36_000), a_spec("second"))
        _, token = await cell.start()
        for _ in range(10):
            await cell.clock.advance(600)
            await cell.put(token, "running")
        assert (await cell.statuses(family))["second"] == "pending"
        await cell.put(token, "success")
        await cell.clock.advance(120)
        assert (await cell.newest(family, "second")).failure_reason == "stuck_pending_no_matching_runners"


async def test_a_job_that_is_never_taken_fails_after_a_day(cell: MemoryCell) -> None:
    async with cell.run_timeouts():
        family = await cell.push(a_spec("unlucky", retry_max=1, retry_when=("stuck_or_timeout_failure",)))
        await keep_in_touch(cell, 24)
        await cell.clock.advance(61)
        assert (await cell.job(family.jobs[0].id)).failure_reason == "stuck_pending_with_matching_runners"
        retried = await cell.newest(family, "unlucky")
        assert (retried.state, retried.tries) == (JobState.PENDING, 2), "the retry has a new day"


async def test_after_downtime_of_the_cell_runners_have_time_to_return(cell: MemoryCell) -> None:
    family = await cell.push(a_spec())
    await cell.clock.advance(48 * HOUR)
    cell = await cell.reopen()
    async with cell.run_timeouts():
        await cell.clock.advance(HOUR - 60)
        assert (await cell.statuses(family))["build"] == "pending"
        await cell.clock.advance(121)
        assert (await cell.statuses(family))["build"] == "failed"


@pytest.mark.parametrize(
    ("graceful", "state", "reason"),
    [(False, JobState.FAILED, "server_timeout_running"), (True, JobState.CANCELED, "server_timeout_canceling")],
)
async def test_job_that_exceeds_timeout_ends(cell: MemoryCell, graceful: bool, state: JobState, reason: str) -> None:
    family = await cell.push(a_spec(timeout_seconds=700))
    async with cell.run_timeouts():
        job, token = await cell.start(graceful=graceful)
        if graceful:
            await cell.dispatch.user_commands.cancel_job(job.id)
        for _ in range(15):
            await cell.clock.advance(100)
            await cell.put(token, "running")
        assert await cell.status(job.id) == ("canceling" if graceful else "running")
        await cell.clock.advance(161)
    finished_job = await cell.newest(family, "build")
    assert (finished_job.state, finished_job.failure_reason) == (state, reason)
    assert await cell.refusal(token) == state.value


async def test_a_silent_canceling_job_ends(cell: MemoryCell) -> None:
    family = await cell.push(a_spec())
    async with cell.run_timeouts():
        job, _ = await cell.start(graceful=True)
        await cell.dispatch.user_commands.cancel_job(job.id)
        await cell.clock.advance(1900)
    finished_job = await cell.newest(family, "build")
    assert (finished_job.state, finished_job.failure_reason) == (JobState.CANCELED, "no_updates_canceling")
