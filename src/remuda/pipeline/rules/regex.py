"""Compiles and matches the regular expressions of a pipeline file: in rules, `only`, inputs and `coverage`.

They are matched with RE2, as in GitLab: no look-around, no back references, and time linear in the text. That is not
enough for a server, because a file may have very many expressions. So every match costs steps, which `Patterns` limits:
the size of the compiled expression times the length of the text, an upper limit of RE2's work."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

MAX_PATTERN = 1000
"""Characters of an expression."""
MAX_REPEAT = 1000
"""RE2's limit of a repetition's bounds."""
MAX_STEPS = 30_000_000
"""The allowance of one compilation, about a second in the worst case."""
_MEMORY_BYTES = 1 << 20
_COMPILE_STEPS = 3000
_INSTRUCTION_STEPS = 6
"""Compiling takes as long as this many steps of a match, and this many more for each instruction."""

_LITERAL = re.compile(r"/(.*)/([imsU]*)", re.DOTALL)
_ERROR = re.compile(r"(?P<kind>[^:]*)(?:: (?P<part>.*))?", re.DOTALL)
_MESSAGES = {
    "missing )": "a ( without its )",
    "unexpected )": "a ) without its (",
    "missing ]": "a [ without its ]",
    "no argument for repetition operator": "nothing to repeat",
    "bad repetition operator": "nothing to repeat",
    "invalid repetition size": f"a repetition is written {{low,high}}, with at most {MAX_REPEAT} in all",
    "invalid perl operator": "groups that look ahead, look behind or are atomic are not supported",
    "invalid character class range": "{part} is not a range or class of characters",
    "invalid escape sequence": "{part} is not supported",
    "trailing \\": "it ends with a single \\",
    "pattern too large - compile failed": "the repetitions in it make it too large",
}
"""RE2's errors in our words."""
_ONLY_RUBY = ("invalid perl operator", "invalid escape sequence", "bad repetition operator")
"""RE2's errors for what Ruby's engine may accept."""


class PatternError(Exception):
    """The regular expression is invalid or too long. `offset` is the index of the character with the mistake."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class UnsupportedError(PatternError):
    """The expression has something that RE2 does not know, but Ruby's engine may."""


class TooCostlyError(Exception):
    """Matches of regular expressions cost too many steps: size of the expression times length of the text."""


class Pattern:
    """A compiled regular expression. Before a match it calls `spend` with the cost (size of the expression times length
    of the text), which may raise TooCostlyError to prevent the match."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self.size: int = compiled.programsize

    def is_in(self, text: str, spend: Callable[[int], None]) -> bool:
        """True if it matches anywhere in the text. First calls `spend` with the cost; it may raise TooCostlyError."""
        spend(self.size * (len(text) + 1))
        return self._compiled.search(_encodable(text)) is not None

    def last_match(self, text: str, spend: Callable[[int], None]) -> str | None:
        """Return the last group of the last match, or the whole match if no group took part; None if nothing matches.
        Before each search it calls `spend` with the cost: the size of the compiled expression times the length of the
        text that is left. If `spend` raises TooCostlyError, the search ends."""
        text = _encodable(text)
        spend(self.size * (len(text) + 1))
        last: str | None = None
        for match in self._compiled.finditer(text):
            # The search for the next match may read the whole rest.
            spend(self.size * (len(text) - match.start()))
            groups = [number for number in range(self._compiled.groups, 0, -1) if match.start(number) >= 0]
            last = match[groups[0] if groups else 0]
        return last


def compile_pattern(text: str, flags: str = "") -> Pattern:
    """Compile an expression without its slashes. Raises `PatternError` if it is invalid or too long."""
    import re2  # 3 ms; most pipeline files have no regular expression

    if len(text) > MAX_PATTERN:
        raise PatternError(f"a regular expression has at most {MAX_PATTERN} characters", MAX_PATTERN)
    try:
        return Pattern(re2.compile(f"(?{flags}){text}" if flags else text, _options()))
    except re2.error as error:
        raise _translate(text, error.args[0].decode(errors="replace")) from None
    except UnicodeEncodeError as error:
        raise PatternError("it is not UTF-8 text", error.start) from None


@cache
def _options() -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES
    return options


def _translate(text: str, error: str) -> PatternError:
    """Convert RE2's `error` about the expression `text`. The result's `offset` is 0 if the position is unknown."""
    match = _ERROR.fullmatch(error)
    kind, part = (match["kind"], match["part"] or "") if match else (error, "")
    if kind == "unexpected )":
        return PatternError(_MESSAGES[kind], _first_unexpected(text))
    kind_of_error = UnsupportedError if kind in _ONLY_RUBY else PatternError
    offset = len(text) if kind == "trailing \\" else max(text.find(part), 0)
    return kind_of_error(_MESSAGES.get(kind, error).replace("{part}", part), offset)


def _first_unexpected(text: str) -> int:
    """Return the index of the first `)` that closes no group; 0 if there is none."""
    import re2

    for match in re.finditer(r"\)", text):
        try:
            re2.compile(text[: match.end()], _options())
        except re2.error as error:
            if error.args[0].startswith(b"unexpected )"):
                return match.start()
    return 0


def _encodable(text: str) -> str:
    """Replace surrogate characters by `?`, because RE2 needs UTF-8."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def split_literal(text: str) -> tuple[str, str] | None:
    """Split `/.../flags` into the expression and the flags; None if the text does not have this form."""
    literal = _LITERAL.fullmatch(text)
    return (literal[1].replace("\\/", "/"), literal[2]) if literal else None


class Patterns:
    """Matches the regular expressions of a compilation, with a cache. TooCostlyError if all cost over `MAX_STEPS`."""

    def __init__(self) -> None:
        self._compiled: dict[tuple[str, str], Pattern] = {}
        self._answers: dict[tuple[str, str, str], bool] = {}
        self._steps = 0

    def compile(self, text: str, flags: str = "") -> Pattern:
        """Compile an expression, or take it from the cache. Raises PatternError if it is invalid, TooCostlyError if the
        expressions of this compilation together cost more than `MAX_STEPS`."""
        key = (text, flags)
        if key not in self._compiled:
            pattern = compile_pattern(text, flags)
            self.spend(_COMPILE_STEPS + _INSTRUCTION_STEPS * pattern.size)
            self._compiled[key] = pattern
        return self._compiled[key]

    def is_match(self, text: str, flags: str, subject: str) -> bool:
        """True if the expression `text` matches in `subject`. Raises PatternError if invalid, or TooCostlyError."""
        key = (text, flags, subject)
        if key not in self._answers:
            self._answers[key] = self.compile(text, flags).is_in(subject, self.spend)
        return self._answers[key]

    def spend(self, steps: int) -> None:
        """Take steps from the allowance. Raises TooCostlyError if it is exceeded."""
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise TooCostlyError
