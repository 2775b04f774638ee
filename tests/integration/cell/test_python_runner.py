"""gitlab-python-runner, an independent implementation of a runner, against a cell.

It polls without a cursor, sends `tag_list` as a form, sends an end in Content-Range that is one too high, and sends no
acknowledgement, no state `running`, no failure reason and no checksum. `make test` installs it into an environment of
its own.
"""

import io
import os
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import ServedCell

from remuda.testing.waiting import wait_until

PROGRAM = Path(__file__).parents[3] / ".venv-peers" / "bin" / "gitlab-runner.py"
SECONDS = 60

PIPELINE = """
stages: [build, test]
build:
  stage: build
  tags: [python]
  script:
    - mkdir out
    - echo "made by $CI_JOB_NAME of $CI_PROJECT_PATH" > out/made.txt
    - echo "$SECRET" > out/given.txt
  artifacts: {paths: [out]}
test:
  stage: test
  tags: [python]
  script: [cat out/made.txt, git log -1 --format=%s]
broken:
  stage: test
  tags: [python]
  allow_failure: true
  script: [echo before, exit 3]
"""


class PythonRunner:
    """The program in its own folder."""

    def __init__(self, folder: Path, cell: ServedCell) -> None:
        if not PROGRAM.exists():
            pytest.fail(f"{PROGRAM} is missing; `make test` installs it, or: make .venv-peers/.installed")
        folder.mkdir()
        self.folder = folder
        self.cell = cell

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "GIT_TERMINAL_PROMPT": "0"}
        return subprocess.run(
            [PROGRAM, *arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def register(self) -> None:
        token = self.cell.send("GET", "/api/remuda/v1/registration_token", PRIVATE_TOKEN=self.cell.token).json()
        done = self.call("--register", self.cell.url, "--regtoken", token["token"], "--tag", "python", "--desc", "peer")
        assert done.returncode == 0, done.stdout

    def run_one(self) -> int:
        """Run one job, which must be waiting; return the exit code of the program."""
        return self.call("--start", "gitlab-runner.yml", "--once").returncode


@pytest.fixture
def peer(tmp_path: Path, cell: ServedCell) -> PythonRunner:
    runner = PythonRunner(tmp_path / "peer", cell)
    runner.register()
    return runner


def jobs_of(cell: ServedCell, project: int) -> Mapping[str, Mapping[str, Any]]:
    return {job["name"]: job for job in cell.api("GET", f"/projects/{project}/jobs").json()}


def test_a_pipeline_with_artifacts_and_a_failure(cell: ServedCell, peer: PythonRunner) -> None:
    [runner] = cell.api("GET", "/runners/all").json()
    details = cell.api("GET", f"/runners/{runner['id']}").json()
    assert (details["description"], details["tag_list"], details["run_untagged"]) == ("peer", ["python"], False)
    project = cell.new_project("peer", PIPELINE)
    cell.api("POST", f"/projects/{project}/variables", {"key": "SECRET", "value": "known"})

    exit_codes = [peer.run_one() for _ in range(3)]

    jobs = jobs_of(cell, project)
    assert {name: job["status"] for name, job in jobs.items()} == {
        "build": "success",
        "test": "success",
        "broken": "failed",
    }
    assert sorted(exit_codes) == [0, 0, 1]
    assert jobs["broken"]["failure_reason"] == "unknown_failure", "the program sends no reason"
    assert cell.until_pipelines(1, "root/peer")[0]["status"] == "success"
    logs = {
        name: cell.api("GET", f"/projects/{project}/jobs/{job['id']}/trace").body.decode() for name, job in jobs.items()
    }
    assert "made by build of root/peer" in logs["test"]
    assert "First commit" in logs["test"]
    assert "before" in logs["broken"]
    assert "Job complete success=True" in logs["build"], "the log is complete"
    archive = cell.api("GET", f"/projects/{project}/jobs/{jobs['build']['id']}/artifacts").body
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        assert files.read("out/given.txt") == b"known\n"
    [manager] = cell.api("GET", f"/runners/{runner['id']}/managers").json()
    assert (manager["system_id"], manager["version"], manager["executor"]) == ("<legacy>", "14.3.20", "shell")


def test_unregister(cell: ServedCell, peer: PythonRunner) -> None:
    assert peer.call("--unregister").returncode == 0
    assert cell.api("GET", "/runners/all").json() == []


def test_a_job_that_needs_exit_codes_fails_with_a_reason(cell: ServedCell, peer: PythonRunner) -> None:
    """The program reports no exit codes, so a rule about them could never apply."""
    project = cell.new_project("codes", "a: {tags: [python], script: [exit 3], allow_failure: {exit_codes: 3}}\n")
    with subprocess.Popen(
        [PROGRAM, "--start", "gitlab-runner.yml", "--once"],
        cwd=peer.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_until(lambda: jobs_of(cell, project)["a"]["status"] == "failed", "the job fails")
        process.kill()
    job = jobs_of(cell, project)["a"]
    assert job["failure_reason"] == "runner_unsupported"
    why = cell.send("GET", f"/api/remuda/v1/jobs/{job['id']}/why", PRIVATE_TOKEN=cell.token).json()
    assert "return_exit_code (for exit codes in retry or allow_failure)" in why["summary"]
