"""The progress of a pipeline's jobs: which jobs a waiting job waits for."""

from typing import Any

import pytest

from remuda.cell.core.waiting.blocking_jobs import is_blocking
from remuda.cell.http.remuda.pipeline_progress import NAMED_WAITS, job_progress, jobs_ahead
from remuda.cell.values import Job
from remuda.model.job import JobState
from remuda.testing.builders import a_job


def a_staged_job(name: str, state: JobState = JobState.CREATED, *, stage: int = 0, **changes: Any) -> Job:
    return a_job(name, state=state, stage=f"stage-{stage}", stage_index=stage, **changes)


def blocking(*jobs: Job) -> dict[str, Job]:
    return {job.name: job for job in jobs if is_blocking(job)}


BUILD = a_staged_job("build", JobState.SUCCESS)
LINT = a_staged_job("lint", JobState.RUNNING)
CHECK = a_staged_job("check", JobState.MANUAL, stage=1)
DOCS = a_staged_job("docs", JobState.MANUAL, allow_failure=True)


@pytest.mark.parametrize(
    ("job", "names"),
    [
        (a_staged_job("test", stage=1, by_stage=True), ("lint",)),
        (a_staged_job("ship", stage=2, by_stage=True), ("lint", "check")),
        (a_staged_job("test", stage=1, waits_for=("build", "check")), ("check",)),
        (a_staged_job("test", stage=1, waits_for=("build",)), ()),
        (a_staged_job("test", stage=0), ()),
    ],
)
def test_a_job_waits_for_unfinished_jobs(job: Job, names: tuple[str, ...]) -> None:
    assert jobs_ahead(job, blocking(BUILD, LINT, CHECK, DOCS, job)) == names


def test_the_number_of_named_jobs_is_limited() -> None:
    others = [a_staged_job(str(number), JobState.PENDING) for number in range(50)]
    assert len(jobs_ahead(a_staged_job("last", stage=1, by_stage=True), blocking(*others))) == NAMED_WAITS


def test_only_a_created_job_waits_for_others() -> None:
    pending = a_staged_job("test", JobState.PENDING, stage=1, by_stage=True, scheduled_at=5.0)
    progress = job_progress(pending, blocking(LINT, pending), now=12.0)
    assert (progress.waits_for, progress.starts_at, progress.status) == ((), None, "pending")
    delayed = a_staged_job("test", JobState.SCHEDULED, scheduled_at=20.0)
    assert job_progress(delayed, blocking(delayed), now=12.0).starts_at == 20.0
    assert job_progress(a_staged_job("a", JobState.LEASED), {}, now=12.0).status == "running"
