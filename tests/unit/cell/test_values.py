import msgspec

from remuda.cell.store.row_bodies import decode, encode
from remuda.cell.values import Job
from remuda.model.job import JobState
from remuda.testing.builders import a_job


def test_a_job_is_written_without_its_defaults_but_with_its_version() -> None:
    job = a_job(state=JobState.MANUAL, play_variables={"A": "1"})
    written = msgspec.json.decode(encode(job))
    assert (written["version"], written["play_variables"]) == (1, {"A": "1"})
    assert "trace_bytes" not in written
    assert decode(Job, encode(job)) == job


def test_a_job_of_a_release_that_wrote_everything_is_read() -> None:
    job = a_job(coverage=12.5)
    assert decode(Job, msgspec.json.encode(msgspec.structs.asdict(job))) == job


def test_what_is_not_written_of_a_job_keeps_its_meaning() -> None:
    """A default that changed would change every job that is stored."""
    least = {field.name: getattr(a_job(), field.name) for field in msgspec.structs.fields(Job) if field.required}
    job = Job(**least)
    telling = {name: value for name, value in msgspec.structs.asdict(job).items() if value and name not in least}
    assert telling == {
        "version": 1,
        "when": "on_success",
        "retry_when": ("always",),
        "tries": 1,
        "organization_id": 1,
    }
