"""Test vectors of GitLab's step runner for the steps language. The ids of the tests are rows of the table of vectors.

Comments explain where Remuda differs on purpose.
"""

from typing import Any

import pytest

from remuda.steps.errors import DefinitionError
from remuda.steps.language.checking import check_inputs, check_outputs
from remuda.steps.language.errors import CheckError, ExpressionError
from remuda.steps.language.evaluate import Context, expand
from remuda.steps.language.lines import export_texts, read_lines
from remuda.steps.language.reading import read_step
from remuda.steps.language.references import parse_reference
from remuda.steps.language.values import ReferenceKind, Spec

OUTPUTS = {
    "n": 1.50,
    "b": True,
    "a": [1, "x", None],
    "s": {"k": 1, "dash-key": "v"},
    "html": ["a<b&c>d", "é"],
}
CONTEXT = Context(
    env={"X": "value", "TEXT": "${{ env.X }}"},
    inputs={"i": 1},
    vars={"V": "var"},
    steps={"o": {"outputs": OUTPUTS}},
    func_dir="/func",
    work_dir="/work",
    output_file="/out",
    export_file="/export",
    input_file="/inputs",
)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        pytest.param("${{ steps.o.outputs.n }}", 1.5, id="1-whole"),
        pytest.param("n=${{ steps.o.outputs.n }}", "n=1.5", id="1-text"),
        pytest.param("-${{ steps.o.outputs.b }}", "-true", id="2-boolean"),
        pytest.param("-${{ steps.o.outputs.a }}", '-[1,"x",null]', id="2-array"),
        pytest.param("-${{ steps.o.outputs.s }}", '-{"dash-key":"v","k":1}', id="2-struct"),
        pytest.param("${{ steps.o.outputs.s.dash-key }}", "v", id="2-path"),
        # The step runner escapes HTML characters, which is a fault.
        pytest.param("-${{ steps.o.outputs.html }}", '-["a<b&c>d","é"]', id="3"),
        # In the newer language, context objects are values.
        pytest.param("${{ vars }}", {"V": "var"}, id="6-vars"),
        pytest.param("${{ job }}", {"V": "var"}, id="6-job"),
        pytest.param("${{ inputs }}", {"i": 1}, id="6-inputs"),
        pytest.param("${{ steps.o.outputs }}", OUTPUTS, id="6-outputs"),
        pytest.param("${{ steps }}", {"o": {"outputs": OUTPUTS}}, id="6-steps"),
        # This is text, so that JSON and templates of other programs can be written.
        pytest.param("a }} b", "a }} b", id="7-lone-closer"),
        pytest.param("$${{ env.X }}", "$value", id="8-dollar"),
        # The escape of the newer language.
        pytest.param("\\${{ env.X }}", "${{ env.X }}", id="8-backslash"),
        # The newer language has all of these.
        pytest.param("${{ 'quoted' }}", "quoted", id="9-quoted"),
        pytest.param("${{ 1 }}", 1, id="9-number"),
        pytest.param("${{ 1 == 1 }}", True, id="9-comparison"),
        pytest.param("${{ str(inputs.i) }}", "1", id="9-function"),
        pytest.param("${{ steps.o.outputs.a[1] }}", "x", id="9-brackets"),
        pytest.param("${{ vars.V }}", "var", id="9-vars"),
        pytest.param("${{ func_dir }} ${{ step_dir }}", "/func /func", id="9-func_dir"),
        pytest.param("${{ env.TEXT }}", "${{ env.X }}", id="values-are-expanded-once"),
    ],
)
def test_value_of_an_expression(written: str, value: Any) -> None:
    assert expand(written, CONTEXT) == value


@pytest.mark.parametrize(
    ("written", "error"),
    [
        pytest.param(
            "${{ steps.o.outputs.a.0 }}", r'at "\.0": only an object has attributes, .* an array', id="4-array"
        ),
        pytest.param("${{ env.X.x }}", r'at "\.x": only an object has attributes, .* a string', id="4-string"),
        pytest.param("${{ env.NOPE }}", r'failed at "\.NOPE": attribute not found', id="5-env"),
        pytest.param("${{ job.NOPE }}", r'failed at "\.NOPE": attribute not found', id="5-job"),
        pytest.param("${{ steps.missing.outputs.x }}", r'failed at "\.missing": attribute not found', id="5-steps"),
        pytest.param("${{ nope }}", 'failed at "nope": attribute not found', id="5-name"),
        pytest.param("${{ }}", 'unexpected "}"', id="5-nothing"),
        pytest.param("${{ env.X", r'the expression "\$\{\{ env\.X" is not closed: \$\{\{ \.\.\. \}\}', id="7-unclosed"),
        pytest.param("${{ env.${{ env.X }} }}", r'unexpected "\$"', id="7-opener-inside"),
        pytest.param("${{ ENV.X }}", 'failed at "ENV": attribute not found', id="9-case"),
        pytest.param("${{ steps.o.status }}", r'failed at "\.status": attribute not found', id="9-status"),
    ],
)
def test_errors_of_expressions(written: str, error: str) -> None:
    with pytest.raises(ExpressionError, match=error):
        expand(written, CONTEXT)


