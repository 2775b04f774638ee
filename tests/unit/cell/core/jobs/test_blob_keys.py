"""Blob keys of traces and artifacts, and the job id in a key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.jobs.blob_keys import artifact_key, job_of_artifact, job_of_trace, trace_key
from remuda.model.job import JobId


@given(st.integers(1, 10**18 - 1))
def test_a_key_contains_its_job_id(number: int) -> None:
    job_id = JobId(number)
    assert job_of_trace(trace_key(job_id)) == job_id
    assert job_of_artifact(artifact_key(job_id, "junit", "0123abcd")) == job_id


def test_a_key_of_an_older_release_contains_its_job_id() -> None:
    assert job_of_artifact("artifacts/17/archive-0123") == 17


@pytest.mark.parametrize(
    "key", ["traces/0/x.log", "traces/1/17.log", "traces/17", "traces/0/²", "traces/0/" + "9" * 30]
)
def test_a_key_of_another_form_is_not_a_trace(key: str) -> None:
    assert job_of_trace(key) is None


@pytest.mark.parametrize("key", ["artifacts/x/y", "artifacts", ""])
def test_a_key_of_another_form_is_not_an_artifact(key: str) -> None:
    assert job_of_artifact(key) is None
