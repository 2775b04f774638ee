"""Stop requests: which jobs a manager is asked to stop, and for how long."""

from typing import Any

from remuda.cell.dispatch.stop_requests import ENDED_SECONDS, StopRequests
from remuda.cell.values import Job
from remuda.lib.clock import VirtualClock
from remuda.model.job import JobId, JobState, RunnerId
from remuda.testing.builders import NOW, a_job, a_spec
from remuda.testing.memory_cell import MemoryCell
from remuda.wire.shell import WantedStop


def an_assigned_job(state: JobState = JobState.CANCELING, number: int = 7, system_id: str = "s_1", **more: Any) -> Job:
    return a_job(id=JobId(number), state=state, runner_id=RunnerId(3), system_id=system_id, leased_at=NOW, **more)


def a_stop(status: str = "canceling", number: int = 7) -> WantedStop:
    return WantedStop(job_id=number, status=status)


def test_every_manager_gets_the_stops_of_its_own_jobs_until_they_end() -> None:
    stops, woken = StopRequests(VirtualClock()), list[tuple[int, str]]()
    stops.wake = lambda runner_id, system_id: woken.append((runner_id, system_id))
    stops.note(an_assigned_job(JobState.RUNNING))
    assert stops.of_manager(3, "s_1") == ()
    for _ in range(2):
        stops.note(an_assigned_job())
    stops.note(an_assigned_job(number=8, system_id="s_2"))
    assert (stops.of_manager(3, "s_1"), stops.of_manager(3, "s_2")) == ((a_stop(),), (a_stop(number=8),))
    assert stops.of_manager(4, "s_1") == ()
    assert woken == [(3, "s_1"), (3, "s_2")], "each manager is woken once, even if the job is stored twice"
    stops.note(an_assigned_job(JobState.CANCELED, reported="failed"))
    assert stops.of_manager(3, "s_1") == ()


def test_jobs_that_the_cell_ended_are_sent_for_some_minutes() -> None:
    clock = VirtualClock()
    stops = StopRequests(clock)
    stops.note(an_assigned_job())
    stops.note(an_assigned_job(JobState.CANCELED))
    stops.note(an_assigned_job(JobState.FAILED, number=9))
    assert stops.of_manager(3, "s_1") == (a_stop("canceled"), a_stop("failed", 9))
    clock._now += ENDED_SECONDS
    assert stops.of_manager(3, "s_1") == ()
    stops.note(an_assigned_job(number=10))
    assert len(stops._manager_of) == 1, "old entries of managers that never poll are removed"


def test_jobs_without_a_runner_have_no_stops() -> None:
    stops = StopRequests(VirtualClock())
    stops.note(a_job(state=JobState.CANCELED))
    stops.note(an_assigned_job(is_trigger=True))
    assert (stops.of_manager(3, "s_1"), stops._manager_of) == ((), {})


def test_a_list_of_all_jobs_corrects_missed_changes() -> None:
    stops = StopRequests(VirtualClock())
    stops.note(an_assigned_job())
    stops.note_all([an_assigned_job(number=8), an_assigned_job(JobState.RUNNING, number=9)])
    assert stops.of_manager(3, "s_1") == (a_stop(number=8),)


async def test_a_cancel_is_sent_also_after_a_restart(cell: MemoryCell) -> None:
    await cell.push(a_spec())
    job, token = await cell.start(graceful=True)
    await cell.dispatch.user_commands.cancel_job(job.id)
    manager = (cell.runner.id, "s_abcdefabcdef")
    expected = (WantedStop(job_id=job.id, status="canceling"),)
    assert cell.dispatch.memory.stops.of_manager(*manager) == expected
    reopened = await cell.reopen()
    assert reopened.dispatch.memory.stops.of_manager(*manager) == expected
    await reopened.put(token, "failed", reason="job_canceled")
    assert reopened.dispatch.memory.stops.of_manager(*manager) == ()
