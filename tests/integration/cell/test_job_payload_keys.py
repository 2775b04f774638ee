"""The job payload as a current runner decodes it: every key, and its type."""

from types import NoneType
from typing import Any

import pytest
from tests.support.cells.served_cell import ServedCell, commit_file
from tests.support.runners.current_runner import CurrentRunner

STEP = {"name": str, "script": list, "timeout": int, "when": str, "allow_failure": bool}
PAYLOAD: dict[str, Any] = {
    "id": int,
    "token": str,
    "allow_git_fetch": bool,
    "job_info": {
        "id": int,
        "name": str,
        "stage": str,
        "pipeline_id": int,
        "project_id": int,
        "project_name": str,
        "project_full_path": str,
        "namespace_id": int,
        "root_namespace_id": int,
        "organization_id": int,
        "instance_id": str,
        "instance_uuid": str,
        "user_id": int,
        "scoped_user_id": NoneType,
        "time_in_queue_seconds": float,
        "project_jobs_running_on_instance_runners_count": str,
        "queue_size": int,
        "queue_depth": int,
    },
    "git_info": {
        "repo_url": str,
        "repo_object_format": str,
        "ref": str,
        "sha": str,
        "before_sha": str,
        "ref_type": str,
        "refspecs": list,
        "depth": int,
        "protected": bool,
    },
    "runner_info": {"timeout": int, "runner_session_url": NoneType},
    "inputs": list,
    "variables": [{"key": str, "value": str, "public": bool, "file": bool, "masked": bool, "raw": bool}],
    "steps": [STEP],
    "hooks": [{"name": str, "script": list}],
    "image": {"name": str, "entrypoint": list, "pull_policy": list, "executor_opts": {"docker": dict}},
    "services": [{"name": str, "alias": str, "command": list, "variables": list}],
    "artifacts": [
        {
            "name": str | None,
            "untracked": bool | None,
            "paths": list,
            "exclude": list | None,
            "when": str,
            "expire_in": str | None,
            "artifact_type": str,
            "artifact_format": str,
        }
    ],
    "cache": [{"key": str, "untracked": bool, "policy": str, "paths": list, "when": str, "fallback_keys": list}],
    "credentials": list,
    "dependencies": [{"id": int, "name": str, "token": str, "artifacts_file": {"filename": str, "size": int}}],
    "features": {"trace_sections": bool, "failure_reasons": list, "token_mask_prefixes": list, "tracing": NoneType},
    "secrets": dict,
    "policy_options": NoneType,
    "suspend_options": NoneType,
}
"""The types that a runner decodes; if one is wrong, the runner silently drops the job."""

FULL = """
stages: [build, test]
first: {stage: build, script: [x], artifacts: {paths: [out]}}
full:
  stage: test
  image: {name: 'ruby:3', entrypoint: [''], pull_policy: [always], docker: {user: me}}
  services: [{name: 'postgres:16', alias: db, command: [run], variables: {A: b}}]
  before_script: [echo before]
  script: [echo script]
  after_script: [echo after]
  hooks: {pre_get_sources_script: [date]}
  cache: [{key: gems, paths: [vendor], fallback_keys: [main], policy: pull, untracked: true}]
  artifacts: {paths: [out], exclude: [out/x], expire_in: 1 week, reports: {junit: out.xml}}
"""


def find_type_errors(value: Any, kind: Any, path: str) -> list[str]:
    """List the places where a value has another type than it should have."""
    if isinstance(kind, dict):
        if not isinstance(value, dict) or set(value) != set(kind):
            return [f"{path}: {sorted(value) if isinstance(value, dict) else value!r} instead of {sorted(kind)}"]
        return [text for key, inner in kind.items() for text in find_type_errors(value[key], inner, f"{path}.{key}")]
    if isinstance(kind, list):
        if not isinstance(value, list) or not value:
            return [f"{path}: {value!r} instead of a list"]
        return [
            text for number, item in enumerate(value) for text in find_type_errors(item, kind[0], f"{path}[{number}]")
        ]
    is_right = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    return [] if is_right else [f"{path}: {value!r} is no {kind}"]


def new_runner(cell: ServedCell, **settings: Any) -> CurrentRunner:
    created = cell.api("POST", "/user/runners", {"runner_type": "instance_type", **settings})
    return CurrentRunner(cell, created.json()["token"])


