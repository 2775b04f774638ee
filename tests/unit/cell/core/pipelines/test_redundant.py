"""Auto-cancel of redundant pipelines: which pipelines a newer one replaces, and which jobs are canceled."""

from typing import Any

import pytest
from msgspec.structs import replace

from remuda.cell.core.pipelines.redundant import cancel, is_replaced
from remuda.cell.values import Job
from remuda.model.job import JobId, JobState, PipelineId
from remuda.testing.builders import NOW, a_family, a_job, a_pipeline

OTHER = "a" * 40


def jobs_in_states(**states: str) -> list[Job]:
    """Create a job for each name and state. Jobs whose names begin with `i` are interruptible."""
    jobs = []
    for number, (name, state) in enumerate(states.items(), 1):
        started = NOW if state in ("running", "success", "failed") else None
        job = a_job(name, id=JobId(number), state=JobState(state), started_at=started, interruptible=name[0] == "i")
        jobs.append(job)
    return jobs


@pytest.mark.parametrize(
    ("mode", "states", "canceled"),
    [
        ("none", {"ia": "pending", "b": "created"}, set()),
        ("conservative", {"a": "pending", "b": "created"}, {"a", "b"}),
        ("conservative", {"a": "manual", "b": "created"}, {"a", "b"}),
        ("conservative", {"ia": "running", "b": "created"}, {"ia", "b"}),
        ("conservative", {"ia": "success", "b": "pending"}, {"b"}),
        ("conservative", {"a": "running", "ib": "pending"}, set()),
        ("conservative", {"a": "success", "ib": "running"}, set()),
        ("conservative", {"a": "leased", "ib": "pending"}, set()),
        ("interruptible", {"a": "running", "ib": "running", "ic": "pending", "d": "created"}, {"ib", "ic"}),
        ("interruptible", {"a": "running", "b": "pending"}, set()),
    ],
)
def test_which_jobs_a_newer_pipeline_cancels(mode: str, states: dict[str, str], canceled: set[str]) -> None:
    changes = cancel(a_family(jobs_in_states(**states), cancel_on_new_commit=mode, status="running"), NOW + 1)
    assert {job.name for job in changes.jobs if job.state is JobState.CANCELED} == canceled


def test_a_trigger_job_with_a_pipeline_is_not_canceled() -> None:
    waits, starts, done, own = jobs_in_states(waits="running", starts="running", done="success", own="created")
    waits = replace(waits, is_trigger=True, downstream_id=PipelineId(9))
    starts = replace(starts, is_trigger=True)
    done = replace(done, is_trigger=True, downstream_id=PipelineId(8))
    changes = cancel(a_family([waits, starts, done, own], cancel_on_new_commit="conservative"), NOW + 1)
    assert {job.name: job.state for job in changes.jobs} == {"starts": JobState.CANCELING, "own": JobState.CANCELED}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {}, True),
        ({}, {"source": "merge_request_event"}, True),
        ({"source": "schedule"}, {}, True),
        ({}, {"source": "schedule"}, False),
        ({}, {"source": "parent_pipeline"}, False),
        ({"is_child": True}, {}, True),
        ({"sha": OTHER}, {}, False),
        ({"id": 3}, {}, False),
        ({"tag": True}, {}, False),
        ({"cancel_on_new_commit": "none"}, {}, False),
        ({"created_at": NOW - 8 * 86400}, {}, False),
    ],
)
def test_which_pipelines_are_replaced(old: dict[str, Any], new: dict[str, Any], expected: bool) -> None:
    older = a_pipeline(**({"id": 1, "cancel_on_new_commit": "conservative"} | old))
    assert is_replaced(older, a_pipeline(**({"id": 2, "sha": OTHER} | new))) is expected
