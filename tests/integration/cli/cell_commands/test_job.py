"""`remuda job` against a cell in its own process."""

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.support.cells.cell_process import CellProcess

FILE = """
build: {script: make, stage: build}
deploy: {script: deploy, stage: deploy, when: manual}
"""


@pytest.fixture
def jobs(cell: CellProcess, shop: Any) -> dict[str, Any]:
    """The jobs of a new project by name, and the path of the project under the key `project`."""
    project = shop(FILE)
    cell.until_pipelines(1, project)
    listed = cell.api("GET", f"/projects/{quote(project, safe='')}/jobs").json()
    return {"project": project, **{job["name"]: job["id"] for job in listed}}


def take(cell: CellProcess, job: int) -> tuple[Any, dict[str, Any]]:
    """Hand out jobs until this one is; end the others."""
    runner = cell.new_runner()
    while (payload := runner.take())["id"] != job:
        runner.put(payload, "success")
    return runner, payload


def test_list_has_the_project_and_only_that_of_the_folder(
    cell: CellProcess, remuda: Any, jobs: dict[str, Any], shop: Any, tmp_path: Path
) -> None:
    other = shop(FILE)
    cell.until_pipelines(1, other)
    everywhere = remuda("job", "list").out
    assert jobs["project"] in everywhere
    assert other in everywhere
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    remote = f"{cell.url.replace('://', '://me:secret@')}/{other}.git"
    subprocess.run(["git", "remote", "add", "origin", remote], cwd=tmp_path, check=True)
    here = remuda("job", "list").out
    assert jobs["project"] not in here
    assert other in here
    assert jobs["project"] in remuda("job", "list", "--all").out
    listed = json.loads(remuda("job", "list", "-p", jobs["project"], "-s", "created", "-o", "json").out)
    assert [job["id"] for job in listed] == [jobs["deploy"]]
    assert remuda("job", "list", "-s", "canceled").out == (
        f"there are no jobs with the status canceled in the project {other}\n"
    )


def test_retry_and_erase_of_a_job_that_has_not_ended_say_what_to_do(remuda: Any, jobs: dict[str, Any]) -> None:
    build = jobs["build"]
    result = remuda("job", "retry", build)
    assert (result.code, result.err) == (
        2,
        f"job {build} is pending; only a job that has ended can run again: wait for its end, or cancel it "
        f"(`remuda job cancel {build}`)",
    )
    result = remuda("job", "erase", build, "--yes")
    assert (result.code, result.err) == (
        2,
        f"job {build} is pending; only a job that has ended can be erased: cancel it first "
        f"(`remuda job cancel {build}`)",
    )


def test_cancel_retry_and_the_second_retry(remuda: Any, jobs: dict[str, Any]) -> None:
    build = jobs["build"]
    assert remuda("job", "cancel", build).out == f"job {build} is canceled\n"
    first = remuda("job", "retry", build, "-o", "json")
    new = json.loads(first.out)["id"]
    assert new > build
    again = remuda("job", "retry", build)
    assert (again.code, again.err) == (2, f"job {build} was retried already, as job {new}: remuda job show {new}")
    assert remuda("job", "erase", build, "-y").err == f"job {build} has no log and no artifacts (any more)"


def test_play(remuda: Any, cell: CellProcess, shop: Any) -> None:
    project = shop("deploy: {script: deploy, when: manual}")
    cell.until_pipelines(1, project)
    [job] = json.loads(remuda("job", "list", "-p", project, "-o", "json").out)
    played = remuda("job", "play", job["id"], "--variable", "VERSION=1.4")
    assert played.out == f"job {job['id']} is pending; its log: remuda job log {job['id']} --follow\n"
    _, payload = take(cell, job["id"])
    assert ("VERSION", "1.4") in [(each["key"], each["value"]) for each in payload["variables"]]
    result = remuda("job", "play", job["id"])
    assert result.code == 2
    assert "only manual and delayed jobs can be started" in result.err
    assert "400" not in result.err


def test_erase_needs_a_confirmation(remuda: Any, jobs: dict[str, Any]) -> None:
    result = remuda("job", "erase", jobs["build"])
    assert (result.code, "--yes" in result.err) == (2, True)


