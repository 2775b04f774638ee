"""The inputs of the checkout step, and the scripts before and after it."""

from typing import Any

import pytest
from tests.support.manager_values import GIT, a_payload

from remuda.manager.compile.sources import get_sources, source_remarks
from remuda.manager.compile.step_entries import CompileError
from remuda.manager.compile.variables import Variables, variable_list
from remuda.manager.config.values import RemudaConfig, RunnerConfig


def sources(runner: RunnerConfig | None = None, variables: dict[str, str] | None = None, **changes: Any) -> Any:
    return get_sources(a_payload(**changes), runner or RunnerConfig(), Variables(variable_list(variables or {})))


@pytest.mark.parametrize(
    ("sandbox", "protected", "expected"),
    [
        (False, True, "/cache/.git-mirrors"),
        (True, False, "/cache/g/p/.git-mirrors"),
        (True, True, "/cache/g/p@protected/.git-mirrors"),
    ],
)
def test_a_sandboxed_project_has_mirrors_of_its_own(sandbox: bool, protected: bool, expected: str) -> None:
    runner = RunnerConfig(remuda=RemudaConfig(git_mirrors="1g", sandbox=sandbox))
    payload = a_payload(git_info=GIT | {"protected": protected})
    [entry] = get_sources(payload, runner, Variables(()), cache_dir="/cache")
    assert entry["inputs"]["mirrors"] == expected


def checkout(runner: RunnerConfig | None = None, **variables: str) -> dict[str, Any]:
    [entry] = sources(runner, variables)
    inputs: dict[str, Any] = entry["inputs"]
    return inputs


@pytest.mark.parametrize(
    ("strategy", "allow_fetch", "expected"),
    [
        ("", True, "fetch"),
        ("", False, "clone"),
        ("clone", True, "clone"),
        ("empty", True, "empty"),
        ("none", True, None),
    ],
)
def test_git_strategy(strategy: str, allow_fetch: bool, expected: str | None) -> None:
    entries = sources(variables={"GIT_STRATEGY": strategy}, allow_git_fetch=allow_fetch)
    assert [entry["inputs"]["strategy"] for entry in entries] == ([expected] if expected else [])


@pytest.mark.parametrize(("flags", "inputs"), [("-ffdx -e keep/", ["-ffdx", "-e", "keep/"]), ("none", [])])
def test_flags_are_passed_to_the_checkout(flags: str, inputs: list[str]) -> None:
    assert checkout(GIT_CLEAN_FLAGS=flags)["clean_flags"] == inputs
    assert checkout(GIT_FETCH_EXTRA_FLAGS=flags)["fetch_flags"] == inputs
    assert checkout().keys() == {"repo_url", "sha", "ref", "refspecs", "depth", "strategy"}


def test_git_checkout_can_be_disabled() -> None:
    assert checkout(GIT_CHECKOUT="False")["checkout"] is False
    assert "checkout" not in checkout(GIT_CHECKOUT="true")


def test_submodules() -> None:
    inputs = checkout(
        GIT_SUBMODULE_STRATEGY="recursive",
        GIT_SUBMODULE_PATHS="one two",
        GIT_SUBMODULE_UPDATE_FLAGS="--remote",
        GIT_SUBMODULE_FORCE_HTTPS="true",
    )
    assert (
        inputs.items()
        >= {
            "submodules": "recursive",
            "submodule_depth": 20,
            "submodule_paths": ["one", "two"],
            "submodule_flags": ["--remote"],
            "instead_of_ssh": True,
        }.items()
    )
    assert checkout(GIT_SUBMODULE_STRATEGY="normal", GIT_SUBMODULE_DEPTH="3")["submodule_depth"] == 3
    assert checkout(GIT_SUBMODULE_STRATEGY="normal", GIT_SUBMODULE_DEPTH="x")["submodule_depth"] == 20
    assert "submodules" not in checkout(GIT_SUBMODULE_STRATEGY="none")


def test_a_commit_that_is_none_is_an_error() -> None:
    with pytest.raises(CompileError, match="commit"):
        sources(git_info={"sha": "abc"})


def test_the_default_replaces_an_invalid_value() -> None:
    assert checkout(GIT_STRATEGY="pigeon")["strategy"] == "fetch"
    [entry] = sources(variables={"GIT_STRATEGY": "pigeon"}, allow_git_fetch=False)
    assert entry["inputs"]["strategy"] == "clone"
    assert "submodules" not in checkout(GIT_SUBMODULE_STRATEGY="all")
    assert "checkout" not in checkout(GIT_CHECKOUT="maybe")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("GIT_STRATEGY", "pigeon", "one of fetch, clone, empty, none"),
        ("GIT_SUBMODULE_STRATEGY", "all", "one of none, normal, recursive"),
        ("GIT_DEPTH", "all", "a whole number"),
        ("GIT_SUBMODULE_DEPTH", "-1", "a whole number"),
        ("GIT_CHECKOUT", "maybe", "true or false"),
        ("GIT_LFS_SKIP_SMUDGE", "yes", "true or false"),
        ("GIT_SUBMODULE_FORCE_HTTPS", "on", "true or false"),
        ("GET_SOURCES_ATTEMPTS", "11", "a number from 1 to 10"),
        ("ARTIFACT_DOWNLOAD_ATTEMPTS", "0", "a number from 1 to 10"),
        ("RESTORE_CACHE_ATTEMPTS", "x", "a number from 1 to 10"),
    ],
)
def test_warnings_about_invalid_values(name: str, value: str, expected: str) -> None:
    variables = Variables(variable_list({name: value}))
    assert list(source_remarks(variables)) == [f"{name}: must be {expected}, not {value!r}; the default is used"]


def test_valid_values_cause_no_warning() -> None:
    values = {"GIT_STRATEGY": "clone", "GIT_DEPTH": "0", "GIT_CHECKOUT": "FALSE", "GET_SOURCES_ATTEMPTS": "3"}
    empty = {"GIT_SUBMODULE_STRATEGY": "", "GIT_SUBMODULE_DEPTH": ""}
    assert list(source_remarks(Variables(variable_list(values | empty)))) == []


def test_the_runners_scripts_surround_the_jobs_hooks() -> None:
    runner = RunnerConfig(pre_get_sources_script="echo runner", post_get_sources_script="echo fetched")
    hooks = [
        {"name": "post_get_sources_script", "script": ["echo after"]},
        {"name": "pre_get_sources_script", "script": ["echo before"]},
    ]
    entries = sources(runner, hooks=hooks)
    assert [(entry["name"], entry["inputs"].get("script")) for entry in entries] == [
        ("pre_get_sources_script", ["echo runner", "echo before"]),
        ("get_sources", None),
        ("post_get_sources_script", ["echo after", "echo fetched"]),
    ]
    assert sources(runner, {"GIT_STRATEGY": "none"}, hooks=hooks) == []


def test_clone_url_replaces_the_servers_address_and_keeps_the_token() -> None:
    inputs = checkout(RunnerConfig(clone_url="http://inside:8080/"))
    assert inputs["repo_url"] == "http://gitlab-ci-token:glcbt-job-token@inside:8080/g/p.git"
    runner = RunnerConfig(clone_url="file:///a%20folder/")
    assert checkout(runner)["repo_url"] == "file:///a%20folder/g/p.git"
    assert checkout(runner, CI_PROJECT_PATH="../secret")["repo_url"] == "file:///a%20folder/g/p.git"


def test_timeout_of_the_checkout() -> None:
    [entry] = sources(RunnerConfig(get_sources_timeout="1m30s"))
    assert entry["timeout"] == 90
    assert "timeout" not in sources()[0]
