"""Compilation of a job payload into the steps that the agent runs."""

import json
from typing import Any

import msgspec
import pytest
from tests.support.manager_values import SHA, a_payload, a_runner_config, a_setting

from remuda.manager.compile.compile import compile_job, is_traced
from remuda.manager.compile.step_entries import CompileError, Setting, project_path
from remuda.manager.config.cache import CacheConfig
from remuda.wire.agent_client import JobStart

STEPS = [{"name": "script", "script": ["make", "make test"]}]


def compile_payload(setting: Setting | None = None, **changes: Any) -> JobStart:
    return compile_job(a_payload(**{"steps": STEPS} | changes), setting or a_setting())


def steps_of(job: JobStart) -> list[dict[str, Any]]:
    spec, definition = job.steps.split("\n---\n")
    assert json.loads(spec) == {"spec": {"remuda": 1}}
    steps: list[dict[str, Any]] = json.loads(definition)["run"]
    return steps


def step_names(job: JobStart) -> list[str]:
    return [step["name"] for step in steps_of(job)]


def variable_values(job: JobStart) -> dict[str, str]:
    return {variable.key: variable.value for variable in job.variables}


def test_the_checkout_is_the_first_step() -> None:
    checkout, script = steps_of(compile_payload())
    assert checkout == {
        "name": "get_sources",
        "step": "builtin://checkout",
        "inputs": {
            "repo_url": "https://u:p@cell.example/g/p.git",
            "sha": SHA,
            "ref": "main",
            "refspecs": [],
            "depth": 20,
            "strategy": "fetch",
        },
        "origin": "compiled",
    }
    assert script == {
        "name": "step_script",
        "step": "builtin://script",
        "inputs": {"script": ["make", "make test"]},
        "origin": "user",
    }


def traced_steps(job: JobStart) -> dict[str, bool]:
    return {step["name"]: step["inputs"].get("debug_trace", False) for step in steps_of(job)}


SCRIPTS = [*STEPS, {"name": "after_script", "script": ["tidy"]}]
HOOKS = [{"name": "pre_get_sources_script", "script": ["prepare"]}]


@pytest.mark.parametrize("value", ["true", "True", "1", "t"])
def test_debug_trace_of_scripts_with_a_warning(value: str) -> None:
    variables = [{"key": "CI_DEBUG_TRACE", "value": value}]
    job = compile_payload(steps=SCRIPTS, hooks=HOOKS, variables=variables)
    assert traced_steps(job) == {
        "pre_get_sources_script": True,
        "get_sources": False,
        "step_script": True,
        "after_script": True,
    }
    assert any("CI_DEBUG_TRACE is enabled: the log may show secrets" in line for line in job.banner)


@pytest.mark.parametrize("value", ["", "false", "yes", "0"])
def test_no_debug_trace(value: str) -> None:
    job = compile_payload(steps=SCRIPTS, variables=[{"key": "CI_DEBUG_TRACE", "value": value}])
    assert not any(traced_steps(job).values())
    assert not any("CI_DEBUG_TRACE" in line for line in job.banner)


def test_a_runner_can_disable_the_debug_trace() -> None:
    setting = a_setting(runner=a_runner_config(debug_trace_disabled=True))
    job = compile_payload(setting, steps=SCRIPTS, variables=[{"key": "CI_DEBUG_TRACE", "value": "true"}])
    assert not any(traced_steps(job).values())
    assert any("CI_DEBUG_TRACE has no effect: this runner has disabled it" in line for line in job.banner)


@pytest.mark.parametrize(
    ("value", "runner", "expected"),
    [
        ("true", {}, True),
        ("$OTHER", {"environment": ("OTHER=1",)}, True),
        ("false", {"environment": ("CI_DEBUG_TRACE=true",)}, False),
        ("true", {"debug_trace_disabled": True}, False),
    ],
)
def test_is_traced(value: str, runner: dict[str, Any], expected: bool) -> None:
    payload = a_payload(variables=[{"key": "CI_DEBUG_TRACE", "value": value}])
    assert is_traced(payload, a_runner_config(**runner)) is expected
    assert is_traced(a_payload(), a_runner_config(environment=("CI_DEBUG_TRACE=1",))) is True


