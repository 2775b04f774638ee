import pytest

from remuda.cell.claims import Handout, NoJob
from remuda.cell.errors import InvalidError, NotFoundError
from remuda.model.job import JobState
from remuda.testing.builders import a_spec
from remuda.testing.memory_cell import MemoryCell


class TestCancel:
    async def test_a_runner_that_can_stops_gracefully(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec())
        job, token = await cell.start(graceful=True)
        assert (await cell.dispatch.cancel_job(job.id)).state is JobState.CANCELING
        assert (await cell.dispatch.cancel_job(job.id)).state is JobState.CANCELING
        assert await cell.put(token, "running") == (200, "canceling")
        assert (await cell.dispatch.append_trace(await cell.dispatch.holder(token), 0, b"cleaning up")).taken
        assert await cell.put(token, "failed", reason="job_canceled") == (200, "canceled")
        assert await cell.put(token, "failed", reason="job_canceled") == (200, "canceled")
        assert await cell.statuses(family) == {"build": "canceled", "pipeline": "canceled"}

    async def test_a_runner_that_cannot_is_cut_off(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.start()
        await cell.dispatch.append_trace(job, 0, b"hello")
        assert (await cell.dispatch.cancel_job(job.id)).state is JobState.CANCELED
        assert (await cell.job(job.id)).trace_checksum == "crc32:3610a686"
        assert await cell.refusal(token) == "canceled"
        assert await cell.put(token, "failed") == (403, "canceled")

    async def test_a_leased_job_is_canceled_at_once(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.take(graceful=True)
        assert (await cell.dispatch.cancel_job(job.id)).state is JobState.CANCELED
        assert await cell.refusal(token) == "canceled"

    async def test_a_pending_job_leaves_the_queue(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec())
        await cell.dispatch.cancel_job(family.jobs[0].id)
        assert cell.dispatch.waiting() == 0
        assert isinstance(await cell.poll(), NoJob)

    async def test_a_silent_canceling_job_ends_canceled(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        async with cell.watching():
            job, _ = await cell.start(graceful=True)
            await cell.dispatch.cancel_job(job.id)
            await cell.clock.advance(1900)
        ended = await cell.job(job.id)
        assert (ended.state, ended.failure_reason) == (JobState.CANCELED, "no_updates_canceling")

    async def test_a_whole_pipeline(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec("a"), a_spec("b"), a_spec("c", stage="deploy", stage_index=2, when="always"))
        await cell.start()
        assert (await cell.dispatch.cancel_pipeline(family.pipeline.id)).status == "canceled"
        assert set((await cell.statuses(family)).values()) == {"canceled"}

    async def test_what_does_not_exist(self, cell: MemoryCell) -> None:
        for call in (
            cell.dispatch.cancel_job,
            cell.dispatch.retry_job,
            cell.dispatch.play_job,
            cell.dispatch.unschedule_job,
            cell.dispatch.cancel_pipeline,
            cell.dispatch.retry_pipeline,
        ):
            with pytest.raises(NotFoundError):
                await call(99)


class TestRetry:
    async def test_a_job_is_tried_again_by_its_rules(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec("flaky", retry_max=1), a_spec("next", stage="deploy", stage_index=2))
        first, token = await cell.start()
        assert await cell.put(token, "failed", reason="script_failure") == (200, "failed")
        assert await cell.statuses(family) == {"flaky": "pending", "next": "created", "pipeline": "pending"}
        assert (await cell.job(first.id)).retried

        second, token = await cell.start()
        assert (second.id != first.id, second.tries, second.epoch) == (True, 2, 1)
        await cell.put(token, "failed", reason="script_failure")
        assert await cell.statuses(family) == {"flaky": "failed", "next": "skipped", "pipeline": "failed"}

    async def test_rules_may_name_reasons(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec("flaky", retry_max=2, retry_when=("runner_system_failure",)))
        _, token = await cell.start()
        await cell.put(token, "failed", reason="runner_system_failure")
        _, token = await cell.start()
        await cell.put(token, "failed", reason="script_failure")
        assert (await cell.statuses(family))["pipeline"] == "failed"

    async def test_by_hand_what_was_skipped_waits_again(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec("flaky"), a_spec("next", stage="deploy", stage_index=2))
        first, token = await cell.start()
        await cell.put(token, "failed", reason="script_failure")
        fresh = await cell.dispatch.retry_job(first.id)
        assert (fresh.state, fresh.tries) == (JobState.PENDING, 1)
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
        assert cell.dispatch.ended_jobs == {"failed": 2, "skipped": 1}
        assert cell.dispatch.ended_pipelines == {"failed": 1}
        await cell.dispatch.retry_job(last.id)
        assert cell.dispatch.ended_jobs == {"failed": 2, "skipped": 1}

    async def test_a_job_is_retried_once_only(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.start()
        with pytest.raises(InvalidError, match="running"):
            await cell.dispatch.retry_job(job.id)
        await cell.put(token, "success")
        await cell.dispatch.retry_job(job.id)
        with pytest.raises(InvalidError, match="was retried"):
            await cell.dispatch.retry_job(job.id)

    async def test_a_whole_pipeline_in_its_order(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec("a"), a_spec("b"), a_spec("c", stage="deploy", stage_index=2))
        _, token = await cell.start()
        await cell.put(token, "success")
        _, token = await cell.start()
        await cell.put(token, "failed", reason="script_failure")
        assert (await cell.dispatch.retry_pipeline(family.pipeline.id)).status == "running"
        assert await cell.statuses(family) == {"a": "success", "b": "pending", "c": "created", "pipeline": "running"}


async def test_a_manual_job_starts_when_played(cell: MemoryCell) -> None:
    family = await cell.push(a_spec("gate", when="manual"), a_spec("next", stage="deploy", stage_index=2))
    assert await cell.statuses(family) == {"gate": "manual", "next": "created", "pipeline": "manual"}
    assert isinstance(await cell.poll(), NoJob)
    played = await cell.dispatch.play_job(family.jobs[0].id)
    assert played.state is JobState.PENDING
    with pytest.raises(InvalidError):
        await cell.dispatch.play_job(played.id)
    assert isinstance(await cell.poll(), Handout)


async def test_what_a_person_gives_with_a_manual_job_is_kept(cell: MemoryCell) -> None:
    family = await cell.push(a_spec("gate", when="manual"))
    played = await cell.dispatch.play_job(family.jobs[0].id, {"TARGET": "prod"})
    assert played.play_variables == {"TARGET": "prod"}


async def test_a_delayed_job_may_wait_for_a_person_or_start_at_once(cell: MemoryCell) -> None:
    spec = a_spec("later", when="delayed", start_in_seconds=600)
    first, second = await cell.push(spec), await cell.push(spec)
    assert (await cell.dispatch.unschedule_job(first.jobs[0].id)).state is JobState.MANUAL
    with pytest.raises(InvalidError):
        await cell.dispatch.unschedule_job(first.jobs[0].id)
    assert (await cell.dispatch.play_job(second.jobs[0].id)).state is JobState.PENDING
    async with cell.watching():
        await cell.clock.advance(3600)
    assert await cell.statuses(first) == {"later": "manual", "pipeline": "manual"}
