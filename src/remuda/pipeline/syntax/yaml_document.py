"""Parses YAML text into a tree of values with their positions.

Unquoted scalars get the types that Ruby's Psych, which GitLab uses, gives them. The tree is built from parser events
with an explicit stack, not with PyYAML's composer, which recurses, does not limit aliases, and stops at a duplicate
key. An alias is the anchor's node itself, so that a mistake in it has the position of the anchor; for the size limit it
counts as a copy, against YAML bombs.

Invariants: no tree is deeper than `MAX_DEPTH` or larger than `MAX_NODES` with all aliases copied, so that readers may
recurse; lines and columns start at 1; keys of a map are in the order of the file, those that `<<` adds at its place."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from remuda.pipeline.errors import Place, Report, printable, quote
from remuda.pipeline.syntax.tree import Entry, Items, Kind, Node, Opaque, Reference, Scalar, Table, items_of

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1024 * 1024
MAX_NODES = 100_000
MAX_DEPTH = 100

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUES = frozenset({"true", "yes", "on"})
_FALSES = frozenset({"false", "no", "off"})
_NUMBER = re.compile(
    r"[-+]?(0x[0-9a-f_]+|0b[01_]+|([0-9][0-9_,]*(\.[0-9_]*)?|\.[0-9][0-9_]*)(e[-+]?[0-9]+)?|\.inf)|\.nan",
    re.IGNORECASE | re.ASCII,
)
# Characters that YAML forbids, and a byte order mark in the middle. The second pattern is for texts that are not ASCII;
# it takes longer to compile than most files to read, so it is compiled only for those.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_FORBIDDEN_ANYWHERE = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
_REFERENCE = "!reference"
_YAML_TAG = "tag:yaml.org,2002:"
_KNOWN_TAGS = frozenset(_YAML_TAG + name for name in ("str", "int", "float", "bool", "null", "map", "seq"))


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed file: its header (with `spec`, before `---`), the tree of the document with the jobs, and the number of
    values in the file."""

    header: Table | None
    body: Node
    nodes: int


def read_document(text: str, report: Report, *, file: str = "") -> Document:
    """Parse a file. Mistakes are reported; one that makes the rest unreadable raises `PipelineError` at once."""
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        report.stop(
            Place(file=file), "", f"the file is larger than {MAX_BYTES} bytes", "split the work over smaller pipelines"
        )
    if bad := _FORBIDDEN.search(text) if text.isascii() else re.search(_FORBIDDEN_ANYWHERE, text):
        line = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - (text.rfind("\n", 0, bad.start()) + 1) + 1
        report.stop(
            Place(line=line, column=column, file=file),
            "",
            f"broken YAML: the character U+{ord(bad[0]):04X} is not allowed",
            "remove it, or write it as an escape in double quotes",
        )

    import yaml  # not at the top: commands that read no pipeline file start faster without it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(report, file)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(event)
    except yaml.YAMLError as error:
        _report_syntax(error, text, report, file)
    if builder.root is None:
        report.stop(Place(file=file), "", "the file is empty", 'write at least one job with a "script"')
    return Document(header=builder.header, body=builder.root, nodes=builder.nodes)


class _Open(msgspec.Struct, kw_only=True):
    """A list or map whose end the parser has not reached yet."""

    at: Place
    anchor: str | None
    is_table: bool
    tag: str | None
    children: list[Node]
    nodes: int = 1
    height: int = 1


class _Anchored(msgspec.Struct, frozen=True, kw_only=True):
    """A node with a YAML anchor, and the number of values and levels of nesting that each alias of it adds."""

    node: Node
    nodes: int
    height: int


