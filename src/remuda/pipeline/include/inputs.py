"""Reads `spec:inputs` of a file's header, checks the given values, and replaces `$[[ inputs.name ]]` in its tree.

A value that consists of one such block gets the input's type (a list stays a list); inside a longer text the input
becomes text. A text from the user who starts a pipeline is parsed as the number, boolean or list that the input
declares. `MAX_ADDED` limits the characters that inputs add to a file's tree; a list counts at least ten for each value
in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

import msgspec

from remuda.pipeline.errors import Placed, Report, printable, quote
from remuda.pipeline.rules.regex import PatternError, Patterns, TooCostlyError
from remuda.pipeline.syntax.known_keys import HEADER, INPUT, INPUT_TYPES, SPEC, nearest
from remuda.pipeline.syntax.tree import Entry, Items, Node, Opaque, Scalar, Table, node_of, plain
from remuda.pipeline.syntax.typed_values import Fields, inside, is_null, mistyped, read_table, read_text
from remuda.pipeline.syntax.variable_expansion import Expansion, ExpansionError

MAX_ADDED = 1_000_000
MAX_FUNCTIONS = 3

_BLOCK = re.compile(r"\$\[\[(.*?)\]\]", re.DOTALL)
_ACCESS = re.compile(r"inputs\.([\w-]+)", re.ASCII)
_TRUNCATE = re.compile(r"truncate\(\s*(\d{1,6})\s*,\s*(\d{1,6})\s*\)", re.ASCII)
_KINDS = {"string": ("text",), "number": ("number",), "boolean": ("true", "false")}


class Input(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    default: Node | None
    options: tuple[str, ...] | None
    regex: str | None
    key: Scalar


def read_header(report: Report, header: Table, patterns: Patterns) -> dict[str, Input]:
    top = read_table(report, header, "", HEADER)
    spec = read_table(report, top["spec"].value, "spec", SPEC) if "spec" in top else {}
    if "inputs" not in spec:
        return {}
    node = spec["inputs"].value
    if not isinstance(node, Table):
        mistyped(report, node, "spec:inputs", "a map of names")
        return {}
    return {name: _input(report, name, entry, patterns) for name, entry in node.entries.items()}


def _input(report: Report, name: str, entry: Entry, patterns: Patterns) -> Input:
    path = f"spec:inputs:{name}"
    entries = {} if is_null(entry.value) else read_table(report, entry.value, path, INPUT)
    fields = Fields(report, entries, path)
    default = entries["default"].value if "default" in entries else None
    declared = Input(
        type=fields.choice("type", INPUT_TYPES) or "string",
        default=default,
        options=fields.read("options", _options),
        regex=fields.read("regex", _regex, patterns),
        key=entry.key,
    )
    if default is not None:
        check_value(report, declared, default, f"{path}:default", patterns)
    return declared


def _options(report: Report, node: Node, path: str) -> tuple[str, ...] | None:
    if not isinstance(node, Items):
        mistyped(report, node, path, "a list of at most 50 values")
        return None
    if len(node.items) > 50:
        report.add(node, path, "has more than 50 values", "use fewer")
        return None
    return tuple(item.text for item in node.items if isinstance(item, Scalar))


def _regex(report: Report, node: Node, path: str, patterns: Patterns) -> str | None:
    text = read_text(report, node, path) or ""
    try:
        patterns.compile(text)
    except PatternError as error:
        message = f"the regular expression is invalid: {error} (character {error.offset + 1})"
        report.add(node, path, message, "correct it")
        return None
    return text


def check_value(report: Report, declared: Input, node: Node, path: str, patterns: Patterns) -> bool:
    """True if the value has the declared type and fits options and pattern; otherwise reports a mistake."""
    if isinstance(node, Opaque):
        return False
    kinds = _KINDS.get(declared.type)
    if not (isinstance(node, Scalar) and node.kind in kinds if kinds else isinstance(node, Items)):
        mistyped(report, node, path, f"of the type {declared.type}")
        return False
    if not isinstance(node, Scalar):
        return True
    if declared.options is not None and node.text not in declared.options:
        options = ", ".join(map(printable, declared.options))
        report.add(node, path, f"{quote(node.text)} is none of the options", f"use one of: {options}")
        return False
    try:
        if declared.regex is not None and not patterns.is_match(declared.regex, "", node.text):
            report.add(node, path, f"{quote(node.text)} does not match {quote(declared.regex)}", "correct the value")
            return False
    except TooCostlyError:
        report.stop(node, path, "the regular expressions take too long to evaluate", "use simpler ones")
    return True


def take_inputs(
    report: Report,
    declared: Mapping[str, Input],
    inputs: Mapping[str, Entry],
    *,
    at: Placed,
    path: str,
    patterns: Patterns,
    is_first: bool,
) -> dict[str, Node]:
    """Return the given or default value of every input. Reports unknown, invalid and (at `at`, the include) missing
    ones. `is_first`: the inputs come from the request that starts the pipeline, not from an `include`, so texts are
    parsed as the declared type."""
    values: dict[str, Node] = {}
    for name, entry in inputs.items():
        if name not in declared:
            suggestion = nearest(name, declared) or "remove it"
            report.add(entry.key, inside(path, name), f"the file has no input {quote(name)}", suggestion)
    for name, declaration in declared.items():
        if name in inputs:
            node = _read_as(declaration.type, inputs[name].value) if is_first else inputs[name].value
            fits = check_value(report, declaration, node, inside(path, name), patterns)
            values[name] = node if fits else Opaque(line=node.line, column=node.column, file=node.file)
        elif declaration.default is not None:
            values[name] = declaration.default
        else:
            report.add(at, path, f"the input {quote(name)} has no default and must be given", "give it a value")
            values[name] = Opaque(line=at.line, column=at.column, file=at.file)
    return values


def _read_as(kind: str, node: Node) -> Node:
    """Parse the node's text as JSON (number, boolean or list). Returns the node unchanged if the input's type `kind` is
    `string`, or the text is not JSON."""
    if kind == "string" or not isinstance(node, Scalar) or node.kind != "text":
        return node
    try:
        return node_of(msgspec.json.decode(node.text), node)
    except (msgspec.DecodeError, RecursionError):
        return node


class Interpolation:
    def __init__(self, report: Report, values: Mapping[str, Node], variables: Mapping[str, str]) -> None:
        self._report = report
        self._values = values
        self._expansion = Expansion(variables, one_budget=True)
        self._added = 0

    def tree(self, node: Node) -> Node:
        """Replace all `$[[ ... ]]` in the node and below it. A replaced scalar keeps its position in the file."""
        match node:
            case Scalar():
                return self._scalar(node)
            case Items():
                return msgspec.structs.replace(node, items=tuple(self.tree(item) for item in node.items))
            case Table():
                entries: dict[str, Entry] = {}
                for entry in node.entries.values():
                    key = self._scalar(entry.key)
                    if not isinstance(key, Scalar):
                        if not isinstance(key, Opaque):
                            self._report.add(entry.key, "", "a key must be text, not a list", "use another input")
                        continue
                    entries[key.text] = Entry(key=key, value=self.tree(entry.value))
                return msgspec.structs.replace(node, entries=entries)
            case _:
                return node

    def _scalar(self, node: Scalar) -> Node:
        if "$[[" not in node.text:
            return node
        blocks = list(_BLOCK.finditer(node.text))
        if len(blocks) == 1 and blocks[0].span() == (0, len(node.text)):
            value = self._block(node, blocks[0][1], is_whole=True)
            if isinstance(value, Scalar):
                return msgspec.structs.replace(node, text=value.text, kind=value.kind)
            return value
        parts: list[str] = []
        end = 0
        for block in blocks:
            value = self._block(node, block[1], is_whole=False)
            if isinstance(value, Opaque):
                return value
            parts += (node.text[end : block.start()], _text_of(value))
            end = block.end()
        return msgspec.structs.replace(node, text="".join((*parts, node.text[end:])))

    def _block(self, node: Scalar, text: str, *, is_whole: bool) -> Node:
        """Return the value of the input that the block `$[[text]]` names, after its functions, such as `truncate`, were
        applied; counts its size towards `MAX_ADDED`. If the block is invalid, reports a mistake and returns an
        `Opaque`, which stands for an invalid value. `is_whole`: the block is not part of a longer text."""
        access, *functions = (part.strip() for part in text.split("|"))
        opaque = Opaque(line=node.line, column=node.column, file=node.file)
        name = _ACCESS.fullmatch(access)
        if name is None:
            self._report.add(node, "", f"cannot read {quote(f'$[[{text}]]')}", "write it like $[[ inputs.name ]]")
            return opaque
        if name[1] not in self._values:
            suggestion = nearest(name[1], self._values) or 'declare it under "spec:inputs"'
            self._report.add(node, "", f"there is no input {quote(name[1])}", suggestion)
            return opaque
        value = self._values[name[1]]
        if len(functions) > MAX_FUNCTIONS:
            self._report.add(node, "", f"a block has at most {MAX_FUNCTIONS} functions", "use fewer")
            return opaque
        if not functions:
            self._add(node, value, is_whole=is_whole)
        for function in functions:
            value = self._call(node, function, value)
            self._add(node, value, is_whole=is_whole)
        return value

    def _add(self, node: Scalar, value: Node, *, is_whole: bool) -> None:
        """Add the value's size to the size that inputs have added to the file so far, and stop the compilation above
        `MAX_ADDED`. Called before a list becomes text, because with aliases a short file can have a very long list.
        `is_whole`: the value is not inserted into a longer text."""
        if isinstance(value, Scalar):
            self._added += len(value.text)
        else:  # a whole list shares its texts with the input's value
            self._added += 10 * _count(value) + (0 if is_whole else _count_characters(value))
        if self._added > MAX_ADDED:
            self._report.stop(node, "", f"inputs add more than {MAX_ADDED} characters", "use shorter values")

    def _call(self, node: Scalar, function: str, value: Node) -> Node:
        truncate = _TRUNCATE.fullmatch(function)
        if not isinstance(value, Scalar) or value.kind != "text":
            if not isinstance(value, Opaque):
                self._report.add(node, "", f"{printable(function)} works on strings only", "use it with another input")
            return Opaque(line=node.line, column=node.column, file=node.file)
        if truncate:
            start = int(truncate[1])
            return msgspec.structs.replace(value, text=value.text[start : start + int(truncate[2])])
        if function == "posix_escape":
            return msgspec.structs.replace(value, text=shlex.quote(value.text))
        if function == "expand_vars":
            try:
                return msgspec.structs.replace(value, text=self._expansion.expand(value.text))
            except ExpansionError as error:
                self._report.add(node, "", f"the input {error}", "use shorter variables")
        else:
            names = ("expand_vars", "truncate", "posix_escape")
            suggestion = nearest(function, names) or "use expand_vars, truncate(from,length) or posix_escape"
            self._report.add(node, "", f"there is no function {quote(function)}", suggestion)
        return Opaque(line=node.line, column=node.column, file=node.file)


def _text_of(node: Node) -> str:
    """Return a value as text, for use inside a longer text; lists as JSON."""
    return node.text if isinstance(node, Scalar) else msgspec.json.encode(plain(node)).decode()


def _count(node: Node) -> int:
    if isinstance(node, Items):
        return 1 + sum(map(_count, node.items))
    if isinstance(node, Table):
        return 1 + sum(_count(entry.value) for entry in node.entries.values())
    return 1


def _count_characters(node: Node) -> int:
    match node:
        case Scalar():
            return len(node.text)
        case Items():
            return sum(map(_count_characters, node.items))
        case Table():
            return sum(len(name) + _count_characters(entry.value) for name, entry in node.entries.items())
        case _:
            return 0
