"""The runner protocol of gitlab-runner 17.9 and later, including what older versions do not send.

Every request has the headers and the body that the protocol specifies (`tests.support.runners.current_runner`).
"""

import io
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import Answer, ServedCell
from tests.support.runners.current_runner import FEATURES, SYSTEM_ID, CurrentRunner, RunningJob, checksum_of

from remuda.lib.clock import SystemClock
from remuda.testing.waiting import wait_until

PIPELINE = "only: {script: [echo hello], after_script: [echo bye], artifacts: {paths: [out], when: always}}\n"
CODES = """
stages: [test, after]
allowed: {stage: test, script: [exit 3], allow_failure: {exit_codes: [3, 4]}}
again: {stage: test, script: [exit 137], retry: {max: 2, exit_codes: [137]}}
after: {stage: after, script: [echo after]}
"""


class LaterClock(SystemClock):
    """A clock that a test can advance."""

    later = 0.0

    def now(self) -> float:
        return super().now() + self.later


@pytest.fixture
def runner(cell: ServedCell) -> CurrentRunner:
    return CurrentRunner(cell, new_token(cell))


def new_token(cell: ServedCell, **settings: Any) -> str:
    created = cell.api("POST", "/user/runners", {"runner_type": "instance_type", **settings})
    assert created.status == 201
    return str(created.json()["token"])


def status_of(answer: Answer) -> tuple[int, str | None]:
    return answer.status, answer.headers.get("Job-Status")


def get_job(cell: ServedCell, job_id: int) -> dict[str, Any]:
    answer: dict[str, Any] = cell.send("GET", f"/api/remuda/v1/jobs/{job_id}", PRIVATE_TOKEN=cell.token).json()
    return answer


def log_of(cell: ServedCell, job_id: int) -> bytes:
    return cell.api("GET", f"/projects/1/jobs/{job_id}/trace").body


def accept_job(cell: ServedCell, runner: CurrentRunner) -> RunningJob:
    """Create a project with a pipeline, and accept its job."""
    cell.new_project("hello", PIPELINE)
    job = runner.take()
    job.accept()
    return job


class TestRunner:
    def test_register_with_a_token_that_a_user_created(self, cell: ServedCell, runner: CurrentRunner) -> None:
        assert runner.token.startswith("glrt-")
        verified = runner.verify()
        assert (verified.status, verified.headers["Content-Type"]) == (200, "application/json")
        assert verified.json() == {"id": 1, "token": runner.token, "token_expires_at": None}
        [manager] = cell.api("GET", "/runners/1/managers").json()
        assert (manager["system_id"], manager["version"], manager["status"]) == (SYSTEM_ID, "18.2.0", "online")
        other = "1" if runner.token.endswith("0") else "0"
        refused = CurrentRunner(cell, runner.token[:-1] + other).verify()
        assert (refused.status, refused.headers["Content-Type"]) == (403, "application/json")

    def test_unregister_removes_this_manager_alone(self, cell: ServedCell, runner: CurrentRunner) -> None:
        other = CurrentRunner(cell, runner.token, system_id="r_AbCdEf012345")
        assert (runner.verify().status, other.verify().status) == (200, 200)
        removed = runner.unregister()
        assert (removed.status, removed.body) == (204, b"")
        assert [manager["system_id"] for manager in cell.api("GET", "/runners/1/managers").json()] == ["r_AbCdEf012345"]
        assert other.request().status == 204
        assert runner.unregister().status == 404

    def test_a_token_that_expires_is_renewed_by_the_runner_itself(self, cell: ServedCell) -> None:
        assert cell.api("PUT", "/application/settings", {"runner_token_expiration_interval": 86400}).status == 200
        runner = CurrentRunner(cell, new_token(cell))
        expires_at = datetime.fromisoformat(runner.verify().json()["token_expires_at"])
        assert expires_at.tzinfo is not None
        old = CurrentRunner(cell, runner.token)
        renewed = runner.reset_token()
        assert (renewed.status, renewed.headers["Content-Type"]) == (201, "application/json")
        assert {"token", "token_expires_at"} <= set(renewed.json())
        assert datetime.fromisoformat(renewed.json()["token_expires_at"]) >= expires_at
        assert (old.verify().status, old.request().status, old.reset_token().status) == (403, 403, 403)
        assert (runner.verify().status, runner.request().status) == (200, 204)

    def test_there_is_no_job_router(self, cell: ServedCell, runner: CurrentRunner) -> None:
        assert runner.discover().status == 501
        assert CurrentRunner(cell, "glrt-nobody").discover().status == 403

    def test_managers_of_one_runner_are_distinguished(self, cell: ServedCell, runner: CurrentRunner) -> None:
        other = CurrentRunner(cell, runner.token, system_id="s_ffffffffffff", cancel_gracefully=False)
        cell.new_project("hello", "a: {script: [a]}\nb: {script: [b]}\n")
        jobs = [runner.take(), other.take()]
        for job in jobs:
            job.accept()
            assert cell.api("POST", f"/projects/1/jobs/{job.id}/cancel").status == 201
        assert [get_job(cell, job.id)["status"] for job in jobs] == ["canceling", "canceled"]
        managers = {
            manager["system_id"]: manager["running_jobs"] for manager in cell.api("GET", "/runners/1/managers").json()
        }
        assert managers == {SYSTEM_ID: 1, "s_ffffffffffff": 0}