def test_row_10_defaults_are_used_as_they_are_written() -> None:
    spec = read_spec(
        'a: {type: string, default: "${{ env.X }}"}, b: {type: string, default: ""}, '
        "c: {type: boolean, default: false}, d: {type: number, default: 0}, e: {type: array, default: []}"
    )
    assert check_inputs(spec, {}) == {"a": "${{ env.X }}", "b": "", "c": False, "d": 0, "e": []}


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        pytest.param("string", 5, id="11-string-5"),
        pytest.param("string", None, id="11-string-null"),
        pytest.param("number", "five", id="11-number"),
        pytest.param("struct", [], id="11-struct"),
    ],
)
def test_row_11_types_are_checked(declared: str, value: Any) -> None:
    """The step runner accepts all of them."""
    with pytest.raises(CheckError, match=f'input "v": a {declared} is needed'):
        check_inputs(read_spec(f"v: {{type: {declared}}}"), {"v": value})


@pytest.mark.parametrize(
    ("written", "text"),
    [
        pytest.param("123456789012345678", "123456789012345680", id="12-large"),
        pytest.param("1e21", "1e+21", id="12-exponent"),
        pytest.param("1e-7", "1e-7", id="12-small"),
        pytest.param("0x10", "16", id="12-hex"),
        pytest.param("1_000", "1000", id="12-underscore"),
        pytest.param("2.0", "2", id="12-whole"),
        pytest.param("1.50", "1.5", id="12-zero"),
    ],
)
def test_row_12_numbers(written: str, text: str) -> None:
    value = read_input(written)
    assert expand("-${{ inputs.v }}", Context(inputs={"v": value})) == f"-{text}"


def test_row_12_infinity_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r'func\.yml:\d+: "\.inf" is not a number'):
        read_input(".inf")


def test_row_13_map_in_a_list_and_date() -> None:
    """The step runner refuses both on load."""
    assert read_input("[{a: 1}]") == [{"a": 1}]
    assert read_input("2024-01-02") == "2024-01-02"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param("spec: {}\nmore: 1\n---\nexec: {command: [a]}", "more", id="14-spec-root"),
        # The step runner refuses unknown keys only at the root of the spec document; Remuda refuses all of these.
        pytest.param("spec: {more: 1}\n---\nexec: {command: [a]}", "more", id="14-spec"),
        pytest.param("spec: {inputs: {a: {type: string, more: 1}}}\n---\nexec: {command: [a]}", "more", id="14-input"),
        pytest.param("{}\n---\nexec: {command: [a]}\nmore: 1", "more", id="14-definition"),
        pytest.param("{}\n---\nexec: {command: [a], more: 1}", "more", id="14-exec"),
        pytest.param("{}\n---\nrun: [{name: a, script: b, more: 1}]", "more", id="14-entry"),
        pytest.param("{}\n---\nrun: [{name: a, step: {git: {url: a, rev: b, more: 1}}}]", "more", id="14-git"),
    ],
)
def test_row_14_unknown_keys(text: str, key: str) -> None:
    with pytest.raises(DefinitionError, match=rf'^func\.yml:\d+: .*unknown key "{key}"'):
        read_step(text)
    read_step(text, lenient=True)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("exec: {command: [a]}", "two documents", id="15-one"),
        pytest.param("{}\n---\nexec: {command: [a]}\nexec: {command: [a]}", '"exec" appears twice', id="15-duplicate"),
        pytest.param("{}\n---\nrun: []", "a list of at least one step", id="15-empty-run"),
        pytest.param("{}\n---\nexec: {command: [a]}\nrun: [{name: a, script: b}]", "exactly one", id="16-both"),
        pytest.param("{}\n---\nenv: {}", "exactly one", id="16-neither"),
        pytest.param("{}\n---\nexec: {command: [a]}\nname: b", 'unknown key "name"', id="16-name"),
        pytest.param("{}\n---\nexec: {command: [a]}\ninputs: {}", 'unknown key "inputs"', id="16-inputs"),
        pytest.param("{}\n---\nexec: {command: [a]}\noutputs: {}", '"outputs" belongs to "run"', id="16-outputs"),
        pytest.param(
            "{}\n---\nrun: [{name: a, script: b}]\ndelegate: c", 'there is no step "c" in "run"', id="27-no-step"
        ),
        pytest.param(
            "spec: {outputs: delegate}\n---\nrun: [{name: a, script: b}]", 'must name a step of "run"', id="27-no-key"
        ),
        pytest.param("{}\n---\nrun: [{name: a, step: sub}]", 'expecting url@rev. got "sub"', id="29-sub"),
    ],
)
def test_definitions_are_refused_on_load(text: str, error: str) -> None:
    with pytest.raises(DefinitionError, match=error):
        read_step(text)


