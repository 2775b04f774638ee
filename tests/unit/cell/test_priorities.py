"""Priorities of jobs and of projects."""

import pytest

from remuda.cell.core.jobs import lifecycle
from remuda.cell.core.pipelines.creation import new_jobs
from remuda.cell.errors import InvalidError, NotFoundError
from remuda.model.job import ASSIGNED, FINAL, JobId, JobState
from remuda.testing.builders import NOW, a_job, a_pipeline, a_project, a_spec
from remuda.testing.memory_cell import MemoryCell


async def test_a_new_priority_changes_the_queue_at_once(cell: MemoryCell) -> None:
    family = await cell.push(a_spec("first"), a_spec("second"), a_spec("third"))
    third = await cell.newest(family, "third")
    changed = await cell.dispatch.user_commands.prioritize_job(third.id, 7)
    assert changed.priority == 7
    assert (await cell.job(third.id)).priority == 7
    job, _ = await cell.take()
    assert job.name == "third"


async def test_a_created_job_keeps_its_priority_until_it_is_pending(cell: MemoryCell) -> None:
    family = await cell.push(a_spec("build", stage="build", stage_index=0), a_spec("slow"), a_spec("quick"))
    await cell.dispatch.user_commands.prioritize_job((await cell.newest(family, "quick")).id, 1)
    assert [await cell.run_next() for _ in range(3)] == ["build", "quick", "slow"]


async def test_another_process_reads_the_priority_with_its_next_sweep(cell: MemoryCell) -> None:
    family = await cell.push(a_spec("first"), a_spec("second"))
    other = await cell.reopen()
    await cell.dispatch.user_commands.prioritize_job((await cell.newest(family, "second")).id, 1)
    async with other.run_timeouts():
        job, _ = await other.take()
    assert job.name == "second"


async def test_a_retry_keeps_the_priority(cell: MemoryCell) -> None:
    family = await cell.push(a_spec("flaky", retry_max=1))
    await cell.dispatch.user_commands.prioritize_job((await cell.newest(family, "flaky")).id, 5)
    await cell.run_next("failed")
    retry = await cell.newest(family, "flaky")
    assert (retry.tries, retry.priority) == (2, 5)


async def test_a_missing_job_is_not_found(cell: MemoryCell) -> None:
    with pytest.raises(NotFoundError):
        await cell.dispatch.user_commands.prioritize_job(99, 1)


@pytest.mark.parametrize("priority", [-100, 0, 100])
def test_priorities_within_the_range(priority: int) -> None:
    changed = lifecycle.prioritize(a_job(priority=1, state=JobState.PENDING), priority, NOW)
    assert changed is not None
    assert changed.priority == priority
    assert lifecycle.prioritize(changed, priority, NOW) is None


@pytest.mark.parametrize("priority", [-101, 101, 10**9])
def test_priorities_beyond_the_range_are_refused(priority: int) -> None:
    with pytest.raises(InvalidError, match="from -100 to 100"):
        lifecycle.prioritize(a_job(), priority, NOW)


@pytest.mark.parametrize("state", sorted(ASSIGNED | FINAL))
def test_only_the_priority_of_a_waiting_job_can_be_changed(state: JobState) -> None:
    with pytest.raises(InvalidError, match="only a job that waits"):
        lifecycle.prioritize(a_job(state=state), 1, NOW)


def test_a_trigger_job_has_no_priority() -> None:
    with pytest.raises(InvalidError, match="no runner ever gets it"):
        lifecycle.prioritize(a_job(is_trigger=True), 1, NOW)


def test_jobs_are_created_with_the_priority_of_their_project() -> None:
    [new] = new_jobs([a_spec()], a_pipeline(), a_project(priority=-3), (), "https://ci.example")
    assert lifecycle.new_job(new, a_pipeline(), JobId(1), NOW).priority == -3
