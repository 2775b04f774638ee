import contextlib
import json
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.errors import DefinitionError
from remuda.steps.language.reading import read_step
from remuda.steps.language.values import (
    MISSING,
    Call,
    EnvironmentDefinition,
    Exec,
    Parameter,
    Place,
    ReferenceKind,
    ValueType,
)

GATE = "spec: {remuda: 1}\n---\n"
EXEC = "\n---\nexec: {command: [a]}"


def read_entry(text: str) -> Call:
    (call,) = read_step(GATE + f"run: [{{name: a, {text}}}]").definition.run
    return call


def test_a_complete_file_is_read() -> None:
    step = read_step(
        """\
# a comment
spec:
  inputs:
    who: {type: string, default: you, description: "whom to greet"}
    password:
      type: string
      sensitive: true
    empty: {type: number, default: null}
  outputs:
    said: {type: string}
---
env:
  GREETING: hello
run:
  - name: greet
    step: ./greet
    inputs: {who: "${{ inputs.who }}", "${{ env.KEY }}": [1, {a: null}]}
    env: {A: 1.10}
  - name: say
    script: |
      echo hi
outputs:
  said: ${{ steps.greet.outputs.said }}
"""
    )
    assert step.spec.inputs == {
        "who": Parameter(type=ValueType.STRING, default="you", description="whom to greet"),
        "password": Parameter(type=ValueType.STRING, sensitive=True),
        "empty": Parameter(type=ValueType.NUMBER, default=MISSING),
    }
    assert step.spec.outputs == {"said": Parameter(type=ValueType.STRING)}
    greet, say = step.definition.run
    assert greet.place == Place(file="func.yml", line=15)
    assert greet.inputs == {"who": "${{ inputs.who }}", "${{ env.KEY }}": [1, {"a": None}]}
    assert greet.env == {"A": "1.10"}
    assert say.reference
    assert (say.reference.kind, say.reference.path) == (ReferenceKind.BUILTIN, "script")
    assert say.inputs == {"script": "echo hi\n"}
    assert step.definition.env == {"GREETING": "hello"}
    assert step.definition.outputs == {"said": "${{ steps.greet.outputs.said }}"}


@pytest.mark.parametrize("spec", ["", "{}", "spec:", "spec: {}", '{"spec": null}', "---", "# nothing"])
def test_forms_of_an_empty_spec(spec: str) -> None:
    step = read_step(spec + EXEC)
    assert (step.spec.inputs, step.spec.outputs, step.spec.remuda) == ({}, {}, None)


def test_json_is_read_like_yaml_without_importing_yaml() -> None:
    entries = [{"name": "a", "script": "x", "env": {"A": 1.5, "B": True, "C": None}, "if": "always()", "timeout": 5}]
    text = f'{{"spec": {{"remuda": 1}}}}\n---\n{json.dumps({"run": entries})}\n'
    assert read_step(text) == read_step(text.replace('"run"', "run"))
    (call,) = read_step(text).definition.run
    assert call.env == {"A": "1.5", "B": "true", "C": ""}
    program = (
        "import sys; from remuda.steps.language.reading import read_step; "
        f"read_step({text!r}); sys.exit('yaml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('[{"name": "a", "script": "x"}]', ["a"]),
        ("run: [{name: a, script: x}, {name: b, step: ./b}]", ["a", "b"]),
        ("---\nrun: [{name: a, script: x}]", ["a"]),
        ('{"run": [{"name": "a", "script": "x"}]}', ["a"]),
        ("- {name: a, script: x}", ["a"]),
        ("spec: {}\n---\nrun: [{name: a, script: x}]", ["a"]),
    ],
)
def test_a_job_document_without_spec(text: str, names: list[str]) -> None:
    assert [call.name for call in read_step(text, bare=True).definition.run] == names


def test_a_document_without_spec_has_no_extensions() -> None:
    with pytest.raises(DefinitionError, match='"if" is an extension'):
        read_step('[{"name": "a", "script": "x", "if": "always()"}]', bare=True)
    for text in ("spec: {}", "", "text", "5"):
        with pytest.raises(DefinitionError, match="two documents"):
            read_step(text, bare=True)


def test_delegation_is_read() -> None:
    step = read_step("spec: {outputs: delegate}\n---\nrun: [{name: a, script: x}]\ndelegate: a")
    assert (step.spec.delegates_outputs, step.definition.delegate) == (True, "a")
    assert read_step("spec: {outputs: delegate}" + EXEC).spec.delegates_outputs


