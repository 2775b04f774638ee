"""Timeouts of jobs that no runner takes and of jobs that no runner ends, in virtual time."""

import pytest

from remuda.cell.dispatch.handout import NoJob
from remuda.cell.values import RunnerManager
from remuda.model.job import JobState
from remuda.testing.builders import a_spec
from remuda.testing.memory_cell import MemoryCell

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
async def test_a_job_that_exceeds_its_timeout_ends(
    cell: MemoryCell, graceful: bool, state: JobState, reason: str
) -> None:
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
