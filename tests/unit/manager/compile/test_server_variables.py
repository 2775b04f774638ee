"""Predefined variables that a job cannot change, from a cell and from another server."""

from typing import Any

from tests.support.manager_values import a_payload, a_setting

from remuda.manager.compile.server_variables import collect_trusted_variables
from remuda.manager.compile.step_entries import path_of_project
from remuda.manager.config.values import RunnerConfig
from remuda.wire.runner_api import JobPayload

GIT = {
    "repo_url": "https://ci:t@gitlab.example/git/g/sub/p.git",
    "sha": "a" * 40,
    "ref": "Main",
    "before_sha": "b" * 40,
}
FORGED = ("CI_COMMIT_SHA", "CI_PROJECT_PATH", "CI_SERVER_URL", "CI_JOB_TOKEN", "CI_PIPELINE_SOURCE", "MAKEFILES")
RUNNER = RunnerConfig(url="https://gitlab.example/git/")


def payload_with_variables(sent: dict[str, str], **changes: Any) -> JobPayload:
    variables = [{"key": key, "value": value, "public": True} for key, value in sent.items()]
    job = {"id": 5, "name": "Build it", "stage": "test", "project_id": 3, "project_name": "P"}
    return a_payload(**{"token": "secret", "git_info": GIT, "job_info": job, "variables": variables} | changes)


def trusted_variables(payload: JobPayload, **own: str) -> dict[str, str]:
    setting = a_setting(RUNNER, work_dir="/builds/p", builds_dir="/builds")
    return collect_trusted_variables(payload, setting, own)


def test_variables_of_another_server_are_not_trusted() -> None:
    trusted = trusted_variables(payload_with_variables(dict.fromkeys(FORGED, "forged")), CI_PROJECT_DIR="/builds/p")
    assert "forged" not in trusted.values()
    assert not {"CI_PIPELINE_SOURCE", "MAKEFILES", "CI_PIPELINE_ID", "CI_COMMIT_REF_PROTECTED"} & trusted.keys()
    expected = {
        "CI_COMMIT_SHA": "a" * 40,
        "CI_COMMIT_SHORT_SHA": "a" * 8,
        "CI_COMMIT_BRANCH": "Main",
        "CI_COMMIT_REF_SLUG": "main",
        "CI_PROJECT_PATH": "g/sub/p",
        "CI_PROJECT_URL": "https://gitlab.example/git/g/sub/p",
        "CI_PROJECT_ID": "3",
        "CI_SERVER_URL": "https://gitlab.example/git",
        "CI_API_V4_URL": "https://gitlab.example/git/api/v4",
        "CI_JOB_ID": "5",
        "CI_JOB_NAME_SLUG": "build-it",
        "CI_JOB_TOKEN": "secret",
        "CI_PROJECT_DIR": "/builds/p",
    }
    assert {name: trusted[name] for name in expected} == expected


def test_a_tag_and_a_merge_request_of_another_server() -> None:
    tag = trusted_variables(
        payload_with_variables({}, git_info=GIT | {"ref": "v1", "ref_type": "tag", "protected": True})
    )
    assert (tag["CI_COMMIT_TAG"], tag["CI_COMMIT_REF_PROTECTED"]) == ("v1", "true")
    assert "CI_COMMIT_BRANCH" not in tag
    request = trusted_variables(payload_with_variables({}, git_info=GIT | {"ref": "refs/merge-requests/1/head"}))
    assert not {"CI_COMMIT_BRANCH", "CI_COMMIT_TAG", "CI_COMMIT_REF_NAME"} & request.keys()


def test_a_cell_sends_the_predefined_values() -> None:
    sent = dict.fromkeys(FORGED, "forged") | {
        "CI_COMMIT_TITLE": "a $CI_JOB_ID",
        "CI_JOB_ID": "5",
        "CI_PROJECT_DIR": "/x",
    }
    own: dict[str, str | None] = {"CI_COMMIT_SHA": "abc", "CI_SERVER_URL": "https://$x", "CI_PROJECT_DIR": None}
    own |= {"CI_PROJECT_PATH": "g/p", "CI_JOB_TOKEN": "secret", "CI_PIPELINE_SOURCE": "push"}
    trusted = trusted_variables(payload_with_variables(sent, remuda={"predefined": own}), CI_PROJECT_DIR="/builds/p")
    assert trusted == {
        "CI_COMMIT_SHA": "abc",
        "CI_COMMIT_TITLE": "a 5",
        "CI_JOB_ID": "5",
        "CI_JOB_TOKEN": "secret",
        "CI_PIPELINE_SOURCE": "push",
        "CI_PROJECT_DIR": "/builds/p",
        "CI_PROJECT_PATH": "g/p",
        "CI_SERVER_URL": "https://$x",
    }


def test_the_path_of_the_project_comes_from_the_server() -> None:
    named = {"project_full_path": "other/name"}
    assert path_of_project(payload_with_variables({"CI_PROJECT_PATH": "forged"}), RUNNER) == "g/sub/p"
    assert path_of_project(payload_with_variables({}, job_info=named), RUNNER) == "other/name"
    assert path_of_project(payload_with_variables({}), RunnerConfig(url="https://gitlab.example")) == "git/g/sub/p"
