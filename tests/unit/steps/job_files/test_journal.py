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


def record_finish(journal: Journal, number: int, public: bool = True) -> None:
    journal.record({"event": "finish", "number": number}, {"event": "finished", "number": number} if public else None)


def read_numbers(journal: Journal) -> list[Any]:
    return [json.loads(line)["number"] for line in journal.results]


def test_a_reopened_journal_has_all_events(journal: Journal) -> None:
    record_finish(journal, 1)
    journal.record_cancel()
    record_finish(journal, 2, public=False)
    record_finish(journal, 3)
    reopened = Journal(journal.folder)
    assert (reopened.accepted_at, reopened.cancelled, reopened.is_foreign) == (12.5, True, False)
    assert reopened.read_request().id == "7"
    assert [event.get("number", event["event"]) for event in reopened.past] == [1, "cancel", 2, 3]
    assert reopened.results == journal.results
    assert [json.loads(line)["seq"] for line in reopened.results] == [1, 2]
    assert all("public" not in event for event in reopened.past)


def test_a_reopened_journal_has_the_end(journal: Journal) -> None:
    record_finish(journal, 1)
    journal.record_end(END)
    reopened = Journal(journal.folder)
    assert (reopened.end, reopened.past, read_numbers(reopened)) == (END, [], [1])


@pytest.mark.parametrize("incomplete", [b"{", b'{"event":"finish"', b'{"event": "finish", "public": {"seq": 2}}'])
def test_an_incomplete_last_line_is_dropped(journal: Journal, incomplete: bytes) -> None:
    record_finish(journal, 1)
    events = journal.folder / "events"
    whole = events.read_bytes()
    events.write_bytes(whole + incomplete)
    reopened = Journal(journal.folder)
    assert read_numbers(reopened) == [1]
    record_finish(reopened, 2)
    assert events.read_bytes().startswith(whole)
    assert read_numbers(Journal(journal.folder)) == [1, 2]


def test_incompletely_created_and_removed_jobs_are_deleted(tmp_path: Path, journal: Journal) -> None:
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
def test_any_id_has_a_safe_folder_name(job_id: str) -> None:
    assert folder_name(job_id).isalnum()
    assert folder_name(job_id) != folder_name(job_id + " ")


def test_a_removed_job_may_be_removed_again(journal: Journal) -> None:
    journal.remove()
    journal.remove()
    assert not list(journal.folder.parent.iterdir())


@pytest.mark.parametrize("ended", [False, True])
def test_results_and_end_of_a_job_in_the_first_format_are_read(journal: Journal, ended: bool) -> None:
    (journal.folder / "events").unlink()
    (journal.folder / "results").write_text('{"seq":1,"event":"started"}\n{"seq":2,"ev')
    if ended:
        outcome = {"status": "success", "reason": "", "exit_code": 0, "message": "", "log_line": "Job succeeded"}
        end = {"version": 1, "ended_at": 1.0, "log_bytes": 2, "log_checksum": "crc32:00000000", "results": 3}
        (journal.folder / "end").write_text(json.dumps(end | {"outcome": outcome}))
    reopened = Journal(journal.folder)
    assert reopened.is_foreign
    assert reopened.results == [b'{"seq":1,"event":"started"}']
    assert reopened.end == (END if ended else None)
