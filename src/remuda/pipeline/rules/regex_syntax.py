"""The text of a regular expression to a tree, in the syntax of RE2, which is what GitLab judges rules with.

Decided here: which syntax there is. As in RE2 there are no back references and no look-around: those are what
cannot be matched in linear time. `patterns` turns the tree into a program and asks whether there is a match, `captures`
asks what it took.

Invariants: no tree is nested deeper than `MAX_GROUPS` groups; a mistake says at which character it stands.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import msgspec

MAX_PATTERN = 1000
MAX_REPEAT = 1000
MAX_GROUPS = 50

Fits = Callable[[str], bool]


class PatternError(Exception):
    """The regular expression cannot be used."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class One(msgspec.Struct, frozen=True, kw_only=True):
    """One character of a kind. `literal` is the character where only a single one fits."""

    fits: Fits
    literal: str = ""


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """A place between characters: `start`, `end`, `line start`, `line end`, `word`, `no word`."""

    kind: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One after the other."""

    parts: tuple[Tree, ...]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Any one of them."""

    parts: tuple[Tree, ...]


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """The part, `low` to `high` times; without `high` there is no end. `lazy`: as few times as will do."""

    part: Tree
    low: int
    high: int | None
    lazy: bool = False


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A part whose text can be asked for, with its number."""

    part: Tree
    number: int


Tree = One | Edge | Row | Choice | Repeat | Group


def is_word(character: str) -> bool:
    """What `\\w` means: letters, digits and _ of ASCII."""
    return character.isascii() and (character.isalnum() or character == "_")


_POSIX: dict[str, Fits] = {
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "digit": lambda c: "0" <= c <= "9",
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "upper": lambda c: "A" <= c <= "Z",
    "lower": lambda c: "a" <= c <= "z",
    "space": lambda c: c in " \t\n\r\f\v",
    "punct": lambda c: "!" <= c <= "~" and not c.isalnum(),
    "xdigit": lambda c: c.isascii() and c in "0123456789abcdefABCDEF",
    "word": is_word,
    "blank": lambda c: c in " \t",
    "print": lambda c: " " <= c <= "~",
    "graph": lambda c: "!" <= c <= "~",
    "cntrl": lambda c: c < " " or c == "\x7f",
    "ascii": str.isascii,
}
_CLASSES: dict[str, Fits] = {"d": _POSIX["digit"], "w": is_word, "s": lambda c: c in " \t\n\r\f"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_EDGES = {"A": "start", "z": "end", "Z": "end", "b": "word", "B": "no word"}


def parse(text: str, flags: str = "") -> Tree:
    """The tree of the expression between the slashes."""
    if len(text) > MAX_PATTERN:
        raise PatternError(f"a regular expression has at most {MAX_PATTERN} characters", MAX_PATTERN)
    parser = _Parser(text, frozenset(flags))
    tree = parser.choice()
    if parser.at < len(text):
        raise PatternError("a ) without its (", parser.at)
    return tree


class _Parser:
    def __init__(self, text: str, flags: frozenset[str]) -> None:
        self.at = 0
        self._text = text
        self._flags = flags
        self._depth = 0
        self._groups = 0

    def choice(self) -> Tree:
        outside = self._flags
        rows = [self._row()]
        while self._took("|"):
            rows.append(self._row())
        self._flags = outside
        return rows[0] if len(rows) == 1 else Choice(parts=tuple(rows))

    def _row(self) -> Tree:
        parts: list[Tree] = []
        while self.at < len(self._text) and self._text[self.at] not in "|)":
            part = self._repeated(self._part())
            if part is not None:
                parts.append(part)
        return Row(parts=tuple(parts))

    def _took(self, wanted: str) -> bool:
        if self._text.startswith(wanted, self.at):
            self.at += len(wanted)
            return True
        return False

    def _take(self) -> str:
        if self.at >= len(self._text):
            raise PatternError("it ends too early", self.at)
        self.at += 1
        return self._text[self.at - 1]

    def _repeated(self, part: Tree | None) -> Tree | None:
        times = 0
        while self.at < len(self._text):
            start = self.at
            bounds = self._bounds()
            if bounds is None:
                return part
            if part is None or times:
                raise PatternError("nothing to repeat", start)
            low, high = bounds
            if (high is not None and high < low) or max(low, high or 0) > MAX_REPEAT:
                raise PatternError(f"a repetition is written {{low,high}}, with at most {MAX_REPEAT}", start)
            lazy = self._took("?") is not ("U" in self._flags)
            part, times = Repeat(part=part, low=low, high=high, lazy=lazy), 1
        return part

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._took(sign):
                return bounds
        end = self._text.find("}", self.at)
        low, comma, high = self._text[self.at + 1 : end].partition(",")
        if not self._text.startswith("{", self.at) or end < 0 or not _is_count(low) or (high and not _is_count(high)):
            return None
        self.at = end + 1
        return int(low), int(high) if high else None if comma else int(low)

    def _part(self) -> Tree | None:
        start = self.at
        character = self._take()
        if character == "(":
            return self._group(start)
        if character == "[":
            return One(fits=self._class(start))
        if character == ".":
            return One(fits=(lambda c: True) if "s" in self._flags else (lambda c: c != "\n"))
        if character in "^$":
            lines = "line " if "m" in self._flags else ""
            return Edge(kind=lines + ("start" if character == "^" else "end"))
        if character in "*+?":
            raise PatternError("nothing to repeat", start)
        if character == "\\":
            return self._escape(start)
        return self._literal(character)

    def _literal(self, character: str) -> One:
        return One(fits=self._same(character), literal="" if "i" in self._flags else character)

    def _group(self, start: int) -> Tree | None:
        outside = self._flags
        number = 0
        if self._took("?"):
            named = self._took("P<") or (not self._text.startswith(("<=", "<!"), self.at) and self._took("<"))
            if named:
                while self._take() != ">":
                    pass
                number = self._next_group()
            elif not self._took(":"):
                self._read_flags(start)
                if self._text[self.at - 1] == ")":
                    return None
        else:
            number = self._next_group()
        self._depth += 1
        if self._depth > MAX_GROUPS:
            raise PatternError(f"groups are nested deeper than {MAX_GROUPS} levels", start)
        tree = self.choice()
        if not self._took(")"):
            raise PatternError("a ( without its )", start)
        self._depth -= 1
        self._flags = outside
        return Group(part=tree, number=number) if number else tree

    def _next_group(self) -> int:
        self._groups += 1
        return self._groups

    def _read_flags(self, start: int) -> None:
        on, flags = True, set(self._flags)
        while (character := self._take()) not in ":)":
            if character == "-" and on:
                on = False
            elif character in "imsU":
                flags = flags | {character} if on else flags - {character}
            else:
                raise PatternError("groups that look ahead, look behind or are atomic do not work here", start)
        self._flags = frozenset(flags)

    def _escape(self, start: int) -> Tree:
        character = self._take()
        if character in _EDGES:
            return Edge(kind=_EDGES[character])
        if character == "Q":
            end = self._text.find("\\E", self.at)
            quoted = self._text[self.at : end if end >= 0 else len(self._text)]
            self.at += len(quoted) + (2 if end >= 0 else 0)
            return Row(parts=tuple(self._literal(each) for each in quoted))
        if not character.isascii() or not character.isalnum():
            return self._literal(character)
        return One(fits=self._escaped(character, start))

    def _escaped(self, character: str, start: int) -> Fits:
        """What an escape stands for, inside and outside of brackets."""
        lower = character.lower()
        if lower in _CLASSES:
            fits = _CLASSES[lower]
            return fits if character == lower else lambda c: not fits(c)
        if lower == "p":
            return self._category(start, wanted=character == "p")
        if character == "x":
            return self._same(self._hexadecimal(start))
        if character in _ESCAPES:
            return self._same(_ESCAPES[character])
        if character.isascii() and character.isalnum():
            what = "a back reference" if character.isdigit() else f"\\{character}"
            raise PatternError(f"{what} does not work here", start)
        return self._same(character)

    def _hexadecimal(self, start: int) -> str:
        first = self._take()
        digits = first + self._take() if first != "{" else ""
        if first == "{":
            while (character := self._take()) != "}":
                digits += character
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            raise PatternError("\\x is followed by two hexadecimal digits", start) from None

    def _category(self, start: int, *, wanted: bool) -> Fits:
        name = self._take()
        if name == "{":
            name = ""
            while (character := self._take()) != "}":
                name += character
        if not (name[:1] in tuple("LMNPSZC") and len(name) <= 2 and name.isascii()):
            raise PatternError(f"\\p knows categories such as L or Lu, not {name}", start)
        return lambda c: unicodedata.category(c).startswith(name) is wanted

    def _class(self, start: int) -> Fits:
        negated = self._took("^")
        found: list[Fits] = []
        first = True
        while first or not self._took("]"):
            first = False
            at = self.at
            if self._took("[:"):
                found.append(self._posix(at))
                continue
            low = self._take()
            if low == "\\":
                low = self._take()
                if low.isalnum() and low not in _ESCAPES:
                    found.append(self._escaped(low, at))
                    continue
                low = _ESCAPES.get(low, low)
            if self.at + 1 < len(self._text) and self._text[self.at] == "-" and self._text[self.at + 1] != "]":
                self.at += 1
                high = self._take()
                if high == "\\":
                    high = self._take()
                    high = _ESCAPES.get(high, high)
                if high < low:
                    raise PatternError(f"the range {low}-{high} is the wrong way round", at)
                found.append(self._between(low, high))
            else:
                found.append(self._same(low))
            if self.at >= len(self._text):
                raise PatternError("a [ without its ]", start)
        return lambda c: any(fits(c) for fits in found) is not negated

    def _posix(self, start: int) -> Fits:
        end = self._text.find(":]", self.at)
        name = self._text[self.at : end] if end >= 0 else ""
        fits = _POSIX.get(name.removeprefix("^"))
        if fits is None:
            raise PatternError("there is no such class of characters", start)
        self.at = end + 2
        return (lambda c: not fits(c)) if name.startswith("^") else fits

    def _same(self, wanted: str) -> Fits:
        if "i" not in self._flags:
            return lambda c: c == wanted
        folded = wanted.casefold()
        return lambda c: c.casefold() == folded

    def _between(self, low: str, high: str) -> Fits:
        if "i" not in self._flags:
            return lambda c: low <= c <= high
        return lambda c: low <= c <= high or low <= c.lower() <= high or low <= c.upper() <= high


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 6
