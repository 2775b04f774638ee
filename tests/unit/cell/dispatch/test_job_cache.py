"""The cache of assigned jobs: expiry, invalidation, and whether a job's pipeline is running."""

from msgspec.structs import replace

from remuda.cell.dispatch import job_cache
from remuda.cell.dispatch.job_cache import CACHE_SECONDS, JobCache
from remuda.lib.clock import VirtualClock
from remuda.model.job import JobId, JobState
from remuda.testing.builders import a_job

ASSIGNED = a_job(state=JobState.LEASED, epoch=1)


async def test_a_job_is_cached_for_some_seconds() -> None:
    clock = VirtualClock()
    cache = JobCache(clock)
    cache.note(ASSIGNED)
    assert cache.get(ASSIGNED.id) == ASSIGNED
    await clock.advance(CACHE_SECONDS)
    assert cache.get(ASSIGNED.id) is None


def test_a_job_without_a_runner_is_not_cached() -> None:
    cache = JobCache(VirtualClock())
    cache.note(ASSIGNED)
    cache.note(replace(ASSIGNED, state=JobState.SUCCESS))
    assert cache.get(ASSIGNED.id) is None


def test_the_running_pipeline_is_cached_per_hand_out() -> None:
    cache = JobCache(VirtualClock())
    cache.note(ASSIGNED)
    assert not cache.is_in_running(ASSIGNED)
    cache.note(ASSIGNED, in_running=True)
    cache.note(replace(ASSIGNED, state=JobState.RUNNING))
    assert cache.is_in_running(ASSIGNED)
    handed_out_again = replace(ASSIGNED, epoch=2)
    assert not cache.is_in_running(handed_out_again)
    cache.note(handed_out_again)
    assert not cache.is_in_running(handed_out_again)


def test_a_running_pipeline_is_noted_for_jobs_assigned_before() -> None:
    cache = JobCache(VirtualClock())
    later = replace(ASSIGNED, id=JobId(ASSIGNED.id + 1))
    cache.note(ASSIGNED)
    moment = cache.next_moment()
    cache.note(later)
    cache.note_running(ASSIGNED.pipeline_id, since=moment)
    assert cache.is_in_running(ASSIGNED)
    cache.note(replace(ASSIGNED, state=JobState.RUNNING))
    assert cache.is_in_running(ASSIGNED)
    assert not cache.is_in_running(later), "the pipeline may have ended before this hand-out"
    cache.note(replace(ASSIGNED, epoch=2))
    assert not cache.is_in_running(replace(ASSIGNED, epoch=2))


def test_jobs_changed_by_other_processes_are_forgotten() -> None:
    cache = JobCache(VirtualClock())
    jobs = [replace(ASSIGNED, id=JobId(number)) for number in range(1, 4)]
    for job in jobs:
        cache.note(job)
    cache.forget(JobId(1), JobId(9))
    assert [cache.get(job.id) for job in jobs] == [None, jobs[1], jobs[2]]
    cache.forget()
    assert [cache.get(job.id) for job in jobs] == [None, None, None]


def test_the_number_of_entries_is_limited() -> None:
    cache = JobCache(VirtualClock())
    for number in range(1, job_cache.MAX_ENTRIES + 2):
        cache.note(replace(ASSIGNED, id=JobId(number)))
    assert cache.get(JobId(1)) is None
    assert cache.get(JobId(2)) is not None
