"""Pipelines started by trigger tokens and by job tokens: access, variables, and refused requests."""

import json
from typing import Any
from urllib.parse import quote, urlencode

import gitlab
import pytest
from gitlab.v4.objects import Project
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell

from remuda.wire.routable_token import decode

PIPELINE = """
spec:
  inputs:
    size:
      default: small
---
show:
  script: ["echo $[[ inputs.size ]]"]
"""


@pytest.fixture
def project(cell: ServedCell, client: gitlab.Gitlab) -> Project:
    return client.projects.get(cell.new_project("app", PIPELINE))


@pytest.fixture
def token(project: Project) -> str:
    return str(project.triggers.create({"description": "deploys"}).token)


def call(cell: ServedCell, project: int | str, **fields: Any) -> Answer:
    """Send a form, as curl does with --data."""
    form = urlencode(fields).encode()
    path = f"/api/v4/projects/{quote(str(project), safe='')}/trigger/pipeline"
    return cell.send("POST", path, form, Content_Type="application/x-www-form-urlencoded")


def variables_of(job: dict[str, Any]) -> dict[str, str]:
    return {variable["key"]: variable["value"] for variable in job["variables"]}


def test_tokens_are_shown_once(cell: ServedCell, project: Project) -> None:
    trigger = project.triggers.create({"description": "deploys"})
    token = trigger.token
    assert token.startswith("glptt-")
    assert decode(token).routing["p"] == project.id
    [listed] = project.triggers.list(get_all=True)
    assert listed.token == token.removeprefix("glptt-")[:4]
    assert (listed.owner["username"], listed.last_used) == ("root", None)
    trigger.description = "nightly deploys"
    trigger.save()
    assert project.triggers.get(trigger.id).description == "nightly deploys"
    assert call(cell, project.id, token=token, ref="main").status == 201
    assert project.triggers.get(trigger.id).last_used is not None
    project.triggers.delete(trigger.id)
    assert call(cell, project.id, token=token, ref="main").status == 404
    with pytest.raises(gitlab.GitlabGetError, match="404 Trigger Not Found"):
        project.triggers.get(trigger.id)
    with pytest.raises(gitlab.GitlabCreateError, match="description"):
        project.triggers.create({"description": " "})


def test_a_pipeline_by_python_gitlab(cell: ServedCell, project: Project, token: str, runner: ScriptedRunner) -> None:
    cancel_all(project)
    pipeline = project.trigger_pipeline("main", token, {"COLOUR": "red"})
    assert (pipeline.source, pipeline.ref, pipeline.status) == ("trigger", "main", "pending")
    job = runner.take()
    sent = variables_of(job)
    assert (sent["COLOUR"], sent["CI_PIPELINE_SOURCE"]) == ("red", "trigger")
    assert (sent["CI_PIPELINE_TRIGGERED"], sent["CI_TRIGGER_SHORT_TOKEN"]) == ("true", token[6:10])
    payload = next(variable for variable in job["variables"] if variable["key"] == "TRIGGER_PAYLOAD")
    assert payload["file"] is True
    assert json.loads(payload["value"]) == {"ref": "main", "variables": {"COLOUR": "red"}, "inputs": {}}
    assert token not in json.dumps(job)


def cancel_all(project: Project) -> None:
    for pipeline in project.pipelines.list(get_all=True):
        pipeline.cancel()


@pytest.mark.parametrize("encoding", ["json", "urlencoded", "multipart", "query"])
def test_every_encoding_of_parameters(
    cell: ServedCell, project: Project, token: str, runner: ScriptedRunner, encoding: str
) -> None:
    cancel_all(project)
    fields = {"token": token, "ref": "refs/heads/main", "variables[A]": "1 & 2", "inputs[size]": "large"}
    path = f"/api/v4/projects/{project.id}/trigger/pipeline"
    match encoding:
        case "json":
            body = {"token": token, "ref": "main", "variables": {"A": "1 & 2"}, "inputs": {"size": "large"}}
            answer = cell.send("POST", path, body)
        case "urlencoded":
            answer = call(cell, "root/app", **fields)
        case "multipart":
            parts = "".join(
                f'--X\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
                for name, value in fields.items()
            )
            kind = "multipart/form-data; boundary=X"
            answer = cell.send("POST", path, f"{parts}--X--\r\n".encode(), Content_Type=kind)
        case _:
            answer = cell.send("POST", f"{path}?{urlencode(fields)}")
    assert answer.status == 201, answer
    job = runner.take()
    assert variables_of(job)["A"] == "1 & 2"
    assert job["steps"][0]["script"] == ["echo large"]


