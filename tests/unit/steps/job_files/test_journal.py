import json
from pathlib import Path
from typing import Any

import pytest

from remuda.steps.job_files.journal import JobEnd, Journal, folder_name, list_jobs
from remuda.steps.job_tree.outcome import Outcome, Status
from remuda.wire.proto.agent_pb2 import StartRequest


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(tmp_path, StartRequest(id="7", steps="x"), 12.5)


END = JobEnd(
    outcome=Outcome(status=Status.SUCCESS), ended_at=1.0, log_bytes=2, log_checksum="crc32:00000000", results=3
)


def add(journal: Journal, number: int, public: bool = True) -> None:
    journal.record({"event": "finish", "number": number}, {"event": "finished", "number": number} if public else None)


def numbers(journal: Journal) -> list[Any]:
    return [json.loads(line)["number"] for line in journal.results]


def test_a_job_is_found_again_as_it_was(journal: Journal) -> None:
    add(journal, 1)
    journal.record_cancel()
    add(journal, 2, public=False)
    add(journal, 3)
    again = Journal(journal.folder)
    assert (again.accepted_at, again.cancelled, again.is_foreign) == (12.5, True, False)
    assert again.read_request().id == "7"
    assert [event.get("number", event["event"]) for event in again.past] == [1, "cancel", 2, 3]
    assert again.results == journal.results
    assert [json.loads(line)["seq"] for line in again.results] == [1, 2]
    assert all("public" not in event for event in again.past)


def test_the_end_is_found_again(journal: Journal) -> None:
    add(journal, 1)
    journal.record_end(END)
    again = Journal(journal.folder)
    assert (again.end, again.past, numbers(again)) == (END, [], [1])


@pytest.mark.parametrize("torn", [b"{", b'{"event":"finish"', b'{"event": "finish", "public": {"seq": 2}}'])
def test_a_torn_last_line_is_dropped(journal: Journal, torn: bytes) -> None:
    add(journal, 1)
    events = journal.folder / "events"
    whole = events.read_bytes()
    events.write_bytes(whole + torn)
    again = Journal(journal.folder)
    assert numbers(again) == [1]
    add(again, 2)
    assert events.read_bytes().startswith(whole)
    assert numbers(Journal(journal.folder)) == [1, 2]


def test_half_made_and_half_removed_jobs_disappear(tmp_path: Path, journal: Journal) -> None:
    (tmp_path / ".new-x").mkdir()
    (tmp_path / ".gone-x").mkdir()
    (tmp_path / ".gone-x/log").touch()
    assert list(list_jobs(tmp_path)) == [journal.folder]
    assert list(tmp_path.iterdir()) == [journal.folder]


def test_files_are_private_and_gone_after_removal(tmp_path: Path, journal: Journal) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 for path in journal.folder.iterdir()}
    assert modes == {"request": 0o600, "events": 0o600, "exchange": 0o700}
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


@pytest.mark.parametrize("ended", [False, True])
def test_of_a_job_of_the_first_form_results_and_end_are_known(journal: Journal, ended: bool) -> None:
    (journal.folder / "events").unlink()
    (journal.folder / "results").write_text('{"seq":1,"event":"started"}\n{"seq":2,"ev')
    if ended:
        outcome = {"status": "success", "reason": "", "exit_code": 0, "message": "", "log_line": "Job succeeded"}
        end = {"version": 1, "ended_at": 1.0, "log_bytes": 2, "log_checksum": "crc32:00000000", "results": 3}
        (journal.folder / "end").write_text(json.dumps(end | {"outcome": outcome}))
    again = Journal(journal.folder)
    assert again.is_foreign
    assert again.results == [b'{"seq":1,"event":"started"}']
    assert again.end == (END if ended else None)
