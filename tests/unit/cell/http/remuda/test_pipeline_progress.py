"""What a waiting job says about why it waits."""

from typing import Any

import pytest

from remuda.cell.http.remuda.pipeline_progress import NAMED_WAITS, job_progress, jobs_ahead
from remuda.cell.values import Job
from remuda.model.job import JobState
from remuda.testing.builders import a_job


def staged(name: str, state: JobState = JobState.CREATED, *, stage: int = 0, **changes: Any) -> Job:
    return a_job(name, state=state, stage=f"stage-{stage}", stage_index=stage, **changes)


BUILD = staged("build", JobState.SUCCESS)
LINT = staged("lint", JobState.RUNNING)
CHECK = staged("check", JobState.MANUAL, stage=1)
DOCS = staged("docs", JobState.MANUAL, allow_failure=True)


@pytest.mark.parametrize(
    ("job", "names"),
    [
        (staged("test", stage=1, by_stage=True), ("lint",)),
        (staged("ship", stage=2, by_stage=True), ("lint", "check")),
        (staged("test", stage=1, waits_for=("build", "check")), ("check",)),
        (staged("test", stage=1, waits_for=("build",)), ()),
        (staged("test", stage=0), ()),
    ],
)
def test_a_job_waits_for_what_is_not_over(job: Job, names: tuple[str, ...]) -> None:
    assert jobs_ahead(job, [BUILD, LINT, CHECK, DOCS, job]) == names


def test_only_so_many_are_named() -> None:
    others = [staged(str(number), JobState.PENDING) for number in range(50)]
    assert len(jobs_ahead(staged("last", stage=1, by_stage=True), others)) == NAMED_WAITS


def test_only_a_job_whose_turn_has_not_come_waits_for_others() -> None:
    pending = staged("test", JobState.PENDING, stage=1, by_stage=True, scheduled_at=5.0)
    progress = job_progress(pending, [LINT, pending], now=12.0)
    assert (progress.waits_for, progress.starts_at, progress.status) == ((), None, "pending")
    delayed = staged("test", JobState.SCHEDULED, scheduled_at=20.0)
    assert job_progress(delayed, [delayed], now=12.0).starts_at == 20.0
    assert job_progress(staged("a", JobState.LEASED), [], now=12.0).status == "running"
