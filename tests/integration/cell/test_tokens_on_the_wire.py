"""Where runner and job tokens may be sent, and that a failing store is not reported as a wrong token."""

import sqlite3

from tests.support.cells.served_cell import FEATURES, ScriptedRunner, ServedCell

PIPELINE = "only: {script: [echo hello]}\n"


def test_a_parameter_wins_over_the_header(cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("hello", PIPELINE)
    job = runner.take()
    path = f"/api/v4/jobs/{job['id']}/trace"

    def send(query: str, header: str) -> int:
        return cell.send("PATCH", path + query, b"x", JOB_TOKEN=header, Content_Range="0-0").status

    assert send("?token=glcbt-wrong", job["token"]) == 403
    assert send(f"?token={job['token']}", "glcbt-wrong") == 202
    assert send("?debug_trace=true", job["token"]) == 202


def test_a_job_token_may_be_long(cell: ServedCell, runner: ScriptedRunner) -> None:
    """Tokens of other servers exceed 1 KB; such a header gets a response, not a closed connection."""
    cell.new_project("hello", PIPELINE)
    job = runner.take()
    long = "glcbt-" + "x" * 6000
    assert (
        cell.send("PUT", f"/api/v4/jobs/{job['id']}", {"token": long, "state": "running"}, JOB_TOKEN=long).status == 403
    )
    assert cell.send("GET", "/api/v4/job", JOB_TOKEN=long).status == 403


def test_a_failing_store_gets_503_and_not_403(cell: ServedCell, runner: ScriptedRunner) -> None:
    """403 stops a runner for an hour, so errors of the cell itself are 503, after which it retries."""
    cell.new_project("hello", PIPELINE)
    job = runner.take()
    with sqlite3.connect(cell.settings.data / "cell.sqlite", isolation_level=None) as other:
        other.execute("ALTER TABLE runners RENAME TO hidden_runners")
        other.execute("ALTER TABLE jobs RENAME TO hidden_jobs")
        try:
            answers = [runner.ask(), runner.put(job, "running"), runner.patch(job, 0, b"x")]
        finally:
            other.execute("ALTER TABLE hidden_runners RENAME TO runners")
            other.execute("ALTER TABLE hidden_jobs RENAME TO jobs")
    other.close()
    assert [answer.status for answer in answers] == [503] * 3
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers)
    assert runner.ask().status == 204
    assert runner.put(job, "success").status == 200


class TestRunnerTokenInTheHeader:
    """A router reads the cell from the header; a token there is enough, with or without a body."""

    def test_requests_a_job(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        cell.new_project("hello", PIPELINE)
        path = "/api/v4/jobs/request"
        assert cell.send("POST", path, {"system_id": "s_1"}, RUNNER_TOKEN="glrt-wrong").status == 403
        assert cell.send("POST", path, {"system_id": "s_1"}).status == 400
        answer = cell.send("POST", path, {"info": {"features": FEATURES}}, RUNNER_TOKEN=runner.token)
        assert (answer.status, answer.json()["job_info"]["name"]) == (201, "only")
        assert cell.send("POST", path, b"", RUNNER_TOKEN=runner.token).status == 204

    def test_verifies(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        for body in ({}, {"system_id": "s_1"}, b""):
            answer = cell.send("POST", "/api/v4/runners/verify", body, RUNNER_TOKEN=runner.token)
            assert (answer.status, answer.json()["token"]) == (200, runner.token)
        assert cell.send("POST", "/api/v4/runners/verify", b"", RUNNER_TOKEN="glrt-wrong").status == 403
        assert cell.send("POST", "/api/v4/runners/verify", {}).status == 400

    def test_the_body_wins(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        other = cell.new_runner()
        for path, status in (("/api/v4/runners/verify", 403), ("/api/v4/jobs/request", 403)):
            assert cell.send("POST", path, {"token": "glrt-wrong"}, RUNNER_TOKEN=runner.token).status == status
        answer = cell.send("POST", "/api/v4/runners/verify", {"token": other.token}, RUNNER_TOKEN=runner.token)
        assert answer.json()["token"] == other.token

    def test_renews_and_removes(self, cell: ServedCell, runner: ScriptedRunner) -> None:
        answer = cell.send("POST", "/api/v4/runners/reset_authentication_token", b"", RUNNER_TOKEN=runner.token)
        assert answer.status == 201
        token = answer.json()["token"]
        assert token != runner.token
        path = "/api/v4/runners/verify"
        assert cell.send("POST", path, {"system_id": "s_9"}, RUNNER_TOKEN=token).status == 200
        managers = "/api/v4/runners/managers"
        assert cell.send("DELETE", managers, {"system_id": "s_9"}, RUNNER_TOKEN=token).status == 204
        assert cell.send("DELETE", managers, {"system_id": "s_9"}, RUNNER_TOKEN=token).status == 404
        assert cell.send("DELETE", "/api/v4/runners", b"", RUNNER_TOKEN=token).status == 204
        assert cell.send("POST", path, b"", RUNNER_TOKEN=token).status == 403

    def test_registers(self, cell: ServedCell) -> None:
        token = cell.send("GET", "/api/remuda/v1/registration_token", PRIVATE_TOKEN=cell.token).json()["token"]
        answer = cell.send("POST", "/api/v4/runners", {"description": "new"}, RUNNER_TOKEN=token)
        assert answer.status == 201, answer
        assert cell.send("POST", "/api/v4/runners", {}).status == 400
