"""What a waiting job says about why it waits."""

import pytest

from remuda.cell.http.remuda.pipeline_progress import NAMED_WAITS, job_progress, jobs_ahead
from remuda.cell.values import Job
from remuda.model.job import JobId, JobState, PipelineId, ProjectId


def a_job(name: str, state: JobState = JobState.CREATED, *, stage: int = 0, **fields: object) -> Job:
    given = {
        "id": JobId(1),
        "pipeline_id": PipelineId(1),
        "project_id": ProjectId(1),
        "stage": f"stage-{stage}",
        "stage_index": stage,
        "ref": "main",
        "tag": False,
        "created_at": 10.0,
        "updated_at": 10.0,
    }
    return Job(name=name, state=state, **(given | fields))  # type: ignore[arg-type]


BUILD = a_job("build", JobState.SUCCESS)
LINT = a_job("lint", JobState.RUNNING)
CHECK = a_job("check", JobState.MANUAL, stage=1)
DOCS = a_job("docs", JobState.MANUAL, allow_failure=True)


@pytest.mark.parametrize(
    ("job", "names"),
    [
        (a_job("test", stage=1, by_stage=True), ("lint",)),
        (a_job("ship", stage=2, by_stage=True), ("lint", "check")),
        (a_job("test", stage=1, waits_for=("build", "check")), ("check",)),
        (a_job("test", stage=1, waits_for=("build",)), ()),
        (a_job("test", stage=0), ()),
    ],
)
def test_a_job_waits_for_what_is_not_over(job: Job, names: tuple[str, ...]) -> None:
    assert jobs_ahead(job, [BUILD, LINT, CHECK, DOCS, job]) == names


def test_only_so_many_are_named() -> None:
    others = [a_job(str(number), JobState.PENDING) for number in range(50)]
    assert len(jobs_ahead(a_job("last", stage=1, by_stage=True), others)) == NAMED_WAITS


def test_only_a_job_whose_turn_has_not_come_waits_for_others() -> None:
    pending = a_job("test", JobState.PENDING, stage=1, by_stage=True, scheduled_at=5.0)
    shown = job_progress(pending, [LINT, pending], now=12.0)
    assert (shown.waits_for, shown.starts_at, shown.status) == ((), None, "pending")
    delayed = a_job("test", JobState.SCHEDULED, scheduled_at=20.0)
    assert job_progress(delayed, [delayed], now=12.0).starts_at == 20.0
    assert job_progress(a_job("a", JobState.LEASED), [], now=12.0).status == "running"
