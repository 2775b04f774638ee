"""Parses and evaluates the expressions of `rules:if` and `only:variables`.

`==` and `!=` compare texts. The right side of `=~` and `!~` is `/.../flags` or a text or variable with such a value. As
in GitLab, the left side is searched in any other text. `!` binds tightest, `&&` tighter than `||`. A variable that does
not exist is null. As in Ruby, `&&` and `||` give one of their operands, and only null and false count as false for
them; the result of the whole expression is also false if it is an empty text. As in GitLab, variables inside values are
not expanded. Nesting is limited."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from remuda.pipeline.errors import printable
from remuda.pipeline.rules.regex import PatternError, Patterns, split_literal

MAX_EXPRESSION = 10_000
MAX_NESTING = 50
MAX_TOKENS = 99
"""As in GitLab, an expression has fewer than 100 variables, texts, operators and parentheses."""

_TOKEN = re.compile(
    r"\s*(?:(?P<op>==|!=|=~|!~|&&|\|\||\(|\)|!)"
    r"|\$(?P<name>\w+)"
    r"|\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'"
    r"|/(?P<pattern>(?:[^/\\]|\\.)+)/(?P<flags>[imsU]*)"
    r"|(?P<word>null|true|false)(?!\w))",
    re.ASCII | re.DOTALL,
)
_REST = re.compile(r"\s*(\S{1,20})")
_BRACED = re.compile(r"\$\{(\w+)\}", re.ASCII)
_COMPARISONS = ("==", "!=", "=~", "!~")


class ExpressionError(Exception):
    """The text is not a valid expression. `offset` is the index of the character where the mistake is."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """An operand that names a variable: `$NAME`."""

    name: str


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """An operand that is a quoted text, `true`, `false`, or `null` (None)."""

    text: str | bool | None


class Regex(msgspec.Struct, frozen=True, kw_only=True):
    """An operand that is a regular expression: `/.../flags`."""

    text: str
    flags: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two operands with one of `==`, `!=`, `=~`, `!~` between them."""

    op: str
    left: Expression
    right: Expression


class Negation(msgspec.Struct, frozen=True, kw_only=True):
    """An operand with `!` before it."""

    operand: Expression


class Combination(msgspec.Struct, frozen=True, kw_only=True):
    """Subexpressions joined by `&&` (`all`) or by `||` (`any`)."""

    how: Literal["all", "any"]
    parts: tuple[Expression, ...]


Expression = Variable | Value | Regex | Comparison | Negation | Combination


def parse_expression(text: str, patterns: Patterns) -> Expression:
    """Parse an expression and compile its regular expressions. Raises `ExpressionError` if it is invalid."""
    if len(text) > MAX_EXPRESSION:
        raise ExpressionError(f"an expression has at most {MAX_EXPRESSION} characters", MAX_EXPRESSION)
    parser = _Parser(text, patterns)
    expression = parser.any_of()
    parser.end()
    return expression


def holds(expression: Expression, variables: Mapping[str, str], patterns: Patterns) -> bool:
    """True if the value of the expression is neither null nor false nor an empty or blank text."""
    return _is_present(_evaluate(expression, variables, patterns))


def _is_present(value: str | bool | Regex | None) -> bool:
    return bool(value.strip()) if isinstance(value, str) else bool(value)


def _evaluate(expression: Expression, variables: Mapping[str, str], patterns: Patterns) -> str | bool | Regex | None:
    match expression:
        case Variable():
            return variables.get(expression.name)
        case Value():
            return expression.text
        case Regex():
            return expression
        case Negation():
            return not _is_present(_evaluate(expression.operand, variables, patterns))
        case Combination():
            value: str | bool | Regex | None = None
            for part in expression.parts:
                value = _evaluate(part, variables, patterns)
                is_false = value is None or value is False
                if is_false is (expression.how == "all"):
                    break
            return value
        case Comparison():
            left = _evaluate(expression.left, variables, patterns)
            right = _evaluate(expression.right, variables, patterns)
            if expression.op in ("==", "!="):
                is_same = type(left) is type(right) and left == right
                return is_same is (expression.op == "==")
            return _matches(left, right, patterns) is (expression.op == "=~")


def _matches(left: str | bool | Regex | None, right: str | bool | Regex | None, patterns: Patterns) -> bool:
    if isinstance(left, Regex) or right is None or right is False:
        return False
    subject = left if isinstance(left, str) else "" if left is None else str(left).lower()
    if isinstance(right, Regex):
        return patterns.is_match(right.text, right.flags, subject)
    if isinstance(right, bool):
        return False
    try:
        literal = split_literal(right)
        return patterns.is_match(*literal, subject) if literal else subject in right
    except PatternError:
        # The value of a variable is not a mistake of the file.
        return subject in right


