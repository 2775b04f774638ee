"""Parses and evaluates the expressions of `rules:if` and `only:variables`.

`==` and `!=` compare texts; the right side of `=~` and `!~` is `/.../flags` or a variable with such a value (any other
value matches nothing); `&&` binds tighter than `||`. A variable that does not exist is null; a variable alone is true
if its value is not empty. As in GitLab, variables inside values are not expanded. Nesting is limited."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from remuda.pipeline.rules.regex import PatternError, Patterns, split_literal

MAX_EXPRESSION = 10_000
MAX_NESTING = 50

_TOKEN = re.compile(
    r"\s*(?:(?P<op>==|!=|=~|!~|&&|\|\||\(|\))"
    r"|\$(?P<name>[A-Za-z_]\w*)|\$\{(?P<braced>[A-Za-z_]\w*)\}"
    r"|\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'"
    r"|/(?P<pattern>(?:[^/\\]|\\.)+)/(?P<flags>[imsU]*)"
    r"|(?P<null>null)(?!\w))",
    re.ASCII | re.DOTALL,
)
_REST = re.compile(r"\s*(\S{1,20})")


class ExpressionError(Exception):
    """The text is not a valid expression. `offset` is the index of the character where the mistake is."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """An operand that names a variable: `$NAME` or `${NAME}`."""

    name: str


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """An operand that is a quoted text, or `null` (None)."""

    text: str | None


class Regex(msgspec.Struct, frozen=True, kw_only=True):
    """An operand that is a regular expression: `/.../flags`."""

    text: str
    flags: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two operands with one of `==`, `!=`, `=~`, `!~` between them."""

    op: str
    left: Variable | Value
    right: Variable | Value | Regex


class Combination(msgspec.Struct, frozen=True, kw_only=True):
    """Subexpressions joined by `&&` (all must be true) or by `||` (one must be true)."""

    how: Literal["all", "any"]
    parts: tuple[Expression, ...]


Expression = Variable | Value | Comparison | Combination


def parse_expression(text: str, patterns: Patterns) -> Expression:
    """Parse an expression and compile its regular expressions. Raises `ExpressionError` if it is invalid."""
    if len(text) > MAX_EXPRESSION:
        raise ExpressionError(f"an expression has at most {MAX_EXPRESSION} characters", MAX_EXPRESSION)
    parser = _Parser(text, patterns)
    expression = parser.any_of()
    parser.end()
    return expression


def holds(expression: Expression, variables: Mapping[str, str], patterns: Patterns) -> bool:
    match expression:
        case Combination():
            combine = all if expression.how == "all" else any
            return combine(holds(part, variables, patterns) for part in expression.parts)
        case Comparison(op="==") | Comparison(op="!="):
            same = _text(expression.left, variables) == _text(expression.right, variables)
            return same is (expression.op == "==")
        case Comparison():
            return _matches(expression, variables, patterns) is (expression.op == "=~")
        case _:
            return bool(_text(expression, variables))


def _text(operand: Variable | Value | Regex, variables: Mapping[str, str]) -> str | None:
    match operand:
        case Variable():
            return variables.get(operand.name)
        case Value():
            return operand.text
        case Regex():
            return f"/{operand.text}/{operand.flags}"


def _matches(comparison: Comparison, variables: Mapping[str, str], patterns: Patterns) -> bool:
    subject = _text(comparison.left, variables) or ""
    if isinstance(comparison.right, Regex):
        return patterns.is_match(comparison.right.text, comparison.right.flags, subject)
    literal = split_literal(_text(comparison.right, variables) or "")
    if literal is None:
        return False
    try:
        return patterns.is_match(*literal, subject)
    except PatternError:
        # The value of a variable is not a mistake of the file.
        return False


class _Parser:
    def __init__(self, text: str, patterns: Patterns) -> None:
        self._text = text
        self._patterns = patterns
        self._at = 0
        self._depth = 0
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
        opened = self._start()
        if self._accept("("):
            self._depth += 1
            if self._depth > MAX_NESTING:
                raise ExpressionError(f"parentheses are nested deeper than {MAX_NESTING} levels", opened)
            inner = self.any_of()
            if not self._accept(")"):
                raise ExpressionError(f"expected ) before {self._next_text()}", self._start())
            self._depth -= 1
            return inner
        start = self._start()
        left = self._operand()
        op = self._next["op"] if self._next is not None else None
        if op not in ("==", "!=", "=~", "!~"):
            if isinstance(left, Regex):
                raise ExpressionError("a regular expression can only be to the right of =~ or !~", start)
            return left
        self._advance()
        start = self._start()
        right = self._operand()
        if isinstance(left, Regex) or (isinstance(right, Regex) and op in ("==", "!=")):
            raise ExpressionError("a regular expression can only be to the right of =~ or !~", start)
        if isinstance(right, Value) and op in ("=~", "!~"):
            raise ExpressionError(
                f"{op} requires a regular expression like /^v[0-9]/ or a variable to its right", start
            )
        return Comparison(op=op, left=left, right=right)

    def _operand(self) -> Variable | Value | Regex:
        token = self._next
        if token is None or token["op"]:
            raise ExpressionError(f"expected a variable or a text before {self._next_text()}", self._start())
        start = self._start()
        self._advance()
        if name := token["name"] or token["braced"]:
            return Variable(name=name)
        if token["null"]:
            return Value(text=None)
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
        elif rest := _REST.match(self._text, self._at):
            hint = "; use == to compare" if rest[1].startswith("=") else ""
            raise ExpressionError(f'cannot read "{rest[1]}"{hint}', rest.start(1))

    def _start(self) -> int:
        if self._next is None:
            return len(self._text)
        return self._next.end() - len(self._next[0].lstrip())

    def _next_text(self) -> str:
        return "the end" if self._next is None else f'"{self._next[0].strip()[:20]}"'
