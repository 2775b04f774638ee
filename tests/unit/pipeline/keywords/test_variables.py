from collections.abc import Callable

import pytest

from remuda.pipeline import JobSpec

Jobs = Callable[[str], dict[str, JobSpec]]
Mistakes = Callable[[str], list[str]]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("text", "text"),
        ('""', ""),
        ("1.10", "1.10"),
        ("0755", "0755"),
        ("1_000", "1_000"),
        ("true", "true"),
        ("Yes", "true"),
        ("off", "false"),
        ('"yes"', "yes"),
        ("2024-01-02", "2024-01-02"),
        ("{value: 2.50}", "2.50"),
        ("{value: x, description: why}", "x"),
        ("{description: why}", ""),
        ("{}", ""),
        ("", ""),
        ("~", ""),
        ("{value: null}", ""),
    ],
)
def test_values(written: str, value: str, jobs: Jobs) -> None:
    assert jobs(f"variables: {{V: {written}}}\na: {{script: x}}")["a"].variables == {"V": value}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("GIT_STRATEGY", strategy) for strategy in ("none", "$CHOSEN", "pigeon", "7")],
        *[("GIT_DEPTH", depth) for depth in ("0", "$DEPTH", "-1", "all")],
        ("GIT_SUBMODULE_STRATEGY", "all"),
        ("GET_SOURCES_ATTEMPTS", "100"),
    ],
)
def test_the_runner_checks_its_settings(name: str, value: str, jobs: Jobs) -> None:
    assert jobs(f"a: {{script: x, variables: {{{name}: {value}}}}}")["a"].variables == {name: value}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("V: [a]", "1:16: variables:V: must be a string, a number or a boolean, not a list"),
        ("V: {value: {value: x}}", "1:24: variables:V:value: must be a string, not a map"),
        ("V: {valeu: x}", '1:17: variables:V:valeu: unknown key "valeu"; did you mean "value"?'),
        ("V: {value: x, options: [y, z]}", '1:36: variables:V:options: the value "x" is none of them'),
        ("V: {value: x, options: y}", '1:36: variables:V:options: must be a list of values, not the text "y"'),
        ("V: {value: x, expand: maybe}", '1:35: variables:V:expand: must be true or false, not the text "maybe"'),
        ("V: {value: x, description: [y]}", "1:40: variables:V:description: must be a string, a number"),
        ("a-b: x", '1:13: variables:a-b: "a-b" is not a name for a variable'),
        ("1: x", '1:13: variables:1: "1" is not a name for a variable'),
    ],
)
def test_mistakes(written: str, expected: str, mistakes: Mistakes) -> None:
    messages = mistakes(f"variables: {{{written}}}\na: {{script: x}}")
    assert len(messages) == 1
    assert messages[0].startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: {script: x, variables: {V: {value: x, description: d}}}", "1:42: a:variables:V:description: the key"),
        ("a: {script: x, variables: {V: {value: x, options: [x]}}}", '1:42: a:variables:V:options: the key "options"'),
        ("a: {script: x, rules: [{variables: {V: {value: x}}}]}", "1:40: a:rules:variables:V: must be a string"),
        ("workflow: {rules: [{variables: {V: {value: x}}}]}\na: {script: x}", "1:36: workflow:rules:variables:V: must"),
    ],
)
def test_only_variables_of_the_file_have_all_keys(text: str, expected: str, mistakes: Mistakes) -> None:
    [message] = mistakes(text)
    assert message.startswith(expected)


def test_a_job_can_have_empty_variables(jobs: Jobs) -> None:
    job = jobs("a: {script: x, variables: {V: , W: {value: x, expand: false}}, rules: [{variables: {X: ''}}]}")["a"]
    assert (job.variables, job.raw_variables) == ({"V": "", "W": "x", "X": ""}, ("W",))
