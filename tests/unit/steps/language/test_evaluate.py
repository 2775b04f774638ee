"""Values of expressions, marks of sensitive values, and limits of the work that an expression may cause."""

import contextlib
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.language import operations
from remuda.steps.language.errors import ExpressionError
from remuda.steps.language.evaluate import (
    Context,
    Sensitive,
    conceal,
    expand,
    expand_env,
    expand_text,
    holds,
    is_sensitive,
    reveal,
    runs_after_failure,
)

CONTEXT = Context(
    env={"HOME": "/root", "EMPTY": ""},
    inputs={
        "n": 3,
        "list": [1, "two", {"k": None}],
        "struct": {"a": {"b": "c"}, "x-y": 1, "type": "t"},
        "secret": Sensitive("hunter2"),
        "pair": Sensitive({"user": "u", "password": "p"}),
        "mixed": {"open": 1, "secret": Sensitive("s")},
    },
    steps={"one": {"outputs": {"v": 1}}},
)


def evaluate(expression: str) -> Any:
    return expand(f"${{{{ {expression} }}}}", CONTEXT)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        # literals
        ("null", None),
        ("[1, 'a', [true]]", [1, "a", [True]]),
        ("{a: 1, 'b-c': {}, (str(1)): 2}", {"a": 1, "b-c": {}, "1": 2}),
        # access
        ("inputs.list[2].k", None),
        ("inputs.list[1 - 1]", 1),
        ("inputs.struct['x-y']", 1),
        ("inputs.struct.x-y", 1),
        ("inputs.struct.type", "t"),
        ("inputs['struct']['a'].b", "c"),
        ("{a: [5]}.a[0]", 5),
        ("steps.one", {"outputs": {"v": 1}}),
        # arithmetic
        ("1 + 2 * 3 - 4 / 8", 6.5),
        ("7 % 4", 3),
        ("-7 % 4", -3),
        ("5.5 % 2", 1.5),
        ("0.1 + 0.2", 0.30000000000000004),
        ("9007199254740993 + 0", 9007199254740992),
        ("'a' + \"b\"", "ab"),
        ("+3 - -3", 6),
        # truth
        ("!0 && !'' && !null && ![] && !{}", True),
        ("0 || '' || 'x'", "x"),
        ("1 && 'y'", "y"),
        ("0 && nope.x", 0),
        ("1 || nope.x", 1),
        ("env.NOPE || 'x'", "x"),
        ("inputs.list[7] || 'x'", "x"),
        ("inputs.struct.q.r || 'x'", "x"),
        ("env.NOPE || env.NEITHER || 'x'", "x"),
        ("(env.NOPE || env.EMPTY) || 'x'", "x"),
        # comparison
        ("1 == 1.0", True),
        ("1 == '1'", False),
        ("1 != true", True),
        ("null == false", False),
        ("false < true", True),
        ("null < false && true < 0 && 9 < '' && 'z' < [] && [9] < {}", True),
        ("'a' < 'b' && 'Z' < 'a' && 'z' < 'é' && '\uffff' < '\U00010000'", True),
        ("[1, 2] < [1, 3] && [1] < [1, 0] && [] < [0]", True),
        ("{a: 1} < {b: 0} && {z: 1} < {a: 1, b: 1} && {a: 1} < {a: 2}", True),
        ("{a: 1, b: 2} == {b: 2, a: 1}", True),
        ("[1, [2]] == [1, [2]]", True),
        ("2 <= 2 && 2 >= 2 && !(2 > 2) && !(2 < 2)", True),
        # functions
        ("str(null)", "<null>"),
        ("str(1.50) + str(true) + str('x') + str([1, null])", "1.5truex[1,null]"),
        ("num('3.14') + num(' -1e2 ')", -96.86),
        ("num(5)", 5),
        ("bool('') || bool([0])", True),
        # templates in texts
        ("\"a ${{ inputs.n + 1 }} b ${{ '${{ x }}' }}\"", "a 4 b ${{ x }}"),
        ('"${{ inputs.n }}"', "3"),
        ('"${{ "${{ inputs.n }}" + "!" }}"', "3!"),
    ],
)
def test_values_of_expressions(expression: str, value: Any) -> None:
    result = evaluate(expression)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("1 + 'a'", 'at "\\+": two numbers or two strings are needed, not number and string'),
        ("'a' - 'b'", 'at "-": two numbers are needed'),
        ("1 / 0", "division by zero"),
        ("1 % 0", "division by zero"),
        ("1e308 * 10", "out of range"),
        ("-'a'", 'at "-": a number is needed, not a string'),
        ("num('x')", "not a number"),
        ("num('inf')", "not a number"),
        ("num('1_0')", "not a number"),
        ("num(true)", "a string is needed, not a boolean"),
        ("num(1, 2)", "takes one argument, not 2"),
        ("len(1)", r'at "len\(\)": function not found'),
        ("success()", "only be used in `if`"),
        ("inputs.list[1.5]", "index not found"),
        ("inputs.list[-1]", "index not found"),
        ("inputs.list['a']", "an array is indexed by a number, not by a string"),
        ("inputs[0]", "an object is indexed by a string, not by a number"),
        ("inputs.n[0]", "only an array or object has items, and this is a number"),
        ("null.x", "only an object has attributes, and this is null"),
        ("input.n", 'at "input": attribute not found; did you mean "inputs"?'),
        ("env.HOMER", 'did you mean "HOME"?'),
        ("inputs.n-1", "put spaces around it to subtract"),
        ("nope || 1", 'at "nope": attribute not found'),
        ("(env.NOPE + 1) || 1", 'at ".NOPE": attribute not found'),
        ("{a: 1, (str('a')): 2}", "a key appears twice"),
        ("{(1): 2}", "a key must be a string, not a number"),
    ],
)
def test_errors_of_expressions(expression: str, error: str) -> None:
    with pytest.raises(ExpressionError, match=error):
        evaluate(expression)


