from msgspec.structs import replace

from remuda.cell.dispatch import job_cache
from remuda.cell.dispatch.job_cache import CACHE_SECONDS, JobCache
from remuda.lib.clock import VirtualClock
from remuda.model.job import JobId, JobState
from remuda.testing.builders import a_job

ASSIGNED = a_job(state=JobState.LEASED, epoch=1)


async def test_a_job_is_known_for_some_seconds() -> None:
    clock = VirtualClock()
    cache = JobCache(clock)
    cache.note(ASSIGNED)
    assert cache.get(ASSIGNED.id) == ASSIGNED
    await clock.advance(CACHE_SECONDS)
    assert cache.get(ASSIGNED.id) is None


def test_a_job_that_no_runner_has_is_not_known() -> None:
    cache = JobCache(VirtualClock())
    cache.note(ASSIGNED)
    cache.note(replace(ASSIGNED, state=JobState.SUCCESS))
    assert cache.get(ASSIGNED.id) is None


def test_that_its_pipeline_runs_is_known_of_one_hand_out() -> None:
    cache = JobCache(VirtualClock())
    cache.note(ASSIGNED)
    assert not cache.is_in_running(ASSIGNED)
    cache.note(ASSIGNED, in_running=True)
    cache.note(replace(ASSIGNED, state=JobState.RUNNING))
    assert cache.is_in_running(ASSIGNED)
    again = replace(ASSIGNED, epoch=2)
    assert not cache.is_in_running(again)
    cache.note(again)
    assert not cache.is_in_running(again)


def test_a_pipeline_that_is_seen_to_run_does_so_for_jobs_that_runners_had_before() -> None:
    cache = JobCache(VirtualClock())
    later = replace(ASSIGNED, id=JobId(ASSIGNED.id + 1))
    cache.note(ASSIGNED)
    moment = cache.next_moment()
    cache.note(later)
    cache.note_running(ASSIGNED.pipeline_id, since=moment)
    assert cache.is_in_running(ASSIGNED)
    cache.note(replace(ASSIGNED, state=JobState.RUNNING))
    assert cache.is_in_running(ASSIGNED)
    assert not cache.is_in_running(later), "the pipeline may have been over before it was handed out"
    cache.note(replace(ASSIGNED, epoch=2))
    assert not cache.is_in_running(replace(ASSIGNED, epoch=2))


def test_what_others_changed_is_forgotten() -> None:
    cache = JobCache(VirtualClock())
    jobs = [replace(ASSIGNED, id=JobId(number)) for number in range(1, 4)]
    for job in jobs:
        cache.note(job)
    cache.forget(JobId(1), JobId(9))
    assert [cache.get(job.id) for job in jobs] == [None, jobs[1], jobs[2]]
    cache.forget()
    assert [cache.get(job.id) for job in jobs] == [None, None, None]


def test_so_many_are_known_at_most() -> None:
    cache = JobCache(VirtualClock())
    for number in range(1, job_cache.MAX_ENTRIES + 2):
        cache.note(replace(ASSIGNED, id=JobId(number)))
    assert cache.get(JobId(1)) is None
    assert cache.get(JobId(2)) is not None