def test_all_steps_of_a_job_in_order() -> None:
    job = compile_payload(
        steps=[
            {"name": "script", "script": ["make"]},
            {"name": "release", "script": ["release"], "when": "on_success"},
            {"name": "after_script", "script": ["bye"], "when": "always", "allow_failure": True},
        ],
        dependencies=[
            {"id": 3, "name": "build", "token": "glcbt-other", "artifacts_file": {"filename": "a.zip", "size": 1}},
            {"id": 4, "name": "empty", "token": "x", "artifacts_file": {"filename": "", "size": 0}},
            {"id": 6, "name": "none", "token": "x"},
        ],
        artifacts=[
            {"name": "out-$CI_JOB_NAME", "paths": ["dist/$WHAT"], "exclude": ["*.o"], "expire_in": "1 day"},
            {"paths": ["junit.xml"], "when": "always", "artifact_type": "junit", "artifact_format": "gzip"},
            {"paths": ["core"], "when": "on_failure"},
        ],
        cache=[
            {"key": "$WHAT/$CI_JOB_NAME", "paths": ["$CI_PROJECT_DIR/deps", "$CI_PROJECT_DIR"], "fallback_keys": ["x"]},
            {"key": "", "untracked": True, "policy": "push", "when": "always"},
            {"key": "empty"},
        ],
        variables=[{"key": "CI_JOB_NAME", "value": "pack"}, {"key": "WHAT", "value": "app"}],
    )
    assert step_names(job) == [
        "get_sources",
        "restore_cache",
        "download_artifacts",
        "step_script",
        "step_release",
        "after_script",
        "archive_cache",
        "archive_cache_2",
        "upload_artifacts",
        "upload_artifacts_2",
        "upload_artifacts_3",
    ]
    by_name = {step["name"]: step for step in steps_of(job)}
    assert by_name["download_artifacts"]["inputs"] == {
        "api_url": "https://cell.example/api/v4",
        "dependencies": [{"id": 3, "name": "build", "token": "glcbt-other", "filename": "a.zip"}],
    }
    assert by_name["restore_cache"] == {
        "name": "restore_cache",
        "step": "builtin://cache_restore",
        "inputs": {"folder": "/c/g/p", "root": "/c", "key": "app/pack", "fallback_keys": ["x"]},
        "origin": "compiled",
        "continue_on_error": True,
    }
    assert by_name["archive_cache"] == {
        "name": "archive_cache",
        "step": "builtin://cache_save",
        "inputs": {"folder": "/c/g/p", "root": "/c", "key": "app/pack", "paths": ["deps", "."], "untracked": False},
        "origin": "compiled",
        "continue_on_error": True,
        "if": "success()",
    }
    assert by_name["archive_cache_2"]["inputs"]["key"] == "default"
    assert by_name["archive_cache_2"]["if"] == "always()"
    after = by_name["after_script"]
    assert (after["if"], after["continue_on_error"], after["timeout"]) == ("always()", True, 300)
    assert by_name["upload_artifacts"]["if"] == "success()"
    assert by_name["upload_artifacts"]["inputs"] == {
        "api_url": "https://cell.example/api/v4",
        "job_id": 5,
        "token": "glcbt-job-token",
        "paths": ["dist/app"],
        "exclude": ["*.o"],
        "untracked": False,
        "name": "out-pack",
        "expire_in": "1 day",
        "artifact_type": "archive",
        "artifact_format": "zip",
    }
    assert by_name["upload_artifacts_2"]["if"] == "always()"
    assert by_name["upload_artifacts_3"]["if"] == "failure()"


def test_variables_and_their_precedence() -> None:
    job = compile_payload(
        a_setting(a_runner_config(environment=("FROM_RUNNER=1", "BOTH=runner"))),
        variables=[
            {"key": "BOTH", "value": "job"},
            {"key": "CI_RUNNER_VERSION", "value": "forged"},
            {"key": "PATH_TO", "value": "$CI_PROJECT_DIR/x"},
            {"key": "SECRET_FILE", "value": "$not expanded?", "file": True, "raw": True},
            {"key": "bad name", "value": "x"},
        ],
        runner_info={"timeout": 90},
    )
    values = variable_values(job)
    assert (values["FROM_RUNNER"], values["BOTH"], values["PATH_TO"]) == ("1", "job", "/b/p/x")
    assert values["CI_RUNNER_VERSION"] != "forged"
    assert values["CI_SERVER"] == "yes"
    assert values["CI_CONCURRENT_ID"] == "2"
    assert values["CI_JOB_TIMEOUT"] == "90"
    assert values["CI_RUNNER_SHORT_TOKEN"] == "abcdefghi"
    assert values["CI_BUILDS_DIR"] == "/b"
    assert [variable.file for variable in job.variables if variable.key == "SECRET_FILE"] == [True]
    assert "bad name" not in values
    assert any("1 variable(s) left out" in line for line in job.banner)


