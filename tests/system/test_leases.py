"""A runner that takes a job and makes no more calls loses it when the lease ends; one that only sends traces keeps it.

The tests run in real time with the default lease of 60 seconds, except where a test sets another one.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.client import first_pipeline, new_project
from remuda.testing.lab import Lab

PIPELINE = """
only:
  script: [echo hello]
"""


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[Lab]:
    """A cell without a manager: only the test takes jobs."""
    lab = Lab(tmp_path / "lab")
    try:
        lab.start_cell()
        yield lab
    finally:
        lab.close()


class SmallRunner:
    """A minimal client of the Runner API."""

    def __init__(self, lab: Lab) -> None:
        self.url = f"{lab.url}/api/v4"
        created = lab.call("POST", "/api/v4/user/runners", {"runner_type": "instance_type"})
        self.token: str = created["token"]

    def send(self, method: str, path: str, body: bytes, **headers: str) -> tuple[int, dict[str, str], bytes]:
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=body,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
        try:
            with urllib.request.urlopen(request, timeout=70) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def request_job(self) -> dict[str, Any] | None:
        body = json.dumps({"token": self.token, "system_id": "s_0123456789ab"}).encode()
        code, _, answer = self.send("POST", "/jobs/request", body, Content_Type="application/json")
        assert code in (201, 204), (code, answer)
        job: dict[str, Any] | None = json.loads(answer) if code == 201 else None
        return job

    def append_trace(self, job: dict[str, Any], start: int, text: bytes) -> int:
        code, _, _ = self.send(
            "PATCH",
            f"/jobs/{job['id']}/trace",
            text,
            JOB_TOKEN=job["token"],
            Content_Range=f"{start}-{start + len(text) - 1}",
            Content_Type="text/plain",
        )
        return code

    def put(self, job: dict[str, Any], state: str) -> int:
        body = json.dumps({"token": job["token"], "state": state}).encode()
        code, _, _ = self.send(
            "PUT", f"/jobs/{job['id']}", body, JOB_TOKEN=job["token"], Content_Type="application/json"
        )
        return code


def wait_for_job(runner: SmallRunner, seconds: float) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while (job := runner.request_job()) is None:
        assert time.monotonic() < deadline, "the runner got no job"
        time.sleep(1)
    return job


@pytest.mark.timeout(180)
def test_a_silent_runner_loses_its_job(cell: Lab) -> None:
    first, second = SmallRunner(cell), SmallRunner(cell)
    project = new_project(cell, "one", PIPELINE)
    first_pipeline(cell, project)
    job = wait_for_job(first, 10)
    taken_at = time.monotonic()
    assert second.request_job() is None, "the job was handed out twice within the lease"
    again = wait_for_job(second, 90)
    assert time.monotonic() - taken_at > 55, "the job was handed out again before the lease ended"
    assert again["id"] == job["id"]
    assert again["token"] != job["token"]
    assert first.put(job, "running") == 403
    assert first.append_trace(job, 0, b"too late") == 403
    assert second.put(again, "running") == 200
    assert second.append_trace(again, 0, b"hello\n") == 202
    assert second.put(again, "success") == 200
    assert project.jobs.get(job["id"]).status == "success"
    assert project.jobs.get(job["id"]).trace() == b"hello\n"


@pytest.mark.timeout(300)
def test_a_runner_that_only_sends_traces_keeps_its_job(cell: Lab) -> None:
    runner, other = SmallRunner(cell), SmallRunner(cell)
    project = new_project(cell, "one", PIPELINE)
    first_pipeline(cell, project)
    job = wait_for_job(runner, 10)
    offset, began = 0, time.monotonic()
    while time.monotonic() - began < 182:
        line = f"at {int(time.monotonic() - began)} s\n".encode()
        assert runner.append_trace(job, offset, line) == 202
        offset += len(line)
        assert other.request_job() is None, "the job was handed out again"
        time.sleep(5)
    assert runner.put(job, "success") == 200
    assert project.jobs.get(job["id"]).status == "success"
    assert len(project.jobs.get(job["id"]).trace()) == offset


@pytest.mark.timeout(300)
def test_a_lease_ends_though_the_cell_restarts_more_often(tmp_path: Path) -> None:
    """The cell is killed every 2.5 seconds; a lease is 5 seconds."""
    lab = Lab(tmp_path / "lab", settings={"REMUDA_LEASE_SECONDS": "5"})
    try:
        lab.start_cell()
        first, second = SmallRunner(lab), SmallRunner(lab)
        first_pipeline(lab, new_project(lab, "one", PIPELINE))
        job, again, deadline = wait_for_job(first, 10), None, time.monotonic() + 200
        while again is None:
            assert time.monotonic() < deadline, "the lease did not end"
            time.sleep(2.5)
            lab.cell.kill()
            lab.start_cell()
            again = second.request_job()
        assert again["id"] == job["id"]
        assert again["token"] != job["token"]
    finally:
        lab.close()
