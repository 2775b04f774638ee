"""Compilation of jobs for the custom executor: stages, the driver's input, and errors."""

import json
from typing import Any

import msgspec
import pytest
from tests.support.manager_values import a_payload, a_runner_config, a_setting

from remuda.manager.compile.compile import compile_job
from remuda.manager.compile.custom import ORDER
from remuda.manager.compile.custom_scripts import plain
from remuda.manager.compile.step_entries import CompileError, entry
from remuda.manager.config.cache import CacheConfig
from remuda.manager.config.custom import CustomConfig
from remuda.manager.config.values import RemudaConfig
from remuda.stdsteps.checkout import lfs, submodules
from remuda.steps.job_tree.tree import confines_own_steps, is_confined
from remuda.steps.language.reading import read_step
from remuda.wire.agent_client import JobStart


def compile_payload(*, runner: dict[str, Any] | None = None, **changes: Any) -> JobStart:
    values = {"executor": "custom", "custom": CustomConfig(run_exec="/run"), "builds_dir": "/builds"}
    config = a_runner_config(**values | (runner or {}))
    payload: dict[str, Any] = {
        "steps": [{"name": "script", "script": ["make ${{ x }}"]}, {"name": "after_script", "script": ["bye"]}],
        "runner_info": {"timeout": 600},
    }
    return compile_job(a_payload(**payload | changes), a_setting(config, host_environment={"HOME": "/root"}))


def steps_of(job: JobStart) -> list[dict[str, Any]]:
    read_step(job.steps, job=True)  # the agent can read it
    steps: list[dict[str, Any]] = json.loads(job.steps.split("\n---\n")[1])["run"]
    return steps


def stages_of(job: JobStart) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in steps_of(job)[-1]["run"]}


def order_of(job: JobStart) -> dict[str, Any]:
    [variable] = job.variables
    assert (variable.key, variable.file) == (ORDER, True)
    order: dict[str, Any] = json.loads(variable.value)
    return order


def test_a_job_is_one_environment_with_gitlabs_stages() -> None:
    cache = [{"key": "k", "paths": ["a"], "when": "always"}]
    artifacts = [{"paths": ["out"], "when": "on_failure"}]
    dependencies = [{"id": 4, "name": "x", "token": "t", "artifacts_file": {"filename": "a.zip"}}]
    job = compile_payload(cache=cache, artifacts=artifacts, dependencies=dependencies)
    assert [entry["step"] for entry in steps_of(job)] == ["builtin://custom"]
    stages = stages_of(job)
    assert list(stages) == [
        "prepare_script",
        "get_sources",
        "restore_cache",
        "download_artifacts",
        "step_script",
        "after_script",
        "archive_cache",
        "archive_cache_on_failure",
        "upload_artifacts_on_failure",
        "cleanup_file_variables",
    ]
    assert stages["archive_cache_on_failure"]["if"] == "failure()"
    assert "if" not in stages["archive_cache"]
    assert set(order_of(job)["scripts"]) == {*stages, "clear_worktree"} - {"step_script", "after_script"}


def test_the_jobs_own_steps_are_confined() -> None:
    """The agent refuses a shell on the machine for such a job."""
    job_step = read_step(compile_payload().steps, job=True)
    assert is_confined(job_step)
    assert [call.name for call in job_step.definition.run if confines_own_steps(call)] == ["custom"]
    assert not any(call.origin == "user" for call in job_step.definition.run)


def test_nothing_secret_stands_in_the_steps() -> None:
    bucket = {"ServerAddress": "s3.example", "BucketName": "b", "AccessKey": "access", "SecretKey": "hidden"}
    cache = msgspec.convert({"Type": "s3", "s3": bucket}, CacheConfig)
    job = compile_payload(
        runner={"cache": cache},
        cache=[{"key": "k", "paths": ["a"]}],
        variables=[{"key": "PASSWORD", "value": "hidden-value"}],
    )
    assert "Signature" in order_of(job)["scripts"]["restore_cache"]
    for text in ("Signature", "hidden", "glcbt-job-token"):
        assert text not in job.steps


def test_the_script_logs_what_the_step_checkout_logs() -> None:
    settings = {"GIT_SUBMODULE_STRATEGY": "normal", "GIT_SUBMODULE_DEPTH": "3"}
    job = compile_payload(variables=[{"key": key, "value": value} for key, value in settings.items()])
    script = order_of(job)["scripts"]["get_sources"]
    for line in (lfs.FETCHING, lfs.MISSING, submodules.describe_retry(3)):
        assert f"echo '{line}'" in script


def test_variables_go_to_the_driver_only() -> None:
    job = compile_payload(
        variables=[{"key": "PATH", "value": "/evil"}, {"key": "KEY", "value": "content", "file": True}]
    )
    order = order_of(job)
    assert ["PATH", "/evil", False] in order["variables"]
    assert ["KEY", "content", True] in order["variables"]
    assert order["host"] == {"HOME": "/root"}
    assert json.loads(order["response"])["id"] == 5


def test_the_driver_gets_image_and_services_without_a_warning() -> None:
    job = compile_payload(
        image={"name": "alpine:$V"}, services=[{"name": "redis"}], variables=[{"key": "V", "value": "3"}]
    )
    assert ["CI_JOB_IMAGE", "alpine:3", False] in order_of(job)["variables"]
    assert not any("WARNING" in line for line in job.banner)


def test_the_agent_waits_for_the_timeouts_of_the_driver() -> None:
    custom = CustomConfig(run_exec="/run", graceful_kill_timeout=20, force_kill_timeout=3, cleanup_exec_timeout=100)
    [environment] = steps_of(compile_payload(runner={"custom": custom}))
    assert environment["inputs"]["grace_seconds"] >= 23
    assert environment["inputs"]["close_seconds"] >= 123
    assert CustomConfig(run_exec="/run").graceful_seconds == 600


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"run": '[{"name": "a", "script": "b"}]'}, "run: a driver of the custom executor is given scripts"),
    ],
)
def test_errors_for_unsupported_jobs(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_payload(**changes)
    assert words in str(caught.value)


@pytest.mark.parametrize("value", ["11", "0", "x"])
def test_invalid_numbers_of_attempts_mean_one_attempt(value: str) -> None:
    job = compile_payload(variables=[{"key": "GET_SOURCES_ATTEMPTS", "value": value}])
    assert '"retry"' not in job.steps
    assert any(f"GET_SOURCES_ATTEMPTS: must be a number from 1 to 10, not '{value}'" in line for line in job.banner)


def test_warning_that_artifacts_are_not_signed() -> None:
    job = compile_payload(runner={"remuda": RemudaConfig(signing_key="/key")}, artifacts=[{"paths": ["out"]}])
    assert any("artifacts are not signed" in line for line in job.banner)


@pytest.mark.parametrize("text", ["${{ a }}", "\\${{ a }}", "\\\\${{", "plain", "${ {"])
def test_plain_reverts_the_escapes_of_entries(text: str) -> None:
    inputs = {"a": text, "list": [text, {text: text}]}
    assert plain(entry("x", "script", inputs)) == inputs