def test_an_error_contains_its_place() -> None:
    with pytest.raises(ExpressionError) as caught:
        expand_text("first\nsecond ${{ env.NOPE }}", CONTEXT)
    assert str(caught.value) == (
        'evaluating expression failed at ".NOPE": attribute not found (in ${{ env.NOPE }}, line 2)'
    )


@pytest.mark.parametrize(
    "expression",
    [
        "inputs.secret",
        "inputs.secret + '!'",
        "'' + inputs.secret",
        "inputs.secret == 'x'",
        "!inputs.secret",
        "str(inputs.secret)",
        "str(inputs.mixed)",
        "bool(inputs.secret)",
        "inputs.pair",
        "inputs.pair.user",
        "inputs.pair['user']",
        "{hunter2: 1}[inputs.secret]",
        "{(inputs.secret): 1}",
        "inputs.mixed.secret",
        "[inputs.secret]",
        "[inputs.secret][0]",
        "inputs.secret && 1",
        "inputs.secret || 1",
        "inputs.nope || inputs.secret",
        "(inputs.secret && 0) || 1",
        '"a ${{ inputs.secret }}"',
        '"a ${{ inputs.mixed }}"',
        "inputs",
    ],
)
def test_results_of_sensitive_values_are_sensitive(expression: str) -> None:
    assert is_sensitive(evaluate(expression))
    assert isinstance(expand_text(f"- ${{{{ {expression} }}}}", CONTEXT), Sensitive)


@pytest.mark.parametrize(
    "expression", ["inputs.mixed.open", "inputs.n", "[inputs.mixed][0].open", "1 || inputs.secret"]
)
def test_other_values_do_not_become_sensitive(expression: str) -> None:
    assert not is_sensitive(evaluate(expression))


def test_reveal_and_conceal_sensitive_values() -> None:
    value = expand({"a": ["${{ inputs.secret }}", "x"], "b": "${{ inputs.mixed }}"}, CONTEXT)
    assert reveal(value) == {"a": ["hunter2", "x"], "b": {"open": 1, "secret": "s"}}
    assert conceal(value) == {"a": ["[MASKED]", "x"], "b": {"open": 1, "secret": "[MASKED]"}}
    assert "hunter2" not in repr(value)


def test_structs_lists_and_keys_are_expanded() -> None:
    value = {"${{ 'k' + str(inputs.n) }}": ["${{ inputs.n }}", {"x": "n=${{ inputs.n }}"}], "plain": 1.5}
    assert expand(value, CONTEXT) == {"k3": [3, {"x": "n=3"}], "plain": 1.5}
    with pytest.raises(ExpressionError, match='evaluates to "a", which another key has already'):
        expand({"a": 1, "${{ 'a' }}": 2}, CONTEXT)
    with pytest.raises(ExpressionError, match='the key "a" appears twice'):
        expand({"${{ 'a' }}": 2, "a": 1}, CONTEXT)
    with pytest.raises(ExpressionError, match="contains a sensitive value"):
        expand({"${{ inputs.secret }}": 2}, CONTEXT)


