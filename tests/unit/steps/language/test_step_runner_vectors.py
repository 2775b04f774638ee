"""Test vectors of GitLab's step runner for the steps language, and its known faults, which Remuda does not have.

The ids of the tests of vectors are rows of their table; tests of faults have the names of the faults. Comments explain
where Remuda differs on purpose.
"""

from typing import Any

import pytest

from remuda.steps.errors import DefinitionError
from remuda.steps.language.checking import check_inputs, check_outputs
from remuda.steps.language.errors import CheckError, ExpressionError
from remuda.steps.language.escaping import escape
from remuda.steps.language.evaluate import Context, Sensitive, expand, expand_text, holds
from remuda.steps.language.lines import export_texts, read_lines
from remuda.steps.language.reading import read_step
from remuda.steps.language.references import parse_reference
from remuda.steps.language.values import Parameter, ReferenceKind, Retry, Spec, ValueType

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


GATE = "spec: {remuda: 1}\n---\n"


def test_unknown_nested_key_is_refused_with_position() -> None:
    text = "spec:\n  inputs:\n    a:\n      type: string\n      defualt: x\n---\nexec:\n  command: [a]\n  workdir: b\n"
    with pytest.raises(DefinitionError) as caught:
        read_step(text, file="func.yml")
    assert str(caught.value).splitlines() == [
        'func.yml:5: spec.inputs.a: unknown key "defualt"; did you mean "default"?',
        'func.yml:9: exec: unknown key "workdir"; did you mean "work_dir"?',
    ]


def test_schema_error_names_the_real_cause() -> None:
    with pytest.raises(DefinitionError) as caught:
        read_step("{}\n---\nrun:\n- name: a\n  step: ./a\n  env: {A: [1]}\n", file="step.yml")
    assert str(caught.value) == "step.yml:6: run[0] (a).env.A: a string is needed; put the value in quotes"


def test_bad_default_error_is_readable() -> None:
    with pytest.raises(DefinitionError) as caught:
        read_step("spec: {inputs: {a: {type: struct, default: [1]}}}\n---\nexec: {command: [a]}")
    assert str(caught.value) == "func.yml:1: spec.inputs.a.default: a struct is needed, not an array"


def test_both_name_sets_and_both_files_work() -> None:
    old = read_step("{}\n---\nrun: [{name: a, step: ./a, env: {A: '${{ step_dir }}', B: '${{ job.X }}'}}]")
    new = read_step("{}\n---\nrun: [{name: a, func: ./a, env: {A: '${{ func_dir }}', B: '${{ vars.X }}'}}]")
    assert old.definition.run[0].reference == new.definition.run[0].reference
    context = Context(vars={"X": "x"}, func_dir="/f")
    for step in (old, new):
        assert expand(step.definition.run[0].env, context) == {"A": "/f", "B": "x"}
    with pytest.raises(
        DefinitionError, match='exactly one of "step", "func" and "script" is needed, not step and func'
    ):
        read_step("{}\n---\nrun: [{name: a, step: ./a, func: ./a}]")


@pytest.mark.parametrize("script", ['echo {"a":{"b":1}}', "docker ps --format {{.Id}}", "}} {{ }}"])
def test_plain_closing_braces_in_script_are_text(script: str) -> None:
    assert expand_text(script, Context()) == script


def test_literal_opener_can_be_escaped() -> None:
    context = Context(env={"X": "x"})
    assert expand_text(r"\${{ env.X }} ${{ env.X }}", context) == "${{ env.X }} x"
    assert expand_text(r"""${{ "\${{ env.X }}" + '${{ }}' }}""", context) == "${{ env.X }}${{ }}"


def test_map_in_list_input_is_accepted() -> None:
    (call,) = read_step("{}\n---\nrun: [{name: a, step: ./a, inputs: {l: [{k: '${{ env.X }}'}]}}]").definition.run
    spec = Spec(inputs={"l": Parameter(type=ValueType.ARRAY)})
    assert check_inputs(spec, expand(call.inputs, Context(env={"X": "x"}))) == {"l": [{"k": "x"}]}


