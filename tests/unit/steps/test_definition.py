import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.definition import Condition, parse_definition
from remuda.steps.errors import DefinitionError
from remuda.testing.agent_process import steps_text

GATE = '{"spec": {"remuda": 1}}\n---\n'


def test_defaults_of_an_entry() -> None:
    (step,) = parse_definition(steps_text({"name": "build", "script": "make"}, extended=False)).steps
    assert (step.name, step.builtin, step.inputs, step.env) == ("build", "script", {"script": "make"}, {})
    assert (step.condition, step.timeout_seconds, step.continue_on_error) == (Condition.SUCCESS, None, False)
    assert (step.origin, step.reference) == ("user", "builtin://script@1")


def test_everything_at_once() -> None:
    entry = {
        "name": "get",
        "step": "builtin://checkout",
        "inputs": {"sha": "abc", "refspecs": [{"deep": 1}]},
        "env": {"A": 1, "B": True, "C": None, "D": "x"},
        "if": "always()",
        "timeout": 2.5,
        "continue_on_error": True,
        "origin": "compiled",
    }
    (step,) = parse_definition(steps_text(entry)).steps
    assert step.inputs == entry["inputs"]
    assert step.env == {"A": "1", "B": "true", "C": "", "D": "x"}
    assert (step.condition, step.timeout_seconds, step.continue_on_error, step.origin) == (
        Condition.ALWAYS,
        2.5,
        True,
        "compiled",
    )


def test_yaml_and_json_mean_the_same() -> None:
    yaml = "# by hand\nspec:\n  remuda: 1\n---\nrun:\n- name: a\n  script: |\n    echo }}\n    x\n  if: failure()\n"
    assert parse_definition(yaml) == parse_definition(
        steps_text({"name": "a", "script": "echo }}\nx\n", "if": "failure()"})
    )


@pytest.mark.parametrize("spec", ["", "{}", "spec:", "spec: {}", '{"spec": null}', "---\n"])
def test_an_empty_spec_has_many_forms(spec: str) -> None:
    assert parse_definition(f"{spec}\n---\nrun: [{{name: a, script: x}}]").steps


def test_words_and_dates_are_text_in_yaml() -> None:
    (step,) = parse_definition("\n---\nrun:\n- {name: a, script: yes, env: {A: 2024-01-02, B: no, C: 0x10}}").steps
    assert step.inputs == {"script": "yes"}
    assert step.env == {"A": "2024-01-02", "B": "no", "C": "16"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{}", "two documents"),
        ("{}\n---\n{}", "run: a list of at least one step"),
        ("{}\n---\n{run: []}", "run: a list of at least one step"),
        ('{"sepc": {}}\n---\n{}', 'unknown key "sepc"; did you mean "spec"'),
        ('{"spec": {"remuda": 2}}\n---\n{}', "knows version 1, not 2"),
        ('{"spec": {"inputs": {"a": 1}}}\n---\n{}', "spec.inputs: not supported yet"),
        (steps_text({"script": "x"}), r"run\[0\].name: a name"),
        (steps_text({"name": "a b", "script": "x"}), r"run\[0\].name: a name"),
        (
            steps_text({"name": "a", "script": "x"}, {"name": "a", "script": "x"}),
            r'run\[1\]: the name "a" is used twice',
        ),
        (steps_text({"name": "a", "scrip": "x"}), r'run\[0\] \(a\): unknown key "scrip"; did you mean "script"'),
        (steps_text({"name": "a"}), 'exactly one of "script" and "step"'),
        (steps_text({"name": "a", "script": "x", "step": "builtin://script"}), "exactly one of"),
        (steps_text({"name": "a", "script": "x", "inputs": {}}), '"inputs" belongs to "step"'),
        (steps_text({"name": "a", "script": ""}), "not an empty one"),
        (steps_text({"name": "a", "script": ["x"]}), "a text is needed"),
        (steps_text({"name": "a", "step": "./local"}), "only builtin:// steps"),
        (steps_text({"name": "a", "step": "builtin://scirpt"}), 'did you mean "script"'),
        (steps_text({"name": "a", "step": "builtin://script", "inputs": {"scirpt": "x"}}), 'did you mean "script"'),
        (steps_text({"name": "a", "step": "builtin://checkout", "inputs": {"a": "${{ x }}"}}), "expressions are not"),
        (steps_text({"name": "a", "script": "x", "env": {"A": "${{ x }}"}}), "expressions are not"),
        (steps_text({"name": "a", "script": "x", "env": {"A": 1.10}}), "put the value in quotes"),
        (steps_text({"name": "a", "script": "x", "env": {"A-B": "1"}}), "no name of a variable"),
        (steps_text({"name": "a", "script": "x", "timeout": 0}), "positive number"),
        (steps_text({"name": "a", "script": "x", "if": "sometimes()"}), "one of success"),
        (steps_text({"name": "a", "script": "x", "continue_on_error": "yes"}), "one of False, True"),
        (steps_text({"name": "a", "script": "x", "timeout": 5}, extended=False), '"timeout" needs {"spec"'),
        ('{}\n---\n{"run": 1, "run": 2}', 'the key "run" stands twice'),
        ("{}\n---\nrun:\n- name: a\n  name: b\n", 'steps, line 4: the key "name" stands twice'),
        ("{}\n---\nrun: [\n", "steps, line 4"),
        ("{}\n---\n" + "[" * 5000, "RecursionError"),
        ("{}\n---\n\0", "NUL"),
    ],
)
def test_what_is_wrong_is_said(text: str, error: str) -> None:
    with pytest.raises(DefinitionError, match=error):
        parse_definition(text)


def test_expressions_in_a_script_are_text() -> None:
    entry = {"name": "a", "step": "builtin://script", "inputs": {"script": ["echo ${{ x }}"]}}
    assert parse_definition(steps_text(entry)).steps[0].inputs == {"script": ["echo ${{ x }}"]}


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_read_or_refused(spec: str, definition: str) -> None:
    with contextlib.suppress(DefinitionError):
        parse_definition(f"{spec}\n---\n{definition}")
