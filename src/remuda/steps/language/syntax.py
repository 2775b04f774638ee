"""The grammar of expressions: parses a text into a syntax tree, which `evaluate` evaluates.

The language is GitLab's Moa, extended so that paths of older step runners stay valid: after a dot any word is allowed,
also a reserved one or with `-`. So `a.b-c` is one path, and `a.b - c` a subtraction. Invariant: no tree is deeper than
`MAX_DEPTH`, whatever the text, so code that walks trees may recurse."""

import re
from collections.abc import Iterator
from dataclasses import field
from functools import lru_cache

from remuda.lib.dataclass import dataclass
from remuda.steps.language.errors import ExpressionError
from remuda.steps.language.escaping import CLOSER, OPENER

MAX_DEPTH = 80
MAX_NESTING = 40
"""How deep brackets, quotes and signs may be nested; each level costs the parser a few calls."""

RESERVED = re.compile(
    "array|as|break|case|const|continue|default|else|fallthrough|float|for|func|function|goto|if|import|in|int|let|"
    "loop|map|namespace|number|object|package|range|return|string|struct|switch|type|var|void|while"
)
_CONSTANTS = {"null": None, "true": True, "false": False}
_PRECEDENCE = {
    operator: level
    for level, operators in enumerate(("||", "&&", "== != < <= > >=", "+ -", "* / %"), start=1)
    for operator in operators.split()
}
_BLANK = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PART = re.compile(r"[\w-]+")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_OPERATOR = re.compile(r"\|\||&&|[=!<>]=|[<>+*/%-]")
_RAW = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_PLAIN = re.compile(r'[^"\\$]+')
_ESCAPES = {"\\": "\\", '"': '"', "/": "/"} | dict(zip("nrtabfv", "\n\r\t\a\b\f\v", strict=True))
_UNICODE = re.compile(r"\\u([0-9a-fA-F]{4})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Base class of the nodes of a syntax tree. `at` is the position in the text, for error messages."""

    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal(Node):
    value: bool | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Template(Node):
    """A string with expressions in it; the text between them is in literal nodes."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Array(Node):
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Object(Node):
    entries: tuple[tuple[Node, Node], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Name(Node):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute(Node):
    subject: Node
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Index(Node):
    subject: Node
    key: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Node):
    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Node):
    operator: str
    operand: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary(Node):
    operator: str
    left: Node
    right: Node


@lru_cache(maxsize=256)
def parse_expression(text: str) -> Node:
    """Parse one expression without `${{` and `}}`. Raises ExpressionError if invalid. Cached: conditions repeat."""
    parser = _Parser(text, 0, closes=False)
    tree = parser.expression()
    if parser.position < len(text):
        raise parser.unexpected_token()
    return _check_depth(tree, text)


def parse_embedded(text: str, start: int) -> tuple[Node, int]:
    """Parse the expression whose `${{` is at `start`; return it and the position after it, or raise ExpressionError."""
    parser = _Parser(text, start, closes=True)
    return _check_depth(parser.parse_embedded(), text), parser.position


def walk(tree: Node) -> Iterator[tuple[Node, int]]:
    """Yield every node of a tree with its depth, in no particular order."""
    pending = [(tree, 1)]
    while pending:
        node, depth = pending.pop()
        yield node, depth
        pending.extend((child, depth + 1) for child in children(node))


def where(text: str, at: int) -> str:
    """Describe a position in a text as line and character, for error messages."""
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    return f"line {line}, character {column}" if "\n" in text.strip() else f"character {column}"


def excerpt(text: str, limit: int = 60) -> str:
    """Shorten a text to one line of at most `limit` characters, for error messages."""
    flat = " ".join(text[: 4 * limit].split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."


def _check_depth(tree: Node, text: str) -> Node:
    for node, depth in walk(tree):
        if depth > MAX_DEPTH:
            raise ExpressionError(
                f"the expression at {where(text, node.at)} has more than {MAX_DEPTH} levels of operations; "
                "split it over several steps"
            )
    return tree


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes directly below a node."""
    match node:
        case Template(parts=parts) | Array(items=parts) | Call(arguments=parts):
            return parts
        case Object(entries=entries):
            return tuple(child for entry in entries for child in entry)
        case Attribute(subject=child) | Unary(operand=child):
            return (child,)
        case Index(subject=left, key=right) | Binary(left=left, right=right):
            return (left, right)
    return ()


class _Parser:
    """Parser of one expression from `position` on. `closes`: the expression ends at `}}`, otherwise with the text."""

    def __init__(self, text: str, start: int, *, closes: bool) -> None:
        self.position = start
        self._text = text
        self._start = start
        self._closes = closes
        self._nesting = 0

    def parse_embedded(self) -> Node:
        self.position += len(OPENER)
        tree = self.expression()
        if not self._text.startswith(CLOSER, self.position):
            raise self.unexpected_token()
        self.position += len(CLOSER)
        return tree

    def expression(self, level: int = 1) -> Node:
        """Parse operands and binary operators with a precedence of at least `level` (precedence climbing)."""
        left = self._parse_signed()
        while match := _OPERATOR.match(self._text, self.position):
            operator = match[0]
            if _PRECEDENCE[operator] < level:
                break
            self.position = match.end()
            right = self.expression(_PRECEDENCE[operator] + 1)
            left = Binary(operator=operator, left=left, right=right, at=match.start())
        return left

    def unexpected_token(self) -> ExpressionError:
        if self.position >= len(self._text):
            if self._closes:
                return ExpressionError(
                    f'the expression "{excerpt(self._text[self._start :])}" is not closed: ${{{{ ... }}}}'
                )
            return self._problem("the expression is not complete", self.position)
        word = _WORD.match(self._text, self.position)
        return self._problem(f'unexpected "{word[0] if word else self._text[self.position]}"', self.position)

    def _problem(self, problem: str, at: int) -> ExpressionError:
        shown = excerpt(self._text[self._start :] if self._closes else self._text)
        return ExpressionError(f'cannot read the expression "{shown}": {problem} at {where(self._text, at)}')

    def _blanks(self) -> None:
        match = _BLANK.match(self._text, self.position)
        self.position = match.end() if match else self.position

    def _takes(self, token: str) -> bool:
        """If `token` comes next, skip it with the blanks after it and return True; else return False."""
        if not self._text.startswith(token, self.position):
            return False
        self.position += len(token)
        self._blanks()
        return True

    def _needs(self, token: str) -> None:
        if not self._takes(token):
            raise self.unexpected_token()

    def _parse_signed(self) -> Node:
        self._blanks()
        self._nesting += 1
        at = self.position
        if self._nesting > MAX_NESTING:
            raise self._problem(f"more than {MAX_NESTING} levels of nesting", at)
        tree: Node
        if (sign := self._text[at : at + 1]) and sign in "+-!":
            self.position += 1
            tree = Unary(operator=sign, operand=self._parse_signed(), at=at)
        else:
            tree = self._parse_access(self._primary())
        self._nesting -= 1
        return tree

    def _parse_access(self, tree: Node) -> Node:
        """Parse all `.name`, `[key]` and `(arguments)` after `tree`; return the tree of the whole expression."""
        while True:
            self._blanks()
            at = self.position
            if self._takes("."):
                part = _PART.match(self._text, self.position)
                if part is None:
                    raise self.unexpected_token()
                self.position = part.end()
                tree = Attribute(subject=tree, name=part[0], at=at)
            elif self._takes("["):
                tree = Index(subject=tree, key=self.expression(), at=at)
                self._needs("]")
            elif self._takes("("):
                if not isinstance(tree, Name):
                    raise self._problem("only a function can be called", at)
                tree = Call(function=tree.name, arguments=self._parse_list(")"), at=tree.at)
            else:
                return tree

    def _primary(self) -> Node:
        at = self.position
        if number := _NUMBER.match(self._text, at):
            self.position = number.end()
            if _WORD.match(self._text, self.position):
                raise self._problem("a letter follows a number", self.position)
            value = float(number[0])
            if value == float("inf"):
                raise self._problem("the number is out of range", at)
            return Literal(value=value, at=at)
        if word := _WORD.match(self._text, at):
            return self._word(word)
        if self._takes("("):
            tree = self.expression()
            self._needs(")")
            return tree
        if self._takes("["):
            return Array(items=self._parse_list("]"), at=at)
        if self._takes("{"):
            return self._object(at)
        if self._text.startswith('"', at):
            return self._parse_quoted()
        if raw := _RAW.match(self._text, at):
            self.position = raw.end()
            return Literal(value=re.sub(r"\\([\\'])", r"\1", raw[1]), at=at)
        if self._text.startswith("'", at):
            raise self._problem("the string is not closed", at)
        raise self.unexpected_token()

    def _word(self, word: re.Match[str]) -> Node:
        self.position = word.end()
        if word[0] in _CONSTANTS:
            return Literal(value=_CONSTANTS[word[0]], at=word.start())
        if RESERVED.fullmatch(word[0]):
            raise self._problem(f'"{word[0]}" is a reserved word; it is allowed only after a dot', word.start())
        return Name(name=word[0], at=word.start())

    def _parse_list(self, end: str) -> tuple[Node, ...]:
        """Parse expressions separated by commas, up to the token `end`. A trailing comma is allowed."""
        items: list[Node] = []
        while not self._takes(end):
            items.append(self.expression())
            if not self._takes(","):
                self._needs(end)
                break
        return tuple(items)

    def _object(self, at: int) -> Node:
        entries: list[tuple[Node, Node]] = []
        while not self._takes("}"):
            entries.append((self._key(), self.expression()))
            if not self._takes(","):
                self._needs("}")
                break
        return Object(entries=tuple(entries), at=at)

    def _key(self) -> Node:
        at = self.position
        key: Node
        if word := _WORD.match(self._text, at):
            self.position = word.end()
            key = Literal(value=word[0], at=at)
        elif self._takes("("):
            key = self.expression()
            self._needs(")")
        elif self._text[at : at + 1] in ('"', "'"):
            key = self._primary()
        else:
            raise self.unexpected_token()
        self._blanks()
        self._needs(":")
        return key

    def _parse_quoted(self) -> Node:
        at = self.position
        self.position += 1
        parts: list[Node] = []
        plain: list[str] = []
        while True:
            here = self.position
            if chunk := _PLAIN.match(self._text, here):
                plain.append(chunk[0])
                self.position = chunk.end()
            elif self._text.startswith(OPENER, here):
                if plain:
                    parts.append(Literal(value="".join(plain), at=here))
                    plain.clear()
                parts.append(self.parse_embedded())
            elif self._text.startswith("$", here):
                plain.append("$")
                self.position += 1
            elif self._text.startswith("\\", here):
                plain.append(self._escape())
            elif self._text.startswith('"', here):
                self.position += 1
                break
            else:
                raise self._problem("the string is not closed", at)
        if not parts:
            return Literal(value="".join(plain), at=at)
        if plain:
            parts.append(Literal(value="".join(plain), at=at))
        return Template(parts=tuple(parts), at=at)

    def _escape(self) -> str:
        at = self.position
        if self._text.startswith("\\" + OPENER, at):
            self.position += 1 + len(OPENER)
            return OPENER
        if code := _UNICODE.match(self._text, at):
            self.position = code.end()
            first = int(code[1], 16)
            if 0xD800 <= first < 0xDC00 and (code := _UNICODE.match(self._text, self.position)):
                second = int(code[1], 16)
                if 0xDC00 <= second < 0xE000:
                    self.position = code.end()
                    return chr(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
            if 0xD800 <= first < 0xE000:
                raise self._problem("half a surrogate pair", at)
            return chr(first)
        escaped = self._text[at + 1 : at + 2]
        if escaped not in _ESCAPES:
            raise self._problem(f'unknown escape "\\{escaped}"', at)
        self.position += 2
        return _ESCAPES[escaped]
