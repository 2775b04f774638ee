from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.pipeline.rules.expressions import ExpressionError, holds, parse_expression
from remuda.pipeline.rules.regex import Patterns

VARIABLES = {"A": "a", "EMPTY": "", "BRANCH": "feature/x", "PATTERN": "/^feature/", "BAD": "/(/", "TEXT": "feature"}


def evaluate(text: str, variables: Mapping[str, str] = VARIABLES) -> bool:
    patterns = Patterns()
    return holds(parse_expression(text, patterns), variables, patterns)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$A", True),
        ("${A}", True),
        ("$EMPTY", False),
        ("$GONE", False),
        ('"text"', True),
        ("null", False),
        ('$A == "a"', True),
        ("$A == 'a'", True),
        ('"a" == $A', True),
        ('$A != "b"', True),
        ("$GONE == null", True),
        ("$A == null", False),
        ("$A != null", True),
        ("$EMPTY == null", False),
        ('$EMPTY == ""', True),
        ('$GONE == ""', False),
        ("$GONE == $OTHER", True),
        ("$BRANCH =~ /^feature/", True),
        ("$BRANCH =~ /FEATURE/i", True),
        (r"$BRANCH =~ /^feature\/x$/", True),
        ("$BRANCH !~ /^main$/", True),
        ("$GONE =~ /./", False),
        ("$GONE !~ /./", True),
        ("$BRANCH =~ $PATTERN", True),
        ("$BRANCH !~ $PATTERN", False),
        ("$BRANCH =~ $TEXT", False),
        ("$BRANCH =~ $BAD", False),
        ("$BRANCH =~ $GONE", False),
        ("$A && $BRANCH", True),
        ("$A && $GONE", False),
        ("$GONE || $A", True),
        ("$EMPTY || $A", True),
        ("$EMPTY && $A", False),
        ("$A || $GONE && $GONE", True),
        ("($A || $GONE) && $GONE", False),
        ('($A == "a" && ($BRANCH =~ /x$/ || $GONE))', True),
        ('$A=="a"&&$BRANCH', True),
        ('  $A\n  == "a"  ', True),
    ],
)
def test_expressions(text: str, expected: bool) -> None:
    assert evaluate(text) is expected


@pytest.mark.parametrize(
    ("text", "message", "offset"),
    [
        ("", "expected a variable or a text before the end", 0),
        ("$A ==", "expected a variable or a text before the end", 5),
        ("== $A", 'expected a variable or a text before "=="', 0),
        ("$A = 'a'", 'cannot read "="; use == to compare', 3),
        ("$A & $B", 'cannot read "&"', 3),
        ("branch == 'a'", 'cannot read "branch"', 0),
        ("$A 'a'", "expected && or || before", 3),
        ("($A", "expected ) before the end", 3),
        ("$A)", 'expected && or || before ")"', 2),
        ("$A =~ 'a'", "=~ requires a regular expression", 6),
        ("$A == /a/", "a regular expression can only be to the right of =~", 6),
        ("/a/ =~ $A", "a regular expression can only be to the right of =~", 7),
        ("/a/", "a regular expression can only be to the right of =~", 0),
        ("$A =~ /(/", "the regular expression is invalid: a ( without its )", 7),
        ("$A =~ /(?=a)/", "groups that look ahead", 7),
        ("(" * 60 + "$A" + ")" * 60, "nested deeper than 50 levels", 50),
        ("$A || " * 2000 + "$A", "at most 10000 characters", 10_000),
    ],
)
def test_invalid_expressions(text: str, message: str, offset: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text, Patterns())
    assert message in str(caught.value)
    assert caught.value.offset == offset


# Expressions as trees of nested tuples, with a second, plain implementation of their meaning.
LEAVES = st.one_of(
    st.tuples(st.just("var"), st.sampled_from("ABC")),
    st.tuples(st.just("same"), st.sampled_from("ABC"), st.sampled_from(["x", "y", ""])),
    st.tuples(st.just("null"), st.sampled_from("ABC")),
    st.tuples(st.just("match"), st.sampled_from("ABC"), st.sampled_from(["x", "y"])),
)
TREES = st.recursive(LEAVES, lambda inner: st.tuples(st.sampled_from(["&&", "||"]), inner, inner), max_leaves=8)


def to_text(tree: tuple[object, ...]) -> str:
    match tree:
        case ("var", name):
            return f"${name}"
        case ("same", name, text):
            return f'${name} == "{text}"'
        case ("null", name):
            return f"${{{name}}} != null"
        case ("match", name, text):
            return f"${name} !~ /^{text}/"
        case (op, left, right):
            assert isinstance(left, tuple)
            assert isinstance(right, tuple)
            return f"({to_text(left)} {op} {to_text(right)})"
    raise AssertionError(tree)


def expected_value(tree: tuple[object, ...], variables: Mapping[str, str]) -> bool:
    match tree:
        case ("var", str(name)):
            return variables.get(name, "") != ""
        case ("same", str(name), text):
            return name in variables and variables[name] == text
        case ("null", str(name)):
            return name in variables
        case ("match", str(name), str(text)):
            return not variables.get(name, "").startswith(text)
        case (op, left, right):
            assert isinstance(left, tuple)
            assert isinstance(right, tuple)
            both = (expected_value(left, variables), expected_value(right, variables))
            return all(both) if op == "&&" else any(both)
    raise AssertionError(tree)


@settings(max_examples=300, deadline=None)
@given(TREES, st.dictionaries(st.sampled_from("ABC"), st.sampled_from(["x", "y", "xy", ""])))
def test_any_tree_has_the_value_of_a_plain_implementation(tree: tuple[object, ...], variables: dict[str, str]) -> None:
    assert evaluate(to_text(tree), variables) is expected_value(tree, variables)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(LEAVES, st.sampled_from(["&&", "||"])), min_size=1, max_size=6))
def test_and_binds_tighter_than_or(terms: list[tuple[tuple[object, ...], str]]) -> None:
    variables = {"A": "x", "B": ""}
    text = " ".join(f"{to_text(leaf)} {op}" for leaf, op in terms).rsplit(" ", 1)[0]
    groups: list[list[bool]] = [[]]
    for leaf, op in terms:
        groups[-1].append(expected_value(leaf, variables))
        if op == "||":
            groups.append([])
    assert evaluate(text, variables) is any(all(group) for group in groups if group)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="$A{}=!~&|()/\"' nul\\", max_size=30))
def test_any_text_is_evaluated_or_refused(text: str) -> None:
    refused: ExpressionError | None = None
    try:
        evaluate(text)
    except ExpressionError as error:
        refused = error
    assert refused is None or 0 <= refused.offset <= len(text)
