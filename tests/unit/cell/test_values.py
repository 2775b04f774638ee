"""Encoding of jobs as rows of the store."""

import msgspec

from remuda.cell.store.row_bodies import decode, encode
from remuda.cell.values import Job
from remuda.model.job import JobState
from remuda.testing.builders import a_job


def test_a_job_is_written_without_its_defaults_but_with_its_version() -> None:
    job = a_job(state=JobState.MANUAL, play_variables={"A": "1"})
    row = msgspec.json.decode(encode(job))
    assert (row["version"], row["play_variables"]) == (1, {"A": "1"})
    assert "trace_bytes" not in row
    assert decode(Job, encode(job)) == job


def test_a_row_with_all_defaults_can_be_read() -> None:
    job = a_job(coverage=12.5)
    assert decode(Job, msgspec.json.encode(msgspec.structs.asdict(job))) == job


def test_defaults_that_are_not_written_do_not_change() -> None:
    """A changed default would change every stored job."""
    required = {field.name: getattr(a_job(), field.name) for field in msgspec.structs.fields(Job) if field.required}
    job = Job(**required)
    defaults = {name: value for name, value in msgspec.structs.asdict(job).items() if value and name not in required}
    assert defaults == {
        "version": 1,
        "when": "on_success",
        "retry_when": ("always",),
        "tries": 1,
        "organization_id": 1,
    }