def test_the_url_for_webhooks(cell: ServedCell, project: Project, token: str, runner: ScriptedRunner) -> None:
    change = {"action": "create", "file_path": "a", "content": ""}
    commit = {"branch": "feature/one", "start_branch": "main", "commit_message": "Add a", "actions": [change]}
    project.commits.create(commit)
    cancel_all(project)
    hook = {"ref": "refs/heads/elsewhere", "repository": {"name": "x"}}
    for ref in ("feature/one", "feature%2Fone"):
        path = f"/api/v4/projects/{project.id}/ref/{ref}/trigger/pipeline?token={token}&variables[A]=1"
        answer = cell.send("POST", path, hook)
        assert (answer.status, answer.json()["ref"]) == (201, "feature/one")
    payload = json.loads(variables_of(runner.take())["TRIGGER_PAYLOAD"])
    assert payload == {**hook, "ref": "feature/one", "variables": {"A": "1"}}
    assert cell.send("POST", path, hook, X_Gitlab_Event="Pipeline Hook").status == 403


def test_job_token_starts_pipelines_of_any_project(cell: ServedCell, project: Project, runner: ScriptedRunner) -> None:
    other = cell.new_project("other", "go:\n  script: [echo]\n")
    cell.disable_job_token_allowlist(other)
    job = runner.take()
    answer = call(cell, other, token=job["token"], ref="main")
    assert (answer.status, answer.json()["source"]) == (201, "pipeline")
    runner.put(job, "success")
    ended = call(cell, other, token=job["token"], ref="main")
    assert (ended.status, ended.json()) == (404, {"message": "404 Not Found"})


def test_jobs_cannot_start_own_pipeline_endlessly(cell: ServedCell, project: Project, runner: ScriptedRunner) -> None:
    answers = []
    while (polled := runner.ask()).status == 201:
        answers.append(call(cell, project.id, token=polled.json()["token"], ref="main"))
        runner.put(polled.json(), "success")
    assert [answer.status for answer in answers] == [201] * 10 + [400]
    assert "more than 10 pipelines" in answers[-1].json()["message"]["base"][0]


def test_invalid_tokens(cell: ServedCell, project: Project, token: str) -> None:
    other = cell.new_project("other", PIPELINE)
    before = len(project.pipelines.list(get_all=True))
    for target, presented in (
        (project.id, "wrong"),
        (project.id, token[:-1]),
        (project.id, cell.token),
        (project.id, "glcbt-no.such.token"),
        (project.id, "x" * 9000),
        (other, token),
        (999, token),
        ("root/nowhere", token),
    ):
        answer = call(cell, target, token=presented, ref="main")
        assert (answer.status, answer.json()) == (404, {"message": "404 Not Found"}), (target, presented)
    assert cell.send("GET", f"/api/v4/projects/{project.id}", PRIVATE_TOKEN=token).status == 401
    assert len(project.pipelines.list(get_all=True)) == before


def test_invalid_requests(cell: ServedCell, project: Project, token: str) -> None:
    def refusal_of(**fields: Any) -> Any:
        answer = cell.send("POST", f"/api/v4/projects/{project.id}/trigger/pipeline", fields)
        assert answer.status == 400, answer
        return answer.json()

    assert refusal_of(ref="main") == {"error": "token is missing"}
    assert refusal_of(token=token) == {"error": "ref is missing"}
    assert refusal_of(token=token, ref="nowhere") == {"message": {"base": ["Reference not found"]}}
    assert "key-valued strings" in refusal_of(token=token, ref="main", variables={"A": 1})["error"]
    assert "letters, digits" in refusal_of(token=token, ref="main", variables={"A-B": "1"})["error"]
    assert "size" in str(refusal_of(token=token, ref="main", inputs={"siez": "1"}))
    large = {"token": token, "ref": "main", "variables": {"A": "x" * 200_000}}
    assert cell.send("POST", f"/api/v4/projects/{project.id}/trigger/pipeline", large).status == 413


def test_a_token_that_should_expire_is_refused(cell: ServedCell, project: Project) -> None:
    body = {"description": "deploys", "expires_at": "2030-01-01"}
    refused = cell.api("POST", f"/projects/{project.id}/triggers", body)
    assert (refused.status, refused.json()["error"].split()[0]) == (400, "expires_at")
    assert project.triggers.list(get_all=True) == []