class TestJob:
    def test_from_the_request_to_the_end(self, cell: ServedCell, runner: CurrentRunner) -> None:
        nothing = runner.request()
        assert (nothing.status, nothing.body) == (204, b"")
        assert nothing.headers["Gitlab-Ci-Builds-Polling"] == "yes"
        cell.new_project("hello", PIPELINE)
        answer = runner.request()
        assert (answer.status, answer.headers["Content-Type"]) == (201, "application/json")
        assert answer.headers["X-GitLab-Last-Update"]

        job = RunningJob(runner, answer.json())
        accepted = job.accept()
        assert status_of(accepted) == (200, "running")
        assert int(accepted.headers["X-GitLab-Trace-Update-Interval"]) > 0
        job.write(b"Running with gitlab-runner 18.2.0\n")
        first = job.patch()
        assert (status_of(first), first.headers["Range"]) == ((202, "running"), f"0-{len(job.log)}"), (
            "the size of the log, not the last index"
        )
        assert int(first.headers["X-GitLab-Trace-Update-Interval"]) > 0
        assert status_of(job.put("running")) == (200, "running"), "a keep-alive request carries the checksum"
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as files:
            files.writestr("out/a.txt", "made")
        uploaded = job.upload(archive.getvalue())
        assert (uploaded.status, uploaded.headers["Content-Type"]) == (201, "application/json")
        job.write(b"Job succeeded\n")
        assert status_of(job.patch()) == (202, "running")

        for _ in range(2):
            ended = job.put("success")
            assert status_of(ended) == (200, "success"), "also when the runner sends it again"
        details = get_job(cell, job.id)
        assert (details["status"], details["exit_code"]) == ("success", 0)
        assert log_of(cell, job.id) == job.log
        job.write(b"too late")
        assert status_of(job.patch()) == (403, "success")
        assert status_of(job.put("failed")) == (403, "success")
        assert b"\nremuda_cell_trace_mismatches_total 0.0\n" in cell.send("GET", "/-/metrics").body

    def test_an_end_that_comes_before_its_log(self, cell: ServedCell, runner: CurrentRunner) -> None:
        job = accept_job(cell, runner)
        job.write(b"all of it\n")
        early = job.put("success")
        assert status_of(early) == (202, "running")
        assert int(early.headers["X-GitLab-Trace-Update-Interval"]) > 0
        assert status_of(job.patch()) == (202, "running")
        assert status_of(job.put("success")) == (200, "success")
        assert log_of(cell, job.id) == b"all of it\n"

    def test_a_log_that_went_wrong_is_sent_again(self, cell: ServedCell, runner: CurrentRunner) -> None:
        """A job can append to its own log with its token; the log of its runner replaces that."""
        job = accept_job(cell, runner)
        job.write(b"0123456789")
        job.patch()
        forged = {"JOB_TOKEN": job.token, "Content_Range": "10-15"}
        assert cell.send("PATCH", f"/api/v4/jobs/{job.id}/trace", b"FORGED", **forged).status == 202
        job.write(b"abcdef")
        assert (job.patch().status, job.sent) == (416, 16)
        for _ in range(2):  # the answer may be lost
            assert status_of(job.put("success")) == (412, "running")
        # The runner starts again at the first byte; pieces that are equal do not keep the rest of the old log.
        assert log_of(cell, job.id) == b"0123456789FORGED", "the old log stays until the new one arrives"
        job.sent = 0
        piece = {"JOB_TOKEN": job.token, "Content_Range": "0-3"}
        assert cell.send("PATCH", f"/api/v4/jobs/{job.id}/trace", b"0123", **piece).status == 202
        job.sent = 4
        assert job.patch().status == 202
        assert status_of(job.put("success")) == (200, "success")
        assert log_of(cell, job.id) == b"0123456789abcdef"
        assert status_of(job.put("success")) == (200, "success")

    def test_a_lasting_checksum_mismatch_ends_the_job_after_some_minutes(self, tmp_path: Path) -> None:
        """For some minutes the cell asks for the log again; then it accepts the end and counts the mismatch."""
        clock = LaterClock()
        with ServedCell(tmp_path / "cell", clock) as cell:
            cell.new_project("hello", PIPELINE)
            job = CurrentRunner(cell, new_token(cell)).take()
            job.accept()
            job.write(b"one\n")
            job.patch()
            output = {"checksum": checksum_of(b"two\n"), "bytesize": 4}
            assert status_of(job.put("success", with_output=False, output=output)) == (412, "running")
            clock.later = 301
            assert status_of(job.put("success", with_output=False, output=output)) == (200, "success")
            assert b"\nremuda_cell_trace_mismatches_total 1.0\n" in cell.send("GET", "/-/metrics").body
            assert log_of(cell, job.id) == b"one\n"

    @pytest.mark.parametrize("content_range", ["0-2", "0-5", "0-400", "0-0"])
    def test_pieces_are_as_long_as_the_range(self, cell: ServedCell, runner: CurrentRunner, content_range: str) -> None:
        job = accept_job(cell, runner)
        for start in (0, 4):  # the first piece, and a later one
            end = start + int(content_range.partition("-")[2])
            headers = {"JOB_TOKEN": job.token, "Content_Range": f"{start}-{end}"}
            refused = cell.send("PATCH", f"/api/v4/jobs/{job.id}/trace", b"four", **headers)
            assert (refused.status, b"the body has 4 bytes" in refused.body) == (400, True), refused
            job.write(b"four")
            assert job.patch().status == 202
        assert log_of(cell, job.id) == b"fourfour"

    def test_a_runner_with_a_wrong_offset_gets_the_right_one(self, cell: ServedCell, runner: CurrentRunner) -> None:
        cell.new_project("hello", PIPELINE)
        job = runner.take()
        job.write(b"0123456789")
        job.patch()
        job.sent = 14
        job.write(b"abcdefgh")
        lost = job.patch()
        assert (lost.status, lost.headers["Range"], job.sent) == (416, "0-10", 10)
        assert (job.patch().status, log_of(cell, job.id)) == (202, b"0123456789abcdefgh")

    def test_a_repeated_log_is_accepted_also_after_the_end(self, cell: ServedCell, runner: CurrentRunner) -> None:
        """A runner that did not get the response sends the same bytes again."""
        cell.new_project("hello", PIPELINE)
        job = runner.take()
        job.write(b"0123456789")
        job.patch()
        job.sent = 0
        assert job.patch().status == 202
        assert job.put("success").status == 200
        job.sent = 0
        assert job.patch().status == 202
        assert log_of(cell, job.id) == b"0123456789"

    @pytest.mark.parametrize(
        ("reported", "stored"),
        [
            ({"failure_reason": "script_failure", "exit_code": 7}, ("script_failure", 7)),
            ({"failure_reason": "image_pull_failure"}, ("image_pull_failure", None)),
            ({"failure_reason": "runner_configuration_error"}, ("runner_configuration_error", None)),
            ({"failure_reason": "job_execution_timeout"}, ("job_execution_timeout", None)),
            ({"failure_reason": "gremlins", "exit_code": 1}, ("unknown_failure", 1)),
            ({}, ("unknown_failure", None)),
        ],
    )
    def test_reasons_and_exit_codes(
        self, cell: ServedCell, runner: CurrentRunner, reported: dict[str, Any], stored: tuple[str, int | None]
    ) -> None:
        cell.new_project("hello", PIPELINE)
        job = runner.take()
        reasons = job.payload["features"]["failure_reasons"]
        assert reported.get("failure_reason", "script_failure") in [*reasons, "gremlins"]
        job.accept()
        assert status_of(job.put("failed", **reported)) == (200, "failed")
        details = get_job(cell, job.id)
        assert (details["failure_reason"], details["exit_code"]) == stored

    def test_exit_codes_decide_about_retry_and_allowed_failure(self, cell: ServedCell, runner: CurrentRunner) -> None:
        cell.new_project("hello", CODES)
        taken = {job.payload["job_info"]["name"]: job for job in (runner.take(), runner.take())}
        taken["allowed"].put("failed", failure_reason="script_failure", exit_code=4)
        taken["again"].put("failed", failure_reason="script_failure", exit_code=137)
        again = runner.take()
        assert (again.payload["job_info"]["name"], again.id) == ("again", 4), "a new job with a new id"
        assert again.put("failed", failure_reason="script_failure", exit_code=1).status == 200
        statuses = {job["name"]: job["status"] for job in cell.api("GET", "/projects/1/pipelines/1/jobs").json()}
        assert statuses == {"allowed": "failed", "again": "failed", "after": "skipped"}
        assert cell.api("GET", f"/projects/1/jobs/{taken['allowed'].id}").json()["allow_failure"]

    def test_a_runner_that_cannot_report_exit_codes_does_not_get_jobs_that_need_them(self, cell: ServedCell) -> None:
        runner = CurrentRunner(cell, new_token(cell), return_exit_code=False)
        cell.new_project("hello", "a: {script: [exit 3], allow_failure: {exit_codes: 3}}\nb: {script: [b]}\n")
        taken = [answer.json() for answer in (runner.request(), runner.request()) if answer.status == 201]
        assert [job["job_info"]["name"] for job in taken] == ["b"]
        assert (get_job(cell, 1)["status"], get_job(cell, 1)["failure_reason"]) == ("failed", "runner_unsupported")


