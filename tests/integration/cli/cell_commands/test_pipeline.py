"""`remuda pipeline` for the pipelines of a cell in its own process."""

import json
import threading
from typing import Any

from tests.support.cells.cell_process import CellProcess

from remuda.testing.waiting import wait_until

FILE = """
build: {script: make, stage: build}
test: {script: make test, stage: test}
"""


def first_pipeline(cell: CellProcess, project: str) -> int:
    return int(cell.until_pipelines(1, project)[0]["id"])


def test_list_run_show_cancel_retry(remuda: Any, cell: CellProcess, shop: Any) -> None:
    project, other = shop(FILE), shop(FILE)
    first, elsewhere = first_pipeline(cell, project), first_pipeline(cell, other)
    created = remuda("pipeline", "run", "-p", project, "--variable", "DEPLOY=yes")
    number = int(created.out.split()[1])
    assert created.out == f"pipeline {number} of {project} is pending; its progress: remuda pipeline watch {number}\n"
    listed = json.loads(remuda("pipeline", "list", "-p", project, "-o", "json").out)
    assert [pipeline["id"] for pipeline in listed] == [number, first]
    table = remuda("pipeline", "list").out
    assert [line.split()[0] for line in table.splitlines()] == ["pipeline", str(number), str(elsewhere), str(first)]
    assert project in table
    assert other in table
    shown = remuda("pipeline", "show", number).out
    assert shown.startswith(f"pipeline {number} of {project}\n  status")
    assert "build" in shown
    document = json.loads(remuda("pipeline", "show", number, "-o", "json").out)
    assert [job["name"] for job in document["jobs"]] == ["test", "build"]
    assert remuda("pipeline", "cancel", number).out == f"pipeline {number} is canceled\n"
    assert remuda("pipeline", "list", "-p", project, "-s", "canceled").out.count("\n") == 2
    assert remuda("pipeline", "retry", number).out.startswith(f"pipeline {number} is pending")


def test_run_with_chosen_jobs_and_a_wrong_ref(remuda: Any, cell: CellProcess, shop: Any) -> None:
    project = shop(FILE)
    first_pipeline(cell, project)
    number = json.loads(remuda("pipeline", "run", "-p", project, "--job", "build", "-o", "json").out)["id"]
    document = json.loads(remuda("pipeline", "show", number, "-o", "json").out)
    assert [job["name"] for job in document["jobs"]] == ["build"]
    wrong = remuda("pipeline", "run", "-p", project, "--ref", "nowhere")
    assert (wrong.code, "no branch or tag 'nowhere'" in wrong.err) == (2, True)
    empty = shop()
    nothing = remuda("pipeline", "run", "-p", empty)
    assert nothing.code == 2
    assert nothing.err == "no pipeline was created: there is no branch or tag 'main'; push it first"


def test_run_of_a_broken_file_says_that_no_pipeline_was_created(remuda: Any, cell: CellProcess, shop: Any) -> None:
    project = shop("build: {scirpt: make}\ntest: {stage: none, script: make}")
    failed = first_pipeline(cell, project)
    result = remuda("pipeline", "run", "-p", project)
    assert result.code == 2
    first, *mistakes = result.err.splitlines()
    assert first == "no pipeline was created:"
    assert [line.split(" ")[2] for line in mistakes] == [".gitlab-ci.yml:1:9:", ".gitlab-ci.yml:2:15:"]
    assert [each["id"] for each in json.loads(remuda("pipeline", "list", "-p", project, "-o", "json").out)] == [failed]


def test_show_of_a_missing_pipeline_and_with_options_of_files(remuda: Any, cell: CellProcess, tmp_path: Any) -> None:
    missing = remuda("pipeline", "show", 99999)
    assert missing.err.startswith(f"there is no pipeline 99999 on the cell at {cell.url}")
    assert remuda("pipeline", "show", 7, "--output", "yaml").code == 2
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / ".gitlab-ci.yml").write_text("only: {script: make}")
    assert "only" in remuda("pipeline", "show", "./7").out


def test_a_pipeline_without_jobs_shows_the_mistakes_of_its_file(remuda: Any, cell: CellProcess, shop: Any) -> None:
    project = shop("build: {scirpt: make}\ntest: {stage: none, script: make}")
    number = first_pipeline(cell, project)
    first, second = '.gitlab-ci.yml:1:9: build:scirpt: unknown key "scirpt"', ".gitlab-ci.yml:2:15: test:stage: unknown"
    shown = remuda("pipeline", "show", number).out.splitlines()
    assert [line.split(maxsplit=1)[0] for line in shown if first in line] == ["mistakes"]
    assert any(line.lstrip().startswith(second) for line in shown)
    watched = remuda("pipeline", "watch", number)
    assert watched.code == 1
    assert first in watched.out
    assert f"\n  {second}" in watched.out
    assert watched.out.endswith(f"\n\npipeline {number}: failed\n")
    retried = remuda("pipeline", "retry", number)
    assert retried.code == 2
    assert retried.err == f"pipeline {number} has no jobs, because its file has mistakes: remuda pipeline show {number}"
    assert remuda("pipeline", "cancel", number).out == f"pipeline {number} has ended already (failed)\n"


def test_watch_ends_with_the_pipeline(remuda: Any, cell: CellProcess, shop: Any) -> None:
    project = shop("build: {script: make}")
    number = first_pipeline(cell, project)
    [build] = cell.api("GET", f"/projects/{project.replace('/', '%2F')}/pipelines/{number}/jobs").json()
    runner = cell.new_runner()
    while (job := runner.take())["id"] != build["id"]:
        runner.put(job, "success")

    def fail() -> None:
        # Only when the command has asked for the pipeline at least once.
        wait_until(lambda: "pipelines/{pipeline_id}/progress" in cell.send("GET", "/-/metrics").body.decode(), "a look")
        runner.put(job, "failed", exit_code=3)

    end = threading.Thread(target=fail)
    end.start()
    result = remuda("pipeline", "watch", number)
    end.join()
    assert result.code == 1
    assert result.out.splitlines()[-1] == f"pipeline {number}: failed; see remuda job log {build['id']}"
    [row] = [line for line in result.out.splitlines() if line.startswith(f"{build['id']} ")]
    assert row.split()[1:3] == ["failed", "build"]
    assert row.endswith("exit code 3")
    assert remuda("pipeline", "cancel", number).out == f"pipeline {number} has ended already (failed)\n"
    assert remuda("pipeline", "retry", number).out.startswith(f"pipeline {number} is pending")


def test_a_pipeline_without_failed_jobs_is_not_retried(remuda: Any, cell: CellProcess, shop: Any) -> None:
    project = shop("build: {script: make}")
    number = first_pipeline(cell, project)
    [build] = cell.api("GET", f"/projects/{project.replace('/', '%2F')}/pipelines/{number}/jobs").json()
    runner = cell.new_runner()
    while (job := runner.take())["id"] != build["id"]:
        runner.put(job, "success")
    runner.put(job, "success")
    assert remuda("pipeline", "retry", number).out == (
        f"pipeline {number} has ended already (success), and no job of it failed or was canceled\n"
    )
