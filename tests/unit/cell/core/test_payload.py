from typing import Any

import msgspec
import pytest

from remuda.cell.core.payload import Source, build_payload, ref_of, timeout_of, without_ref
from remuda.cell.values import Artifact, ProjectVariable
from remuda.model.job import FailureReason, JobId, JobState, ProjectId
from remuda.model.progress import When
from remuda.pipeline import Artifacts
from remuda.testing.builders import NOW, SHA, a_job, a_pipeline, a_project, a_runner, a_spec
from remuda.wire.runner_api import JobPayload, Variable

TOKEN = "glcbt-secret"


def payload(**given: Any) -> JobPayload:
    values: dict[str, Any] = {
        "job": a_job(state=JobState.LEASED, pending_at=NOW, leased_at=NOW + 4.5),
        "spec": a_spec(),
        "pipeline": a_pipeline(),
        "project": a_project(),
        "variables": [],
        "runner": a_runner(description="herd", tags=("linux", "fast")),
        "dependencies": [],
        "public_url": "https://ci.example:8443/root",
        "token": TOKEN,
    }
    return build_payload(**(values | given))


def variables(message: JobPayload) -> dict[str, Variable]:
    return {variable.key: variable for variable in message.variables}


def a_variable(key: str, value: str, **given: Any) -> ProjectVariable:
    return ProjectVariable(project_id=ProjectId(1), key=key, value=value, **given)


def test_the_predefined_variables() -> None:
    values = {key: variable.value for key, variable in variables(payload()).items()}
    assert {key: values[key] for key in ("CI", "GITLAB_CI", "CI_JOB_ID", "CI_JOB_NAME", "CI_JOB_STAGE")} == {
        "CI": "true",
        "GITLAB_CI": "true",
        "CI_JOB_ID": "1",
        "CI_JOB_NAME": "build",
        "CI_JOB_STAGE": "test",
    }
    expected = {
        "CI_JOB_URL": "https://ci.example:8443/root/acme/shop/-/jobs/1",
        "CI_JOB_STARTED_AT": "2025-06-15T15:06:44.500Z",
        "CI_JOB_TOKEN": TOKEN,
        "CI_REGISTRY_USER": "gitlab-ci-token",
        "CI_REGISTRY_PASSWORD": TOKEN,
        "CI_REPOSITORY_URL": f"https://gitlab-ci-token:{TOKEN}@ci.example:8443/root/acme/shop.git",
        "CI_PIPELINE_ID": "1",
        "CI_PIPELINE_IID": "1",
        "CI_PIPELINE_SOURCE": "push",
        "CI_PIPELINE_URL": "https://ci.example:8443/root/acme/shop/-/pipelines/1",
        "CI_PROJECT_ID": "1",
        "CI_PROJECT_NAME": "shop",
        "CI_PROJECT_PATH": "acme/shop",
        "CI_PROJECT_NAMESPACE": "acme",
        "CI_PROJECT_URL": "https://ci.example:8443/root/acme/shop",
        "CI_COMMIT_SHA": SHA,
        "CI_COMMIT_SHORT_SHA": SHA[:8],
        "CI_COMMIT_REF_NAME": "main",
        "CI_COMMIT_REF_SLUG": "main",
        "CI_COMMIT_BRANCH": "main",
        "CI_COMMIT_BEFORE_SHA": "0" * 40,
        "CI_SERVER_URL": "https://ci.example:8443/root",
        "CI_SERVER_HOST": "ci.example",
        "CI_SERVER_PORT": "8443",
        "CI_SERVER_PROTOCOL": "https",
        "CI_API_V4_URL": "https://ci.example:8443/root/api/v4",
        "CI_RUNNER_ID": "1",
        "CI_RUNNER_DESCRIPTION": "herd",
        "CI_RUNNER_TAGS": '["linux", "fast"]',
    }
    assert {key: values[key] for key in expected} == expected
    assert {"CI_SERVER_NAME", "CI_SERVER_VERSION", "GITLAB_USER_LOGIN", "GITLAB_USER_ID"} <= values.keys()
    assert "CI_COMMIT_TAG" not in values


def test_secrets_are_masked_and_not_public() -> None:
    given = variables(payload(variables=[a_variable("KEY", "s3cret-s3cret", masked=True, file=True, raw=True)]))
    for key in ("CI_JOB_TOKEN", "CI_REGISTRY_PASSWORD", "KEY"):
        assert (given[key].masked, given[key].public) == (True, False)
    assert (given["KEY"].file, given["KEY"].raw) == (True, True)
    assert given["CI_JOB_ID"].public


def test_who_wins() -> None:
    message = payload(
        spec=a_spec(variables={"A": "file", "B": "file", "C": "file", "CI_JOB_NAME": "mine"}),
        variables=[a_variable("B", "project"), a_variable("C", "project")],
        pipeline=a_pipeline(variables={"C": "pipeline"}),
    )
    values = {key: variable.value for key, variable in variables(message).items()}
    assert (values["A"], values["B"], values["C"], values["CI_JOB_NAME"]) == ("file", "project", "pipeline", "mine")
    assert len(message.variables) == len(values)


def test_protected_variables_are_for_protected_refs() -> None:
    secret = a_variable("DEPLOY_KEY", "x", protected=True)
    assert "DEPLOY_KEY" not in variables(payload(variables=[secret]))
    assert "DEPLOY_KEY" in variables(payload(variables=[secret], pipeline=a_pipeline(protected=True)))


