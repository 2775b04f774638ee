import json
from pathlib import Path

import pytest

from remuda.steps.journal import JobEnd, Journal, folder_name, stored_jobs
from remuda.steps.plan import Cause, Fault, Finished, Outcome, Status
from remuda.wire.proto.agent_pb2 import StartRequest


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(tmp_path, StartRequest(id="7", steps="x"), 12.5)


def started() -> dict[str, object]:
    return {"event": "started", "name": "a", "time": "now"}


def finished(status: Status = Status.FAILURE) -> dict[str, object]:
    return {"event": "finished", "name": "a", "status": status, "exit_code": 3, "error": "e", "fault": "user"}


def test_a_job_is_found_again_as_it_was(journal: Journal) -> None:
    journal.add_result(started())
    journal.record_cancel()
    journal.record_cause(0, Cause.JOB_TIMEOUT)
    again = Journal(journal.folder)
    assert (again.accepted_at, again.cancelled, again.causes) == (12.5, True, {0: Cause.JOB_TIMEOUT})
    assert again.timed_out
    assert again.started is not None
    assert again.read_request().id == "7"
    again.add_result(finished())
    last = Journal(journal.folder)
    assert last.finished == [Finished(status=Status.FAILURE, exit_code=3, error="e", fault=Fault.USER)]
    assert last.started is None
    assert [json.loads(line)["seq"] for line in last.results] == [1, 2]


def test_the_end_is_found_again(journal: Journal) -> None:
    end = JobEnd(
        outcome=Outcome(status=Status.SUCCESS), ended_at=1.0, log_bytes=2, log_checksum="crc32:00000000", results=3
    )
    journal.record_end(end)
    assert Journal(journal.folder).end == end


@pytest.mark.parametrize("torn", [b"{", b'{"event":"started"', b'{"event": "finished", "seq": 2}'])
def test_a_torn_last_line_is_dropped(journal: Journal, torn: bytes) -> None:
    journal.add_result(started())
    results = journal.folder / "results"
    whole = results.read_bytes()
    results.write_bytes(whole + torn)
    again = Journal(journal.folder)
    assert len(again.results) == 1
    again.add_result(finished())
    assert results.read_bytes().startswith(whole)
    assert len(Journal(journal.folder).results) == 2


def test_half_made_and_half_removed_jobs_disappear(tmp_path: Path, journal: Journal) -> None:
    (tmp_path / ".new-x").mkdir()
    (tmp_path / ".gone-x").mkdir()
    (tmp_path / ".gone-x/log").touch()
    assert list(stored_jobs(tmp_path)) == [journal.folder]
    assert list(tmp_path.iterdir()) == [journal.folder]


def test_files_of_finished_steps_are_cleared_away(journal: Journal) -> None:
    raw = journal.step_files(0).raw
    raw.touch()
    journal.add_result(started())
    Journal(journal.folder)
    assert raw.exists()
    journal.add_result(finished())
    Journal(journal.folder)
    assert not raw.exists()


def test_files_are_private_and_gone_after_removal(tmp_path: Path, journal: Journal) -> None:
    assert {path.stat().st_mode & 0o777 for path in journal.folder.iterdir()} == {0o600}
    assert journal.folder.stat().st_mode & 0o777 == 0o700
    journal.remove()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("job_id", ["..", "/", "a/b", "\0", "é", "x" * 200])
def test_no_id_escapes_its_folder(job_id: str) -> None:
    assert folder_name(job_id).isalnum()
    assert folder_name(job_id) != folder_name(job_id + " ")


def test_a_removed_job_may_be_removed_again(journal: Journal) -> None:
    journal.remove()
    journal.remove()
    assert not list(journal.folder.parent.iterdir())
