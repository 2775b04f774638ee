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
    ],
)
def test_values(written: str, value: str, jobs: Jobs) -> None:
    assert jobs(f"variables: {{V: {written}}}\na: {{script: x}}")["a"].variables == {"V": value}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("GIT_STRATEGY", strategy) for strategy in ("none", "fetch", "clone", "empty", "$CHOSEN")],
        *[("GIT_DEPTH", depth) for depth in ("0", "50", "$DEPTH")],
    ],
)
def test_settings_of_git(name: str, value: str, jobs: Jobs) -> None:
    assert jobs(f"a: {{script: x, variables: {{{name}: {value}}}}}")["a"].variables == {name: value}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("V: ", '1:16: variables:V: has no value; write "" for an empty one'),
        ("V: [a]", "1:16: variables:V: must be a string, a number or a boolean, not a list"),
        ("V: {value: {value: x}}", "1:24: variables:V:value: must be a string, not a map"),
        ("V: {valeu: x}", '1:17: variables:V:valeu: unknown key "valeu"; did you mean "value"?'),
        ("V: {value: x, options: [y, z]}", '1:36: variables:V:options: the value "x" is none of them'),
        ("V: {value: x, options: y}", '1:36: variables:V:options: must be a list of values, not the text "y"'),
        ("V: {value: x, expand: maybe}", '1:35: variables:V:expand: must be true or false, not the text "maybe"'),
        ("V: {value: x, description: [y]}", "1:40: variables:V:description: must be a string, a number"),
        ("a-b: x", '1:13: variables:a-b: "a-b" is not a name for a variable'),
        ("1: x", '1:13: variables:1: "1" is not a name for a variable'),
        ("GIT_STRATEGY: fecth", '1:27: variables:GIT_STRATEGY: unknown value "fecth"; did you mean "fetch"?'),
        ("GIT_STRATEGY: 7", '1:27: variables:GIT_STRATEGY: unknown value "7"; use one of: none, fetch, clone, empty'),
        ("GIT_DEPTH: -1", '1:24: variables:GIT_DEPTH: must be a whole number of commits, not "-1"'),
        ("GIT_DEPTH: all", '1:24: variables:GIT_DEPTH: must be a whole number of commits, not "all"'),
    ],
)
def test_mistakes(written: str, expected: str, mistakes: Mistakes) -> None:
    messages = mistakes(f"variables: {{{written}}}\na: {{script: x}}")
    assert len(messages) == 1
    assert messages[0].startswith(expected)