def test_date_input_is_text() -> None:
    (call,) = read_step("{}\n---\nrun: [{name: a, step: ./a, inputs: {d: 2024-01-02}}]").definition.run
    assert call.inputs == {"d": "2024-01-02"}


def test_text_of_values_is_not_html_escaped() -> None:
    assert expand_text("${{ inputs }}", Context(inputs={"a": "<&>"})) == '{"a":"<&>"}'


def test_input_types_are_checked() -> None:
    spec = Spec(inputs={"s": Parameter(type=ValueType.STRING), "n": Parameter(type=ValueType.NUMBER)})
    with pytest.raises(CheckError) as caught:
        check_inputs(spec, {"s": 5, "n": True})
    assert str(caught.value) == (
        'input "s": a string is needed, not a number; put it in quotes; input "n": a number is needed, not a boolean'
    )


def test_run_outputs_are_checked() -> None:
    spec = Spec(outputs={"s": Parameter(type=ValueType.STRING)})
    with pytest.raises(CheckError, match="a string is needed, not a number"):
        check_outputs(spec, {"s": 1})


@pytest.mark.parametrize(
    "text",
    [
        "{}\n---\nrun: [{script: a}]",
        "{}\n---\nrun: [{name: '', script: a}]",
        "{}\n---\nrun: [{name: 'a b', script: a}]",
        "{}\n---\nrun: [{name: null, step: ./a}]",
        GATE + "run: [{name: a, parallel: [{script: a}]}]",
        GATE + "run: [{parallel: [{name: a, script: a}]}]",
        GATE + "run: [{name: a, step: ./a, run: [{script: a}]}]",
        GATE + "run: [{name: a, script: a}]\nfinally: [{script: a}]",
        '[{"script": "a"}]',
    ],
)
def test_nameless_step_is_refused_everywhere(text: str) -> None:
    with pytest.raises(DefinitionError, match=r'"name" is missing|name: a name of letters'):
        read_step(text, bare=True)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("run: [{name: a, script: b, if: always()}]", "if"),
        ("run: [{name: a, script: b, retry: 2}]", "retry"),
        ("run: [{name: a, script: b, timeout: 5}]", "timeout"),
        ("run: [{name: a, script: b, continue_on_error: true}]", "continue_on_error"),
        ("run: [{name: a, step: ./a, run: [{name: b, script: c}]}]", "run"),
        ("run: [{name: a, script: x}, {name: b, script: x, parallel: []}]", "parallel"),
        ("run: [{name: a, script: b}]\nfinally: [{name: c, script: d}]", "finally"),
        ("exec: {command: [a]}\nenvironment: {open: {command: [a]}}", "environment"),
    ],
)
def test_extension_keys_need_the_version_gate(text: str, key: str) -> None:
    with pytest.raises(DefinitionError, match=f'"{key}" is an extension and needs "spec: {{remuda: 1}}"'):
        read_step(f"spec:\n---\n{text}")
    read_step(f"spec:\n---\n{text}", lenient=True)


@pytest.mark.parametrize("origin", ["compiled", "inserted"])
def test_a_package_cannot_set_the_origin_of_a_step(origin: str) -> None:
    """A policy trusts the steps that it inserts."""
    text = f"spec: {{remuda: 1}}\n---\nrun: [{{name: a, script: b, origin: {origin}}}]"
    with pytest.raises(DefinitionError, match="origin"):
        read_step(text)
    if origin == "inserted":
        with pytest.raises(DefinitionError, match="one of user, compiled"):
            read_step(text, job=True)
    else:
        assert read_step(text, job=True).definition.run[0].origin == origin


def test_version_of_the_package_needs_the_version_gate() -> None:
    with pytest.raises(DefinitionError, match='"version" is an extension'):
        read_step("spec: {version: 1.0.0}\n---\nexec: {command: [a]}")
    assert read_step("spec: {version: 1.0.0, remuda: 1}\n---\nexec: {command: [a]}").spec.version == "1.0.0"


