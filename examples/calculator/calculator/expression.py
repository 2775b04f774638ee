"""Numbers, + - * / ^ and parentheses, by recursive descent. `^` binds to the right, the others to the left."""

import re

_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*|\.\d+)|(.))")


class ExpressionError(Exception):
    """The expression cannot be evaluated."""


def evaluate(text: str) -> float:
    """The value of an expression."""
    reader = _Reader(text)
    value = reader.total()
    if reader.token is not None:
        raise ExpressionError(f"did not expect {reader.token!r}")
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = iter([number or sign for number, sign in _TOKEN.findall(text.rstrip())])
        self.token: str | None = None
        self._next()

    def _next(self) -> None:
        self.token = next(self._tokens, None)

    def _take(self, signs: str) -> str | None:
        token = self.token
        if token is None or token not in signs:
            return None
        self._next()
        return token

    def total(self) -> float:
        value = self._product()
        while sign := self._take("+-"):
            other = self._product()
            value = value + other if sign == "+" else value - other
        return value

    def _product(self) -> float:
        value = self._power()
        while sign := self._take("*/"):
            other = self._power()
            if sign == "/" and other == 0:
                raise ExpressionError("division by zero")
            value = value * other if sign == "*" else value / other
        return value

    def _power(self) -> float:
        if self._take("-"):
            return -self._power()
        value = self._atom()
        return float(value ** self._power()) if self._take("^") else value

    def _atom(self) -> float:
        if self._take("("):
            value = self.total()
            if not self._take(")"):
                raise ExpressionError("a parenthesis is not closed")
            return value
        token = self.token
        if token is None:
            raise ExpressionError("the expression ends too early")
        try:
            value = float(token)
        except ValueError:
            raise ExpressionError(f"did not expect {token!r}") from None
        self._next()
        return value
