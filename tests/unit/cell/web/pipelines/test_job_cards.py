"""Stages, groups of parallel jobs, and words for why a job waits."""

from typing import Any

import pytest

from remuda.cell.web.pipelines.job_cards import explain_state, list_pipeline_ids, sort_into_stages
from remuda.wire.user_api import JobProgress, PipelineProgress


def a_job(name: str = "test", status: str = "created", **more: Any) -> JobProgress:
    values: dict[str, Any] = {"id": 1, "stage": "test"} | more
    return JobProgress(name=name, status=status, **values)


def test_parallel_jobs_of_a_name_are_one_group() -> None:
    jobs = [a_job(f"unit {number}/4", "failed" if number == 3 else "success") for number in range(1, 5)]
    jobs += [a_job(f"build: [{system}]", stage="build", stage_index=0) for system in ("a", "b")]
    jobs = [job if job.stage == "build" else a_job(job.name, job.status, stage_index=1) for job in jobs]
    stages = sort_into_stages(jobs)
    assert [(stage.name, [group.name for group in stage.groups]) for stage in stages] == [
        ("build", ["build: [a]", "build: [b]"]),
        ("test", ["unit"]),
    ]
    assert stages[1].groups[0].counts == [("failed", 1), ("success", 3)]


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (a_job(waits_for=("a", "b", "c", "d")), "after a, b, c and 1 more"),
        (a_job(waits_for=tuple("abcdefghij")), "after a, b, c and others"),
        (a_job(waits_for=("a",), no_runner_reason="no runner has the tag x"), "after a; no runner has the tag x"),
        (a_job(waits_for=("a\u202eb", "c")), "after \u2068a\u202eb\u2069, c"),
        (a_job(status="pending"), "waits for a free runner"),
        (a_job(status="pending", no_runner_reason="no runner"), "no runner"),
        (a_job(status="pending", is_trigger=True), ""),
        (a_job(status="manual", allow_failure=True), "waits until someone starts it, optional"),
        (a_job(status="waiting_for_resource", resource_group="prod"), "waits for the resource group prod"),
        (a_job(status="failed", failure_reason="script_failure", exit_code=3), "script failure (exit code 3)"),
        (a_job(status="success"), ""),
    ],
)
def test_words_for_a_state(job: JobProgress, text: str) -> None:
    assert explain_state(job) == text


def test_pipelines_below_a_pipeline() -> None:
    inner = PipelineProgress(id=3, project_id=1, status="running")
    child = PipelineProgress(id=2, project_id=1, status="running", jobs=(a_job(downstream=inner),))
    assert list_pipeline_ids(
        PipelineProgress(id=1, project_id=1, status="running", jobs=(a_job(downstream=child),))
    ) == [1, 2, 3]
