"""Known faults of GitLab's step runner in definitions, expressions and values, which this implementation does not have.

The tests have the names of the faults.
"""

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


def test_struct_export_fails_the_step_not_the_agent() -> None:
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
