from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.pipeline.rules.expressions import ExpressionError, find_doubts, holds, parse_expression
from remuda.pipeline.rules.regex import Patterns

VARIABLES = {"A": "a", "EMPTY": "", "BRANCH": "feature/x", "PATTERN": "/^feature/", "BAD": "/(/", "TEXT": "feature"}


def evaluate(text: str, variables: Mapping[str, str] = VARIABLES) -> bool:
    patterns = Patterns()
    return holds(parse_expression(text, patterns), variables, patterns)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$A", True),
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
        ("$BRANCH !~ $GONE", True),
        ("$BRANCH =~ null", False),
        ("$BRANCH !~ null", True),
        ('$BRANCH =~ "/^feature/"', True),
        ("$BRANCH !~ '/^FEATURE/i'", False),
        # As in GitLab, a right side that is no regular expression is a text in which the left side is searched.
        ('$A =~ "cat"', True),
        ('$A =~ "dog"', False),
        ('$BRANCH =~ "feature"', False),
        ('$BRANCH !~ "feature"', True),
        ('$GONE =~ "dog"', True),
        ("$TEXT =~ $BRANCH", True),
        ('$TEXT =~ "/(feature/"', True),
        # As in Ruby, an empty text counts as true within && and ||, but not as a result.
        ("$EMPTY && $A", True),
        ("$A && $EMPTY", False),
        ("$EMPTY || $A", False),
        ("$GONE && $A", False),
        ('" "', False),
        ('($GONE || "a") == $A', True),
        ('"x" == ("a" && "x")', True),
        ('($A == "b") == $GONE', False),
        ('$A == "a" == "a"', False),
        ("true", True),
        ("false", False),
        ("$A && true", True),
        ('"true" == true', False),
        ("!$GONE", True),
        ("!$A", False),
        ("!($A && $GONE)", True),
        ('!$GONE && $A == "a"', True),
        ("$A == /a/", False),
        ("$A != /a/", True),
        ("/a/ =~ $A", False),
        ("/a/", True),
        ("$A && $BRANCH", True),
        ("$A && $GONE", False),
        ("$GONE || $A", True),
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
        ("${A}", 'cannot read "${A}"; write $A, without braces', 0),
        ('$A == "a" && ${B}', "write $B, without braces", 13),
        ("!" * 60 + "$A", "nested deeper than 50 levels", 50),
        ("$A" + " == $A" * 60, "at most 99 words and operators", 297),
        ("$A" + " == $A" * 49 + " ==", "at most 99 words and operators", 297),
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


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        ('$A =~ "main"', 'the text "main" is no /regular expression/'),
        ('$B && $A !~ "main"', 'the text "main" is no /regular expression/'),
        ("$A == /a/", "a regular expression is never equal to a text"),
        ("$A != /a/", "a regular expression is never equal to a text"),
        ('("x" || /a/) && $B', "a regular expression is always true"),
        ("/a/ =~ $A", "a regular expression to the left of =~ never matches"),
        ("$A == true", "true is never equal to a text"),
        ('$A =~ "/main/"', ""),
        ("$A =~ $B", ""),
        ('$A == "/main/"', ""),
        ("true", ""),
    ],
)
def test_doubts(text: str, doubt: str) -> None:
    doubts = find_doubts(parse_expression(text, Patterns()))
    assert [each.startswith(doubt) for each in doubts] == ([True] if doubt else []), doubts


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
            return f"${name} != null"
        case ("match", name, text):
            return f"${name} !~ /^{text}/"
        case (op, left, right):
            assert isinstance(left, tuple)
            assert isinstance(right, tuple)
            return f"({to_text(left)} {op} {to_text(right)})"
    raise AssertionError(tree)


def ruby_value(tree: tuple[object, ...], variables: Mapping[str, str]) -> str | bool | None:
    """Evaluate a tree as Ruby does: an empty text is true within && and ||."""
    match tree:
        case ("var", str(name)):
            return variables.get(name)
        case ("same", str(name), text):
            return name in variables and variables[name] == text
        case ("null", str(name)):
            return name in variables
        case ("match", str(name), str(text)):
            return not variables.get(name, "").startswith(text)
        case (op, left, right):
            assert isinstance(left, tuple)
            assert isinstance(right, tuple)
            value = ruby_value(left, variables)
            is_true = value is not None and value is not False
            return ruby_value(right, variables) if is_true is (op == "&&") else value
    raise AssertionError(tree)


def expected_value(tree: tuple[object, ...], variables: Mapping[str, str]) -> bool:
    return bool(ruby_value(tree, variables))


@settings(max_examples=300, deadline=None)
@given(TREES, st.dictionaries(st.sampled_from("ABC"), st.sampled_from(["x", "y", "xy", ""])))
def test_any_tree_has_the_value_of_a_plain_implementation(tree: tuple[object, ...], variables: dict[str, str]) -> None:
    assert evaluate(to_text(tree), variables) is expected_value(tree, variables)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(LEAVES, st.sampled_from(["&&", "||"])), min_size=1, max_size=6))
def test_and_binds_tighter_than_or(terms: list[tuple[tuple[object, ...], str]]) -> None:
    variables = {"A": "x", "B": ""}
    text = " ".join(f"{to_text(leaf)} {op}" for leaf, op in terms).rsplit(" ", 1)[0]
    groups: list[tuple[object, ...]] = []
    before = "||"
    for leaf, op in terms:
        if before == "||":
            groups.append(leaf)
        else:
            groups[-1] = ("&&", groups[-1], leaf)
        before = op
    whole = groups[0]
    for group in groups[1:]:
        whole = ("||", whole, group)
    assert evaluate(text, variables) is expected_value(whole, variables)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="$A{}=!~&|()/\"' nul\\", max_size=30))
def test_any_text_is_evaluated_or_refused(text: str) -> None:
    refused: ExpressionError | None = None
    try:
        evaluate(text)
    except ExpressionError as error:
        refused = error
    assert refused is None or 0 <= refused.offset <= len(text)
