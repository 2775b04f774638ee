"""Replaces `$[[ inputs.name ]]` and `$[[ component.name ]]` in the tree of a file.

A value that consists of one such block gets the input's type (a list stays a list); inside a longer text the input
becomes text. `MAX_ADDED` limits the characters that inputs add to a file's tree; a list counts at least ten for each
value in it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from remuda.pipeline.errors import Report, printable, quote
from remuda.pipeline.include.blocks import find_blocks
from remuda.pipeline.include.component_context import ComponentContext
from remuda.pipeline.syntax.known_keys import nearest
from remuda.pipeline.syntax.tree import Entry, Items, Node, Opaque, Scalar, Table, plain
from remuda.pipeline.syntax.variable_expansion import Expansion, ExpansionError

MAX_ADDED = 1_000_000
MAX_FUNCTIONS = 3
_FUNCTIONS = "expand_vars, truncate(from,length), posix_escape or split(',')"

_OPENER, _CLOSER = "$[[", "]]"
_ACCESS = re.compile(r"(inputs|component)\.([\w-]+)", re.ASCII)
_TRUNCATE = re.compile(r"truncate\(\s*(\d{1,6})\s*,\s*(\d{1,6})\s*\)", re.ASCII)
_SPLIT = re.compile(r"split\('([^']+)'\)")
_UNSAFE = re.compile(r"[^A-Za-z0-9_\-.,:+/@\n]")


class Interpolation:
    def __init__(
        self,
        report: Report,
        values: Mapping[str, Node],
        variables: Mapping[str, str],
        context: ComponentContext | None = None,
    ) -> None:
        self._report = report
        self._values = values
        self._context = context or ComponentContext()
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
        if _OPENER not in node.text:
            return node
        blocks = list(find_blocks(node.text, _OPENER, _CLOSER))
        if len(blocks) == 1 and blocks[0] == (len(_OPENER), len(node.text) - len(_CLOSER)):
            value = self._block(node, node.text[slice(*blocks[0])], is_whole=True)
            if isinstance(value, Scalar):
                return msgspec.structs.replace(node, text=value.text, kind=value.kind)
            return value
        parts: list[str] = []
        done = 0
        for begin, end in blocks:
            value = self._block(node, node.text[begin:end], is_whole=False)
            if isinstance(value, Opaque):
                return value
            parts += (node.text[done : begin - len(_OPENER)], text_of(value))
            done = end + len(_CLOSER)
        return msgspec.structs.replace(node, text="".join((*parts, node.text[done:])))

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
        if name[1] == "component":
            field = self._context.read(name[2])
            if not isinstance(field, str):
                self._report.add(node, "", field.reason, field.suggestion)
                return opaque
            value: Node = msgspec.structs.replace(node, text=field, kind="text")
        elif name[2] not in self._values:
            suggestion = nearest(name[2], self._values) or 'declare it under "spec:inputs"'
            self._report.add(node, "", f"there is no input {quote(name[2])}", suggestion)
            return opaque
        else:
            value = self._values[name[2]]
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
        if split := _SPLIT.fullmatch(function):
            parts = filter(None, map(str.strip, value.text.split(split[1])))
            items = tuple(msgspec.structs.replace(value, text=part) for part in parts)
            return Items(items=items, line=value.line, column=value.column, file=value.file)
        if function == "posix_escape":
            return msgspec.structs.replace(value, text=_escape(value.text))
        if function == "expand_vars":
            try:
                return msgspec.structs.replace(value, text=self._expansion.expand(value.text))
            except ExpansionError as error:
                self._report.add(node, "", f"the input {error}", "use shorter variables")
        else:
            names = ("expand_vars", "truncate", "posix_escape")
            suggestion = nearest(function, names) or f"use {_FUNCTIONS}"
            self._report.add(node, "", f"there is no function {quote(function)}", suggestion)
        return Opaque(line=node.line, column=node.column, file=node.file)


def _escape(text: str) -> str:
    """Escape a text for a POSIX shell as GitLab does: with backslashes, so that it can also stand beside other text."""
    if not text:
        return "''"
    return _UNSAFE.sub(r"\\\g<0>", text).replace("\n", "'\n'")


def text_of(node: Node) -> str:
    """Return a value as text, for use inside a longer text; lists as JSON; an invalid value as nothing."""
    if isinstance(node, Opaque):
        return ""
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