class _Builder:
    """Builds the tree from the events of the YAML parser; the result is in `root` and `header`."""

    def __init__(self, report: Report, file: str) -> None:
        self.root: Node | None = None
        self.header: Table | None = None
        self.nodes = 0
        self._report = report
        self._file = file
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}

        import yaml

        self._handlers: dict[type[yaml.Event], Callable[[Any], None]] = {
            yaml.ScalarEvent: self._scalar,
            yaml.AliasEvent: self._alias,
            yaml.MappingStartEvent: self._open,
            yaml.SequenceStartEvent: self._open,
            yaml.MappingEndEvent: self._close,
            yaml.SequenceEndEvent: self._close,
        }

    def take(self, event: yaml.Event) -> None:
        handle = self._handlers.get(type(event))
        if handle is not None:
            handle(event)

    def _add_document(self, node: Node, at: Place) -> None:
        """Take the root of a document. As in GitLab, empty documents do not count, and without a header only the first
        of the others does."""
        if self.header is None and isinstance(self.root, Table) and "spec" in self.root.entries:
            self.header, self.root = self.root, None
        if isinstance(node, Scalar) and node.kind == "null":
            return
        if self.root is None:
            self.root = node
        elif self.header is None:
            message = "this YAML document is passed over: only the first one of the file counts"
            self._report.warn(at, "", message, 'remove the "---" line before it, or the document')
        else:
            message = "the file has more than one YAML document after its header"
            self._report.stop(at, "", message, 'remove the "---" line')

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        at = self._place(event)
        node: Node
        if self._check_tag(event.tag, at):
            plain = (event.implicit[0] and event.tag is None) or event.tag in _KNOWN_TAGS - {_YAML_TAG + "str"}
            kind = kind_of(event.value) if plain else "text"
            node = Scalar(text=event.value, kind=kind, line=at.line, column=at.column, file=self._file)
        else:
            node = self._opaque(at)
        self._add(node, at, event.anchor, nodes=1, height=1)

    def _open(self, event: yaml.CollectionStartEvent) -> None:
        at = self._place(event)
        is_table = type(event).__name__ == "MappingStartEvent"
        tag = event.tag if self._check_tag(event.tag, at, reference=not is_table) else "?"
        # An alias inside its own anchor's value refers to an older anchor of that name, or to none.
        self._stack.append(_Open(at=at, anchor=event.anchor, is_table=is_table, tag=tag, children=[]))
        self._check_depth(at, 0)

    def _close(self, _event: yaml.CollectionEndEvent) -> None:
        frame = self._stack.pop()
        line, column = frame.at.line, frame.at.column
        node: Node
        if frame.tag == "?":
            node = self._opaque(frame.at)
        elif frame.tag == _REFERENCE:
            node = self._reference(frame)
        elif frame.is_table:
            node = Table(entries=self._entries(frame.children), line=line, column=column, file=self._file)
        else:
            node = Items(items=tuple(frame.children), line=line, column=column, file=self._file)
        self._add(node, frame.at, frame.anchor, nodes=frame.nodes, height=frame.height, own=1)

    def _alias(self, event: yaml.AliasEvent) -> None:
        at, name = self._place(event), event.anchor or ""
        target = self._anchors.get(name)
        if target is None:
            inside = any(frame.anchor == name for frame in self._stack)
            reason = "refers to the value it stands in" if inside else "has no anchor before it"
            self._report.add(at, "", f"the alias *{printable(name)} {reason}", f"write &{printable(name)} first")
            target = _Anchored(node=self._opaque(at), nodes=1, height=1)
        self._check_depth(at, target.height)
        self._add(target.node, at, None, nodes=target.nodes, height=target.height)

    def _add(
        self, node: Node, at: Place, anchor: str | None, *, nodes: int, height: int, own: int | None = None
    ) -> None:
        """Add a finished node to its parent, or as root. `nodes`: its values, aliases counted as copies; `height`: its
        levels of nesting; `own`: values not yet counted in `self.nodes`; None: all. Stops if the file is too large."""
        self.nodes += nodes if own is None else own
        if self.nodes > MAX_NODES:
            self._report.stop(
                at,
                "",
                f"the file has more than {MAX_NODES} values with its aliases unfolded",
                "use fewer values and aliases",
            )
        if anchor is not None:
            self._anchors[anchor] = _Anchored(node=node, nodes=nodes, height=height)
        if self._stack:
            parent = self._stack[-1]
            parent.children.append(node)
            parent.nodes += nodes
            parent.height = max(parent.height, height + 1)
        else:
            self._add_document(node, at)

    def _check_depth(self, at: Place, more: int) -> None:
        if len(self._stack) + more > MAX_DEPTH:
            self._report.stop(at, "", f"values are nested deeper than {MAX_DEPTH} levels", "nest less")

    def _check_tag(self, tag: str | None, at: Place, *, reference: bool = False) -> bool:
        if tag is None or tag in ("!", *_KNOWN_TAGS) or (reference and tag == _REFERENCE):
            return True
        if tag == _REFERENCE:
            self._report.add(
                at, _REFERENCE, "must be a list of names", f"write it like {_REFERENCE} [.template, script]"
            )
        else:
            shown = tag.replace(_YAML_TAG, "!!")
            self._report.add(at, "", f"unknown YAML tag {quote(shown)}", "remove the tag")
        return False

    def _reference(self, frame: _Open) -> Node:
        names = [child.text for child in frame.children if isinstance(child, Scalar) and child.kind != "null"]
        if not names or len(names) != len(frame.children):
            self._report.add(
                frame.at, _REFERENCE, "must be a list of names", f"write it like {_REFERENCE} [.template, script]"
            )
            return self._opaque(frame.at)
        return Reference(path=tuple(names), line=frame.at.line, column=frame.at.column, file=self._file)

    def _opaque(self, at: Place) -> Opaque:
        return Opaque(line=at.line, column=at.column, file=self._file)

    def _place(self, event: yaml.Event) -> Place:
        mark = event.start_mark
        return Place(line=mark.line + 1, column=mark.column + 1, file=self._file) if mark else Place(file=self._file)

    def _entries(self, children: list[Node]) -> dict[str, Entry]:
        """Build a map from `children`, in which keys and values alternate. The merge key `<<` is applied in the order
        of the file, so that, as in Psych, later keys override it. The last of two equal keys counts, with a warning."""
        entries: dict[str, Entry] = {}
        written: dict[str, Entry] = {}
        for key, value in zip(children[::2], children[1::2], strict=True):
            if not isinstance(key, Scalar):
                if not isinstance(key, Opaque):
                    self._report.add(key, "", "a key must be text, not a list or a map", "use a plain name")
            elif key.text == "<<":
                merged = self._merge(key, value)
                self._warn_of_replaced(key, merged, written)
                entries.update(merged)
            else:
                if key.text in written:
                    line = written[key.text].key.line
                    lines = f"twice on line {line}" if line == key.line else f"on lines {line} and {key.line}"
                    message = f"the key {quote(key.text)} is {lines}; only the last one counts"
                    self._report.warn(key, key.text, message, "remove one of them")
                entries[key.text] = written[key.text] = Entry(key=key, value=value)
        return entries

    def _warn_of_replaced(self, merge: Scalar, merged: dict[str, Entry], written: dict[str, Entry]) -> None:
        """Warn of the keys `written` earlier in the same map whose values `<<` (`merge`) replaces by other values."""
        for name in merged.keys() & written.keys():
            if not _is_equal(merged[name].value, written[name].value):
                message = f"replaces {quote(name)} of line {written[name].key.line}, because it comes later"
                self._report.warn(merge, "<<", message, "write << before the keys that must win")

    def _merge(self, key: Scalar, value: Node) -> dict[str, Entry]:
        """Return the entries that `<<` adds: those of the maps in `value`, earlier maps overriding later ones."""
        sources = items_of(value)
        merged: dict[str, Entry] = {}
        for source in reversed(sources):
            if isinstance(source, Table):
                merged.update(source.entries)
            elif not isinstance(source, Opaque):
                self._report.add(key, "<<", "<< must name a map or a list of maps", "give it an alias of a map")
        return merged