def test_every_key_of_the_payload(cell: ServedCell) -> None:
    runner = new_runner(cell)
    cell.new_project("hello", FULL)
    first = runner.take()
    first.upload(b"PK\x05\x06" + b"\0" * 18)
    first.put("success")
    job = runner.take()
    assert find_type_errors(job.payload, PAYLOAD, "payload") == []
    assert "run" not in job.payload, "a runner cannot decode a list or null here"
    assert (job.payload["inputs"], job.payload["credentials"], job.payload["secrets"]) == ([], [], {})
    assert job.payload["job_info"]["project_jobs_running_on_instance_runners_count"] == "0"
    assert job.payload["dependencies"][0]["artifacts_file"]["filename"] == "artifacts.zip"
    assert [step["name"] for step in job.payload["steps"]] == ["script", "after_script"]
    assert (job.payload["steps"][1]["when"], job.payload["steps"][1]["allow_failure"]) == ("always", True)
    assert {artifact["artifact_type"]: artifact["artifact_format"] for artifact in job.payload["artifacts"]} == {
        "archive": "zip",
        "junit": "gzip",
    }
    pipeline = job.payload["job_info"]["pipeline_id"]
    assert job.payload["git_info"]["refspecs"] == [
        f"+refs/pipelines/{pipeline}:refs/pipelines/{pipeline}",
        "+refs/heads/main:refs/remotes/origin/main",
    ]


@pytest.mark.parametrize(
    ("job_timeout", "project", "maximum", "expected"),
    [("", None, None, 3600), ("2h", None, None, 7200), ("", 1200, None, 1200), ("2h", 1200, 900, 900)],
)
def test_the_smallest_timeout_is_sent(
    cell: ServedCell, job_timeout: str, project: int | None, maximum: int | None, expected: int
) -> None:
    timeout = f", timeout: {job_timeout}" if job_timeout else ""
    project_id = cell.new_project("hello")
    if project is not None:
        assert cell.api("PUT", f"/projects/{project_id}", {"build_timeout": project}).status == 200
    commit_file(cell, project_id, f"a: {{script: [x]{timeout}}}\n")
    runner = new_runner(cell, **({"maximum_timeout": maximum} if maximum else {}))
    assert runner.take().payload["runner_info"]["timeout"] == expected


VARIABLES = """
CI GITLAB_CI CI_JOB_ID CI_JOB_URL CI_JOB_TOKEN CI_JOB_NAME CI_JOB_STAGE CI_JOB_STARTED_AT CI_REPOSITORY_URL
CI_PIPELINE_ID CI_PIPELINE_IID CI_PIPELINE_SOURCE CI_PIPELINE_URL
CI_PROJECT_ID CI_PROJECT_NAME CI_PROJECT_PATH CI_PROJECT_NAMESPACE CI_PROJECT_URL
CI_COMMIT_SHA CI_COMMIT_SHORT_SHA CI_COMMIT_REF_NAME CI_COMMIT_REF_SLUG CI_COMMIT_BRANCH CI_COMMIT_BEFORE_SHA
CI_SERVER_URL CI_SERVER_HOST CI_SERVER_PORT CI_SERVER_PROTOCOL CI_SERVER_NAME CI_SERVER_VERSION CI_API_V4_URL
CI_RUNNER_ID CI_RUNNER_DESCRIPTION CI_RUNNER_TAGS
GITLAB_USER_ID GITLAB_USER_LOGIN GITLAB_USER_NAME GITLAB_USER_EMAIL
"""


def test_every_required_variable_is_sent(cell: ServedCell) -> None:
    cell.new_project("hello", "a: {script: [x]}\n")
    variables = {
        variable["key"]: variable for variable in new_runner(cell, description="big").take().payload["variables"]
    }
    assert sorted(set(VARIABLES.split()) - set(variables)) == []
    token = variables["CI_JOB_TOKEN"]
    assert (token["masked"], token["public"]) == (True, False)
    assert variables["CI_RUNNER_DESCRIPTION"]["value"] == "big"


def test_a_session_server_is_for_shells_only(cell: ServedCell) -> None:
    """`remuda job shell` uses it; there is no web terminal, so the payload names no address of one."""
    cell.new_project("hello", "a: {script: [x]}\n")
    runner = new_runner(cell)
    session = {"url": "https://192.0.2.1:8093/session/ab", "certificate": "-----BEGIN", "authorization": "secret"}
    body = {"token": runner.token, "system_id": runner.system_id, "info": runner.info, "session": session}
    answer = cell.send("POST", "/api/v4/jobs/request", body, RUNNER_TOKEN=runner.token)
    assert (answer.status, answer.json()["runner_info"]["runner_session_url"]) == (201, None)
    job = answer.json()
    cell.send("PUT", f"/api/v4/jobs/{job['id']}", {"token": job["token"], "state": "running"})
    shell = cell.send("POST", f"/api/remuda/v1/jobs/{job['id']}/shells", {}, PRIVATE_TOKEN=cell.token)
    assert (shell.status, shell.json()["connected"]) == (201, True)