@pytest.mark.parametrize(
    ("given", "depth", "refspecs"),
    [
        ({}, 20, ["+refs/pipelines/1:refs/pipelines/1", "+refs/heads/main:refs/remotes/origin/main"]),
        (
            {"pipeline": a_pipeline(ref="v1", tag=True)},
            20,
            ["+refs/pipelines/1:refs/pipelines/1", "+refs/tags/v1:refs/tags/v1"],
        ),
        (
            {"spec": a_spec(variables={"GIT_DEPTH": "0"})},
            0,
            [
                "+refs/pipelines/1:refs/pipelines/1",
                "+refs/heads/*:refs/remotes/origin/*",
                "+refs/tags/*:refs/tags/*",
            ],
        ),
        (
            {"variables": [a_variable("GIT_DEPTH", "5")], "spec": a_spec(variables={"GIT_DEPTH": "3"})},
            5,
            ["+refs/pipelines/1:refs/pipelines/1", "+refs/heads/main:refs/remotes/origin/main"],
        ),
        (
            {"spec": a_spec(variables={"GIT_DEPTH": "many"})},
            20,
            ["+refs/pipelines/1:refs/pipelines/1", "+refs/heads/main:refs/remotes/origin/main"],
        ),
    ],
)
def test_what_git_fetches(given: dict[str, Any], depth: int, refspecs: list[str]) -> None:
    info = payload(**given).git_info
    assert (info.depth, info.refspecs, info.sha) == (depth, refspecs, SHA)


def test_what_git_fetches_when_the_branch_is_gone() -> None:
    whole = payload()
    assert ref_of(whole) == "refs/heads/main"
    assert without_ref(whole).git_info.refspecs == ["+refs/pipelines/1:refs/pipelines/1"]
    assert ref_of(payload(pipeline=a_pipeline(ref="v1", tag=True))) == "refs/tags/v1"
    assert ref_of(payload(spec=a_spec(variables={"GIT_DEPTH": "0"}))) is None


@pytest.mark.parametrize(("strategy", "fetch"), [("clone", False), ("fetch", True), ("none", True)])
def test_git_strategy(strategy: str, fetch: bool) -> None:
    assert payload(spec=a_spec(variables={"GIT_STRATEGY": strategy})).allow_git_fetch is fetch


def test_a_tag_is_no_branch() -> None:
    message = payload(pipeline=a_pipeline(ref="v1.0", tag=True))
    assert message.git_info.ref_type == "tag"
    values = variables(message)
    assert values["CI_COMMIT_TAG"].value == "v1.0"
    assert values["CI_COMMIT_REF_SLUG"].value == "v1-0"
    assert "CI_COMMIT_BRANCH" not in values


def test_the_timeout_is_the_least_that_applies() -> None:
    project = a_project(timeout_seconds=3600)
    assert timeout_of(a_job(), project, a_runner()) == 3600
    assert timeout_of(a_job(timeout_seconds=7200), project, a_runner()) == 7200
    assert timeout_of(a_job(timeout_seconds=7200), project, a_runner(maximum_timeout=600)) == 600
    assert payload(runner=a_runner(maximum_timeout=600)).runner_info.timeout == 600


def test_steps_and_artifacts() -> None:
    artifacts = Artifacts(paths=("dist/",), exclude=("*.o",), when="always", name="out", expire_in="1 week")
    message = payload(spec=a_spec(script=("a", "b"), after_script=("c",), artifacts=artifacts))
    assert [(step.name, step.script, step.when, step.allow_failure) for step in message.steps] == [
        ("script", ["a", "b"], "on_success", False),
        ("after_script", ["c"], "always", True),
    ]
    assert msgspec.to_builtins(message.artifacts) == [
        {
            "name": "out",
            "untracked": False,
            "paths": ["dist/"],
            "exclude": ["*.o"],
            "when": "always",
            "expire_in": "1 week",
            "artifact_type": "archive",
            "artifact_format": "zip",
        }
    ]


def test_dependencies_carry_the_running_jobs_token() -> None:
    archive = Artifact(
        job_id=JobId(8), type="archive", format="zip", filename="a.zip", size=3, sha256="", blob="", created_at=NOW
    )
    message = payload(dependencies=[Source(a_job("maker", id=JobId(8)), archive)])
    assert msgspec.to_builtins(message.dependencies) == [
        {"id": 8, "name": "maker", "token": TOKEN, "artifacts_file": {"filename": "a.zip", "size": 3}}
    ]


def test_the_message_as_a_runner_reads_it() -> None:
    sent = msgspec.json.decode(msgspec.json.encode(payload(job=a_job(when=When.MANUAL, leased_at=NOW))))
    for empty in ("hooks", "services", "artifacts", "cache", "credentials", "dependencies"):
        assert sent[empty] == []
    assert "run" not in sent
    assert sent["features"]["trace_sections"] is True
    assert sent["features"]["failure_reasons"] == [reason.value for reason in FailureReason]
    assert sent["features"]["token_mask_prefixes"] == ["glpat-", "glrt-", "glrtr-", "glcbt-"]
    # Some clients refuse a part that lacks a field, even where it has its usual value.
    assert {"name", "script", "timeout", "when", "allow_failure"} <= sent["steps"][0].keys()
    assert {"repo_url", "ref", "sha", "before_sha", "ref_type", "refspecs", "depth"} <= sent["git_info"].keys()
    manual = {"key": "CI_JOB_MANUAL", "value": "true", "public": True, "file": False, "masked": False, "raw": False}
    assert manual in sent["variables"]


def test_the_time_in_the_queue() -> None:
    assert payload().job_info.time_in_queue_seconds == 4.5