def test_variables_are_expanded_without_seeing_each_other() -> None:
    env = {"HOME": "${{ env.HOME }}/x", "${{ 'A' + str(inputs.n) }}": "${{ env.HOME }}", "S": "${{ inputs.secret }}"}
    assert expand_env(env, CONTEXT) == {"HOME": "/root/x", "A3": "/root", "S": Sensitive("hunter2")}
    with pytest.raises(ExpressionError, match='env: "a b" is not a variable name'):
        expand_env({"${{ 'a b' }}": ""}, CONTEXT)


@pytest.mark.parametrize(
    ("condition", "success", "failed", "cancelled"),
    [
        (None, True, False, False),
        ("success()", True, False, False),
        ("failure()", False, True, True),
        ("cancelled()", False, False, True),
        ("always()", True, True, True),
        ("true", True, False, False),
        ("false", False, False, False),
        ("inputs.n == 3", True, False, False),
        ("always() && inputs.n == 3", True, True, True),
        ("failure() && !cancelled()", False, True, False),
        ("env.NOPE || inputs.secret", True, False, False),
    ],
)
def test_conditions(condition: str | None, success: bool, failed: bool, cancelled: bool) -> None:
    assert holds(condition, CONTEXT) is success
    assert holds(condition, replace(CONTEXT, failed=True)) is failed
    assert holds(condition, replace(CONTEXT, cancelled=True)) is cancelled
    assert runs_after_failure(condition) is (condition is not None and "()" in condition and "success" not in condition)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.50, "1.5"),
        (2.0, "2"),
        (1e21, "1e+21"),
        (123456789012345678, "123456789012345680"),
        (1e20, "100000000000000000000"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-10, "1.5e-10"),
        (-1.25e300, "-1.25e+300"),
        (-0.0, "0"),
        (0.1, "0.1"),
    ],
)
def test_numbers_are_formatted_as_texts(number: float, text: str) -> None:
    assert expand_text("${{ inputs.n }}", Context(inputs={"n": number})) == text
    assert expand_text("${{ inputs }}", Context(inputs={"n": number})) == f'{{"n":{text}}}'


def expand_repeatedly(expression: str, value: Any, times: int) -> Any:
    for _ in range(times):
        value = expand(expression, Context(inputs={"t": value}))
    return value


def test_growing_values_are_limited() -> None:
    with pytest.raises(ExpressionError, match=r"more than 16777216 characters|too much work"):
        expand_repeatedly("${{ inputs.t + inputs.t }}", "x" * 1000, 40)
    with pytest.raises(ExpressionError, match="parts or more"):
        expand_repeatedly("${{ [inputs.t, inputs.t] }}", [1], 40)
    with pytest.raises(ExpressionError, match="levels deep"):
        expand_repeatedly("${{ [inputs.t] }}", 1, 200)
    big = list(range(100_000))
    with pytest.raises(ExpressionError, match="too much work"):
        expand(["${{ inputs.t == inputs.t }}"] * 1000, Context(inputs={"t": big}))
    with pytest.raises(ExpressionError, match="too much work"):
        expand(["${{ inputs.t + '' }}"] * 10_000, Context(inputs={"t": "x" * 1_000_000}))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(values, values, values)
def test_comparison_is_a_total_order(a: Any, b: Any, c: Any) -> None:
    def compare(operator: str, left: Any, right: Any) -> bool:
        return operations.compare(operator, left, right)

    assert compare("<", a, b) + compare("==", a, b) + compare(">", a, b) == 1
    assert compare("<=", a, b) is not compare(">", a, b)
    if compare("<=", a, b) and compare("<=", b, c):
        assert compare("<=", a, c)


WORDS = re.findall(r"\S+", "a b env inputs . [ ] ( ) + - * / % ! == < && || 'x' 1 0 str num { } , : \"")


@given(st.lists(st.sampled_from(WORDS), max_size=14), values)
def test_evaluating_raises_only_expression_errors(words: list[str], value: Any) -> None:
    context = Context(inputs={"a": value, "b": Sensitive("x")}, env={"a": "y"})
    with contextlib.suppress(ExpressionError):
        expand("".join(f" {word}" for word in ("${{", *words, "}}")), context)
    with contextlib.suppress(ExpressionError):
        holds(" ".join(words), context)
