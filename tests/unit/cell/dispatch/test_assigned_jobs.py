from msgspec.structs import replace

from remuda.cell.dispatch import assigned_jobs
from remuda.cell.dispatch.assigned_jobs import KNOWN_SECONDS, KnownJobs
from remuda.lib.clock import VirtualClock
from remuda.model.job import JobId, JobState
from remuda.testing.builders import a_job

HELD = a_job(state=JobState.LEASED, epoch=1)


async def test_a_job_is_known_for_some_seconds() -> None:
    clock = VirtualClock()
    known = KnownJobs(clock)
    known.note(HELD)
    assert known.get(HELD.id) == HELD
    await clock.advance(KNOWN_SECONDS)
    assert known.get(HELD.id) is None


def test_a_job_that_no_runner_has_is_not_known() -> None:
    known = KnownJobs(VirtualClock())
    known.note(HELD)
    known.note(replace(HELD, state=JobState.SUCCESS))
    assert known.get(HELD.id) is None


def test_that_its_pipeline_runs_is_known_of_one_hand_out() -> None:
    known = KnownJobs(VirtualClock())
    known.note(HELD)
    assert not known.is_in_running(HELD)
    known.note(HELD, in_running=True)
    known.note(replace(HELD, state=JobState.RUNNING))
    assert known.is_in_running(HELD)
    again = replace(HELD, epoch=2)
    assert not known.is_in_running(again)
    known.note(again)
    assert not known.is_in_running(again)


def test_a_pipeline_that_is_seen_to_run_does_so_for_jobs_that_runners_had_before() -> None:
    known = KnownJobs(VirtualClock())
    later = replace(HELD, id=JobId(HELD.id + 1))
    known.note(HELD)
    moment = known.moment()
    known.note(later)
    known.note_running(HELD.pipeline_id, since=moment)
    assert known.is_in_running(HELD)
    known.note(replace(HELD, state=JobState.RUNNING))
    assert known.is_in_running(HELD)
    assert not known.is_in_running(later), "the pipeline may have been over before it was handed out"
    known.note(replace(HELD, epoch=2))
    assert not known.is_in_running(replace(HELD, epoch=2))


def test_what_others_changed_is_forgotten() -> None:
    known = KnownJobs(VirtualClock())
    jobs = [replace(HELD, id=JobId(number)) for number in range(1, 4)]
    for job in jobs:
        known.note(job)
    known.forget(JobId(1), JobId(9))
    assert [known.get(job.id) for job in jobs] == [None, jobs[1], jobs[2]]
    known.forget()
    assert [known.get(job.id) for job in jobs] == [None, None, None]


def test_so_many_are_known_at_most() -> None:
    known = KnownJobs(VirtualClock())
    for number in range(1, assigned_jobs.MOST + 2):
        known.note(replace(HELD, id=JobId(number)))
    assert known.get(JobId(1)) is None
    assert known.get(JobId(2)) is not None
