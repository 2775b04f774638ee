"""Compilation of the job's scripts and its `run` into steps."""

import json
from typing import Any

import pytest
from tests.support.manager_values import a_payload

from remuda.manager.compile.step_entries import CompileError
from remuda.manager.compile.user_steps import user_steps
from remuda.manager.compile.variables import Variables, variable_list
from remuda.manager.config.values import RunnerConfig

RUNNER = RunnerConfig(pre_build_script="echo begin", post_build_script="echo end")


def steps(runner: RunnerConfig | None = None, variables: dict[str, str] | None = None, **changes: Any) -> list[Any]:
    payload = a_payload(**changes)
    return user_steps(payload, runner or RunnerConfig(), Variables(variable_list(variables or {})), {"get_sources"})


def run(*listed: Any, runner: RunnerConfig | None = None) -> list[Any]:
    return steps(runner, run=json.dumps(listed))


def test_scripts_in_their_order_with_the_runners_own() -> None:
    entries = steps(
        RUNNER,
        steps=[
            {"name": "script", "script": ["make"]},
            {"name": "after_script", "script": ["bye"], "when": "always", "allow_failure": True},
            {"name": "release", "script": ["release-cli create"], "when": "on_success"},
            {"name": "on fire", "script": ["report"], "when": "on_failure", "allow_failure": True},
        ],
    )
    assert [entry["name"] for entry in entries] == ["step_script", "step_release", "step_on_fire", "after_script"]
    assert entries[0]["inputs"] == {"script": ["echo begin", "make", "echo end"]}
    assert "if" not in entries[1]
    assert (entries[2]["if"], entries[2]["continue_on_error"]) == ("failure()", True)
    assert (entries[3]["if"], entries[3]["continue_on_error"], entries[3]["timeout"]) == ("always()", True, 300)


def test_errors_of_after_script_count_if_the_variable_says_so() -> None:
    after = [{"name": "after_script", "script": ["false"], "when": "always", "allow_failure": True}]
    assert steps(None, {"AFTER_SCRIPT_IGNORE_ERRORS": "false"}, steps=after)[-1]["continue_on_error"] is False


def test_run_replaces_scripts() -> None:
    entries = run({"name": "one", "script": "make", "env": {"A": "1"}}, {"name": "two", "func": "builtin://checkout"})
    assert entries == [
        {"name": "one", "script": "make", "env": {"A": "1"}, "origin": "user"},
        {"name": "two", "func": "builtin://checkout", "origin": "user"},
    ]
    names = [entry["name"] for entry in run({"name": "one", "script": "make"}, runner=RUNNER)]
    assert names == ["pre_build_script", "one", "post_build_script"]


def test_references_and_expressions_are_passed_to_the_agent() -> None:
    listed: list[dict[str, Any]] = [
        {"name": "a", "step": "./local", "inputs": {"who": "${{ vars.USER }}"}},
        {"name": "b", "func": "gitlab.com/steps/echo@v1"},
        {"name": "c", "script": "echo ${{ steps.a.outputs.text }}"},
    ]
    assert run(*listed) == [step | {"origin": "user"} for step in listed]


@pytest.mark.parametrize("value", [None, ""])
def test_an_empty_run_is_ignored(value: str | None) -> None:
    assert [entry["name"] for entry in steps(run=value, steps=[{"name": "script", "script": ["x"]}])] == ["step_script"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("not json", "run: the server sent no JSON list"),
        ("{}", "run: a list of at least one step"),
        ("[]", "run: a list of at least one step"),
        ("[1]", r"run\[0\]: a mapping"),
        ('[{"name": "a", "step": {"git": {"url": "x"}}}]', r'run\[0\] \(a\).step: "git" needs "rev"'),
        ('[{"name": "a", "script": "echo ${{ job. }}"}]', r"run\[0\] \(a\)"),
        ('[{"name": "a", "script": "x", "if": "always()"}]', '"if" is an extension and needs'),
        ('[{"name": "a", "action": "x"}]', '"action" was removed'),
        ('[{"name": "a", "step": "builtin://script", "func": "x"}]', 'exactly one of "step", "func" and "script"'),
        ('[{"name": "get_sources", "script": "x"}]', '"get_sources" is the name of a step of the runner'),
        ('[{"name": "after_script", "script": "x"}]', '"after_script" is the name of a step of the runner'),
        ("[" * 100_000, "run: "),
    ],
)
def test_errors_for_an_invalid_run(text: str, error: str) -> None:
    with pytest.raises(CompileError, match=error):
        steps(run=text)