class TestHandOut:
    def test_the_first_put_running_acknowledges_the_job(self, cell: ServedCell, runner: CurrentRunner) -> None:
        """Two-phase commit: PUT pending is refused, as in current GitLab, and PUT running acknowledges the job."""
        assert FEATURES["two_phase_job_commit"]
        cell.new_project("hello", PIPELINE)
        job = runner.take()
        assert (get_job(cell, job.id)["state"], get_job(cell, job.id)["started_at"]) == ("leased", None)
        assert status_of(job.put("pending", with_output=False)) == (400, "running")
        assert get_job(cell, job.id)["state"] == "leased"
        assert status_of(job.accept()) == (200, "running")
        assert status_of(job.accept()) == (200, "running"), "repeated, because the response was lost"
        assert (get_job(cell, job.id)["state"], bool(get_job(cell, job.id)["started_at"])) == ("running", True)

    def test_the_same_request_gets_the_same_job(self, cell: ServedCell, runner: CurrentRunner) -> None:
        cell.new_project("hello", "a: {script: [a]}\nb: {script: [b]}\n")
        first, second = (runner.request("0123456789abcdef0123456789abcdef") for _ in range(2))
        assert first.headers["X-Request-Id"] == "0123456789abcdef0123456789abcdef"
        assert first.json()["id"] == second.json()["id"]
        assert runner.request().json()["id"] != first.json()["id"]

    def test_an_unacknowledged_job_goes_to_another_manager_and_its_old_token_is_refused(self, tmp_path: Path) -> None:
        with ServedCell(tmp_path / "cell", lease_seconds=1) as cell:
            runner = CurrentRunner(cell, new_token(cell))
            cell.new_project("hello", PIPELINE)
            lost = runner.take()
            wait_until(lambda: get_job(cell, lost.id)["state"] == "pending", "the lease ends")
            job = CurrentRunner(cell, runner.token, system_id="r_AbCdEf012345").take()
            assert (job.id, job.token == lost.token) == (lost.id, False)
            assert lost.accept().status == 403
            lost.write(b"x")
            assert (lost.patch().status, lost.upload(b"x").status) == (403, 403)
            assert status_of(job.accept()) == (200, "running")
            assert status_of(job.put("success")) == (200, "success")