def find_doubts(expression: Expression) -> list[str]:
    """Return remarks about parts that are valid but hardly mean what their author intended."""
    match expression:
        case Combination():
            return [doubt for part in expression.parts for doubt in find_doubts(part)]
        case Negation():
            return find_doubts(expression.operand)
        case Comparison():
            inner = [*_doubts_inside(expression.left), *_doubts_inside(expression.right)]
            doubt = _doubt_of(expression)
            return [*inner, doubt] if doubt else inner
        case Regex():
            return ["a regular expression is always true; write $VARIABLE =~ before it"]
        case _:
            return []


def _doubts_inside(operand: Expression) -> list[str]:
    return [] if isinstance(operand, Regex) else find_doubts(operand)


def _doubt_of(comparison: Comparison) -> str:
    op, left, right = comparison.op, comparison.left, comparison.right
    if op in ("==", "!="):
        if isinstance(left, Regex) != isinstance(right, Regex):
            return f"a regular expression is never equal to a text; write {'=~' if op == '==' else '!~'}"
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Value) and isinstance(one.text, bool) and isinstance(other, Variable):
                word = str(one.text).lower()
                return f'{word} is never equal to a text; write "{word}", in quotes'
        return ""
    if isinstance(left, Regex):
        return f"a regular expression to the left of {op} never matches; write it to the right"
    if isinstance(right, Value) and isinstance(right.text, str) and split_literal(right.text) is None:
        shown = printable(right.text)
        return f'the text "{shown}" is no /regular expression/, so the left side is searched in it; write /{shown}/'
    return ""


class _Parser:
    def __init__(self, text: str, patterns: Patterns) -> None:
        self._text = text
        self._patterns = patterns
        self._at = 0
        self._depth = 0
        self._tokens = 0
        self._next: re.Match[str] | None = None
        self._advance()

    def any_of(self) -> Expression:
        return self._combine("any", "||", lambda: self._combine("all", "&&", self._single))

    def end(self) -> None:
        if self._next is not None:
            raise ExpressionError(f"expected && or || before {self._next_text()}", self._start())

    def _combine(self, how: Literal["all", "any"], op: str, parse: Callable[[], Expression]) -> Expression:
        parts = [parse()]
        while self._accept(op):
            parts.append(parse())
        return parts[0] if len(parts) == 1 else Combination(how=how, parts=tuple(parts))

    def _single(self) -> Expression:
        left = self._operand()
        while self._next is not None and (op := self._next["op"]) in _COMPARISONS:
            self._advance()
            left = Comparison(op=op, left=left, right=self._operand())
        return left

    def _operand(self) -> Expression:
        start = self._start()
        if self._accept("("):
            self._descend(start)
            inner = self.any_of()
            if not self._accept(")"):
                raise ExpressionError(f"expected ) before {self._next_text()}", self._start())
            self._depth -= 1
            return inner
        if self._accept("!"):
            self._descend(start)
            operand = self._operand()
            self._depth -= 1
            return Negation(operand=operand)
        return self._value()

    def _descend(self, start: int) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise ExpressionError(f"parentheses are nested deeper than {MAX_NESTING} levels", start)

    def _value(self) -> Variable | Value | Regex:
        token = self._next
        if token is None or token["op"]:
            raise ExpressionError(f"expected a variable or a text before {self._next_text()}", self._start())
        start = self._start()
        self._advance()
        if token["name"]:
            return Variable(name=token["name"])
        if token["word"]:
            return Value(text={"null": None, "true": True, "false": False}[token["word"]])
        if token["pattern"] is None:
            return Value(text=token["double"] if token["double"] is not None else token["single"])
        regex = Regex(text=token["pattern"].replace("\\/", "/"), flags=token["flags"])
        try:
            self._patterns.compile(regex.text, regex.flags)
        except PatternError as error:
            raise ExpressionError(f"the regular expression is invalid: {error}", start + 1 + error.offset) from None
        return regex

    def _accept(self, op: str) -> bool:
        if self._next is not None and self._next["op"] == op:
            self._advance()
            return True
        return False

    def _advance(self) -> None:
        self._next = _TOKEN.match(self._text, self._at)
        if self._next is not None:
            self._at = self._next.end()
            self._tokens += 1
            if self._tokens > MAX_TOKENS:
                raise ExpressionError(f"an expression has at most {MAX_TOKENS} words and operators", self._start())
        elif rest := _REST.match(self._text, self._at):
            hint = "; use == to compare" if rest[1].startswith("=") else ""
            if braced := _BRACED.match(self._text, rest.start(1)):
                hint = f"; write ${braced[1]}, without braces"
            raise ExpressionError(f'cannot read "{rest[1]}"{hint}', rest.start(1))

    def _start(self) -> int:
        if self._next is None:
            return len(self._text)
        return self._next.end() - len(self._next[0].lstrip())

    def _next_text(self) -> str:
        return "the end" if self._next is None else f'"{self._next[0].strip()[:20]}"'
