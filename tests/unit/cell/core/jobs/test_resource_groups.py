"""The order in which jobs get a resource group."""

import pytest

from remuda.cell.core.jobs.resource_groups import goes_before, order_upcoming
from remuda.model.job import JobId, JobState, PipelineId
from remuda.testing.builders import a_job

JOBS = [
    a_job(id=JobId(1), pipeline_id=PipelineId(1), state=JobState.CREATED),
    a_job(id=JobId(2), pipeline_id=PipelineId(2), state=JobState.CREATED),
    a_job(id=JobId(3), pipeline_id=PipelineId(2), state=JobState.WAITING_FOR_RESOURCE),
    a_job(id=JobId(4), pipeline_id=PipelineId(3), state=JobState.WAITING_FOR_RESOURCE),
    a_job(id=JobId(5), pipeline_id=PipelineId(4), state=JobState.CREATED),
    a_job(id=JobId(6), pipeline_id=PipelineId(4), state=JobState.RUNNING),
]


@pytest.mark.parametrize(
    ("mode", "ids"),
    [
        ("unordered", [3, 4]),
        ("oldest_first", [1, 3, 2, 4, 5]),
        ("newest_first", [5, 4, 3, 2, 1]),
        ("newest_ready_first", [4, 3]),
    ],
)
def test_the_order_of_upcoming_jobs(mode: str, ids: list[int]) -> None:
    assert [job.id for job in order_upcoming(JOBS, mode)] == ids


@pytest.mark.parametrize(
    ("mode", "ids"),
    [("unordered", []), ("oldest_first", [1, 2, 3]), ("newest_first", [5]), ("newest_ready_first", [])],
)
def test_jobs_that_go_before_a_pipeline(mode: str, ids: list[int]) -> None:
    assert [job.id for job in JOBS if job.pipeline_id != 3 and goes_before(job, PipelineId(3), mode)] == ids
