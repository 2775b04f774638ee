"""Replaces `$[[ inputs.name ]]` and `$[[ component.name ]]` in the tree of a file.

GitLab replaces them in the tree, too: the file must be YAML before, and a value is never read as YAML. (GitLab 16 had a
replacement in the text behind a feature flag, `ci_text_interpolation`, and removed it.)

A value that consists of one such block gets the input's type (a list stays a list); inside a longer text the input
becomes text. `$[[ matrix.NAME ]]` stays; `job_list.py` replaces it in needs. `MAX_ADDED` limits the characters that
inputs add to a file's tree; a list counts at least ten for each value in it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from remuda.pipeline.errors import Report, printable, quote
from remuda.pipeline.facts import SourceProblem
from remuda.pipeline.include.blocks import find_blocks
from remuda.pipeline.include.component_context import ComponentContext
from remuda.pipeline.include.input_access import find_value
from remuda.pipeline.syntax.known_keys import nearest
from remuda.pipeline.syntax.tree import Entry, Items, Node, Opaque, Scalar, Table, plain
from remuda.pipeline.syntax.variable_expansion import Expansion, ExpansionError

MAX_ADDED = 1_000_000
MAX_FUNCTIONS = 3
_FUNCTIONS = "expand_vars, truncate(from,length), posix_escape or split(',')"

_OPENER, _CLOSER = "$[[", "]]"
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
        self._found: dict[str, Node | SourceProblem | None] = {}
        """What `find_value` returned for each path: aliases can repeat a block thousands of times."""

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
                            self._report.add(
                                entry.key, "", "a key must be text, not a list or a map", "use another input"
                            )
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
        context, _, path = access.partition(".")
        if context == "matrix":
            return msgspec.structs.replace(node, text=f"{_OPENER}{text}{_CLOSER}")
        opaque = Opaque(line=node.line, column=node.column, file=node.file)
        value = self._find(node, context, path)
        if value is None:
            message = f"cannot read {quote(f'{_OPENER}{text}{_CLOSER}')}"
            self._report.add(node, "", message, "write it like $[[ inputs.name ]] or $[[ inputs.list[0] ]]")
            return opaque
        if isinstance(value, SourceProblem):
            self._report.add(node, "", value.reason, value.suggestion)
            return opaque
        if len(functions) > MAX_FUNCTIONS:
            self._report.add(node, "", f"a block has at most {MAX_FUNCTIONS} functions", "use fewer")
            return opaque
        if not functions:
            self._add(node, value, is_whole=is_whole)
        for function in functions:
            value = self._call(node, function, value)
            self._add(node, value, is_whole=is_whole)
        return value

    def _find(self, node: Scalar, context: str, path: str) -> Node | SourceProblem | None:
        if context == "inputs":
            if path not in self._found:
                self._found[path] = find_value(self._values, path)
            return self._found[path]
        if context != "component":
            return None
        field = self._context.read(path)
        return msgspec.structs.replace(node, text=field, kind="text") if isinstance(field, str) else field

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
    """Return a value as text, for use inside a longer text; lists as JSON with spaces, which is what GitLab writes for
    texts and numbers; an invalid value as nothing."""
    match node:
        case Opaque():
            return ""
        case Scalar():
            return node.kind if node.kind in ("true", "false") else node.text
        case _:
            return msgspec.json.format(msgspec.json.encode(plain(node)), indent=0).decode()


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
