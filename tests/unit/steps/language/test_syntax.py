"""Reading expressions: what a text means, and that a tree written as text is read as the same tree."""

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


def write(node: Node) -> str:
    """A tree as text, with brackets around every operand."""
    match node:
        case Literal(value=str() as text):
            return json.dumps(text, ensure_ascii=False).replace("${{", "\\${{")
        case Literal(value=value):
            return json.dumps(value)
        case Template(parts=parts):
            texts = [
                write(part)[1:-1]
                if isinstance(part, Literal) and isinstance(part.value, str)
                else f"${{{{ {write(part)} }}}}"
                for part in parts
            ]
            return f'"{"".join(texts)}"'
        case Array(items=items):
            return f"[{', '.join(map(write, items))}]"
        case Object(entries=entries):
            return f"{{{', '.join(f'({write(key)}): {write(value)}' for key, value in entries)}}}"
        case Name(name=name):
            return name
        case Attribute(subject=subject, name=name):
            return f"({write(subject)}).{name}"
        case Index(subject=subject, key=key):
            return f"({write(subject)})[{write(key)}]"
        case Call(function=function, arguments=arguments):
            return f"{function}({', '.join(map(write, arguments))})"
        case Unary(operator=operator, operand=operand):
            return f"{operator}({write(operand)})"
        case Binary(operator=operator, left=left, right=right):
            return f"({write(left)}){operator}({write(right)})"
    raise AssertionError(node)


texts = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(["${{", "}}", "a ${{ b }}", "\\", '"', "$"])
names = st.sampled_from(["env", "inputs", "a", "b_1", "X"])
parts_of_paths = st.sampled_from(["a", "type", "dash-key", "0", "if", "null", "é"])
literals = st.builds(
    lambda value: Literal(value=value),
    st.none() | st.booleans() | st.floats(0, 1e300).map(float) | texts,
)


def joined(parts: list[Node]) -> Node:
    """A template as the parser would make it: no empty texts, none beside another, and something that is no text."""
    kept: list[Node] = []
    for part in parts:
        if isinstance(part, Literal) and isinstance(part.value, str):
            if kept and isinstance(kept[-1], Literal) and isinstance(kept[-1].value, str):
                kept[-1] = Literal(value=kept[-1].value + part.value)
                continue
            if not part.value:
                continue
        kept.append(part)
    return Template(parts=(*kept, Name(name="last")))


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
        st.builds(joined, st.lists(inner, max_size=3)),
    ),
    max_leaves=10,
)


@given(trees)
def test_a_written_tree_is_read_as_the_same(tree: Node) -> None:
    assert parse_expression(write(tree)) == tree
    text = f"before ${{{{ {write(tree)} }}}} after"
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
def test_precedence_and_forms(text: str, brackets: str) -> None:
    assert parse_expression(text) == parse_expression(brackets)


def test_after_a_dot_any_word_may_stand() -> None:
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
def test_texts(text: str, value: str) -> None:
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
        ("1x", "a number cannot go on like this"),
        ("1e999", "out of range"),
        ("type", '"type" is a reserved word'),
        ("'a", "the text is not closed"),
        ('"a', "the text is not closed"),
        (r'"\x"', r'unknown escape "\\x"'),
        (r'"\$"', r'unknown escape "\\\$"'),
        (r'"\ud800"', "half a character"),
        ("a.b(1)", "only a function can be called"),
        ("{1: 2}", 'unexpected "1"'),
        ("{a 1}", 'unexpected "1"'),
        ("[1 2]", 'unexpected "2"'),
        ("a\n + *", r"at line 2, character 4"),
        ("(" * 10_000, "levels of nesting"),
        ("-" * 10_000 + "1", "levels of nesting"),
        ('"${{ ' * 10_000, "levels of nesting"),
        ("[" * 10_000, "levels of nesting"),
        ("1" + "+1" * 10_000, "operations in one another"),
        ("a" + ".b" * 10_000, "operations in one another"),
    ],
)
def test_mistakes(text: str, error: str) -> None:
    with pytest.raises(ExpressionError, match=error):
        parse_expression(text)


@given(st.text(alphabet="ab.[](){}+-*/%!=<>&|,:'\"\\$ 01e\n", max_size=40))
def test_any_text_is_a_tree_or_a_mistake(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        assert max(depth for _, depth in walk(parse_expression(text))) <= 80
    with contextlib.suppress(ExpressionError):
        parse_template(text + "${{" + text)


def test_where_expressions_stand_in_a_text() -> None:
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
def test_an_escaped_text_stands_for_itself(text: str) -> None:
    assert "".join(part for part in parse_template(escape(text)) if isinstance(part, str)) == text
