"""Parsing of expressions; a tree that is written as text is parsed to the same tree."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.language.errors import ExpressionError
from remuda.steps.language.escaping import escape
from remuda.steps.language.syntax import (
    Array,
    Attribute,
    Binary,
    Call,
    Index,
    Literal,
    Name,
    Node,
    Object,
    Template,
    Unary,
    parse_embedded,
    parse_expression,
    walk,
)
from remuda.steps.language.template import Hole, parse_template

BINARY = ("||", "&&", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%")


def format_node(node: Node) -> str:
    """Format a tree as text with brackets around every operand."""
    match node:
        case Literal(value=str() as text):
            return json.dumps(text, ensure_ascii=False).replace("${{", "\\${{")
        case Literal(value=value):
            return json.dumps(value)
        case Template(parts=parts):
            texts = [
                format_node(part)[1:-1]
                if isinstance(part, Literal) and isinstance(part.value, str)
                else f"${{{{ {format_node(part)} }}}}"
                for part in parts
            ]
            return f'"{"".join(texts)}"'
        case Array(items=items):
            return f"[{', '.join(map(format_node, items))}]"
        case Object(entries=entries):
            return f"{{{', '.join(f'({format_node(key)}): {format_node(value)}' for key, value in entries)}}}"
        case Name(name=name):
            return name
        case Attribute(subject=subject, name=name):
            return f"({format_node(subject)}).{name}"
        case Index(subject=subject, key=key):
            return f"({format_node(subject)})[{format_node(key)}]"
        case Call(function=function, arguments=arguments):
            return f"{function}({', '.join(map(format_node, arguments))})"
        case Unary(operator=operator, operand=operand):
            return f"{operator}({format_node(operand)})"
        case Binary(operator=operator, left=left, right=right):
            return f"({format_node(left)}){operator}({format_node(right)})"
    raise AssertionError(node)


texts = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(["${{", "}}", "a ${{ b }}", "\\", '"', "$"])
names = st.sampled_from(["env", "inputs", "a", "b_1", "X"])
parts_of_paths = st.sampled_from(["a", "type", "dash-key", "0", "if", "null", "é"])
literals = st.builds(
    lambda value: Literal(value=value),
    st.none() | st.booleans() | st.floats(0, 1e300).map(float) | texts,
)


def create_template(parts: list[Node]) -> Node:
    """Create a template like the parser: no empty texts, no adjacent texts, and at least one part that is no text."""
    merged: list[Node] = []
    for part in parts:
        if isinstance(part, Literal) and isinstance(part.value, str):
            if merged and isinstance(merged[-1], Literal) and isinstance(merged[-1].value, str):
                merged[-1] = Literal(value=merged[-1].value + part.value)
                continue
            if not part.value:
                continue
        merged.append(part)
    return Template(parts=(*merged, Name(name="last")))


trees: st.SearchStrategy[Node] = st.recursive(
    literals | st.builds(lambda name: Name(name=name), names),
    lambda inner: st.one_of(
        st.builds(lambda items: Array(items=tuple(items)), st.lists(inner, max_size=3)),
        st.builds(lambda entries: Object(entries=tuple(entries)), st.lists(st.tuples(inner, inner), max_size=3)),
        st.builds(lambda subject, name: Attribute(subject=subject, name=name), inner, parts_of_paths),
        st.builds(lambda subject, key: Index(subject=subject, key=key), inner, inner),
        st.builds(lambda items: Call(function="str", arguments=tuple(items)), st.lists(inner, max_size=2)),
        st.builds(lambda sign, operand: Unary(operator=sign, operand=operand), st.sampled_from("+-!"), inner),
        st.builds(lambda o, a, b: Binary(operator=o, left=a, right=b), st.sampled_from(BINARY), inner, inner),
        st.builds(create_template, st.lists(inner, max_size=3)),
    ),
    max_leaves=10,
)


@given(trees)
def test_a_formatted_tree_is_parsed_to_the_same_tree(tree: Node) -> None:
    assert parse_expression(format_node(tree)) == tree
    text = f"before ${{{{ {format_node(tree)} }}}} after"
    assert parse_embedded(text, 7) == (tree, len(text) - 6)


@pytest.mark.parametrize(
    ("text", "brackets"),
    [
        ("a + b * c", "a + (b * c)"),
        ("a * b + c", "(a * b) + c"),
        ("a - b - c", "(a - b) - c"),
        ("a / b % c", "(a / b) % c"),
        ("a == b + c", "a == (b + c)"),
        ("a < b == c", "(a < b) == c"),
        ("a && b == c", "a && (b == c)"),
        ("a || b && c || d", "(a || (b && c)) || d"),
        ("!a.b && c", "(!(a.b)) && c"),
        ("-a * b", "(-a) * b"),
        ("- - a", "-(-a)"),
        ("!!a[0]", "!(!(a[0]))"),
        ("a.b.c[0]['x-y'].d", "((((a.b).c)[0])['x-y']).d"),
        ("a . b", "a.b"),
        ("[1, 2,]", "[1, 2]"),
        ("{name: 1, 'a-b': 2, (a): 3,}", "{'name': 1, 'a-b': 2, (a): 3}"),
        ("{type: 1, null: 2}", "{'type': 1, 'null': 2}"),
        ("str( a )", "str(a)"),
        ("1.50", "1.5"),
        ("1e3", "1000"),
    ],
)
def test_precedence_of_operators_and_forms_of_literals(text: str, brackets: str) -> None:
    assert parse_expression(text) == parse_expression(brackets)


def test_reserved_words_are_allowed_after_a_dot() -> None:
    assert parse_expression("a.type") == Attribute(subject=Name(name="a"), name="type")
    assert parse_expression("a.b-c") == Attribute(subject=Name(name="a"), name="b-c")
    assert isinstance(parse_expression("a.b - c"), Binary)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\\ \" \/ \n\r\t\a\b\f\v"', '\\ " / \n\r\t\a\b\f\v'),
        (r'"\u00e9 \ud83d\ude00"', "é \U0001f600"),
        (r'"\${{ a }} $ $$ {{"', "${{ a }} $ $$ {{"),
        (r"'\\ \' \n ${{ a }}'", r"\ ' \n ${{ a }}"),
        ("''", ""),
        ('""', ""),
    ],
)
def test_escapes_in_strings(text: str, value: str) -> None:
    assert parse_expression(text) == Literal(value=value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "not complete at character 1"),
        ("a +", "not complete"),
        ("a b", 'unexpected "b" at character 3'),
        ("a = b", 'unexpected "="'),
        ("a ? b : c", r'unexpected "\?"'),
        ("(a", "not complete"),
        ("a.", "not complete"),
        ("a.+", r'unexpected "\+"'),
        ("1x", "a letter follows a number"),
        ("1e999", "out of range"),
        ("type", '"type" is a reserved word'),
        ("'a", "the string is not closed"),
        ('"a', "the string is not closed"),
        (r'"\x"', r'unknown escape "\\x"'),
        (r'"\$"', r'unknown escape "\\\$"'),
        (r'"\ud800"', "half a surrogate pair"),
        ("a.b(1)", "only a function can be called"),
        ("{1: 2}", 'unexpected "1"'),
        ("{a 1}", 'unexpected "1"'),
        ("[1 2]", 'unexpected "2"'),
        ("a\n + *", r"at line 2, character 4"),
        ("(" * 10_000, "levels of nesting"),
        ("-" * 10_000 + "1", "levels of nesting"),
        ('"${{ ' * 10_000, "levels of nesting"),
        ("[" * 10_000, "levels of nesting"),
        ("1" + "+1" * 10_000, "levels of operations"),
        ("a" + ".b" * 10_000, "levels of operations"),
    ],
)
def test_syntax_errors(text: str, error: str) -> None:
    with pytest.raises(ExpressionError, match=error):
        parse_expression(text)


@given(st.text(alphabet="ab.[](){}+-*/%!=<>&|,:'\"\\$ 01e\n", max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        assert max(depth for _, depth in walk(parse_expression(text))) <= 80
    with contextlib.suppress(ExpressionError):
        parse_template(text + "${{" + text)


def test_expressions_in_a_text_are_found() -> None:
    a, b = Name(name="a"), Name(name="b")
    assert parse_template("") == ()
    assert parse_template("x }}") == ("x }}",)
    assert parse_template("${{a}}") == (Hole(a, "${{a}}"),)
    assert parse_template("x${{ a }}\n\\${{ y }}${{ b }}") == (
        "x",
        Hole(a, "${{ a }}", 1),
        "\n${{ y }}",
        Hole(b, "${{ b }}", 2),
    )


@given(texts.flatmap(lambda text: st.lists(texts).map(lambda more: "".join((text, *more)))))
def test_an_escaped_text_is_unchanged_by_parsing(text: str) -> None:
    assert "".join(part for part in parse_template(escape(text)) if isinstance(part, str)) == text
