import msgspec

from remuda.cell.adapters.sqlite_rows import decode, encode
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