def _is_equal(one: Node, other: Node) -> bool:
    """True if two values are the same, wherever they are written."""
    if one is other:
        return True
    match one, other:
        case Scalar(), Scalar():
            return (one.kind, one.text) == (other.kind, other.text)
        case Items(), Items():
            pairs = zip(one.items, other.items, strict=False)
            return len(one.items) == len(other.items) and all(_is_equal(*pair) for pair in pairs)
        case Table(), Table():
            return one.entries.keys() == other.entries.keys() and all(
                _is_equal(entry.value, other.entries[name].value) for name, entry in one.entries.items()
            )
        case Reference(), Reference():
            return one.path == other.path
    return False


def kind_of(text: str) -> Kind:
    """Return the type of an unquoted YAML scalar: null, true, false, number or text."""
    if text in _NULLS:
        return "null"
    lower = text.lower() if len(text) <= len("false") else text
    if lower in _TRUES:
        return "true"
    if lower in _FALSES:
        return "false"
    return "number" if _NUMBER.fullmatch(text) else "text"


def _report_syntax(error: yaml.YAMLError, text: str, report: Report, file: str) -> None:
    """Report an error of the YAML parser with its position and a suggestion, and raise `PipelineError`."""
    problem = getattr(error, "problem", None) or str(error)
    context = getattr(error, "context", None)
    context_mark = getattr(error, "context_mark", None)
    mark = getattr(error, "problem_mark", None) or context_mark
    at = Place(line=mark.line + 1, column=mark.column + 1, file=file) if mark else Place(file=file)
    message = f"broken YAML: {printable(problem, 200)}"
    if context:
        message += f" {printable(context, 200)}"
        if context_mark is not None and context_mark.line + 1 != at.line:
            message += f" that starts on line {context_mark.line + 1}"
    lines = text.splitlines()
    line = lines[at.line - 1] if at.line <= len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        suggestion = "indent with spaces, not with tabs"
    elif line.startswith("$[[", max(at.column - 2, 0)):
        suggestion = "put the value with $[[ ... ]] in quotes"
    else:
        suggestion = "check indentation, colons and quotes there"
    report.stop(at, "", message, suggestion)