def test_row_15_later_documents_are_ignored() -> None:
    assert read_step("{}\n---\nexec: {command: [a]}\n---\n}}} broken").definition.exec


def test_row_16_the_old_type_beside_exec() -> None:
    assert read_step("{}\n---\ntype: exec\nexec: {command: [a]}").definition.exec


def test_row_17_scalars_as_texts() -> None:
    step = read_step("{}\n---\nexec: {command: [echo, 5, true, null, 1.10]}\nenv: {A: 5, C: 1.10, D: null, E: True}")
    assert step.definition.exec
    assert step.definition.exec.command == ("echo", "5", "true", "", "1.10")
    assert step.definition.env == {"A": "5", "C": "1.10", "D": "", "E": "True"}


def test_row_20_script_with_closing_braces() -> None:
    """The step runner fails to load it."""
    text = """{}\n---\nrun: [{name: a, script: 'echo {"a":{"b":1}}'}]"""
    (call,) = read_step(text).definition.run
    assert expand(call.inputs, CONTEXT) == {"script": 'echo {"a":{"b":1}}'}


def test_row_21_the_last_duplicate_wins_and_case_and_other_keys_are_ignored() -> None:
    data = b'{"name":"a","value":1}\n{"Name":"a","VALUE":2,"more":3}\n\n'
    assert read_lines(data) == {"a": 2}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        pytest.param(b'{"name":"b","value":1}', 'output "b" is not declared', id="21-undeclared"),
        pytest.param(b'{"name":"a","value":"x"}', "a number is needed", id="21-type"),
        pytest.param(b'{"name":"a","value":null}', 'line 1: "value" of "a" is missing or null', id="21-null"),
        pytest.param(b'{"name":"a","value":1}{"name":"a","value":1}', "line 1: one JSON object", id="21-two"),
    ],
)
def test_row_21_mistakes(line: bytes, error: str) -> None:
    spec = read_step("spec: {outputs: {a: {type: number}}}\n---\nexec: {command: [a]}").spec
    with pytest.raises(CheckError, match=error):
        check_outputs(spec, read_lines(line))


def test_row_22_a_long_line() -> None:
    """The step runner drops the line without a message."""
    assert read_lines(b'{"name":"a","value":"%s"}' % (b"x" * 70_000)) == {"a": "x" * 70_000}


def test_row_24_exports() -> None:
    with pytest.raises(CheckError, match='export "a": a string, number or boolean is needed, not struct'):
        export_texts({"a": {}})
    assert export_texts(read_lines(b'{"name":"a","value":1.5e24}')) == {"a": "1500000000000000000000000"}


def test_row_26_outputs_of_a_run_are_checked() -> None:
    """The step runner does not check them."""
    declared = "spec: {outputs: {a: {type: number}, b: {type: string}}}"
    spec = read_step(f"{declared}\n---\nrun: [{{name: a, script: b}}]\noutputs: {{a: x, c: 1}}")
    with pytest.raises(CheckError) as caught:
        check_outputs(spec.spec, expand(spec.definition.outputs, CONTEXT))
    assert str(caught.value) == (
        'output "c" is not declared in the spec; output "a": a number is needed, not a string; '
        'output "b" was not written and has no default'
    )


def test_row_27_a_delegate_without_delegated_outputs_in_the_spec_has_no_effect() -> None:
    step = read_step("{}\n---\nrun: [{name: a, script: b}]\ndelegate: a")
    assert (step.spec.delegates_outputs, step.definition.delegate) == (False, "a")


def test_row_28_only_steps_of_the_same_list_are_known() -> None:
    with pytest.raises(ExpressionError, match=r'at "\.later": attribute not found'):
        expand("${{ steps.later.outputs.x }}", CONTEXT)


@pytest.mark.parametrize(
    ("text", "path", "file"),
    [
        pytest.param("./a.yml", ".", "a.yml", id="29-yml"),
        pytest.param("./a.yaml", "./a.yaml", "", id="29-yaml-is-a-folder"),
        pytest.param("/abs", "/abs", "", id="29-absolute"),
    ],
)
def test_row_29_local_references(text: str, path: str, file: str) -> None:
    reference = parse_reference(text, "here")
    assert (reference.kind, reference.path, reference.file) == (ReferenceKind.LOCAL, path, file)


def test_row_32_a_dynamic_reference_is_parsed_again_after_its_evaluation() -> None:
    """The engine uses the caller's folder for the expanded reference; the step runner uses the agent's folder."""
    dynamic = parse_reference("./${{ inputs.i }}", "here")
    assert dynamic.kind is ReferenceKind.DYNAMIC
    assert parse_reference(expand(dynamic.text, CONTEXT), "here").path == "./1"


def read_spec(inputs: str) -> Spec:
    return read_step(f"spec: {{inputs: {{{inputs}}}}}\n---\nexec: {{command: [a]}}").spec


def read_input(written: str) -> Any:
    (call,) = read_step(f"{{}}\n---\nrun:\n- name: a\n  step: ./a\n  inputs:\n    v: {written}\n").definition.run
    return call.inputs["v"]
