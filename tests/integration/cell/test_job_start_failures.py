"""Jobs that fail when they are handed out: the failure reason, and that no runner gets them."""

from typing import Any

from tests.support.cells.served_cell import ScriptedRunner, ServedCell

PIPELINE = "only: {script: [echo hello]}\n"


def get_end(cell: ServedCell, job_id: int) -> tuple[Any, Any]:
    details = cell.send("GET", f"/api/remuda/v1/jobs/{job_id}", PRIVATE_TOKEN=cell.token).json()
    return details["status"], details["failure_reason"]


def test_the_user_who_started_it_is_blocked(cell: ServedCell, runner: ScriptedRunner) -> None:
    person = {"username": "ann", "name": "Ann", "email": "ann@example.com", "password": "long-enough-1"}
    user = cell.api("POST", "/users", person).json()["id"]
    token = cell.api("POST", f"/users/{user}/personal_access_tokens", {"name": "ci", "scopes": ["api"]}).json()["token"]
    project = cell.new_project("hello")
    assert cell.api("POST", f"/projects/{project}/members", {"user_id": user, "access_level": 40}).status == 201
    actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": PIPELINE}]
    body = {"branch": "main", "commit_message": "Add a pipeline", "actions": actions}
    pushed = cell.api("POST", f"/projects/{project}/repository/commits", body, PRIVATE_TOKEN=token)
    assert pushed.status == 201, pushed
    assert cell.api("POST", f"/users/{user}/block").status == 201
    assert runner.ask().status == 204
    assert get_end(cell, 1) == ("failed", "user_blocked")


def test_a_runner_that_reports_no_features_gets_only_plain_jobs(cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("hello", "a: {script: [x], artifacts: {reports: {junit: a.xml}}}\nb: {script: [x]}\n")
    answers = [runner.ask(info=None) for _ in range(2)]
    assert [answer.status for answer in answers] == [204, 201]
    assert answers[1].json()["job_info"]["name"] == "b"
    assert get_end(cell, 1) == ("failed", "runner_unsupported")
    why = cell.send("GET", "/api/remuda/v1/jobs/1/why", PRIVATE_TOKEN=cell.token).json()
    assert "upload_multiple_artifacts (for artifacts:reports)" in why["summary"]
    assert why["failure"]["fault"] == "user"