def test_every_secret_is_masked() -> None:
    job = compile_payload(
        variables=[
            {"key": "A", "value": "first-$B", "masked": True},
            {"key": "B", "value": "second"},
            {"key": "PLAIN", "value": "visible"},
        ],
        dependencies=[{"id": 3, "token": "glcbt-other", "artifacts_file": {"filename": "a.zip"}}],
        credentials=[{"type": "registry", "url": "r", "username": "u", "password": "registry-password"}],
        features={"token_mask_prefixes": ["acme-"]},
    )
    assert set(job.masks) == {"glcbt-job-token", "first-$B", "first-second", "glcbt-other", "registry-password"}
    assert "acme-" in job.mask_prefixes
    assert "glpat-" in job.mask_prefixes


def test_limits_and_banner() -> None:
    job = compile_payload(a_setting(a_runner_config(output_limit=10)), runner_info={"timeout": 0})
    assert (job.timeout_seconds, job.log_limit_bytes) == (7200, 10240)
    assert job.banner[0].startswith("Running with remuda ")
    assert job.banner[1] == "  on one abcdefghi, system ID: s_0123456789ab"
    assert len(job.banner) == 2


def test_the_log_warns_of_ignored_settings() -> None:
    job = compile_payload(
        a_setting(a_runner_config(cache=CacheConfig(type="s3"))),
        image={"name": "alpine"},
        services=[{"name": "postgres"}],
        cache=[{"key": "x", "paths": ["y"]}],
        variables=[
            {"key": "GIT_DEPTH", "value": "all"},
            {"key": "CACHE_FALLBACK_KEY", "value": "main-protected"},
        ],
    )
    warnings = [line.removeprefix("WARNING: ") for line in job.banner if line.startswith("WARNING: ")]
    assert [warning.partition(" ")[0] for warning in warnings] == [
        "image:",
        "services:",
        "cache:",
        "CACHE_FALLBACK_KEY",
        "GIT_DEPTH:",
    ]
    assert "cache.s3 has no BucketName, AccessKey, SecretKey" in warnings[2]


def test_secrets_are_the_first_step() -> None:
    vault = {"server": {"url": "https://v", "auth": {"data": {"jwt": "$T"}}}, "path": "p", "field": "f"}
    job = compile_payload(secrets={"A": {"vault": vault}}, variables=[{"key": "T", "value": "the.jwt", "masked": True}])
    first = json.loads(job.steps.partition("---\n")[2])["run"][0]
    assert (first["name"], first["step"], first["origin"]) == ("resolve_secrets", "builtin://secrets", "compiled")
    with pytest.raises(CompileError, match="secrets:B: its kind is not supported"):
        compile_payload(secrets={"B": {}})
    assert compile_payload(secrets=None).steps == compile_payload(secrets={}).steps


def test_a_job_without_a_script() -> None:
    assert step_names(compile_payload(steps=[])) == ["get_sources", "step_script"]


def test_texts_that_look_like_expressions_stay_script() -> None:
    job = compile_payload(steps=[{"name": "script", "script": ["echo '${{ x }}' '}}'", "a\n---\nb"]}])
    assert steps_of(job)[1]["inputs"]["script"] == ["echo '\\${{ x }}' '}}'", "a\n---\nb"]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://u:p@host/group/sub/proj.git", "group/sub/proj"),
        ("http://host:8080/prefix/proj.git/", "prefix/proj"),
        ("http://host/../../etc/passwd", "etc/passwd"),
        ("http://host/a/../../b.git", "b"),
        ("", "project"),
        ("http://host/", "project"),
    ],
)
def test_a_project_path_never_leads_outside(url: str, path: str) -> None:
    assert project_path(url) == path


def test_jobs_get_the_servers_ca_as_a_file() -> None:
    setting = msgspec.structs.replace(a_setting(), server_ca="PEM")
    forged = [{"key": "CI_SERVER_TLS_CA_FILE", "value": "mine"}]
    [variable] = [
        variable
        for variable in compile_payload(setting, variables=forged).variables
        if variable.key == "CI_SERVER_TLS_CA_FILE"
    ]
    assert (variable.value, variable.file) == ("PEM", True)
    assert not [variable for variable in compile_payload().variables if variable.key == "CI_SERVER_TLS_CA_FILE"]
