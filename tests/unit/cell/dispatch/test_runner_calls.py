"""Calls of runners for their jobs: tokens, starts, updates, traces and step results."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec import Raw

from remuda.cell.core.access.tokens import JobTokens
from remuda.cell.errors import ForbiddenError, StoreError
from remuda.cell.values import Family, StepResult
from remuda.cell.values.changes import Applied, Changes
from remuda.model.job import JobState, PipelineId
from remuda.testing.builders import a_spec
from remuda.testing.memory_cell import MemoryCell
from remuda.wire.job_token import new_key


class TestTokens:
    async def test_a_token_is_valid_for_its_own_job_only(self, cell: MemoryCell) -> None:
        await cell.push(a_spec("one"), a_spec("two"))
        first, token = await cell.take()
        second, _ = await cell.take()
        assert (await cell.dispatch.runner_calls.authenticate(token, first.id)).id == first.id
        with pytest.raises(ForbiddenError):
            await cell.dispatch.runner_calls.authenticate(token, second.id)

    @pytest.mark.parametrize("token", ["", "glcbt-", "glcbt-a.b.c", "glrt-x", "🐎" * 2000])
    async def test_a_malformed_token_is_refused(self, cell: MemoryCell, token: str) -> None:
        assert await cell.refusal(token) is None

    async def test_a_token_of_another_cells_key_is_refused(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, _ = await cell.take()
        foreign = JobTokens([new_key("other")], cell_id=1, issuer="https://ci.example")
        assert await cell.refusal(foreign.issue(job, timeout_seconds=10, now=cell.clock.now())) is None

    async def test_a_token_ends_with_its_job(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        _, token = await cell.start()
        await cell.put(token, "failed", reason="script_failure")
        assert await cell.refusal(token) == "failed"
        assert (await cell.dispatch.runner_calls.authenticate(token, ended=True)).state is JobState.FAILED

    async def test_a_token_ends_with_its_time(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.start()
        await cell.clock.advance(3600 + 299)
        await cell.dispatch.runner_calls.authenticate(token)
        await cell.clock.advance(2)
        assert await cell.refusal(token) is None
        assert (await cell.job(job.id)).state is JobState.RUNNING, "only a call with state or log ends the job"
        for _ in range(2):
            with pytest.raises(ForbiddenError) as refused:
                await cell.dispatch.runner_calls.authenticate(token, job.id, ended=True)
            assert refused.value.job_status == "failed"
        finished_job = await cell.job(job.id)
        assert (finished_job.state, finished_job.failure_reason) == (JobState.FAILED, "job_token_expired")


class TestStarts:
    async def test_joint_starts_change_pipeline_once(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        pipeline = (await cell.push(*map(a_spec, "abcd"))).pipeline
        tokens = [(await cell.take())[1] for _ in range(4)]
        changes = 0
        change = cell.store.pipelines.change_family

        async def change_slowly(pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
            nonlocal changes
            changes += 1
            await asyncio.sleep(0)
            if changes == 1:
                raise StoreError("not now")
            return await change(pipeline_id, decide)

        monkeypatch.setattr(cell.store.pipelines, "change_family", change_slowly)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(_start_with_store_error(cell, tokens[0]))
            others = [group.create_task(cell.put(token, "running")) for token in tokens[1:]]
        assert first.result(), "the error of one start does not fail the others"
        assert [other.result() for other in others] == [(200, "running")] * 3
        assert changes == 2
        stored_pipeline = await cell.store.pipelines.load_pipeline(pipeline.id)
        assert stored_pipeline is not None
        assert stored_pipeline.status == "running"


async def _start_with_store_error(cell: MemoryCell, token: str) -> bool:
    with pytest.raises(StoreError):
        await cell.put(token, "running")
    return True


class TestUpdates:
    async def test_a_final_state_may_be_sent_twice(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        _, token = await cell.start()
        assert await cell.put(token, "success") == (200, "success")
        assert await cell.put(token, "success") == (200, "success")
        assert await cell.put(token, "failed") == (403, "success")
        assert await cell.put(token, "running") == (403, "success")

    async def test_two_concurrent_equal_final_states_count_once(self, cell: MemoryCell) -> None:
        await cell.push(a_spec(retry_max=2))
        _, token = await cell.start()
        async with asyncio.TaskGroup() as group:
            puts = [group.create_task(cell.put(token, "failed", reason="script_failure")) for _ in range(2)]
        assert [put.result() for put in puts] == [(200, "failed")] * 2
        assert len(cell.dispatch.memory.waiting_jobs) == 1

    async def test_a_final_state_without_acknowledgement_counts(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec())
        job, token = await cell.take()
        assert await cell.put(token, "success") == (200, "success")
        finished_job = await cell.job(job.id)
        assert finished_job.started_at == finished_job.finished_at
        assert (await cell.pipeline(family)).started_at is not None

    @pytest.mark.parametrize("state", ["", "pending", "done"])
    async def test_an_unknown_state_is_a_bad_request(self, cell: MemoryCell, state: str) -> None:
        await cell.push(a_spec())
        _, token = await cell.start()
        assert await cell.put(token, state) == (400, "running")

    async def test_an_unknown_reason_is_stored_as_unknown_failure(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.start()
        await cell.put(token, "failed", reason="gremlins")
        assert (await cell.job(job.id)).failure_reason == "unknown_failure"

    async def test_an_end_waits_for_the_rest_of_the_trace_for_a_limited_time(self, cell: MemoryCell) -> None:
        await cell.push(a_spec("one"), a_spec("two"))
        job, token = await cell.start()
        await cell.dispatch.runner_calls.append_trace(job, 0, b"four")
        assert await cell.put(token, "success", bytesize=9) == (202, "running")
        await cell.dispatch.runner_calls.append_trace(job, 4, b" more")
        assert await cell.put(token, "success", bytesize=9) == (200, "success")

        _, token = await cell.start()
        assert await cell.put(token, "success", bytesize=9) == (202, "running")
        await cell.clock.advance(300)
        assert await cell.put(token, "success", bytesize=9) == (200, "success")

    async def test_the_wait_for_a_trace_is_shared_by_all_processes(self, cell: MemoryCell) -> None:
        await cell.push(a_spec("one"))
        _, token = await cell.start()
        assert await cell.put(token, "success", bytesize=9) == (202, "running")
        await cell.clock.advance(300)
        other = await cell.reopen()
        assert await other.put(token, "success", bytesize=9) == (200, "success")

    async def test_log_is_appended_after_a_store_error(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        await cell.push(a_spec())
        job, token = await cell.start()
        await cell.dispatch.runner_calls.append_trace(job, 0, b"four")

        async def fail(*_: object) -> None:
            raise StoreError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(cell.store.pipelines, "change_family", fail)
            with pytest.raises(StoreError):
                await cell.put(token, "success")
        assert not (await cell.dispatch.runner_calls.append_trace(job, 2, b"other")).taken
        assert (await cell.dispatch.runner_calls.append_trace(job, 4, b" more")).size == 9
        assert await cell.put(token, "success") == (200, "success")
        assert (await cell.job(job.id)).trace_bytes == 9
        with pytest.raises(ForbiddenError):
            await cell.dispatch.runner_calls.append_trace(job, 9, b"too late")

    async def test_the_end_stores_size_and_checksum_of_the_trace(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.start()
        await cell.dispatch.runner_calls.append_trace(job, 0, b"hello")
        await cell.put(token, "success")
        job = await cell.job(job.id)
        assert (job.trace_bytes, job.trace_checksum, job.exit_code) == (5, "crc32:3610a686", 0)

    async def test_warnings_of_the_runner_are_kept_for_this_attempt(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec())
        job, token = await cell.take()
        for _ in range(2):  # the answer to the first may be lost
            assert await cell.put(token, "running", remuda_warnings=["image a ignored"]) == (200, "running")
        await cell.put(token, "running")
        assert (await cell.job(job.id)).warnings == ("image a ignored",)
        await cell.put(token, "failed", reason="script_failure")
        assert (await cell.job(job.id)).warnings == ("image a ignored",)
        await cell.dispatch.user_commands.retry_job(job.id)
        assert (await cell.newest(family, "build")).warnings == ()

    async def test_the_reason_in_words_is_kept_for_this_attempt(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec())
        job, token = await cell.start()
        await cell.put(token, "failed", reason="runner_configuration_error", remuda_message="no engine answers")
        assert (await cell.job(job.id)).failure_message == "no engine answers"
        await cell.dispatch.user_commands.retry_job(job.id)
        assert (await cell.newest(family, "build")).failure_message is None

    async def test_keep_alives_are_not_all_stored(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.start()
        await cell.clock.advance(29)
        await cell.put(token, "running")
        assert (await cell.job(job.id)).updated_at == job.updated_at
        await cell.clock.advance(1)
        await cell.put(token, "running")
        assert (await cell.job(job.id)).updated_at == cell.clock.now()


class TestTracesAndResults:
    async def test_appends_must_continue_the_trace(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, _ = await cell.start()
        appends = [(0, b"hello"), (0, b"hello"), (3, b"lo world"), (20, b"gap"), (0, b"other")]
        results = [await cell.dispatch.runner_calls.append_trace(job, *append) for append in appends]
        assert [(result.taken, result.size) for result in results] == [
            (True, 5), (True, 5), (True, 11), (False, 11), (False, 11),
        ]  # fmt: skip

    async def test_a_traced_log_is_marked_before_its_bytes_are_stored(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.start()
        calls = cell.dispatch.runner_calls
        assert not (await calls.append_trace(job, 7, b"gap", is_traced=True)).taken
        assert (await cell.job(job.id)).is_traced
        assert (await calls.append_trace(job, 0, b"hello")).taken
        assert (await cell.job(job.id)).is_traced
        await cell.put(token, "success")
        assert (await cell.job(job.id)).is_traced

    async def test_a_finished_job_accepts_only_bytes_that_it_has(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.start()
        await cell.dispatch.runner_calls.append_trace(job, 0, b"hello")
        await cell.put(token, "success")
        finished_job = await cell.dispatch.runner_calls.authenticate(token, ended=True)
        assert (await cell.dispatch.runner_calls.append_trace(finished_job, 0, b"hello")).taken
        for start, data in ((5, b" more"), (0, b"other")):
            with pytest.raises(ForbiddenError) as refusal:
                await cell.dispatch.runner_calls.append_trace(finished_job, start, data)
            assert refusal.value.job_status == "success"

    async def test_a_trace_beyond_the_limit_fails_the_job(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, _ = await cell.start()
        await cell.dispatch.runner_calls.append_trace(job, 0, b"x" * 1000)
        assert not (await cell.dispatch.runner_calls.append_trace(job, 5000, b"far away")).taken
        with pytest.raises(ForbiddenError) as refusal:
            await cell.dispatch.runner_calls.append_trace(job, 1000, b"x")
        assert refusal.value.job_status == "failed"
        finished_job = await cell.job(job.id)
        assert (finished_job.failure_reason, finished_job.trace_bytes) == ("trace_size_exceeded", 1000)

    async def test_results_are_numbered(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.take()

        def a_result(seq: int) -> StepResult:
            return StepResult(job_id=job.id, seq=seq, body=Raw(b"{}"))

        assert await cell.dispatch.runner_calls.add_results(job, [a_result(1), a_result(2)]) == 3
        assert await cell.status(job.id) == "running"
        assert await cell.dispatch.runner_calls.add_results(job, [a_result(2), a_result(3), a_result(5)]) == 4
        await cell.put(token, "success")
        job = await cell.dispatch.runner_calls.authenticate(token, ended=True)
        with pytest.raises(ForbiddenError):
            await cell.dispatch.runner_calls.add_results(job, [a_result(4)])
