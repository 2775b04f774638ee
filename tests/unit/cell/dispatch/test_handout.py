"""Hand-out of jobs to runners: order, several processes, long polls, and the fast path for cached runners."""

import asyncio
import random
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from remuda.cell.dispatch.handout import ALIKE, Assignment, NoJob
from remuda.cell.errors import StoreError
from remuda.cell.secrets.key_ring import KeyRing
from remuda.cell.settings import CellSettings
from remuda.cell.values import Job, Runner
from remuda.cell.values.changes import PayloadParts
from remuda.lib.clock import settle
from remuda.model.job import JobState
from remuda.testing.builders import a_project, a_runner, a_spec
from remuda.testing.memory_cell import FEATURES, MemoryCell
from remuda.wire.runner_api import RequestJob, RunnerInfo


class TestHandOut:
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
        finished_job = await cell.job(job.id)
        times = (finished_job.pending_at, finished_job.leased_at, finished_job.started_at, finished_job.finished_at)
        assert times == tuple(finished_job.created_at + seconds for seconds in (0, 5, 6, 16))

    async def test_a_runner_gets_only_jobs_that_fit(self, cell: MemoryCell) -> None:
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
        repeated, second_token = await cell.take(request_id="abc")
        assert (repeated.id, repeated.epoch) == (first.id, first.epoch)
        assert await cell.put(first_token, "running") == (200, "running")
        assert await cell.put(second_token, "running") == (200, "running")
        next_job, _ = await cell.take(request_id="abc")
        assert next_job.id != first.id  # a job that has started is never handed out again

    async def test_another_runner_with_the_same_request_id_gets_its_own_job(self, cell: MemoryCell) -> None:
        other_runner = await cell.store.runners.add_runner(a_runner(token_hash="1" * 64))
        await cell.push(a_spec("one"), a_spec("two"))
        first, _ = await cell.take(request_id="abc")
        second, _ = await cell.take(request_id="abc", runner=other_runner)
        assert first.id != second.id

    async def test_every_job_is_handed_out_exactly_once(self, cell: MemoryCell) -> None:
        family = await cell.push(*(a_spec(f"job{number}") for number in range(200)))
        job_ids: list[int] = []

        async def worker() -> None:
            while isinstance(handout := await cell.poll(), Assignment):
                job_ids.append(handout.job.id)
                await cell.put(handout.payload.token, "running")
                await asyncio.sleep(0)
                assert await cell.put(handout.payload.token, "success") == (200, "success")

        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(worker())
        assert sorted(job_ids) == sorted(job.id for job in family.jobs)
        assert (await cell.statuses(family))["pipeline"] == "success"

    async def test_store_error_keeps_the_job_queued(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        await cell.push(a_spec())

        async def fail(*_: object, **__: object) -> None:
            raise StoreError("disk full")

        with monkeypatch.context() as patch:
            patch.setattr(cell.store.jobs, "lease_job", fail)
            with pytest.raises(StoreError):
                await cell.poll()
            patch.setattr(cell.store.jobs, "change_job", fail)
            with pytest.raises(StoreError):
                await cell.poll()
        assert isinstance(await cell.poll(), Assignment)

    async def test_store_error_of_payload_releases_job(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        await cell.push(a_spec())

        async def fail(*_: object, **__: object) -> None:
            raise StoreError("disk full")

        with monkeypatch.context() as patch:
            patch.setattr(KeyRing, "issue", fail)
            with pytest.raises(StoreError):
                await cell.poll()
        handout = await cell.poll()
        assert isinstance(handout, Assignment)
        assert handout.job.epoch == 2

    async def test_a_job_whose_payload_cannot_be_built_fails_and_delays_no_other(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec("odd", cache=({"paths": ["no key"]},)), a_spec("plain"))
        odd_ids = {(await cell.newest(family, "odd")).id}
        names = []
        for _ in range(4):
            handout = await cell.poll()
            if isinstance(handout, Assignment):
                names.append(handout.job.name)
            odd_ids.add((await cell.newest(family, "odd")).id)
        assert names == ["plain"]
        odd = await cell.newest(family, "odd")
        assert (odd.state, odd.failure_reason) == (JobState.FAILED, "scheduler_failure")
        assert (len(odd_ids), odd.tries, odd.started_at) == (3, 1, None), "two repeated attempts that do not count"


class TestSeveralProcesses:
    @pytest.fixture(autouse=True)
    def share_store(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(CellSettings, "is_shared", property(lambda _: True))

    async def test_the_oldest_job_is_first_if_few_wait(self, cell: MemoryCell) -> None:
        await cell.push(*(a_spec(f"job{number}") for number in range(ALIKE - 1)))
        assert [(await cell.take())[0].name for _ in range(3)] == ["job0", "job1", "job2"]

    async def test_processes_rarely_choose_the_same(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        random.seed(7)
        await cell.push(*(a_spec(f"job{number}") for number in range(200)))
        other_cell, change, outcomes = await cell.reopen(), cell.store.jobs.change_job, []

        async def record_outcome(*args: Any, **options: Any) -> Job | None:
            outcomes.append(await change(*args, **options))
            return outcomes[-1]

        monkeypatch.setattr(cell.store.jobs, "change_job", record_outcome)
        jobs = []
        for number in range(24):
            job, _ = await (cell, other_cell)[number % 2].take(request_id=f"request {number}")
            jobs.append(job)
        assert len({job.id for job in jobs}) == 24
        assert outcomes.count(None) < 6
        assert max(job.id for job in jobs) - min(job.id for job in jobs) < 24 + ALIKE


class TestOrder:
    async def test_projects_take_turns(self, cell: MemoryCell) -> None:
        """A project with many jobs does not delay a project with few jobs, even after a restart."""
        await cell.push(*(a_spec(f"many{number}") for number in range(1, 7)))
        other_project = replace(cell, project=await cell.store.projects.add_project(a_project(path="acme/other")))
        await other_project.push(*(a_spec(f"few{number}") for number in range(1, 4)))
        order = [(await cell.take())[0].name for _ in range(3)]
        restarted = await cell.reopen()
        order += [(await restarted.take())[0].name for _ in range(6)]
        assert order == ["many1", "few1", "many2", "few2", "many3", "few3", "many4", "many5", "many6"]

    async def test_a_finished_job_gives_its_project_a_turn_back(self, cell: MemoryCell) -> None:
        await cell.push(*(a_spec(f"many{number}") for number in range(1, 4)))
        _, token = await cell.take()
        other_project = replace(cell, project=await cell.store.projects.add_project(a_project(path="acme/other")))
        await other_project.push(a_spec("few1"), a_spec("few2"))
        assert await cell.put(token, "success") == (200, "success")
        assert [(await cell.take())[0].name for _ in range(4)] == ["many2", "few1", "many3", "few2"]

    async def test_a_job_with_a_higher_priority_goes_first(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec("usual"), a_spec("urgent"))
        urgent = await cell.store.jobs.change_job(family.jobs[1].id, lambda job: structs.replace(job, priority=1))
        assert urgent
        restarted = await cell.reopen()
        assert [(await restarted.take())[0].name for _ in range(2)] == ["urgent", "usual"]

    async def test_a_runner_with_a_higher_priority_is_woken_first(self, cell: MemoryCell) -> None:
        preferred = await cell.store.runners.add_runner(a_runner(token_hash="1" * 64, priority=5))
        async with asyncio.TaskGroup() as group:
            usual = group.create_task(cell.poll(hold=True))
            await settle()
            first = group.create_task(cell.poll(hold=True, runner=preferred))
            await settle()
            await cell.push(a_spec())
            await settle()
            assert isinstance(first.result(), Assignment)
            assert not usual.done()
            cell.dispatch.memory.held_polls.stop()


class TestLongPolls:
    async def test_without_a_cursor_the_answer_comes_at_once(self, cell: MemoryCell) -> None:
        answer = await cell.poll()
        assert isinstance(answer, NoJob)
        assert answer.cursor.startswith("c1-")

    async def test_the_cursor_changes_when_a_job_is_enqueued(self, cell: MemoryCell) -> None:
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
        assert isinstance(held.result(), Assignment)

    async def test_a_poll_without_hold_seconds_is_answered_at_once(self, cell: MemoryCell) -> None:
        async with asyncio.timeout(30):
            assert isinstance(await cell.poll(hold=True, hold_seconds=None), NoJob)

    async def test_a_poll_is_held_for_at_most_its_hold_seconds(self, cell: MemoryCell) -> None:
        async with asyncio.TaskGroup() as group:
            held = group.create_task(cell.poll(hold=True, hold_seconds=7))
            await cell.clock.advance(6)
            assert not held.done()
            await cell.clock.advance(1)
            assert isinstance(await held, NoJob)

    async def test_a_held_poll_never_gets_a_payload_of_an_earlier_epoch(self, cell: MemoryCell) -> None:
        async with asyncio.TaskGroup() as group:
            held = group.create_task(cell.poll(hold=True))
            await settle()
            family = await cell.push(a_spec())
            # As if another process had leased and released the job before the poll saw it.
            await cell.store.jobs.change_job(family.jobs[0].id, lambda job: structs.replace(job, epoch=job.epoch + 1))
        handout = held.result()
        assert isinstance(handout, Assignment)
        assert handout.job.epoch == 2
        assert await cell.put(handout.payload.token, "running") == (200, "running")

    async def test_a_job_whose_payload_cannot_be_built_for_a_held_poll_fails(self, cell: MemoryCell) -> None:
        async with asyncio.TaskGroup() as group:
            held = group.create_task(cell.poll(hold=True))
            await settle()
            family = await cell.push(a_spec("odd", cache=({"paths": ["no key"]},)))
        assert isinstance(held.result(), NoJob)
        odd = await cell.job(family.jobs[0].id)
        assert (odd.state, odd.failure_reason) == (JobState.FAILED, "scheduler_failure")

    async def test_held_polls_store_error_requeues_job(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fail(*_: object, **__: object) -> None:
            raise StoreError("disk full")

        with monkeypatch.context() as patch:
            patch.setattr(KeyRing, "issue", fail)
            held = asyncio.ensure_future(cell.poll(hold=True))
            await settle()
            await cell.push(a_spec())
            with pytest.raises(StoreError):
                await held
        handout = await cell.poll()
        assert isinstance(handout, Assignment)
        assert handout.job.epoch == 2

    async def test_a_held_poll_ends_after_its_time(self, cell: MemoryCell) -> None:
        async with asyncio.TaskGroup() as group:
            held = group.create_task(cell.poll(hold=True))
            await cell.clock.advance(49.9)
            assert len(cell.dispatch.memory.held_polls) == 1
            await cell.clock.advance(0.1)
            assert held.done()
        assert isinstance(held.result(), NoJob)
        assert len(cell.dispatch.memory.held_polls) == 0

    async def test_a_held_poll_is_not_woken_by_a_job_that_does_not_fit(self, cell: MemoryCell) -> None:
        async with asyncio.TaskGroup() as group:
            held = group.create_task(cell.poll(hold=True))
            await settle()
            await cell.push(a_spec(tags=("mac",)))
            await settle()
            assert not held.done()
            await cell.clock.advance(50)
        assert isinstance(held.result(), NoJob)

    async def test_a_held_poll_gets_the_job_that_fits_the_changed_runner(self, cell: MemoryCell) -> None:
        await cell.push(a_spec("mac", tags=("mac",)))
        async with asyncio.TaskGroup() as group:
            held = group.create_task(cell.poll(hold=True))
            await settle()
            runners = cell.store.runners
            await runners.change_runner(cell.runner.id, lambda row: structs.replace(row, description="unimportant"))
            await settle()
            assert len(cell.dispatch.memory.held_polls) == 1
            await runners.change_runner(cell.runner.id, lambda row: structs.replace(row, tags=("linux", "mac")))
            await settle()
            assert isinstance(held.result(), Assignment)

    @pytest.mark.parametrize("change", ["pause", "remove", "new token"])
    async def test_a_held_poll_ends_when_its_runner_may_have_no_more_jobs(self, cell: MemoryCell, change: str) -> None:
        async with asyncio.TaskGroup() as group:
            held = group.create_task(cell.poll(hold=True))
            await settle()
            if change == "remove":
                await cell.store.runners.remove_runner(cell.runner.id)
            else:
                fields = {"paused": True} if change == "pause" else {"token_hash": "other"}
                await cell.store.runners.change_runner(cell.runner.id, lambda row: structs.replace(row, **fields))
            await settle()
            assert isinstance(held.result(), NoJob)

    async def test_a_changed_runner_leaves_the_polls_of_others_alone(self, cell: MemoryCell) -> None:
        other = await cell.store.runners.add_runner(a_runner(token_hash="other", tags=("linux",)))
        async with asyncio.TaskGroup() as group:
            held = group.create_task(cell.poll(hold=True))
            await settle()
            await cell.store.runners.change_runner(other.id, lambda row: structs.replace(row, paused=True))
            await settle()
            assert not held.done()
            cell.dispatch.memory.held_polls.stop()

    async def test_a_stop_answers_held_polls_at_once_and_later_ones_too(self, cell: MemoryCell) -> None:
        async with asyncio.TaskGroup() as group:
            held = [group.create_task(cell.poll(hold=True)) for _ in range(5)]
            await settle()
            cell.dispatch.memory.held_polls.stop()
            await settle()
            assert all(isinstance(poll.result(), NoJob) for poll in held)
        await cell.push(a_spec())
        assert isinstance(await cell.poll(hold=True), NoJob)

    async def test_a_disconnected_client_does_not_get_the_job(self, cell: MemoryCell) -> None:
        gone = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            disconnected = group.create_task(cell.poll(hold=True, gone=gone))
            connected = group.create_task(cell.poll(hold=True))
            await settle()
            gone.set()
            await cell.push(a_spec())
            await settle()
            assert isinstance(disconnected.result(), NoJob)
            assert isinstance(connected.result(), Assignment)

    async def test_woken_poll_error_passes_the_job_on(self, cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
        lease, failures = cell.store.jobs.lease_job, [StoreError("unavailable")]

        async def fail_once(queued: Job, leased: Job, runner: Runner, settings: Collection[str]) -> PayloadParts | None:
            if failures:
                raise failures.pop()
            return await lease(queued, leased, runner, settings)

        async def poll_with_error() -> None:
            with pytest.raises(StoreError):
                await cell.poll(hold=True)

        async with asyncio.TaskGroup() as group:
            group.create_task(poll_with_error())
            await settle()
            second = group.create_task(cell.poll(hold=True))
            await settle()
            monkeypatch.setattr(cell.store.jobs, "lease_job", fail_once)
            await cell.push(a_spec())
            await settle()
            assert isinstance(second.result(), Assignment)

    async def test_a_woken_poll_that_is_cancelled_passes_the_job_on(self, cell: MemoryCell) -> None:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(cell.poll(hold=True))
            await settle()
            second = group.create_task(cell.poll(hold=True))
            await settle()
            await cell.push(a_spec())
            first.cancel()
            await settle()
            assert first.cancelled()
            assert isinstance(second.result(), Assignment)

    async def test_a_poll_that_takes_another_job_wakes_a_poll_for_the_first(self, cell: MemoryCell) -> None:
        both_tags = await cell.store.runners.add_runner(
            a_runner(token_hash="1" * 64, tags=("a", "b"), run_untagged=False)
        )
        only_a = await cell.store.runners.add_runner(a_runner(token_hash="2" * 64, tags=("a",), run_untagged=False))
        only_b = await cell.store.runners.add_runner(a_runner(token_hash="3" * 64, tags=("b",), run_untagged=False))
        async with asyncio.TaskGroup() as group:
            polls = []
            for runner in (both_tags, only_a, only_b):
                polls.append(group.create_task(cell.poll(runner=runner, hold=True)))
                await settle()
            await cell.push(a_spec("a", tags=("a",)), a_spec("b", tags=("b",)))
            await settle()
            assert isinstance(polls[0].result(), Assignment)
            assert isinstance(polls[2].result(), Assignment)
            assert not polls[1].done()
            cell.dispatch.memory.held_polls.stop()

    async def test_a_runner_paused_while_it_waits_passes_the_job_on(self, cell: MemoryCell) -> None:
        other_runner = await cell.store.runners.add_runner(a_runner(token_hash="1" * 64))
        async with asyncio.TaskGroup() as group:
            paused = group.create_task(cell.poll(hold=True))
            await settle()
            waiting = group.create_task(cell.poll(runner=other_runner, hold=True))
            await settle()
            await cell.store.runners.change_runner(cell.runner.id, lambda row: a_runner(id=row.id, paused=True))
            await cell.push(a_spec())
            await settle()
            assert isinstance(paused.result(), NoJob)
            assert isinstance(waiting.result(), Assignment)

    async def test_many_held_polls_share_many_jobs(self, cell: MemoryCell) -> None:
        async with asyncio.TaskGroup() as group:
            held = [group.create_task(cell.poll(hold=True)) for _ in range(50)]
            await settle()
            await cell.push(*(a_spec(f"job{number}") for number in range(30)))
            await settle(200)
            answers = [poll.result() for poll in held if poll.done()]
            assert len({answer.job.id for answer in answers if isinstance(answer, Assignment)}) == 30
            assert len(cell.dispatch.memory.held_polls) == 20
            cell.dispatch.memory.held_polls.stop()


class TestFastPath:
    """The runner is cached from an earlier request, so its row in the store may have changed."""

    async def take(self, cell: MemoryCell, runner: Runner, request_id: str = "r1") -> Assignment | NoJob | None:
        request = RequestJob(system_id="s_1", info=RunnerInfo(features=FEATURES))
        return await cell.dispatch.handout.try_request_job(
            runner, request, request_id=request_id, ip="", gone=asyncio.Event()
        )

    async def test_the_first_job_is_handed_out(self, cell: MemoryCell) -> None:
        family = await cell.push(a_spec("one"), a_spec("two"))
        handout = await self.take(cell, cell.runner)
        assert isinstance(handout, Assignment)
        assert (handout.job.id, handout.job.state) == (family.jobs[0].id, JobState.LEASED)
        assert await cell.store.jobs.load_job(handout.job.id) == handout.job

    async def test_a_changed_runner_gets_no_job_and_the_job_stays_queued(self, cell: MemoryCell) -> None:
        await cell.push(a_spec())
        await cell.store.runners.change_runner(cell.runner.id, lambda row: structs.replace(row, paused=True))
        assert await self.take(cell, cell.runner) is None
        await cell.store.runners.change_runner(
            cell.runner.id, lambda _: structs.replace(cell.runner, token_hash="rotated")
        )
        assert await self.take(cell, cell.runner) is None
        await cell.store.runners.change_runner(cell.runner.id, lambda _: cell.runner)
        assert isinstance(await self.take(cell, cell.runner), Assignment)

    async def test_a_request_id_that_has_a_job_gets_no_second_one(self, cell: MemoryCell) -> None:
        await cell.push(a_spec("one"), a_spec("two"))
        assert isinstance(await self.take(cell, cell.runner), Assignment)
        assert await self.take(cell, cell.runner) is None
        assert isinstance(await self.take(cell, cell.runner, "r2"), Assignment)

    async def test_no_result_without_a_waiting_job_or_with_a_paused_runner(self, cell: MemoryCell) -> None:
        assert await self.take(cell, cell.runner) is None
        await cell.push(a_spec())
        assert await self.take(cell, structs.replace(cell.runner, paused=True)) is None

    async def test_a_job_that_was_not_handed_out_wakes_a_held_poll(self, cell: MemoryCell) -> None:
        gpu_runner = await cell.store.runners.add_runner(
            a_runner(token_hash="other", tags=("gpu",), run_untagged=False)
        )
        held = asyncio.ensure_future(cell.poll(runner=gpu_runner, hold=True))
        await settle()
        outdated = structs.replace(cell.runner, tags=("gpu",))
        await cell.push(a_spec(tags=("gpu",)))
        assert await self.take(cell, outdated) is None
        assert isinstance(await held, Assignment)