def test_an_environment_is_read() -> None:
    step = read_step(GATE + "environment: {open: {command: [up]}, close: {command: [down], work_dir: /}}\nenv: {A: b}")
    assert step.definition.environment == EnvironmentDefinition(
        open=Exec(command=("up",)), close=Exec(command=("down",), work_dir="/")
    )
    call = read_entry("step: ./environment, run: [{name: b, script: x}]")
    assert [inner.name for inner in call.inner] == ["b"]


@pytest.mark.parametrize(
    ("written", "seconds"), [("5", 5), ("2.5", 2.5), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("1h 5s", 3605)]
)
def test_durations_are_parsed(written: str, seconds: float) -> None:
    assert read_entry(f"script: x, timeout: {written}").timeout_seconds == seconds


@pytest.mark.parametrize(
    ("written", "condition"),
    [
        ("always()", "always()"),
        ("'${{ failure() }}'", "failure()"),
        ("true", "true"),
        ("'inputs.a == \"x\"'", 'inputs.a == "x"'),
        ('"${{ {a: {b: 1}}.a }}"', "{a: {b: 1}}.a"),
    ],
)
def test_conditions_are_read(written: str, condition: str) -> None:
    assert read_entry(f"script: x, if: {written}").condition == condition


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("spec: 5" + EXEC, "spec: a mapping of names"),
        ("[]" + EXEC, "spec document: a mapping of names"),
        ("spec: {inputs: {a: string}}" + EXEC, r"spec\.inputs\.a: a mapping of names"),
        ("spec: {inputs: {a: {}}}" + EXEC, r'spec\.inputs\.a: "type" is missing; one of string, number'),
        ("spec: {inputs: {a: {type: text}}}" + EXEC, r'a\.type: one of string, .* is needed, not "text"'),
        ("spec: {inputs: {a-b: {type: string}}}" + EXEC, '"a-b" is not a name'),
        ("spec: {inputs: {a: {type: string, sensitive: yes}}}" + EXEC, "sensitive: true or false"),
        ("spec: {inputs: {a: {type: string, description: [1]}}}" + EXEC, "description: a string is needed"),
        ("spec: {outputs: other}" + EXEC, r"spec\.outputs: a mapping, or the word delegate"),
        ("spec: {remuda: 2}" + EXEC, "knows version 1, not 2; use a newer agent"),
        ("spec: {remuda: true}" + EXEC, "knows version 1"),
        ("spec: {remuda: 1, version: new}" + EXEC, "a version like 1.2.3"),
        ("{}\n---\n5", "definition: a mapping of names"),
        ("{}\n---\nsteps: []", 'unknown key "steps"; did you mean "run"'),
        ("{}\n---\nrun: {}", "run: a list of at least one step"),
        ("{}\n---\nrun: [5]", r"run\[0\]: a mapping of names"),
        ("{}\n---\nrun: [{name: a}]", 'exactly one of "step", "func" and "script" is needed'),
        ("{}\n---\nrun: [{name: a, script: x, step: ./a}]", "not step and script"),
        ("{}\n---\nrun: [{name: a, script: x, inputs: {}}]", '"inputs" belongs to "step"'),
        ("{}\n---\nrun: [{name: a, script: ''}]", "script: a string is needed, and not an empty one"),
        ("{}\n---\nrun: [{name: a, script: [x]}]", "script: a string is needed"),
        ("{}\n---\nrun: [{name: a, action: x@v1}]", '"action" was removed'),
        ("{}\n---\nrun: [{name: a, exec: {command: [x]}, script: x}]", 'unknown key "exec"'),
        ("{}\n---\nrun: [{name: a, step: 5}]", "step: a string like ./folder"),
        ("{}\n---\nrun: [{name: a, step: {git: {url: a}}}]", '"git" needs "rev"'),
        ("{}\n---\nrun: [{name: a, step: {git: {url: [a], rev: b}}}]", r"step\.git\.url: a string is needed"),
        ("{}\n---\nrun: [{name: a, step: {gti: {}}}]", 'unknown key "gti"; did you mean "git"'),
        ("{}\n---\nrun: [{name: a, step: ./a, inputs: []}]", "inputs: a mapping of names"),
        ("{}\n---\nrun: [{name: a, step: ./a, inputs: {a-b: 1}}]", '"a-b" is not a name'),
        ("{}\n---\nrun: [{name: a, step: ./a, inputs: {b: [{c: '${{'}]}}]", r"inputs\.b\[0\]\.c: the .* is not closed"),
        ("{}\n---\nrun: [{name: a, script: '${{ len(1) }}'}]", 'no function "len" here'),
        ("{}\n---\nexec: {command: echo}", r"exec\.command: a list like"),
        ("{}\n---\nexec: {command: []}", "at least one item"),
        ("{}\n---\nexec: {command: [[a]]}", r"command\[0\]: a string is needed"),
        ("{}\n---\nexec: {command: [a], work_dir: 5}", "work_dir: a string is needed"),
        ("{}\n---\nexec: {}", r"exec\.command: a list like"),
        ("{}\n---\nexec: {command: [a]}\ntype: steps", 'type: "steps" does not fit "exec"'),
        ("spec: {outputs: delegate}\n---\nrun: [{name: a, script: x}]\ndelegate: a\noutputs: {b: 1}", "nothing would"),
        (GATE + "run: [{name: a, script: x, if: 'a +'}]", r"if: cannot read the expression"),
        (GATE + "run: [{name: a, script: x, if: 5}]", r"if: an expression is needed"),
        (GATE + "run: [{name: a, script: x, if: whenever()}]", 'no function "whenever"'),
        (GATE + "run: [{name: a, script: x, retry: -1}]", "a whole number from 0 to 100"),
        (GATE + "run: [{name: a, script: x, retry: 1.5}]", "a whole number"),
        (GATE + "run: [{name: a, script: x, retry: {delay: 5}}]", '"times" is missing'),
        (GATE + "run: [{name: a, script: x, retry: {times: 1, dealy: 5}}]", 'did you mean "delay"'),
        (GATE + "run: [{name: a, script: x, timeout: 0}]", "seconds above 0"),
        (GATE + "run: [{name: a, script: x, timeout: soon}]", "seconds above 0"),
        (GATE + "run: [{name: a, script: x, timeout: 99999h}]", "seconds above 0"),
        (GATE + "run: [{name: a, script: x, continue_on_error: 1}]", "true or false"),
        (GATE + "run: [{name: a, script: x, origin: me}]", "origin"),
        (GATE + "run: [{name: a, script: x, when: x}]", 'did you mean "if"'),
        (GATE + "run: [{name: a, script: x, run: [{name: b, script: x}]}]", '"run" belongs to "step"'),
        (GATE + "run: [{name: a, parallel: []}]", "a list of at least one step"),
        (GATE + "run: [{name: a, script: x, parallel: [{name: b, script: x}]}]", 'and "parallel" exclude each other'),
        (GATE + "exec: {command: [a]}\nfinally: [{name: a, script: x}]", '"finally" belongs to "run"'),
        (GATE + "environment: {close: {command: [a]}}", '"open" is missing'),
        (GATE + "run: " + "[{name: a, parallel: " * 30 + "[]" + "}]" * 30, "20 levels of nested lists of steps"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_with_file_and_path(text: str, error: str) -> None:
    with pytest.raises(DefinitionError, match=error) as caught:
        read_step(text, file="dir/step.yml")
    assert all(line.startswith("dir/step.yml:") for line in str(caught.value).splitlines())


def test_all_mistakes_are_reported_in_the_order_of_the_file() -> None:
    text = "spec:\n  inputs: {a: {}}\n---\nrun:\n- nmae: a\n  script: x\n- name: b\n  step: nowhere\nmore: 1\n"
    with pytest.raises(DefinitionError) as caught:
        read_step(text)
    lines = [line.split(": ")[0] for line in str(caught.value).splitlines()]
    assert lines == ["func.yml:2", "func.yml:5", "func.yml:5", "func.yml:8", "func.yml:9"]


def test_the_number_of_reported_mistakes_is_limited() -> None:
    with pytest.raises(DefinitionError) as caught:
        read_step("{}\n---\nrun: [{name: a, script: x}]\n" + "".join(f"k{n}: 1\n" for n in range(100)))
    assert len(str(caught.value).splitlines()) == 20


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("name", "step", "x")), inner),
    max_leaves=6,
)
KEYS = (
    "spec inputs outputs remuda version exec run environment open close command work_dir delegate env finally name "
    "step func script action if retry timeout continue_on_error origin parallel type default git url rev oci"
)
keys = st.sampled_from(re.findall(r"\w+", KEYS))
definitions: st.SearchStrategy[Any] = st.recursive(
    json_values | st.sampled_from(["a", "./a", "${{ a }}", "always()", "delegate", 1]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@given(definitions, definitions, st.booleans(), st.booleans())
def test_any_documents_are_read_or_refused(first: Any, second: Any, lenient: bool, bare: bool) -> None:
    text = f"{json.dumps({'spec': first})}\n---\n{json.dumps(second)}"
    with contextlib.suppress(DefinitionError):
        read_step(text, lenient=lenient, bare=bare)
    with contextlib.suppress(DefinitionError):
        read_step(f"spec: {{remuda: 1}}\n---\nrun:\n- {json.dumps(second)}\n", lenient=lenient)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for document in (text, f"{{}}\n---\n{text}", f"{{}}\n---\nexec: {{command: [{text}]}}"):
        with contextlib.suppress(DefinitionError):
            read_step(document, bare=True)
