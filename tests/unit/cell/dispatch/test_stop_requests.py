"""What managers are told of jobs that they should stop."""

from typing import Any

from remuda.cell.dispatch.stop_requests import ENDED_SECONDS, StopRequests
from remuda.cell.values import Job
from remuda.lib.clock import VirtualClock
from remuda.model.job import JobId, JobState, RunnerId
from remuda.testing.builders import NOW, a_job, a_spec
from remuda.testing.memory_cell import MemoryCell
from remuda.wire.shell import WantedStop


def held(state: JobState = JobState.CANCELING, number: int = 7, system_id: str = "s_1", **more: Any) -> Job:
    return a_job(id=JobId(number), state=state, runner_id=RunnerId(3), system_id=system_id, leased_at=NOW, **more)


def stop(status: str = "canceling", number: int = 7) -> WantedStop:
    return WantedStop(job_id=number, status=status)


def test_each_manager_is_told_of_its_own_jobs_until_they_are_over() -> None:
    stops, woken = StopRequests(VirtualClock()), list[tuple[int, str]]()
    stops.wake = lambda runner_id, system_id: woken.append((runner_id, system_id))
    stops.note(held(JobState.RUNNING))
    assert stops.of_manager(3, "s_1") == ()
    for _ in range(2):
        stops.note(held())
    stops.note(held(number=8, system_id="s_2"))
    assert (stops.of_manager(3, "s_1"), stops.of_manager(3, "s_2")) == ((stop(),), (stop(number=8),))
    assert stops.of_manager(4, "s_1") == ()
    assert woken == [(3, "s_1"), (3, "s_2")], "once for each, however often the job is stored"
    stops.note(held(JobState.CANCELED, reported="failed"))
    assert stops.of_manager(3, "s_1") == ()


def test_what_the_cell_ended_is_told_for_some_minutes() -> None:
    clock = VirtualClock()
    stops = StopRequests(clock)
    stops.note(held())
    stops.note(held(JobState.CANCELED))
    stops.note(held(JobState.FAILED, number=9))
    assert stops.of_manager(3, "s_1") == (stop("canceled"), stop("failed", 9))
    clock._now += ENDED_SECONDS
    assert stops.of_manager(3, "s_1") == ()
    stops.note(held(number=10))
    assert len(stops._manager_of) == 1, "nothing is kept for managers that never ask"


def test_what_never_was_with_a_runner_is_told_to_nobody() -> None:
    stops = StopRequests(VirtualClock())
    stops.note(a_job(state=JobState.CANCELED))
    stops.note(held(is_trigger=True))
    assert (stops.of_manager(3, "s_1"), stops._manager_of) == ((), {})


def test_a_look_at_all_jobs_makes_up_for_what_was_not_heard_of() -> None:
    stops = StopRequests(VirtualClock())
    stops.note(held())
    stops.note_all([held(number=8), held(JobState.RUNNING, number=9)])
    assert stops.of_manager(3, "s_1") == (stop(number=8),)


async def test_a_cancel_is_told_and_also_after_a_restart(cell: MemoryCell) -> None:
    await cell.push(a_spec())
    job, token = await cell.start(graceful=True)
    await cell.dispatch.user_commands.cancel_job(job.id)
    manager = (cell.runner.id, "s_abcdefabcdef")
    expected = (WantedStop(job_id=job.id, status="canceling"),)
    assert cell.dispatch.memory.stops.of_manager(*manager) == expected
    again = await cell.reopen()
    assert again.dispatch.memory.stops.of_manager(*manager) == expected
    await again.put(token, "failed", reason="job_canceled")
    assert again.dispatch.memory.stops.of_manager(*manager) == ()
