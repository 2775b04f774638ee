"""Where runner and job tokens may be sent, and that a failing store is not reported as a wrong token."""

import sqlite3

from tests.support.cells.served_cell import ScriptedRunner, ServedCell

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
