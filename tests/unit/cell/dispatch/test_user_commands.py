"""Commands of users: cancel, force-cancel, retry, play and unschedule."""

import pytest

from remuda.cell.dispatch.handout import Assignment, NoJob
from remuda.cell.errors import InvalidError, NotFoundError
from remuda.model.job import JobState
from remuda.testing.builders import a_spec
from remuda.testing.memory_cell import MemoryCell


class TestCancel:
    async def test_a_runner_with_graceful_cancel_finishes_its_job(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec())
        job, token = await cell.start(graceful=True)
        assert (await cell.dispatch.user_commands.cancel_job(job.id)).state is JobState.CANCELING
        assert (await cell.dispatch.user_commands.cancel_job(job.id)).state is JobState.CANCELING
        assert await cell.put(token, "running") == (200, "canceling")
        job = await cell.dispatch.runner_calls.authenticate(token)
        assert (await cell.dispatch.runner_calls.append_trace(job, 0, b"cleaning up")).taken
        assert await cell.put(token, "failed", reason="job_canceled") == (200, "canceled")
        assert await cell.put(token, "failed", reason="job_canceled") == (200, "canceled")
        assert await cell.statuses(family) == {"build": "canceled", "pipeline": "canceled"}

    async def test_a_runner_without_graceful_cancel_is_refused_at_once(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.start()
        await cell.dispatch.runner_calls.append_trace(job, 0, b"hello")
        assert (await cell.dispatch.user_commands.cancel_job(job.id)).state is JobState.CANCELED
        assert (await cell.job(job.id)).trace_checksum == "crc32:3610a686"
        assert await cell.refusal(token) == "canceled"
        assert await cell.put(token, "failed") == (403, "canceled")

    async def test_a_leased_job_is_canceled_at_once(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.take(graceful=True)
        assert (await cell.dispatch.user_commands.cancel_job(job.id)).state is JobState.CANCELED
        assert await cell.refusal(token) == "canceled"

    async def test_a_pending_job_leaves_the_queue(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec())
        await cell.dispatch.user_commands.cancel_job(family.jobs[0].id)
        assert len(cell.dispatch.memory.waiting_jobs) == 0
        assert isinstance(await cell.poll(), NoJob)

    async def test_a_silent_canceling_job_ends_canceled(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        async with cell.run_timeouts():
            job, token = await cell.start(graceful=True)
            await cell.dispatch.user_commands.cancel_job(job.id)
            for _ in range(10):
                await cell.clock.advance(30)
                assert await cell.put(token, "running") == (200, "canceling"), "a running after_script is not silence"
            await cell.clock.advance(200)
        finished_job = await cell.job(job.id)
        assert (finished_job.state, finished_job.failure_reason) == (JobState.CANCELED, "no_updates_canceling")

    async def test_cancel_of_a_pipeline(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec("a"), a_spec("b"), a_spec("c", stage="deploy", stage_index=2, when="always"))
        await cell.start()
        assert (await cell.dispatch.changes.cancel_pipeline(family.pipeline.id)).status == "canceled"
        assert set((await cell.statuses(family)).values()) == {"canceled"}

    async def test_missing_jobs_and_pipelines_are_not_found(self, cell: MemoryCell) -> None:
        for command in (
            cell.dispatch.user_commands.cancel_job,
            cell.dispatch.user_commands.retry_job,
            cell.dispatch.user_commands.play_job,
            cell.dispatch.user_commands.unschedule_job,
            cell.dispatch.changes.cancel_pipeline,
            cell.dispatch.user_commands.retry_pipeline,
        ):
            with pytest.raises(NotFoundError):
                await command(99)


class TestCancelWithoutTwoPhaseCommit:
    """A manager without two-phase commit runs every job that it gets, even before its first call for the job."""

    async def test_a_job_starts_with_its_hand_out(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec())
        await cell.clock.advance(5)
        job, token = await cell.take(two_phase=False)
        handed_out_at = cell.clock.now()
        assert (job.status(), job.start_time()) == ("running", handed_out_at)
        await cell.clock.advance(3)
        assert await cell.put(token, "running") == (200, "running")
        stored_job = await cell.job(job.id)
        assert (stored_job.started_at, (await cell.pipeline(family)).started_at) == (handed_out_at, handed_out_at)
        await cell.clock.advance(4)
        assert await cell.put(token, "success") == (200, "success")
        assert (await cell.job(job.id)).started_at == handed_out_at

    async def test_a_cancel_before_the_first_call_keeps_the_log(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec())
        job, token = await cell.take(graceful=True, two_phase=False)
        await cell.clock.advance(1)
        canceling = await cell.dispatch.user_commands.cancel_job(job.id)
        assert (canceling.state, canceling.started_at) == (JobState.CANCELING, job.leased_at)
        await cell.clock.advance(2)
        job = await cell.dispatch.runner_calls.authenticate(token)
        assert (await cell.dispatch.runner_calls.append_trace(job, 0, b"after_script")).taken
        assert await cell.put(token, "running") == (200, "canceling")
        assert await cell.put(token, "failed", reason="job_canceled") == (200, "canceled")
        finished_job = await cell.job(job.id)
        assert (finished_job.state, finished_job.trace_bytes, finished_job.started_at) == (
            JobState.CANCELED,
            12,
            job.leased_at,
        )
        assert await cell.statuses(family) == {"build": "canceled", "pipeline": "canceled"}

    async def test_a_job_that_cannot_stop_gracefully_counts_as_started(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.take(two_phase=False)
        await cell.clock.advance(1)
        canceled = await cell.dispatch.user_commands.cancel_job(job.id)
        assert (canceled.state, canceled.started_at) == (JobState.CANCELED, job.leased_at)
        assert await cell.refusal(token) == "canceled"

    async def test_a_manager_that_dies_before_its_first_call_loses_the_job(self, cell: MemoryCell) -> None:
        """The manager has reported no effect of the job, so the job is handed out again after its lease."""
        await cell.push(a_spec())
        async with cell.run_timeouts():
            job, token = await cell.take(graceful=True, two_phase=False)
            await cell.clock.advance(61)
            stored_job = await cell.job(job.id)
            assert (stored_job.state, stored_job.start_time(), stored_job.started_at) == (JobState.PENDING, None, None)
            assert await cell.refusal(token) == "pending"
            second, _ = await cell.take(two_phase=False)
            assert (second.id, second.epoch) == (job.id, 2)
            assert await cell.refusal(token) is None, "the token belongs to an earlier hand-out"

    async def test_a_canceled_job_without_calls_ends_with_its_lease(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        async with cell.run_timeouts():
            job, token = await cell.take(graceful=True, two_phase=False)
            await cell.dispatch.user_commands.cancel_job(job.id)
            await cell.clock.advance(61)
        finished_job = await cell.job(job.id)
        assert (finished_job.state, finished_job.failure_reason) == (JobState.CANCELED, "no_updates_canceling")
        assert await cell.refusal(token) == "canceled"

    async def test_a_canceled_job_whose_client_disconnected_ends_at_once(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, _ = await cell.take(graceful=True, two_phase=False)
        await cell.dispatch.user_commands.cancel_job(job.id)
        await cell.dispatch.changes.release(job)
        assert await cell.status(job.id) == "canceled"

    async def test_a_call_of_the_runner_overrides_the_release(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.take(graceful=True, two_phase=False)
        await cell.dispatch.user_commands.cancel_job(job.id)
        assert await cell.put(token, "running") == (200, "canceling")
        await cell.dispatch.changes.release(job)
        assert await cell.status(job.id) == "canceling"


class TestForce:
    async def test_a_canceling_job_ends_at_once(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec())
        job, token = await cell.start(graceful=True)
        assert (await cell.dispatch.user_commands.cancel_job(job.id)).state is JobState.CANCELING
        for _ in range(2):
            assert (await cell.dispatch.user_commands.cancel_job(job.id, force=True)).state is JobState.CANCELED
        assert await cell.refusal(token) == "canceled"
        assert await cell.statuses(family) == {"build": "canceled", "pipeline": "canceled"}

    async def test_running_and_waiting_jobs_end_at_once(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec("runs"), a_spec("waits"))
        await cell.start(graceful=True)
        for job in family.jobs:
            await cell.dispatch.user_commands.cancel_job(job.id, force=True)
        assert set((await cell.statuses(family)).values()) == {"canceled"}

    async def test_a_finished_job_does_not_change(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.start()
        await cell.put(token, "success")
        assert (await cell.dispatch.user_commands.cancel_job(job.id, force=True)).state is JobState.SUCCESS

    async def test_a_trigger_job_still_waits_for_its_pipeline(self, cell: MemoryCell) -> None:
        cell.files[cell.project.path] = {"child.yml": "inner: {script: [sleep 1]}\n"}
        family = await cell.push_file("go: {trigger: {include: child.yml, strategy: depend}}\n")
        async with cell.run_timeouts():
            await cell.start(graceful=True)
            go = await cell.newest(family, "go")
            assert (await cell.dispatch.user_commands.cancel_job(go.id, force=True)).state is JobState.CANCELING


class TestRetry:
    async def test_a_failed_job_is_retried_by_its_rules(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec("flaky", retry_max=1), a_spec("next", stage="deploy", stage_index=2))
        first, token = await cell.start()
        assert await cell.put(token, "failed", reason="script_failure") == (200, "failed")
        assert await cell.statuses(family) == {"flaky": "pending", "next": "created", "pipeline": "pending"}
        assert (await cell.job(first.id)).retried

        second, token = await cell.start()
        assert (second.id != first.id, second.tries, second.epoch) == (True, 2, 1)
        await cell.put(token, "failed", reason="script_failure")
        assert await cell.statuses(family) == {"flaky": "failed", "next": "skipped", "pipeline": "failed"}

    async def test_retry_rules_can_name_failure_reasons(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec("flaky", retry_max=2, retry_when=("runner_system_failure",)))
        _, token = await cell.start()
        await cell.put(token, "failed", reason="runner_system_failure")
        _, token = await cell.start()
        await cell.put(token, "failed", reason="script_failure")
        assert (await cell.statuses(family))["pipeline"] == "failed"

    async def test_a_manual_retry_makes_skipped_jobs_wait_again(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec("flaky"), a_spec("next", stage="deploy", stage_index=2))
        first, token = await cell.start()
        await cell.put(token, "failed", reason="script_failure")
        retry = await cell.dispatch.user_commands.retry_job(first.id)
        assert (retry.state, retry.tries) == (JobState.PENDING, 1)
        assert await cell.statuses(family) == {"flaky": "pending", "next": "created", "pipeline": "pending"}
        for name in ("flaky", "next"):
            job, token = await cell.start()
            assert job.name == name
            await cell.put(token, "success")
        pipeline = await cell.pipeline(family)
        assert (pipeline.status, pipeline.finished_at) == ("success", cell.clock.now())

    async def test_each_end_is_counted_once(self, cell: MemoryCell) -> None:
        await cell.push(a_spec("flaky", retry_max=1), a_spec("next", stage="deploy", stage_index=2))
        for _ in range(2):
            last, token = await cell.start()
            await cell.put(token, "failed", reason="script_failure")
        assert cell.dispatch.memory.ended_jobs == {"failed": 2, "skipped": 1}
        assert cell.dispatch.memory.ended_pipelines == {"failed": 1}
        await cell.dispatch.user_commands.retry_job(last.id)
        assert cell.dispatch.memory.ended_jobs == {"failed": 2, "skipped": 1}

    async def test_a_job_is_retried_once_only(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.start()
        with pytest.raises(InvalidError, match="running"):
            await cell.dispatch.user_commands.retry_job(job.id)
        await cell.put(token, "success")
        await cell.dispatch.user_commands.retry_job(job.id)
        with pytest.raises(InvalidError, match="was retried"):
            await cell.dispatch.user_commands.retry_job(job.id)

    async def test_retry_of_a_pipeline_keeps_its_order(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec("a"), a_spec("b"), a_spec("c", stage="deploy", stage_index=2))
        _, token = await cell.start()
        await cell.put(token, "success")
        _, token = await cell.start()
        await cell.put(token, "failed", reason="script_failure")
        assert (await cell.dispatch.user_commands.retry_pipeline(family.pipeline.id)).status == "running"
        assert await cell.statuses(family) == {"a": "success", "b": "pending", "c": "created", "pipeline": "running"}


async def test_a_manual_job_starts_when_played(cell: MemoryCell) -> None:
    family = await cell.push(a_spec("gate", when="manual"), a_spec("next", stage="deploy", stage_index=2))
    assert await cell.statuses(family) == {"gate": "manual", "next": "created", "pipeline": "manual"}
    assert isinstance(await cell.poll(), NoJob)
    played = await cell.dispatch.user_commands.play_job(family.jobs[0].id)
    assert played.state is JobState.PENDING
    with pytest.raises(InvalidError):
        await cell.dispatch.user_commands.play_job(played.id)
    assert isinstance(await cell.poll(), Assignment)


async def test_variables_of_a_played_job_are_stored(cell: MemoryCell) -> None:
    family = await cell.push(a_spec("gate", when="manual"))
    played = await cell.dispatch.user_commands.play_job(family.jobs[0].id, {"TARGET": "prod"})
    assert played.play_variables == {"TARGET": "prod"}


async def test_a_delayed_job_can_be_unscheduled_or_played(cell: MemoryCell) -> None:
    spec = a_spec("later", when="delayed", start_in_seconds=600)
    first, second = await cell.push(spec), await cell.push(spec)
    assert (await cell.dispatch.user_commands.unschedule_job(first.jobs[0].id)).state is JobState.MANUAL
    with pytest.raises(InvalidError):
        await cell.dispatch.user_commands.unschedule_job(first.jobs[0].id)
    assert (await cell.dispatch.user_commands.play_job(second.jobs[0].id)).state is JobState.PENDING
    async with cell.run_timeouts():
        await cell.clock.advance(3600)
    assert await cell.statuses(first) == {"later": "manual", "pipeline": "manual"}
