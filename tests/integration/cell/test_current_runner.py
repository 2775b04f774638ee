"""A cell and a current gitlab-runner, 17.9 and later, in conversation: what an older binary does not say.

Every request has the headers and the body that the protocol gives it (`tests.support.runners.current_runner`).
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

ONE = "only: {script: [echo hello], after_script: [echo bye], artifacts: {paths: [out], when: always}}\n"
CODES = """
stages: [test, after]
allowed: {stage: test, script: [exit 3], allow_failure: {exit_codes: [3, 4]}}
again: {stage: test, script: [exit 137], retry: {max: 2, exit_codes: [137]}}
after: {stage: after, script: [echo after]}
"""


class LaterClock(SystemClock):
    """For which some seconds more have passed."""

    later = 0.0

    def now(self) -> float:
        return super().now() + self.later


@pytest.fixture
def runner(cell: ServedCell) -> CurrentRunner:
    return CurrentRunner(cell, new_token(cell))


def new_token(cell: ServedCell, **settings: Any) -> str:
    made = cell.api("POST", "/user/runners", {"runner_type": "instance_type", **settings})
    assert made.status == 201
    return str(made.json()["token"])


def told(answer: Answer) -> tuple[int, str | None]:
    return answer.status, answer.headers.get("Job-Status")


def shown(cell: ServedCell, job_id: int) -> dict[str, Any]:
    answer: dict[str, Any] = cell.send("GET", f"/api/remuda/v1/jobs/{job_id}", PRIVATE_TOKEN=cell.token).json()
    return answer


def log_of(cell: ServedCell, job_id: int) -> bytes:
    return cell.api("GET", f"/projects/1/jobs/{job_id}/trace").body


class TestRunner:
    def test_register_with_a_token_that_a_person_made(self, cell: ServedCell, runner: CurrentRunner) -> None:
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
        gone = runner.unregister()
        assert (gone.status, gone.body) == (204, b"")
        assert [one["system_id"] for one in cell.api("GET", "/runners/1/managers").json()] == ["r_AbCdEf012345"]
        assert other.request().status == 204
        assert runner.unregister().status == 404

    def test_a_token_that_ends_is_renewed_by_the_runner_itself(self, cell: ServedCell) -> None:
        assert cell.api("PUT", "/application/settings", {"runner_token_expiration_interval": 86400}).status == 200
        runner = CurrentRunner(cell, new_token(cell))
        ends = datetime.fromisoformat(runner.verify().json()["token_expires_at"])
        assert ends.tzinfo is not None
        old = CurrentRunner(cell, runner.token)
        renewed = runner.reset_token()
        assert (renewed.status, renewed.headers["Content-Type"]) == (201, "application/json")
        assert {"token", "token_expires_at"} <= set(renewed.json())
        assert datetime.fromisoformat(renewed.json()["token_expires_at"]) >= ends
        assert (old.verify().status, old.request().status, old.reset_token().status) == (403, 403, 403)
        assert (runner.verify().status, runner.request().status) == (200, 204)

    def test_there_is_no_job_router(self, cell: ServedCell, runner: CurrentRunner) -> None:
        assert runner.discover().status == 501
        assert CurrentRunner(cell, "glrt-nobody").discover().status == 403

    def test_managers_of_one_runner_are_told_apart(self, cell: ServedCell, runner: CurrentRunner) -> None:
        other = CurrentRunner(cell, runner.token, system_id="s_ffffffffffff", cancel_gracefully=False)
        cell.new_project("hello", "a: {script: [a]}\nb: {script: [b]}\n")
        jobs = [runner.take(), other.take()]
        for job in jobs:
            job.accept()
            assert cell.api("POST", f"/projects/1/jobs/{job.id}/cancel").status == 201
        assert [shown(cell, job.id)["status"] for job in jobs] == ["canceling", "canceled"]
        managers = {one["system_id"]: one["running_jobs"] for one in cell.api("GET", "/runners/1/managers").json()}
        assert managers == {SYSTEM_ID: 1, "s_ffffffffffff": 0}


class TestJob:
    def test_from_the_request_to_the_end(self, cell: ServedCell, runner: CurrentRunner) -> None:
        nothing = runner.request()
        assert (nothing.status, nothing.body) == (204, b"")
        assert nothing.headers["Gitlab-Ci-Builds-Polling"] == "yes"
        cell.new_project("hello", ONE)
        answer = runner.request()
        assert (answer.status, answer.headers["Content-Type"]) == (201, "application/json")
        assert answer.headers["X-GitLab-Last-Update"]

        job = RunningJob(runner, answer.json())
        accepted = job.accept()
        assert told(accepted) == (200, "running")
        assert int(accepted.headers["X-GitLab-Trace-Update-Interval"]) > 0
        job.write(b"Running with gitlab-runner 18.2.0\n")
        first = job.patch()
        assert (told(first), first.headers["Range"]) == ((202, "running"), f"0-{len(job.log)}"), (
            "the size, not less one"
        )
        assert int(first.headers["X-GitLab-Trace-Update-Interval"]) > 0
        assert told(job.put("running")) == (200, "running"), "a sign of life has the checksum"
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as files:
            files.writestr("out/a.txt", "made")
        uploaded = job.upload(archive.getvalue())
        assert (uploaded.status, uploaded.headers["Content-Type"]) == (201, "application/json")
        job.write(b"Job succeeded\n")
        assert told(job.patch()) == (202, "running")

        for _ in range(2):
            ended = job.put("success")
            assert told(ended) == (200, "success"), "also when the runner sends it again"
        found = shown(cell, job.id)
        assert (found["status"], found["exit_code"]) == ("success", 0)
        assert log_of(cell, job.id) == job.log
        job.write(b"too late")
        assert told(job.patch()) == (403, "success")
        assert told(job.put("failed")) == (403, "success")
        assert b"\nremuda_cell_trace_mismatches_total 0.0\n" in cell.send("GET", "/-/metrics").body

    def test_an_end_that_comes_before_its_log(self, cell: ServedCell, runner: CurrentRunner) -> None:
        cell.new_project("hello", ONE)
        job = runner.take()
        job.accept()
        job.write(b"all of it\n")
        early = job.put("success")
        assert told(early) == (202, "running")
        assert int(early.headers["X-GitLab-Trace-Update-Interval"]) > 0
        assert told(job.patch()) == (202, "running")
        assert told(job.put("success")) == (200, "success")
        assert log_of(cell, job.id) == b"all of it\n"

    def test_a_log_that_went_wrong_is_sent_again(self, cell: ServedCell, runner: CurrentRunner) -> None:
        """A job can write to its own log with its token; what its runner logged is what stays."""
        cell.new_project("hello", ONE)
        job = runner.take()
        job.accept()
        job.write(b"0123456789")
        job.patch()
        forged = {"JOB_TOKEN": job.token, "Content_Range": "10-15"}
        assert cell.send("PATCH", f"/api/v4/jobs/{job.id}/trace", b"FORGED", **forged).status == 202
        job.write(b"abcdef")
        assert (job.patch().status, job.sent) == (416, 16)
        for _ in range(2):  # the answer may be lost
            assert told(job.put("success")) == (412, "running")
        # The runner goes back to the first byte; pieces that are the same as before are no reason to keep the rest.
        assert log_of(cell, job.id) == b"0123456789FORGED", "nothing is lost before it comes again"
        job.sent = 0
        piece = {"JOB_TOKEN": job.token, "Content_Range": "0-3"}
        assert cell.send("PATCH", f"/api/v4/jobs/{job.id}/trace", b"0123", **piece).status == 202
        job.sent = 4
        assert job.patch().status == 202
        assert told(job.put("success")) == (200, "success")
        assert log_of(cell, job.id) == b"0123456789abcdef"
        assert told(job.put("success")) == (200, "success")

    def test_a_runner_that_insists_on_another_log_is_believed_to_be_over(self, tmp_path: Path) -> None:
        """For some minutes it is asked for the log; then the end counts, and the difference is counted."""
        clock = LaterClock()
        with ServedCell(tmp_path / "cell", clock) as cell:
            cell.new_project("hello", ONE)
            job = CurrentRunner(cell, new_token(cell)).take()
            job.accept()
            job.write(b"one\n")
            job.patch()
            output = {"checksum": checksum_of(b"two\n"), "bytesize": 4}
            assert told(job.put("success", with_output=False, output=output)) == (412, "running")
            clock.later = 301
            assert told(job.put("success", with_output=False, output=output)) == (200, "success")
            assert b"\nremuda_cell_trace_mismatches_total 1.0\n" in cell.send("GET", "/-/metrics").body
            assert log_of(cell, job.id) == b"one\n"

    @pytest.mark.parametrize("said", ["0-2", "0-5", "0-400", "0-0"])
    def test_a_piece_of_another_length_than_its_range_is_refused(
        self, cell: ServedCell, runner: CurrentRunner, said: str
    ) -> None:
        cell.new_project("hello", ONE)
        job = runner.take()
        job.accept()
        for start in (0, 4):  # the first piece, and one of a log that is known
            end = start + int(said.partition("-")[2])
            headers = {"JOB_TOKEN": job.token, "Content_Range": f"{start}-{end}"}
            refused = cell.send("PATCH", f"/api/v4/jobs/{job.id}/trace", b"four", **headers)
            assert (refused.status, b"the body has 4 bytes" in refused.body) == (400, True), refused
            job.write(b"four")
            assert job.patch().status == 202
        assert log_of(cell, job.id) == b"fourfour"

    def test_a_runner_that_lost_count_is_told_where_to_go_on(self, cell: ServedCell, runner: CurrentRunner) -> None:
        cell.new_project("hello", ONE)
        job = runner.take()
        job.write(b"0123456789")
        job.patch()
        job.sent = 14
        job.write(b"abcdefgh")
        lost = job.patch()
        assert (lost.status, lost.headers["Range"], job.sent) == (416, "0-10", 10)
        assert (job.patch().status, log_of(cell, job.id)) == (202, b"0123456789abcdefgh")

    def test_the_log_as_the_end_repeats_it(self, cell: ServedCell, runner: CurrentRunner) -> None:
        """A runner that did not get the answer sends the same bytes again, also after the end."""
        cell.new_project("hello", ONE)
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
        ("said", "stored"),
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
        self, cell: ServedCell, runner: CurrentRunner, said: dict[str, Any], stored: tuple[str, int | None]
    ) -> None:
        cell.new_project("hello", ONE)
        job = runner.take()
        reasons = job.payload["features"]["failure_reasons"]
        assert said.get("failure_reason", "script_failure") in [*reasons, "gremlins"]
        job.accept()
        assert told(job.put("failed", **said)) == (200, "failed")
        found = shown(cell, job.id)
        assert (found["failure_reason"], found["exit_code"]) == stored

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

    def test_a_runner_that_cannot_say_exit_codes_does_not_get_such_a_job(self, cell: ServedCell) -> None:
        runner = CurrentRunner(cell, new_token(cell), return_exit_code=False)
        cell.new_project("hello", "a: {script: [exit 3], allow_failure: {exit_codes: 3}}\nb: {script: [b]}\n")
        taken = [answer.json() for answer in (runner.request(), runner.request()) if answer.status == 201]
        assert [job["job_info"]["name"] for job in taken] == ["b"]
        assert (shown(cell, 1)["status"], shown(cell, 1)["failure_reason"]) == ("failed", "runner_unsupported")


class TestHandOut:
    def test_the_first_put_running_takes_the_job(self, cell: ServedCell, runner: CurrentRunner) -> None:
        """Two-phase commit: PUT pending is refused, as in current GitLab, and PUT running is what counts."""
        assert FEATURES["two_phase_job_commit"]
        cell.new_project("hello", ONE)
        job = runner.take()
        assert (shown(cell, job.id)["state"], shown(cell, job.id)["started_at"]) == ("leased", None)
        assert told(job.put("pending", with_output=False)) == (400, "running")
        assert shown(cell, job.id)["state"] == "leased"
        assert told(job.accept()) == (200, "running")
        assert told(job.accept()) == (200, "running"), "again, because the answer was lost"
        assert (shown(cell, job.id)["state"], bool(shown(cell, job.id)["started_at"])) == ("running", True)

    def test_the_same_request_gets_the_same_job(self, cell: ServedCell, runner: CurrentRunner) -> None:
        cell.new_project("hello", "a: {script: [a]}\nb: {script: [b]}\n")
        first, second = (runner.request("0123456789abcdef0123456789abcdef") for _ in range(2))
        assert first.headers["X-Request-Id"] == "0123456789abcdef0123456789abcdef"
        assert first.json()["id"] == second.json()["id"]
        assert runner.request().json()["id"] != first.json()["id"]

    def test_a_job_that_nobody_takes_up_goes_to_another_and_the_old_token_is_dead(self, tmp_path: Path) -> None:
        with ServedCell(tmp_path / "cell", lease_seconds=1) as cell:
            runner = CurrentRunner(cell, new_token(cell))
            cell.new_project("hello", ONE)
            lost = runner.take()
            wait_until(lambda: shown(cell, lost.id)["state"] == "pending", "the lease ends")
            job = CurrentRunner(cell, runner.token, system_id="r_AbCdEf012345").take()
            assert (job.id, job.token == lost.token) == (lost.id, False)
            assert lost.accept().status == 403
            lost.write(b"x")
            assert (lost.patch().status, lost.upload(b"x").status) == (403, 403)
            assert told(job.accept()) == (200, "running")
            assert told(job.put("success")) == (200, "success")


class TestCancel:
    def test_gracefully(self, cell: ServedCell, runner: CurrentRunner) -> None:
        """after_script, log and artifacts still come; whichever end the runner reports, the job is canceled."""
        cell.new_project("hello", ONE)
        job = runner.take()
        job.accept()
        assert cell.api("POST", f"/projects/1/jobs/{job.id}/cancel").json()["status"] == "canceling"
        job.write(b"$ echo hello\n")
        assert told(job.patch()) == (202, "canceling")
        assert told(job.put("running")) == (200, "canceling")
        job.write(b"Running after_script\nbye\n")
        assert told(job.patch()) == (202, "canceling")
        assert job.upload(b"PK\x05\x06" + b"\0" * 18).status == 201
        assert told(job.put("failed", failure_reason="job_canceled")) == (200, "canceled")
        found = shown(cell, job.id)
        assert (found["status"], found["failure_reason"]) == ("canceled", "job_canceled")
        assert log_of(cell, job.id) == job.log
        assert cell.api("GET", "/projects/1/pipelines/1").json()["status"] == "canceled"

    def test_a_success_that_comes_after_the_cancel_is_none(self, cell: ServedCell, runner: CurrentRunner) -> None:
        cell.new_project("hello", ONE)
        job = runner.take()
        job.accept()
        cell.api("POST", f"/projects/1/jobs/{job.id}/cancel")
        assert told(job.put("success")) == (200, "canceled")

    def test_before_the_runner_took_the_job_up(self, cell: ServedCell, runner: CurrentRunner) -> None:
        cell.new_project("hello", ONE)
        job = runner.take()
        assert cell.api("POST", f"/projects/1/jobs/{job.id}/cancel").json()["status"] == "canceled"
        assert told(job.accept()) == (403, "canceled")

    def test_of_a_runner_without_two_phase_commit_that_has_not_spoken_yet(self, cell: ServedCell) -> None:
        """It sends its first log piece three seconds after the job came, and runs it all the while."""
        runner = CurrentRunner(cell, new_token(cell), two_phase_job_commit=False)
        cell.new_project("hello", ONE)
        job = runner.take()
        found = shown(cell, job.id)
        assert (found["status"], found["started_at"] is not None) == ("running", True)
        assert cell.api("POST", f"/projects/1/jobs/{job.id}/cancel").json()["status"] == "canceling"
        job.write(b"$ echo hello\nhello\n")
        assert told(job.patch()) == (202, "canceling")
        job.write(b"Running after_script\nbye\n")
        assert told(job.patch()) == (202, "canceling")
        assert told(job.put("failed", failure_reason="job_canceled")) == (200, "canceled")
        ended = shown(cell, job.id)
        assert log_of(cell, job.id) == job.log
        assert (ended["status"], ended["started_at"]) == ("canceled", found["started_at"])
        why = cell.send("GET", f"/api/remuda/v1/jobs/{job.id}/why", PRIVATE_TOKEN=cell.token).json()
        assert why["summary"] == "was canceled while it ran"

    def test_by_force(self, cell: ServedCell, runner: CurrentRunner) -> None:
        cell.new_project("hello", ONE)
        job = runner.take()
        job.accept()
        path = f"/projects/1/jobs/{job.id}/cancel"
        assert cell.api("POST", path).json()["status"] == "canceling"
        assert cell.api("POST", path, {"force": False}).json()["status"] == "canceling"
        assert cell.api("POST", f"{path}?force=maybe").status == 400
        for _ in range(2):
            forced = cell.api("POST", f"{path}?force=true")
            assert (forced.status, forced.json()["status"]) == (201, "canceled")
        assert told(job.put("running")) == (403, "canceled")

    def test_of_a_runner_that_cannot_do_it_gracefully(self, cell: ServedCell) -> None:
        runner = CurrentRunner(cell, new_token(cell), cancel_gracefully=False)
        cell.new_project("hello", ONE)
        job = runner.take()
        job.accept()
        assert cell.api("POST", f"/projects/1/jobs/{job.id}/cancel").json()["status"] == "canceled"
        job.write(b"still here")
        assert told(job.patch()) == (403, "canceled")
        assert told(job.put("failed", failure_reason="job_canceled")) == (403, "canceled"), "the last word, expected"

    def test_an_erased_job_takes_nothing_more(self, cell: ServedCell, runner: CurrentRunner) -> None:
        cell.new_project("hello", ONE)
        job = runner.take()
        job.write(b"secret")
        job.patch()
        job.put("success")
        assert cell.api("POST", f"/projects/1/jobs/{job.id}/erase").status == 201
        job.sent = 0
        assert job.patch().status == 403
        assert log_of(cell, job.id) == b""
