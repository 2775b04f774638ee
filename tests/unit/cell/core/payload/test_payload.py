"""The payload of a job as a runner gets it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from remuda.cell.core.payload.payload import Source, build_payload, ref_of, without_ref
from remuda.cell.core.payload.variables import JobContext
from remuda.cell.values import ProjectVariable
from remuda.model.job import FailureReason, JobId, JobState, ProjectId
from remuda.model.progress import When
from remuda.pipeline import Artifacts
from remuda.testing.builders import NOW, SHA, a_job, a_pipeline, a_project, a_runner, a_spec, an_artifact
from remuda.wire.runner_api import JobPayload, Variable

TOKEN = "glcbt-secret"


def job_context(**changes: Any) -> JobContext:
    values: dict[str, Any] = {
        "job": a_job(state=JobState.LEASED, pending_at=NOW, leased_at=NOW + 4.5),
        "spec": a_spec(),
        "pipeline": a_pipeline(),
        "project": a_project(),
        "runner": a_runner(description="herd", tags=("linux", "fast")),
        "public_url": "https://ci.example:8443/root",
    }
    return JobContext(**(values | changes))


def payload(dependencies: Sequence[Source] = (), id_tokens: Mapping[str, str] = {}, **changes: Any) -> JobPayload:
    return build_payload(job_context(**changes), dependencies=dependencies, token=TOKEN, id_tokens=id_tokens)


def variables(message: JobPayload) -> dict[str, Variable]:
    return {variable.key: variable for variable in message.variables}


def a_variable(key: str, value: str, **changes: Any) -> ProjectVariable:
    return ProjectVariable(project_id=ProjectId(1), key=key, value=value, **changes)


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
    assert not [name for name in values if name.startswith("CI_REGISTRY")]


def test_the_payload_lists_predefined_variables_that_users_override() -> None:
    assert payload().remuda == {"predefined": {}}
    message = payload(
        spec=a_spec(variables={"CI_COMMIT_SHA": "forged", "CI_COMMIT_TAG": "forged", "PLAIN": "x", "CI": "forged"}),
        variables=[a_variable("GITLAB_USER_LOGIN", "forged"), a_variable("CI_JOB_TOKEN", "forged")],
        id_tokens={"CI_ID": "token"},
    )
    assert message.remuda == {
        "predefined": {
            "CI": "true",
            "CI_COMMIT_SHA": SHA,
            "CI_COMMIT_TAG": None,
            "CI_ID": None,
            "CI_JOB_TOKEN": TOKEN,
            "GITLAB_USER_LOGIN": "root",
        }
    }
    assert variables(message)["CI_COMMIT_SHA"].value == "forged"


def test_registry_variables_and_credentials() -> None:
    message = payload(
        pipeline=a_pipeline(predefined={"CI_REGISTRY": "r.example:5000"}), project=a_project(path="A/Shop")
    )
    values = {key: variable.value for key, variable in variables(message).items() if key.startswith("CI_REGISTRY")}
    assert values == {
        "CI_REGISTRY": "r.example:5000",
        "CI_REGISTRY_IMAGE": "r.example:5000/a/shop",
        "CI_REGISTRY_USER": "gitlab-ci-token",
        "CI_REGISTRY_PASSWORD": TOKEN,
    }
    assert message.credentials == [
        {"type": "registry", "url": "r.example:5000", "username": "gitlab-ci-token", "password": TOKEN}
    ]


def test_secrets_are_masked_and_not_public() -> None:
    by_key = variables(
        payload(
            variables=[a_variable("KEY", "s3cret-s3cret", masked=True, file=True, raw=True)],
            pipeline=a_pipeline(predefined={"CI_REGISTRY": "r.example"}),
        )
    )
    for key in ("CI_JOB_TOKEN", "CI_REGISTRY_PASSWORD", "KEY"):
        assert (by_key[key].masked, by_key[key].public) == (True, False)
    assert (by_key["KEY"].file, by_key["KEY"].raw) == (True, True)
    assert by_key["CI_JOB_ID"].public


def test_precedence_of_variables() -> None:
    """Each name is set in one more source than the name before it."""
    names = "ABCDEF"
    message = payload(
        spec=a_spec(variables=dict.fromkeys([*names[1:], "CI_JOB_NAME"], "file")),
        inherited=dict.fromkeys(names[2:], "dotenv"),
        variables=[a_variable(name, "project") for name in names[3:]],
        pipeline=a_pipeline(predefined={"A": "predefined"}, variables=dict.fromkeys(names[4:], "started with")),
        job=a_job(play_variables={"F": "played with"}),
    )
    values = {key: variable.value for key, variable in variables(message).items()}
    assert [values[name] for name in names] == [
        "predefined",
        "file",
        "dotenv",
        "project",
        "started with",
        "played with",
    ]
    assert values["CI_JOB_NAME"] == "file"
    assert len(message.variables) == len(values)


def test_flags_of_variables() -> None:
    message = payload(
        spec=a_spec(variables={"PLAIN": "$A", "RAW": "$A"}, raw_variables=("RAW",)),
        pipeline=a_pipeline(variables={"GIVEN": "x", "KUBECONFIG": "y"}, file_variables=("KUBECONFIG",)),
        inherited={"VERSION": "1"},
    )
    flags = {key: (variable.public, variable.raw, variable.file) for key, variable in variables(message).items()}
    assert (flags["PLAIN"], flags["RAW"]) == ((True, False, False), (True, True, False))
    assert (flags["GIVEN"], flags["KUBECONFIG"]) == ((False, False, False), (False, False, True))
    assert flags["VERSION"] == (False, False, False)


def test_protected_variables_are_for_protected_refs() -> None:
    secret = a_variable("DEPLOY_KEY", "x", protected=True)
    assert "DEPLOY_KEY" not in variables(payload(variables=[secret]))
    assert "DEPLOY_KEY" in variables(payload(variables=[secret], pipeline=a_pipeline(protected=True)))


@pytest.mark.parametrize(
    ("changes", "depth", "refspecs"),
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
def test_depth_and_refspecs(changes: dict[str, Any], depth: int, refspecs: list[str]) -> None:
    info = payload(**changes).git_info
    assert (info.depth, info.refspecs, info.sha) == (depth, refspecs, SHA)


def test_refspecs_without_a_deleted_branch() -> None:
    message = payload()
    assert ref_of(message) == "refs/heads/main"
    assert without_ref(message).git_info.refspecs == ["+refs/pipelines/1:refs/pipelines/1"]
    assert ref_of(payload(pipeline=a_pipeline(ref="v1", tag=True))) == "refs/tags/v1"
    assert ref_of(payload(spec=a_spec(variables={"GIT_DEPTH": "0"}))) is None


@pytest.mark.parametrize(("strategy", "fetch"), [("clone", False), ("fetch", True), ("none", True)])
def test_git_strategy(strategy: str, fetch: bool) -> None:
    assert payload(spec=a_spec(variables={"GIT_STRATEGY": strategy})).allow_git_fetch is fetch


def test_a_tag_pipeline_has_no_branch_variables() -> None:
    message = payload(pipeline=a_pipeline(ref="v1.0", tag=True))
    assert message.git_info.ref_type == "tag"
    values = variables(message)
    assert values["CI_COMMIT_TAG"].value == "v1.0"
    assert values["CI_COMMIT_REF_SLUG"].value == "v1-0"
    assert "CI_COMMIT_BRANCH" not in values


def test_timeout_by_job_project_and_runner() -> None:
    project = a_project(timeout_seconds=3600)
    long_job, runner = a_job(timeout_seconds=7200), a_runner(maximum_timeout=600)
    assert job_context(project=project).timeout == 3600
    assert job_context(project=project, job=long_job).timeout == 7200
    assert job_context(project=project, job=long_job, runner=runner).timeout == 600
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


def test_reports_are_separate_uploads() -> None:
    reports = Artifacts(paths=(), reports={"junit": ("out/*.xml",), "dotenv": ("build.env",)}, expire_in="1 day")
    assert msgspec.to_builtins(payload(spec=a_spec(artifacts=reports)).artifacts) == [
        {
            "name": "junit.xml",
            "untracked": None,
            "paths": ["out/*.xml"],
            "exclude": None,
            "when": "always",
            "expire_in": "1 day",
            "artifact_type": "junit",
            "artifact_format": "gzip",
        },
        {
            "name": ".env",
            "untracked": None,
            "paths": ["build.env"],
            "exclude": None,
            "when": "always",
            "expire_in": "1 day",
            "artifact_type": "dotenv",
            "artifact_format": "gzip",
        },
    ]


CACHE = {"key": "gems", "untracked": False, "policy": "pull", "paths": ["vendor/"], "when": "on_success"}


@pytest.mark.parametrize(
    ("protected", "more", "key", "fallbacks"),
    [
        (False, {}, "gems-non_protected", ["main-non_protected"]),
        (True, {}, "gems-protected", ["main-protected"]),
        (True, {"unprotect": True}, "gems-non_protected", ["main-non_protected"]),
    ],
)
def test_protected_refs_have_own_caches(protected: bool, more: dict[str, bool], key: str, fallbacks: list[str]) -> None:
    spec = a_spec(cache=({**CACHE, "fallback_keys": ["main"], **more},))
    assert payload(spec=spec, pipeline=a_pipeline(protected=protected)).cache == [
        {**CACHE, "key": key, "fallback_keys": fallbacks}
    ]


def test_containers_and_hooks_are_sent_as_compiled() -> None:
    image = {"name": "ruby:3", "entrypoint": [""], "executor_opts": {"docker": {"platform": "linux/arm64"}}}
    services = ({"name": "postgres:16", "alias": "db", "variables": [{"key": "A", "value": "b"}]},)
    hooks = ({"name": "pre_get_sources_script", "script": ["date"]},)
    message = payload(spec=a_spec(image=image, services=services, hooks=hooks))
    assert (message.image, message.services, message.hooks) == (image, list(services), list(hooks))


def test_run_is_sent_as_text_instead_of_steps() -> None:
    run = ({"name": "hello", "script": "echo hi"},)
    document = msgspec.json.decode(msgspec.json.encode(payload(spec=a_spec(script=(), run=run))))
    assert document["run"] == '[{"name":"hello","script":"echo hi"}]'
    assert document["steps"] == []


def test_secrets_contain_their_servers() -> None:
    vault = {"engine": {"name": "kv-v2", "path": "ops"}, "path": "production/db", "field": "password"}
    spec = a_spec(
        id_tokens={"FIRST": {"aud": "a"}, "SECOND": {"aud": "b"}},
        secrets={
            "PASSWORD": {"file": False, "vault": vault},
            "OTHER": {"file": True, "token": "$SECOND", "azure_key_vault": {"name": "key"}},
            "CLOUD": {"file": True, "gcp_secret_manager": {"name": "s"}},
            "KEY": {"file": True, "aws_secrets_manager": {"secret_id": "s"}},
        },
    )
    settings = {
        "VAULT_SERVER_URL": "https://vault",
        "VAULT_AUTH_ROLE": "ci",
        "AZURE_TENANT_ID": "t",
        "AWS_REGION": "eu",
    }
    secrets = payload(spec=spec, variables=[a_variable(key, value) for key, value in settings.items()]).secrets
    assert secrets is not None
    auth = {"name": "jwt", "path": "jwt", "data": {"jwt": "$FIRST", "role": "ci"}}
    assert secrets["PASSWORD"] == {"file": False, "vault": {**vault, "server": {"url": "https://vault", "auth": auth}}}
    assert secrets["OTHER"]["azure_key_vault"] == {"name": "key", "server": {"tenant_id": "t", "jwt": "$SECOND"}}
    assert secrets["CLOUD"]["gcp_secret_manager"] == {"name": "s", "server": {"jwt": "$FIRST"}}
    assert secrets["KEY"]["aws_secrets_manager"]["server"] == {"region": "eu", "jwt": "$AWS_ID_TOKEN"}


def test_id_tokens_are_masked_and_cannot_be_replaced() -> None:
    variable = variables(payload(id_tokens={"ID": "a.b.c"}, pipeline=a_pipeline(variables={"ID": "mine"})))["ID"]
    assert (variable.value, variable.masked, variable.raw, variable.public) == ("a.b.c", True, True, False)


def test_a_release_is_not_a_step() -> None:
    message = payload(spec=a_spec(release={"tag_name": "v1", "description": "first"}))
    assert [step.name for step in message.steps] == ["script"]


def test_dependencies_have_the_token_of_the_running_job() -> None:
    message = payload(dependencies=[Source(a_job("maker", id=JobId(8)), an_artifact(8, filename="a.zip"))])
    assert msgspec.to_builtins(message.dependencies) == [
        {"id": 8, "name": "maker", "token": TOKEN, "artifacts_file": {"filename": "a.zip", "size": 3}}
    ]


def test_the_payload_as_json() -> None:
    document = msgspec.json.decode(msgspec.json.encode(payload(job=a_job(when=When.MANUAL, leased_at=NOW))))
    for name in ("hooks", "services", "artifacts", "cache", "credentials", "dependencies"):
        assert document[name] == []
    assert "run" not in document
    assert document["features"]["trace_sections"] is True
    assert document["features"]["failure_reasons"] == [reason.value for reason in FailureReason]
    assert document["features"]["token_mask_prefixes"] == ["glpat-", "gldt-", "glrt-", "glrtr-", "glcbt-"]
    # Some clients refuse an object without these fields, even if they have their default values.
    assert {"name", "script", "timeout", "when", "allow_failure"} <= document["steps"][0].keys()
    assert {"repo_url", "ref", "sha", "before_sha", "ref_type", "refspecs", "depth"} <= document["git_info"].keys()
    manual = {"key": "CI_JOB_MANUAL", "value": "true", "public": True, "file": False, "masked": False, "raw": False}
    assert manual in document["variables"]


def test_time_in_queue() -> None:
    assert payload().job_info.time_in_queue_seconds == 4.5
