import asyncio

import pytest
from msgspec import Raw

from remuda.cell.claims import Handout, NoJob
from remuda.cell.core.tokens import JobTokens
from remuda.cell.errors import ForbiddenError, InvalidError, NotFoundError, StoreError
from remuda.cell.values import StepResult
from remuda.lib.clock import settle
from remuda.model.job import JobState
from remuda.testing.builders import a_runner, a_spec
from remuda.testing.memory_cell import MemoryCell
from remuda.wire.job_token import new_key


async def refused(cell: MemoryCell, token: str) -> str | None:
    """The Job-Status that comes with the refusal of a token."""
    with pytest.raises(ForbiddenError) as refusal:
        await cell.dispatch.holder(token)
    return refusal.value.job_status


class TestHandingOut:
    async def test_a_job_is_leased_then_runs_then_ends(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec("build"))
        assert await cell.statuses(family) == {"build": "pending", "pipeline": "pending"}

        await cell.clock.advance(5)
        job, token = await cell.take()
        assert (job.state, job.epoch, job.runner_id, job.system_id) == (
            JobState.LEASED,
            1,
            cell.runner.id,
            "s_abcdefabcdef",
        )

        await cell.clock.advance(1)
        assert await cell.put(token, "running") == (200, "running")
        assert await cell.statuses(family) == {"build": "running", "pipeline": "running"}

        await cell.clock.advance(10)
        assert await cell.put(token, "success") == (200, "success")
        assert await cell.statuses(family) == {"build": "success", "pipeline": "success"}
        ended = await cell.job(job.id)
        times = (ended.pending_at, ended.leased_at, ended.started_at, ended.finished_at)
        assert times == tuple(ended.created_at + seconds for seconds in (0, 5, 6, 16))

    async def test_a_runner_gets_only_what_fits(self, cell: MemoryCell) -> None:
        await cell.push(a_spec("mac", tags=("mac",)), a_spec("plain"))
        job, _ = await cell.take()
        assert job.name == "plain"
        assert isinstance(await cell.poll(), NoJob)

    async def test_a_paused_runner_gets_nothing(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        assert isinstance(await cell.poll(runner=a_runner(id=cell.runner.id, paused=True), hold=True), NoJob)

    async def test_the_same_request_gets_the_same_job(self, cell: MemoryCell) -> None:
        await cell.push(a_spec("one"), a_spec("two"))
        first, first_token = await cell.take(request_id="abc")
        again, second_token = await cell.take(request_id="abc")
        assert (again.id, again.epoch) == (first.id, first.epoch)
        assert await cell.put(first_token, "running") == (200, "running")
        assert await cell.put(second_token, "running") == (200, "running")
        other, _ = await cell.take(request_id="abc")
        assert other.id != first.id  # a job that has started is never handed out again

    async def test_another_runner_with_the_same_request_id_gets_its_own_job(self, cell: MemoryCell) -> None:
        other = await cell.store.add_runner(a_runner(token_hash="1" * 64))
        await cell.push(a_spec("one"), a_spec("two"))
        first, _ = await cell.take(request_id="abc")
        second, _ = await cell.take(request_id="abc", runner=other)
        assert first.id != second.id

    async def test_every_job_is_handed_out_exactly_once(self, cell: MemoryCell) -> None:
        family = await cell.push(*(a_spec(f"job{number}") for number in range(200)))
        taken: list[int] = []

        async def worker() -> None:
            while isinstance(handout := await cell.poll(), Handout):
                taken.append(handout.job.id)
                await cell.put(handout.payload.token, "running")
                await asyncio.sleep(0)
                assert await cell.put(handout.payload.token, "success") == (200, "success")

        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(worker())
        assert sorted(taken) == sorted(job.id for job in family.jobs)
        assert (await cell.statuses(family))["pipeline"] == "success"

    async def test_a_store_that_fails_keeps_the_job_in_the_queue(
        self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await cell.push(a_spec())

        async def fail(*_: object) -> None:
            raise StoreError("disk full")

        with monkeypatch.context() as patch:
            patch.setattr(cell.store, "change_job", fail)
            with pytest.raises(StoreError):
                await cell.poll()
        assert isinstance(await cell.poll(), Handout)

    async def test_a_store_that_fails_while_the_payload_is_made_releases_the_job(
        self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await cell.push(a_spec())

        async def fail(*_: object) -> None:
            raise StoreError("disk full")

        with monkeypatch.context() as patch:
            patch.setattr(cell.store, "job_spec", fail)
            with pytest.raises(StoreError):
                await cell.poll()
        handout = await cell.poll()
        assert isinstance(handout, Handout)
        assert handout.job.epoch == 2


class TestLongPolls:
    async def test_without_a_cursor_the_answer_comes_at_once(self, cell: MemoryCell) -> None:
        answer = await cell.poll()
        assert isinstance(answer, NoJob)
        assert answer.cursor.startswith("c1-")

    async def test_the_cursor_changes_when_something_is_enqueued(self, cell: MemoryCell) -> None:
        before = await cell.poll()
        assert await cell.poll() == before
        await cell.push(a_spec(tags=("mac",)))
        after = await cell.poll()
        assert isinstance(after, NoJob)
        assert after != before

    async def test_a_held_poll_is_woken_by_a_job_at_once(self, cell: MemoryCell) -> None:
        async with asyncio.TaskGroup() as group:
            held = group.create_task(cell.poll(hold=True))
            await cell.clock.advance(49)
            assert not held.done()
            await cell.push(a_spec())
            await settle()
            assert held.done()
        assert isinstance(held.result(), Handout)

    async def test_a_held_poll_ends_after_its_time(self, cell: MemoryCell) -> None:
        async with asyncio.TaskGroup() as group:
            held = group.create_task(cell.poll(hold=True))
            await cell.clock.advance(49.9)
            assert cell.dispatch.held_polls() == 1
            await cell.clock.advance(0.1)
            assert held.done()
        assert isinstance(held.result(), NoJob)
        assert cell.dispatch.held_polls() == 0

    async def test_a_held_poll_is_not_woken_by_a_job_that_does_not_fit(self, cell: MemoryCell) -> None:
        async with asyncio.TaskGroup() as group:
            held = group.create_task(cell.poll(hold=True))
            await settle()
            await cell.push(a_spec(tags=("mac",)))
            await settle()
            assert not held.done()
            await cell.clock.advance(50)
        assert isinstance(held.result(), NoJob)

    async def test_a_stop_answers_held_polls_at_once_and_later_ones_too(self, cell: MemoryCell) -> None:
        async with asyncio.TaskGroup() as group:
            held = [group.create_task(cell.poll(hold=True)) for _ in range(5)]
            await settle()
            cell.dispatch.stop_polls()
            await settle()
            assert all(isinstance(poll.result(), NoJob) for poll in held)
        await cell.push(a_spec())
        assert isinstance(await cell.poll(hold=True), NoJob)

    async def test_a_client_that_left_does_not_get_the_job(self, cell: MemoryCell) -> None:
        gone = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            leaver = group.create_task(cell.poll(hold=True, gone=gone))
            stayer = group.create_task(cell.poll(hold=True))
            await settle()
            gone.set()
            await cell.push(a_spec())
            await settle()
            assert isinstance(leaver.result(), NoJob)
            assert isinstance(stayer.result(), Handout)

    async def test_a_poll_that_is_cancelled_when_woken_passes_the_job_on(self, cell: MemoryCell) -> None:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(cell.poll(hold=True))
            await settle()
            second = group.create_task(cell.poll(hold=True))
            await settle()
            await cell.push(a_spec())
            first.cancel()
            await settle()
            assert first.cancelled()
            assert isinstance(second.result(), Handout)

    async def test_a_poll_woken_for_one_job_that_takes_another_leaves_nobody_waiting(self, cell: MemoryCell) -> None:
        both = await cell.store.add_runner(a_runner(token_hash="1" * 64, tags=("a", "b"), run_untagged=False))
        only_a = await cell.store.add_runner(a_runner(token_hash="2" * 64, tags=("a",), run_untagged=False))
        only_b = await cell.store.add_runner(a_runner(token_hash="3" * 64, tags=("b",), run_untagged=False))
        async with asyncio.TaskGroup() as group:
            polls = []
            for runner in (both, only_a, only_b):
                polls.append(group.create_task(cell.poll(runner=runner, hold=True)))
                await settle()
            await cell.push(a_spec("a", tags=("a",)), a_spec("b", tags=("b",)))
            await settle()
            assert isinstance(polls[0].result(), Handout)
            assert isinstance(polls[2].result(), Handout)
            assert not polls[1].done()
            cell.dispatch.stop_polls()

    async def test_a_runner_paused_while_it_waits_passes_the_job_on(self, cell: MemoryCell) -> None:
        other = await cell.store.add_runner(a_runner(token_hash="1" * 64))
        async with asyncio.TaskGroup() as group:
            paused = group.create_task(cell.poll(hold=True))
            await settle()
            waiting = group.create_task(cell.poll(runner=other, hold=True))
            await settle()
            await cell.store.put_runner(a_runner(id=cell.runner.id, paused=True))
            await cell.push(a_spec())
            await settle()
            assert isinstance(paused.result(), NoJob)
            assert isinstance(waiting.result(), Handout)

    async def test_many_held_polls_share_many_jobs(self, cell: MemoryCell) -> None:
        async with asyncio.TaskGroup() as group:
            held = [group.create_task(cell.poll(hold=True)) for _ in range(50)]
            await settle()
            await cell.push(*(a_spec(f"job{number}") for number in range(30)))
            await settle(200)
            answers = [poll.result() for poll in held if poll.done()]
            assert len({answer.job.id for answer in answers if isinstance(answer, Handout)}) == 30
            assert cell.dispatch.held_polls() == 20
            cell.dispatch.stop_polls()


class TestLeases:
    async def test_a_runner_that_never_speaks_loses_its_job(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        async with cell.watching():
            first, old_token = await cell.take()
            await cell.clock.advance(59)
            assert isinstance(await cell.poll(), NoJob)
            await cell.clock.advance(2)
            second, new_token = await cell.take()
        assert (second.id, second.epoch) == (first.id, first.epoch + 1)
        assert await refused(cell, old_token) is None
        assert await cell.put(new_token, "success") == (200, "success")

    async def test_a_held_poll_gets_the_job_when_its_lease_ends(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        async with cell.watching(), asyncio.TaskGroup() as group:
            await cell.take()
            await cell.clock.advance(30)
            held = group.create_task(cell.poll(hold=True))
            await cell.clock.advance(31)
            assert isinstance(held.result(), Handout)

    async def test_a_runner_that_sends_only_traces_keeps_its_job(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        async with cell.watching():
            job, token = await cell.take()
            size = 0
            for _ in range(60):
                await cell.clock.advance(3)
                job = await cell.dispatch.holder(token)
                size = (await cell.dispatch.append_trace(job, size, b"line\n")).size
            assert job.state is JobState.RUNNING
            assert isinstance(await cell.poll(), NoJob)
            assert await cell.put(token, "success") == (200, "success")

    async def test_a_client_that_vanished_releases_its_job_at_once(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.take()
        await cell.dispatch.release(job)
        again, _ = await cell.take()
        assert (again.id, again.epoch) == (job.id, 2)
        assert await refused(cell, token) is None

    async def test_a_release_that_comes_too_late_changes_nothing(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.take()
        await cell.put(token, "running")
        await cell.dispatch.release(job)
        assert await cell.status(job.id) == "running"
        assert isinstance(await cell.poll(), NoJob)

    async def test_a_silent_job_fails_and_its_log_is_kept(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec())
        async with cell.watching():
            job, token = await cell.start()
            await cell.dispatch.append_trace(job, 0, b"half a li")
            await cell.clock.advance(1800)
            assert await cell.status(job.id) == "running"
            await cell.clock.advance(60)
        ended = await cell.job(job.id)
        assert (ended.state, ended.failure_reason) == (JobState.FAILED, "no_updates_running")
        assert (ended.trace_bytes, ended.trace_checksum) == (9, "crc32:08785934")
        assert await refused(cell, token) == "failed"
        assert (await cell.statuses(family))["pipeline"] == "failed"

    async def test_a_restart_forgives_silence_that_was_the_cells_own(self, cell: MemoryCell) -> None:
        await cell.push(a_spec("one"), a_spec("two"))
        running, _ = await cell.start()
        leased, _ = await cell.take()
        await cell.clock.advance(7200)
        cell = await cell.reopen()
        async with cell.watching():
            await cell.clock.advance(59)
            assert await cell.status(leased.id) == "running"
            await cell.clock.advance(2)
            assert await cell.status(leased.id) == "pending"
            assert await cell.status(running.id) == "running"
            await cell.clock.advance(1800)
            assert await cell.status(running.id) == "failed"

    async def test_a_restart_finds_what_waits(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        cursor = cell.dispatch.cursor
        await cell.clock.advance(1)
        cell = await cell.reopen()
        assert cell.dispatch.waiting() == 1
        assert cell.dispatch.cursor != cursor
        assert isinstance(await cell.poll(), Handout)

    async def test_a_sweep_finds_a_job_that_nobody_announced(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec())
        cell.dispatch._waiting.discard(family.jobs[0].id)
        async with cell.watching():
            await cell.clock.advance(61)
        assert isinstance(await cell.poll(), Handout)

    async def test_sweeps_outlive_a_store_that_fails(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        await cell.push(a_spec())
        job, _ = await cell.take()

        async def fail(*_: object) -> None:
            raise StoreError("disk full")

        async with cell.watching():
            with monkeypatch.context() as patch:
                patch.setattr(cell.store, "jobs_in", fail)
                await cell.clock.advance(120)
            await cell.clock.advance(10)
        assert await cell.status(job.id) == "pending"


class TestTokens:
    async def test_a_token_opens_its_own_job_only(self, cell: MemoryCell) -> None:
        await cell.push(a_spec("one"), a_spec("two"))
        one, token = await cell.take()
        two, _ = await cell.take()
        assert (await cell.dispatch.holder(token, one.id)).id == one.id
        with pytest.raises(ForbiddenError):
            await cell.dispatch.holder(token, two.id)

    @pytest.mark.parametrize("token", ["", "glcbt-", "glcbt-a.b.c", "glrt-x", "🐎" * 2000])
    async def test_nonsense_is_refused(self, cell: MemoryCell, token: str) -> None:
        assert await refused(cell, token) is None

    async def test_a_token_of_another_cells_key_is_refused(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, _ = await cell.take()
        foreign = JobTokens([new_key("other")], cell_id=1, issuer="https://ci.example")
        assert await refused(cell, foreign.issue(job, timeout_seconds=10, now=cell.clock.now())) is None

    async def test_a_token_ends_with_its_job(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        _, token = await cell.start()
        await cell.put(token, "failed", reason="script_failure")
        assert await refused(cell, token) == "failed"
        assert (await cell.dispatch.holder(token, ended=True)).state is JobState.FAILED

    async def test_a_token_ends_with_its_time(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        _, token = await cell.start()
        await cell.clock.advance(3600 + 299)
        await cell.dispatch.holder(token)
        await cell.clock.advance(2)
        assert await refused(cell, token) is None


class TestUpdates:
    async def test_a_final_state_may_be_sent_twice(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        _, token = await cell.start()
        assert await cell.put(token, "success") == (200, "success")
        assert await cell.put(token, "success") == (200, "success")
        assert await cell.put(token, "failed") == (403, "success")
        assert await cell.put(token, "running") == (403, "success")

    async def test_two_equal_final_states_at_once_are_one(self, cell: MemoryCell) -> None:
        await cell.push(a_spec(retry_max=2))
        _, token = await cell.start()
        async with asyncio.TaskGroup() as group:
            both = [group.create_task(cell.put(token, "failed", reason="script_failure")) for _ in range(2)]
        assert [put.result() for put in both] == [(200, "failed")] * 2
        assert cell.dispatch.waiting() == 1

    async def test_a_final_state_without_acknowledgement_counts(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec())
        job, token = await cell.take()
        assert await cell.put(token, "success") == (200, "success")
        ended = await cell.job(job.id)
        assert ended.started_at == ended.finished_at
        assert (await cell.pipeline(family)).started_at is not None

    @pytest.mark.parametrize("state", ["", "pending", "done"])
    async def test_an_unknown_state_is_a_bad_request(self, cell: MemoryCell, state: str) -> None:
        await cell.push(a_spec())
        _, token = await cell.start()
        assert await cell.put(token, state) == (400, "running")

    async def test_an_unknown_reason_is_an_unknown_failure(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.start()
        await cell.put(token, "failed", reason="gremlins")
        assert (await cell.job(job.id)).failure_reason == "unknown_failure"

    async def test_an_end_waits_for_the_rest_of_the_trace_but_not_for_ever(self, cell: MemoryCell) -> None:
        await cell.push(a_spec("one"), a_spec("two"))
        job, token = await cell.start()
        await cell.dispatch.append_trace(job, 0, b"four")
        assert await cell.put(token, "success", bytesize=9) == (202, "running")
        await cell.dispatch.append_trace(job, 4, b" more")
        assert await cell.put(token, "success", bytesize=9) == (200, "success")

        _, token = await cell.start()
        assert await cell.put(token, "success", bytesize=9) == (202, "running")
        await cell.clock.advance(300)
        assert await cell.put(token, "success", bytesize=9) == (200, "success")

    async def test_a_log_goes_on_when_the_end_was_not_stored(
        self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await cell.push(a_spec())
        job, token = await cell.start()
        await cell.dispatch.append_trace(job, 0, b"four")

        async def full(*_: object) -> None:
            raise StoreError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(cell.store, "change_family", full)
            with pytest.raises(StoreError):
                await cell.put(token, "success")
        assert not (await cell.dispatch.append_trace(job, 2, b"other")).taken
        assert (await cell.dispatch.append_trace(job, 4, b" more")).size == 9
        assert await cell.put(token, "success") == (200, "success")
        assert (await cell.job(job.id)).trace_bytes == 9
        assert not (await cell.dispatch.append_trace(job, 9, b"too late")).taken

    async def test_the_end_has_the_traces_size_and_checksum(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.start()
        await cell.dispatch.append_trace(job, 0, b"hello")
        await cell.put(token, "success")
        ended = await cell.job(job.id)
        assert (ended.trace_bytes, ended.trace_checksum, ended.exit_code) == (5, "crc32:3610a686", 0)

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
    async def test_bytes_that_follow_are_taken_others_not(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, _ = await cell.start()
        appends = [(0, b"hello"), (0, b"hello"), (3, b"lo world"), (20, b"gap"), (0, b"other")]
        answers = [await cell.dispatch.append_trace(job, *append) for append in appends]
        assert [(each.taken, each.size) for each in answers] == [
            (True, 5), (True, 5), (True, 11), (False, 11), (False, 11),
        ]  # fmt: skip

    async def test_a_job_that_is_over_takes_only_what_it_has(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.start()
        await cell.dispatch.append_trace(job, 0, b"hello")
        await cell.put(token, "success")
        over = await cell.dispatch.holder(token, ended=True)
        assert (await cell.dispatch.append_trace(over, 0, b"hello")).taken
        for start, data in ((5, b" more"), (0, b"other")):
            with pytest.raises(ForbiddenError) as refusal:
                await cell.dispatch.append_trace(over, start, data)
            assert refusal.value.job_status == "success"

    async def test_a_trace_beyond_the_limit_fails_the_job(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, _ = await cell.start()
        await cell.dispatch.append_trace(job, 0, b"x" * 1000)
        assert not (await cell.dispatch.append_trace(job, 5000, b"far away")).taken
        with pytest.raises(ForbiddenError) as refusal:
            await cell.dispatch.append_trace(job, 1000, b"x")
        assert refusal.value.job_status == "failed"
        ended = await cell.job(job.id)
        assert (ended.failure_reason, ended.trace_bytes) == ("trace_size_exceeded", 1000)

    async def test_results_are_numbered(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.take()

        def result(seq: int) -> StepResult:
            return StepResult(job_id=job.id, seq=seq, body=Raw(b"{}"))

        assert await cell.dispatch.add_results(job, [result(1), result(2)]) == 3
        assert await cell.status(job.id) == "running"
        assert await cell.dispatch.add_results(job, [result(2), result(3), result(5)]) == 4
        await cell.put(token, "success")
        with pytest.raises(ForbiddenError):
            await cell.dispatch.add_results(await cell.dispatch.holder(token, ended=True), [result(4)])


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
        assert await refused(cell, token) == "canceled"
        assert await cell.put(token, "failed") == (403, "canceled")

    async def test_a_leased_job_is_canceled_at_once(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        job, token = await cell.take(graceful=True)
        assert (await cell.dispatch.cancel_job(job.id)).state is JobState.CANCELED
        assert await refused(cell, token) == "canceled"

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