def test_control_flow_exists_from_the_start() -> None:
    step = read_step(
        GATE
        + """
run:
- {name: a, script: x, if: '${{ inputs.deploy }}', retry: {times: 2, delay: 1m}, timeout: 1h30m}
- name: group
  parallel:
  - {name: b, script: x, continue_on_error: true}
  - {name: c, script: x, retry: 3}
finally:
- {name: d, script: x}
- {name: e, script: x, if: failure()}
"""
    )
    a, group, d, e = step.definition.run
    assert (a.condition, a.retry, a.timeout_seconds) == ("inputs.deploy", Retry(times=2, delay_seconds=60), 5400)
    assert (group.reference, [call.name for call in group.parallel]) == (None, ["b", "c"])
    assert (d.condition, e.condition) == ("always()", "always() && (failure())")
    success, failure = Context(inputs={"deploy": True}), Context(inputs={"deploy": True}, failed=True)
    assert [holds(call.condition, success) for call in (a, group, d, e)] == [True, True, True, False]
    assert [holds(call.condition, failure) for call in (a, group, d, e)] == [False, False, True, True]


def test_undeclared_job_inputs_leave_dollar_braces_alone() -> None:
    """The texts of a classic job are escaped, so that they contain no expressions."""
    script = {"script": ["echo ${{ job.inputs.x }}", r"\${{ a"], "${{ k": 1}
    assert expand(escape(script), Context()) == script


def test_git_dir_cannot_leave_the_repository() -> None:
    for written in (
        {"git": {"url": "example.com/a", "rev": "v1", "dir": "a/../../b"}},
        {"git": {"url": "example.com/a", "rev": "v1", "dir": "a", "file": "../step.yml"}},
        {"oci": {"registry": "example.com", "repository": "a", "tag": "1", "dir": ".."}},
        "example.com/a/-/../../b@v1",
        "example.com/a:1 ../b/func.yml",
    ):
        with pytest.raises(DefinitionError, match=r"leaves the package|a name without a folder"):
            parse_reference(written, "here")


def test_branch_with_slash_works() -> None:
    reference = parse_reference("example.com/a@feature/x", "here")
    assert (reference.url, reference.version) == ("https://example.com/a", "feature/x")


def test_host_without_dot_and_path_ending_v1_work() -> None:
    reference = parse_reference("http://host:8080/group/v1@main", "here")
    assert (reference.kind, reference.url) == (ReferenceKind.GIT, "http://host:8080/group/v1")


def test_export_names_are_checked() -> None:
    with pytest.raises(CheckError, match='export "a=b" is not a variable name'):
        export_texts({"a=b": "x"})


def test_struct_export_fails_step_not_the_agent() -> None:
    with pytest.raises(CheckError, match="not struct"):
        export_texts(read_lines(b'{"name": "A", "value": {"b": 1}}'))


def test_output_line_above_64_KiB_is_read() -> None:  # noqa: N802 - the name of the fault
    assert len(read_lines(b'{"name":"a","value":"%s"}' % (b"x" * 1_000_000))["a"]) == 1_000_000


def test_sensitive_value_into_plain_input_is_refused() -> None:
    spec = Spec(
        inputs={
            "open": Parameter(type=ValueType.STRING),
            "secret": Parameter(type=ValueType.STRING, sensitive=True),
            "deep": Parameter(type=ValueType.STRUCT),
        }
    )
    context = Context(inputs={"password": Sensitive("hunter2")})
    text = expand("login ${{ inputs.password }}", context)
    with pytest.raises(CheckError) as caught:
        check_inputs(spec, {"open": text, "secret": text, "deep": {"list": [text]}})
    assert 'input "open" is given a sensitive value' in str(caught.value)
    assert 'input "deep" is given a sensitive value' in str(caught.value)
    assert "hunter2" not in str(caught.value)
    checked = check_inputs(spec, {"open": "x", "secret": text, "deep": {}})
    assert checked == {"open": "x", "secret": Sensitive("login hunter2"), "deep": {}}


def test_error_texts_hold_no_secrets() -> None:
    context = Context(inputs={"password": Sensitive({"hunter2": 1})})
    for expression in (
        "inputs.password.x",
        "1 + inputs.password",
        "num(str(inputs.password))",
        "{a: 1}[str(inputs.password)]",
    ):
        with pytest.raises(ExpressionError) as caught:
            expand(f"${{{{ {expression} }}}}", context)
        assert "hunter2" not in str(caught.value)
