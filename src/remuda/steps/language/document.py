"""Parses the YAML or JSON text of a definition file into trees of nodes, each with its line number.

In plain YAML scalars `yes`, dates and times are strings, 0x10 is 16, 1_000 is 1000; aliases and `<<` are expanded. JSON
is parsed without PyYAML. For YAML only PyYAML's event parser is used, because its composer recurses and does not limit
aliases. Invariant: with all aliases expanded a tree has at most `MAX_DEPTH` levels and `MAX_NODES` nodes."""

import itertools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remuda.lib.dataclass import dataclass
from remuda.steps.errors import DefinitionError
from remuda.steps.language.errors import ExpressionError
from remuda.steps.language.operations import MAX_DEPTH, number

if TYPE_CHECKING:
    import yaml

MAX_NODES = 100_000
MAX_CHARACTERS = 16 * 1024 * 1024

_SEPARATOR = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)
_REMARKS = re.compile(r"(?:[ \t]*#[^\n]*\n)+")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s{}\[\]:,"]+|[{}\[\]:,\n]')
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[1-9][0-9_]*|0)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(("false", "False", "FALSE"), False)
_TAG = "tag:yaml.org,2002:"
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value of a YAML or JSON document with its line number. A value in a mapping has the line of its key."""

    line: int
    value: "Scalar | list[Node] | dict[str, Node]"
    written: str = ""
    """A scalar as it is written in the file."""

    def plain(self) -> Any:
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


Scalar = bool | int | float | str | None


class DocumentError(DefinitionError):
    """Raised if a text is not valid YAML or JSON, or too large; `line` is the line of the mistake."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def read_documents(text: str) -> list[Node]:
    """Parse the first two documents of a text; an empty one has the value None. Raises DocumentError if invalid."""
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_CHARACTERS:
        raise DocumentError(1, f"the text has more than {MAX_CHARACTERS} characters")
    if "\0" in text:
        raise DocumentError(text.count("\n", 0, text.index("\0")) + 1, "the text contains a NUL byte; remove it")
    return _read_json(text) or _read_yaml(text)


def _read_json(text: str) -> list[Node]:
    """Parse the first two JSON documents, separated by `---`, with comments before the first. Returns an empty list if
    the text is not valid JSON: then the caller uses the YAML parser, which has better error messages."""
    if remarks := _REMARKS.match(text):
        text = "\n" * remarks[0].count("\n") + text[remarks.end() :]
    first = text.lstrip()[:1]
    if first not in ("{", "[", "-", ""):
        return []
    documents: list[Node] = []
    line = 1
    starts = [0, *(match.end() for match in _SEPARATOR.finditer(text))]
    ends = [*(match.start() for match in _SEPARATOR.finditer(text)), len(text)]
    parts = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    if len(parts) > 2 and not parts[0].strip():
        line += parts[0].count("\n")
        parts = parts[1:]  # the text begins with the separator
    for part in parts[:2]:
        if not part.strip():
            documents.append(Node(line=line, value=None))
        else:
            try:
                value = json.loads(part, object_pairs_hook=_unique, parse_float=_Written, parse_int=_Written)
            except (ValueError, RecursionError):
                return []
            many_lines = "\n" in part.strip()
            lines = _json_lines(part, line) if many_lines else itertools.repeat(line + _blank_lines(part))
            documents.append(_wrap(value, lines))
        line += part.count("\n")
    return documents


class _Written(float):
    """A number in a JSON text, with the text as it is written in the file."""

    __slots__ = ("written",)
    written: str

    def __new__(cls, written: str) -> "_Written":
        value = super().__new__(cls, written)
        if not math.isfinite(value):
            raise ValueError
        value.written = written
        return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError
    return values


def _blank_lines(part: str) -> int:
    return part.count("\n", 0, len(part) - len(part.lstrip()))