class TestCancel:
    def test_gracefully(self, cell: ServedCell, runner: CurrentRunner) -> None:
        """after_script, log and artifacts still arrive; whatever end the runner reports, the job is canceled."""
        job = accept_job(cell, runner)
        assert cell.api("POST", f"/projects/1/jobs/{job.id}/cancel").json()["status"] == "canceling"
        job.write(b"$ echo hello\n")
        assert status_of(job.patch()) == (202, "canceling")
        assert status_of(job.put("running")) == (200, "canceling")
        job.write(b"Running after_script\nbye\n")
        assert status_of(job.patch()) == (202, "canceling")
        assert job.upload(b"PK\x05\x06" + b"\0" * 18).status == 201
        assert status_of(job.put("failed", failure_reason="job_canceled")) == (200, "canceled")
        details = get_job(cell, job.id)
        assert (details["status"], details["failure_reason"]) == ("canceled", "job_canceled")
        assert log_of(cell, job.id) == job.log
        assert cell.api("GET", "/projects/1/pipelines/1").json()["status"] == "canceled"

    def test_a_success_after_the_cancel_is_a_canceled_job(self, cell: ServedCell, runner: CurrentRunner) -> None:
        job = accept_job(cell, runner)
        cell.api("POST", f"/projects/1/jobs/{job.id}/cancel")
        assert status_of(job.put("success")) == (200, "canceled")

    def test_before_the_runner_acknowledged_the_job(self, cell: ServedCell, runner: CurrentRunner) -> None:
        cell.new_project("hello", PIPELINE)
        job = runner.take()
        assert cell.api("POST", f"/projects/1/jobs/{job.id}/cancel").json()["status"] == "canceled"
        assert status_of(job.accept()) == (403, "canceled")

    def test_of_a_runner_without_two_phase_commit_before_its_first_update(self, cell: ServedCell) -> None:
        """Such a runner sends its first log piece three seconds after it got the job, and runs it meanwhile."""
        runner = CurrentRunner(cell, new_token(cell), two_phase_job_commit=False)
        cell.new_project("hello", PIPELINE)
        job = runner.take()
        started = get_job(cell, job.id)
        assert (started["status"], started["started_at"] is not None) == ("running", True)
        assert cell.api("POST", f"/projects/1/jobs/{job.id}/cancel").json()["status"] == "canceling"
        job.write(b"$ echo hello\nhello\n")
        assert status_of(job.patch()) == (202, "canceling")
        job.write(b"Running after_script\nbye\n")
        assert status_of(job.patch()) == (202, "canceling")
        assert status_of(job.put("failed", failure_reason="job_canceled")) == (200, "canceled")
        ended = get_job(cell, job.id)
        assert log_of(cell, job.id) == job.log
        assert (ended["status"], ended["started_at"]) == ("canceled", started["started_at"])
        why = cell.send("GET", f"/api/remuda/v1/jobs/{job.id}/why", PRIVATE_TOKEN=cell.token).json()
        assert why["summary"] == "was canceled while it ran"

    def test_by_force(self, cell: ServedCell, runner: CurrentRunner) -> None:
        job = accept_job(cell, runner)
        path = f"/projects/1/jobs/{job.id}/cancel"
        assert cell.api("POST", path).json()["status"] == "canceling"
        assert cell.api("POST", path, {"force": False}).json()["status"] == "canceling"
        assert cell.api("POST", f"{path}?force=maybe").status == 400
        for _ in range(2):
            forced = cell.api("POST", f"{path}?force=true")
            assert (forced.status, forced.json()["status"]) == (201, "canceled")
        assert status_of(job.put("running")) == (403, "canceled")

    def test_of_a_runner_that_cannot_cancel_gracefully(self, cell: ServedCell) -> None:
        runner = CurrentRunner(cell, new_token(cell), cancel_gracefully=False)
        job = accept_job(cell, runner)
        assert cell.api("POST", f"/projects/1/jobs/{job.id}/cancel").json()["status"] == "canceled"
        job.write(b"still here")
        assert status_of(job.patch()) == (403, "canceled")
        assert status_of(job.put("failed", failure_reason="job_canceled")) == (403, "canceled"), (
            "the runner expects that its last report is refused"
        )

    def test_an_erased_job_accepts_no_log(self, cell: ServedCell, runner: CurrentRunner) -> None:
        cell.new_project("hello", PIPELINE)
        job = runner.take()
        job.write(b"secret")
        job.patch()
        job.put("success")
        assert cell.api("POST", f"/projects/1/jobs/{job.id}/erase").status == 201
        job.sent = 0
        assert job.patch().status == 403
        assert log_of(cell, job.id) == b""