def archive(**files: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in files.items():
            packed.writestr(name.replace("__", "/"), text)
    return data.getvalue()


def test_artifacts(remuda: Any, cell: CellProcess, jobs: dict[str, Any], tmp_path: Path) -> None:
    build = jobs["build"]
    early = remuda("job", "artifacts", build, "--unpack", "out")
    assert (early.code, "is pending" in early.err) == (2, True)
    runner, payload = take(cell, build)
    content = archive(dist__app="binary", notes="some words")
    assert runner.upload(payload, content, query="?artifact_type=archive&artifact_format=zip").status == 201
    runner.put(payload, "success")
    listed = remuda("job", "artifacts", build).out
    assert "archive" in listed
    assert "dist/app  6 bytes" in listed
    document = json.loads(remuda("job", "artifacts", build, "-o", "json").out)
    assert [file["path"] for file in document["files"]] == ["dist/app", "notes"]
    assert remuda("job", "artifacts", build, "--unpack", "out").out == f"the artifacts of job {build} are in out\n"
    assert (tmp_path / "out" / "dist" / "app").read_text() == "binary"
    assert remuda("job", "artifacts", build, "dist/app").out == "app: 6 bytes\n"
    assert (tmp_path / "app").read_text() == "binary"
    assert remuda("job", "artifacts", build, "notes", "--to", "-").out == "some words"
    assert remuda("job", "artifacts", build, "-t", "all.zip").code == 0
    (tmp_path / "link").symlink_to("linked")
    assert remuda("job", "artifacts", build, "notes", "--to", "link").code == 0
    assert ((tmp_path / "link").is_symlink(), (tmp_path / "linked").read_text()) == (True, "some words")
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as reader:
        assert remuda("job", "artifacts", build, "notes", "--to", "pipe").code == 0
        assert (reader.communicate(timeout=20)[0], (tmp_path / "pipe").is_fifo()) == (b"some words", True)
    assert (tmp_path / "all.zip").read_bytes() == content
    erased = remuda("job", "erase", build, "-y", stdin="")
    assert erased.out == f"the log and the artifacts of job {build} are deleted\n"
    gone = remuda("job", "artifacts", build, "--unpack", "again")
    assert (gone.code, "was erased at" in gone.err) == (2, True)


def test_what_a_job_has_not_is_named(remuda: Any, cell: CellProcess, jobs: dict[str, Any], tmp_path: Path) -> None:
    build = jobs["build"]
    runner, payload = take(cell, build)
    content = archive(notes="some words")
    assert runner.upload(payload, content, query="?artifact_type=archive&artifact_format=zip").status == 201
    runner.put(payload, "success")
    absent = remuda("job", "artifacts", build, "nothing.txt")
    assert (absent.code, absent.err) == (2, "nothing.txt is not in the archive")
    assert not list(tmp_path.glob(".nothing*"))
    other = remuda("job", "artifacts", build, "--type", "junit")
    assert other.err == f"job {build} has no artifact of type junit; it has: archive, metadata" or (
        other.err == f"job {build} has no artifact of type junit; it has: archive"
    )


def test_a_log_that_is_not_there_is_explained(remuda: Any, cell: CellProcess, jobs: dict[str, Any]) -> None:
    build, deploy = jobs["build"], jobs["deploy"]
    waiting = remuda("job", "log", build)
    assert (waiting.code, waiting.out) == (0, "")
    assert waiting.err == (
        f"remuda: job {build} is pending and has no log yet; --follow waits for it, `remuda job why {build}` says what "
        "it waits for\n"
    )
    assert remuda("job", "cancel", deploy).code == 0
    over = remuda("job", "log", deploy, "--follow")
    assert over.err == f"remuda: job {deploy} has no log (any more); `remuda job why {deploy}` says how it ended\n"
    runner, payload = take(cell, build)
    assert runner.patch(payload, 0, b"made\n").status == 202
    assert (remuda("job", "log", build).out, remuda("job", "log", build).err) == ("made\n", "")


def test_a_missing_job_is_explained_without_http(remuda: Any, cell: CellProcess) -> None:
    for words in (["show"], ["why"], ["log"], ["cancel"], ["retry"], ["play"], ["shell"], ["artifacts"]):
        result = remuda("job", *words, 99999)
        assert (result.code, result.err) == (
            2,
            f"there is no job 99999 on the cell at {cell.url}, or you may not see it; `remuda job list` lists those "
            "that you may see",
        ), words


def test_the_log_has_colours_only_on_a_terminal_that_wants_them(
    cell: CellProcess, remuda: Any, jobs: dict[str, Any]
) -> None:
    runner, payload = take(cell, jobs["build"])
    stored = b"\x1b[32;1m$ make\x1b[0;m\nmade\n"
    assert runner.patch(payload, 0, stored).status == 202
    job = str(jobs["build"])
    assert remuda("job", "log", job).out == "$ make\nmade\n"
    assert remuda("job", "log", job, "--raw").out == stored.decode()

    def on_terminal(**variables: str) -> str:
        """Return what the command writes to a terminal, whose output must be smaller than its buffer."""
        master, terminal = os.openpty()
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        command = [sys.executable, "-m", "remuda", "job", "log", job]
        subprocess.run(command, stdout=terminal, env={**environment, "TERM": "xterm", **variables}, check=True)
        os.close(terminal)
        written = os.read(master, 4096).decode()
        os.close(master)
        return written

    assert on_terminal() == "\x1b[32;1m$ make\x1b[0;m\r\nmade\r\n"
    assert on_terminal(NO_COLOR="1") == on_terminal(TERM="dumb") == "$ make\r\nmade\r\n"


def test_a_mistyped_status_is_corrected(remuda: Any) -> None:
    for command in ("job", "pipeline"):
        result = remuda(command, "list", "--status", "faild")
        assert (result.code, result.err.startswith("--status faild: did you mean failed? ")) == (2, True)


def test_cancel_and_play_of_a_job_that_has_ended(remuda: Any, cell: CellProcess, jobs: dict[str, Any]) -> None:
    runner, payload = take(cell, jobs["build"])
    runner.put(payload, "failed")
    assert remuda("job", "cancel", jobs["build"]).out == f"job {jobs['build']} has ended already (failed)\n"
    skipped = remuda("job", "play", jobs["deploy"])
    assert skipped.err == (
        f"job {jobs['deploy']} has ended (skipped); only manual and delayed jobs can be started: "
        f"see `remuda job why {jobs['deploy']}`"
    )