def _json_lines(part: str, line: int) -> Iterator[int]:
    """Yield the line numbers of the root, each key and each list item of a valid JSON text that begins at `line`."""
    follows_colon = False
    for token in _TOKEN.findall(part):
        if token == "\n":
            line += 1
        elif token == ":":
            follows_colon = True
        elif token not in "}],":
            if not follows_colon:
                yield line
            follows_colon = False


def _wrap(value: Any, lines: Iterator[int]) -> Node:
    counted = itertools.count(1)
    root_line = next(lines)

    def wrap(item: Any, line: int, depth: int) -> Node:
        if depth > MAX_DEPTH or next(counted) > MAX_NODES:
            raise _too_large(line)
        if isinstance(item, dict):
            entries: dict[str, Node] = {}
            for key, child in item.items():
                key_line = next(lines)
                entries[_clean(key, key_line)] = wrap(child, key_line, depth + 1)
            return Node(line=line, value=entries)
        if isinstance(item, list):
            return Node(line=line, value=[wrap(child, next(lines), depth + 1) for child in item])
        if isinstance(item, _Written):
            return Node(line=line, value=number(item), written=item.written)
        if isinstance(item, str):
            return Node(line=line, value=_clean(item, line), written=item)
        return Node(line=line, value=item, written=json.dumps(item))

    return wrap(value, root_line, 0)


def _clean(text: str, line: int) -> str:
    if "\0" in text or (not text.isascii() and _HALF_CHARACTER.search(text)):
        raise DocumentError(line, "a string contains NUL or half a surrogate pair, which no program can get; remove it")
    return text


def _too_large(line: int) -> DocumentError:
    return DocumentError(line, f"more than {MAX_NODES} values, or more than {MAX_DEPTH} levels of nesting")


def _read_yaml(text: str) -> list[Node]:
    import yaml  # imported late: slow, and most texts are JSON

    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            builder.take(event)
            if len(builder.documents) == 2:
                break
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = min(mark.line, text.count("\n")) + 1 if mark else 1
        raise DocumentError(line, f"invalid YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position if isinstance(error.position, int) else 0) + 1
        raise DocumentError(
            line, f"invalid YAML: the character U+{_code(error.character):04X} is not allowed"
        ) from None
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise DocumentError(1, f"invalid YAML: {type(error).__name__}") from None
    documents = builder.documents
    if len(documents) == 1 and builder.begins_marked and not _names_spec(documents[0]):
        documents.insert(0, Node(line=1, value=None))  # the text begins with the separator
    return documents


def _code(character: Any) -> int:
    return character if isinstance(character, int) else ord(character)


def _names_spec(document: Node) -> bool:
    return document.value is None or (isinstance(document.value, dict) and "spec" in document.value)


@dataclass(slots=True, kw_only=True)
class _Open:
    line: int
    anchor: str | None
    is_mapping: bool
    children: list[Node]
    nodes: int = 1
    height: int = 0


class _Builder:
    """Builds trees from the YAML parser's events, which `take` gets one by one. Complete trees are in `documents`."""

    def __init__(self) -> None:
        self.documents: list[Node] = []
        self.begins_marked = False
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int, int]] = {}

    def take(self, event: "yaml.Event") -> None:
        import yaml

        line = event.start_mark.line + 1 if event.start_mark else 1
        match event:
            case yaml.DocumentStartEvent():
                self.begins_marked = self.begins_marked or (event.explicit is True and not self.documents)
                self._anchors.clear()
            case yaml.ScalarEvent():
                self._add(_scalar(event, line), event.anchor, 1, 0)
            case yaml.AliasEvent():
                if event.anchor not in self._anchors:
                    raise DocumentError(line, f'the alias "*{event.anchor}" has no anchor before it')
                node, nodes, height = self._anchors[event.anchor]
                self._add(replace(node, line=line), None, nodes, height)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                is_mapping = isinstance(event, yaml.MappingStartEvent)
                if event.tag not in (None, "!", _TAG + ("map" if is_mapping else "seq")):
                    raise DocumentError(line, f'the tag "{event.tag}" is not supported')
                if len(self._stack) > MAX_DEPTH:
                    raise _too_large(line)
                self._stack.append(_Open(line=line, anchor=event.anchor, is_mapping=is_mapping, children=[]))
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                closed = self._stack.pop()
                content: list[Node] | dict[str, Node] = (
                    _entries(closed.children) if closed.is_mapping else closed.children
                )
                self._add(Node(line=closed.line, value=content), closed.anchor, closed.nodes, closed.height)
            case _:
                pass

    def _add(self, node: Node, anchor: str | None, nodes: int, height: int) -> None:
        """Add a complete node to its parent or, for a root, to `documents`. `anchor`: its name for aliases. `nodes` and
        `height`: size and depth of its tree, aliases expanded. Raises DocumentError if a limit is exceeded."""
        if anchor is not None:
            self._anchors[anchor] = (node, nodes, height)
        if not self._stack:
            self.documents.append(node)
            return
        parent = self._stack[-1]
        parent.children.append(node)
        parent.nodes += nodes
        parent.height = max(parent.height, height + 1)
        if sum(level.nodes for level in self._stack) > MAX_NODES or len(self._stack) + height > MAX_DEPTH:
            raise _too_large(node.line)


def _entries(children: list[Node]) -> dict[str, Node]:
    entries: dict[str, Node] = {}
    merged: list[dict[str, Node]] = []
    for key, value in zip(children[::2], children[1::2], strict=True):
        if isinstance(key.value, dict | list):
            raise DocumentError(key.line, "a key must be a string")
        name = key.written
        if name == "<<" and isinstance(value.value, dict | list):
            merged.extend(_read_merge(value))
            continue
        if name in entries:
            raise DocumentError(key.line, f'the key "{name}" appears twice in one mapping')
        entries[name] = replace(value, line=key.line)
    for more in merged:
        entries = {**more, **entries}
    return entries


def _read_merge(value: Node) -> list[dict[str, Node]]:
    sources = value.value if isinstance(value.value, list) else [value]
    mappings = [source.value for source in sources if isinstance(source.value, dict)]
    if len(mappings) < len(sources):
        raise DocumentError(value.line, 'only mappings can be merged with "<<"')
    return mappings


def _scalar(event: "yaml.ScalarEvent", line: int) -> Node:
    text = _clean(event.value, line)
    tag = event.tag
    if tag is None and event.implicit[0]:
        return Node(line=line, value=_resolve_scalar(text, line), written=text)
    if tag in (None, "!", _TAG + "str"):
        return Node(line=line, value=text, written=text)
    value = _resolve_scalar(text, line)
    kinds: dict[str, type | tuple[type, ...]] = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}
    expected = kinds.get(tag.removeprefix(_TAG))
    if expected is None or not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise DocumentError(line, f'the tag "{tag}" is not supported, or does not fit "{text[:40]}"')
    return Node(line=line, value=value, written=text)


def _resolve_scalar(text: str, line: int) -> Scalar:
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if text[0] not in "+-.0123456789":
        return text
    try:
        if _INTEGER.fullmatch(text):
            return number(_integer(text.replace("_", "")))
        if _FLOAT.fullmatch(text):
            return number(float(text.replace("_", "")))
    except (ExpressionError, ValueError):
        raise DocumentError(
            line, f'the number "{text[:40]}" is out of range; put it in quotes if it is a string'
        ) from None
    if _INFINITE.fullmatch(text):
        raise DocumentError(line, f'"{text}" is not a number that a step can get; put it in quotes if it is a string')
    return text


def _integer(text: str) -> float:
    digits = text.lstrip("+-")
    sign = -1 if text.startswith("-") else 1
    if len(digits) == 1 or digits[0] != "0":
        return sign * float(digits)
    base = {"x": 16, "b": 2, "o": 8}.get(digits[1])
    return sign * (int(digits[2:], base) if base else int(digits, 8))
