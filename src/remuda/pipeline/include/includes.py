"""Loads a pipeline file and everything that it includes into one tree, with `include:rules` and inputs applied.

Values of the including file override those of included files, and later includes override earlier ones.

Invariants: a path never leaves its repository; the compilation stops if more than `MAX_FILES` files are included; no
file includes itself, directly or through others; all files together have at most `MAX_ALL_NODES` values."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from remuda.pipeline.errors import Placed, Report, printable, quote
from remuda.pipeline.facts import SourceProblem
from remuda.pipeline.include.component_context import ComponentContext
from remuda.pipeline.include.inputs import Header, Input, read_header, read_input_names, read_inputs, take_inputs
from remuda.pipeline.include.interpolation import Interpolation
from remuda.pipeline.include.port import Sources, parse_address
from remuda.pipeline.include.remote_keys import has_hash, read_cache
from remuda.pipeline.keywords.variables import Variables
from remuda.pipeline.rules.clauses import Judge, read_clauses
from remuda.pipeline.rules.globs import is_include_glob, normal_path
from remuda.pipeline.rules.job_rules import flatten_rules
from remuda.pipeline.syntax.known_keys import INCLUDE, INCLUDE_RULE, INPUT_FILE, SPEC_INCLUDE
from remuda.pipeline.syntax.tree import Entry, Merger, Node, Opaque, Scalar, Table, items_of
from remuda.pipeline.syntax.typed_values import Fields, inside, is_null, mistyped, read_table, read_text
from remuda.pipeline.syntax.variable_expansion import ExpansionError
from remuda.pipeline.syntax.yaml_document import read_document

MAX_FILES = 150
MAX_ALL_NODES = 300_000

_KINDS = ("local", "project", "remote", "component", "template")
_INPUT_KINDS = ("local", "project", "remote")
# Keys of an include that belong to one kind of file.
_OWNERS = {"file": "project", "ref": "project", "integrity": "remote", "cache": "remote"}
_INCLUDE = "include"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The repository from which a file's local includes are read: the pipeline's or another; none for remote files."""

    project: str = ""
    ref: str | None = None
    remote: bool = False


class SourceFile(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    file: str
    origin: Origin
    component: dict[str, str] | None = None
    """What a component may say about itself; None for any other file."""


class Loader:
    def __init__(self, report: Report, judge: Judge, sources: Sources, merger: Merger) -> None:
        self._report = report
        self._judge = judge
        self._sources = sources
        self._merger = merger
        self._expansion = judge.expansion(Variables())
        self.has_failed = False
        """True if an included file is missing or not as it should be, for example because an input has no value."""
        self.declared: Mapping[str, Input] = {}
        """The inputs of the file that is not included by another one."""
        self._files = 0
        self._nodes = 0
        self._included: set[str] = set()
        """As in GitLab, a pattern passes over files that are already included, so it may match its own file."""

    def load(
        self, source: SourceFile, inputs: Mapping[str, Entry], *, at: Placed, path: str, chain: tuple[str, ...] = ()
    ) -> Table | None:
        """Parse a file and everything it includes into one tree; None, with a mistake reported, if it is not a map.
        Mistakes in `inputs` (values for `spec:inputs`) are reported at the position `at` and with the key path `path`
        of the include. `chain` has the files that include this one, outermost first."""
        report = self._report
        if source.file:
            report.add_file(source.file)
        document = read_document(source.text, report, file=source.file)
        self._nodes += document.nodes
        if self._nodes > MAX_ALL_NODES:
            report.stop(at, path, f"all files together have more than {MAX_ALL_NODES} values", "include less")
        body = self._interpolate(source, document.header, document.body, inputs, at=at, path=path, is_first=not chain)
        if not isinstance(body, Table):
            mistyped(report, body, "", "a map of keywords and jobs at the top level")
            return None
        if _INCLUDE not in body.entries:
            return body
        own = {name: entry for name, entry in body.entries.items() if name != _INCLUDE}
        trees = self._load_includes(body.entries[_INCLUDE].value, source.origin, (*chain, source.file))
        return self._merger.merge(*trees, msgspec.structs.replace(body, entries=own))

    def _interpolate(
        self,
        source: SourceFile,
        header: Table | None,
        body: Node,
        inputs: Mapping[str, Entry],
        *,
        at: Placed,
        path: str,
        is_first: bool,
    ) -> Node:
        """Replace `$[[ inputs.name ]]` in `body` (the file without its header) by given or default values. Reports
        inputs that are missing, invalid, or not declared in `header` (the part with `spec`). `at`, `path`: position and
        key for messages. `is_first`: the file is not included by another one."""
        report, patterns = self._report, self._judge.patterns
        read = read_header(report, header) if header is not None else Header()
        entries = read.inputs
        if read.include is not None:
            entries = self._load_input_files(read.include, source.origin)
            self._add_inputs(entries, read.inputs)
        declared = read_inputs(report, entries, patterns)
        if is_first:
            self.declared = declared
        values = take_inputs(report, declared, inputs, at=at, path=path, patterns=patterns, is_first=is_first)
        if header is None:
            return body
        context = ComponentContext(values=source.component, listed=read.component)
        return Interpolation(report, values, self._judge.variables(Variables()), context).tree(body)

    def _load_input_files(self, node: Node, origin: Origin) -> dict[str, Entry]:
        """Return the inputs of the files that `spec:include` names, by name."""
        entries: dict[str, Entry] = {}
        path = "spec:include"
        for item in items_of(node):
            if isinstance(item, Table):
                fields = read_table(self._report, item, path, SPEC_INCLUDE)
                files = self._by_map(item, fields, origin, path, _INPUT_KINDS)
            else:
                files = self._by_text(item, origin, path)
            for source in files:
                self._report.add_file(source.file)
                document = read_document(source.text, self._report, file=source.file)
                self._nodes += document.nodes
                if self._nodes > MAX_ALL_NODES:
                    self._report.stop(item, path, f"all files together have more than {MAX_ALL_NODES} values")
                table = read_table(self._report, document.body, "", INPUT_FILE)
                if "inputs" in table:
                    self._add_inputs(entries, read_input_names(self._report, table["inputs"].value, "inputs") or {})
        return entries

    def _add_inputs(self, entries: dict[str, Entry], added: Mapping[str, Entry]) -> None:
        """Add declarations of inputs to those of other files; reports names that are in both."""
        for name, entry in added.items():
            if name in entries:
                message = f"the input {quote(name)} is declared twice: also in {printable(entries[name].key.file)}"
                self._report.add(entry.key, inside("inputs", name), message, "remove one of them")
            entries[name] = entry

    def _load_includes(self, node: Node, origin: Origin, chain: tuple[str, ...]) -> list[Table]:
        trees: list[Table] = []
        includes: list[tuple[Node, SourceFile, Mapping[str, Entry]]] = []
        for item in items_of(node):
            if is_null(item):
                continue
            if isinstance(item, Scalar) and item.kind == "text" and not item.text:
                self._report.warn(item, _INCLUDE, "includes nothing", "name a file, or remove the entry")
                continue
            inputs: Mapping[str, Entry] = {}
            mistakes = len(self._report)
            if isinstance(item, Table):
                entries = read_table(self._report, item, _INCLUDE, INCLUDE)
                if "rules" in entries and not self._applies(entries["rules"].value, origin):
                    continue
                inputs = Fields(self._report, entries, _INCLUDE).read("inputs", _inputs) or {}
                files = self._by_map(item, entries, origin, _INCLUDE, _KINDS)
            else:
                files = self._by_text(item, origin, _INCLUDE)
            includes += ((item, source, inputs) for source in files)
            self.has_failed = self.has_failed or len(self._report) > mistakes
        self._included.update(source.file for _, source, _ in includes)
        for item, source, inputs in includes:
            mistakes = len(self._report)
            self._check_circle(source, item, chain)
            tree = self.load(source, inputs, at=item, path=inside(_INCLUDE, "inputs"), chain=chain)
            if tree is not None:
                trees.append(tree)
            self.has_failed = self.has_failed or len(self._report) > mistakes
        return trees

    def _check_circle(self, source: SourceFile, at: Node, chain: tuple[str, ...]) -> None:
        """Stop the compilation if the file is in `chain`, the files that include it: a circular include."""
        if source.file in chain:
            names = [name or "this file" for name in (*chain[chain.index(source.file) :], source.file)]
            trail = " -> ".join(map(printable, names[-10:]))
            self._report.stop(at, _INCLUDE, f"files include each other in a circle: {trail}", "remove one of them")

    def _applies(self, node: Node, origin: Origin) -> bool:
        """True if the rules of an include apply. As in GitLab, `exists` looks in the repository of the file with the
        include, `origin`, unless it names another one."""
        path = inside(_INCLUDE, "rules")
        for table in flatten_rules(self._report, node, path):
            entries = read_table(self._report, table, path, INCLUDE_RULE)
            when = Fields(self._report, entries, path).choice("when", ("always", "never"))
            clauses = read_clauses(self._report, self._judge, entries, path, table)
            if origin.project and clauses.exists and not clauses.exists.project:
                there = msgspec.structs.replace(clauses.exists, project=origin.project, ref=origin.ref)
                clauses = msgspec.structs.replace(clauses, exists=there)
            if self._judge.applies(clauses, Variables()):
                return when != "never"
        return False

    def _by_text(self, node: Node, origin: Origin, path: str) -> list[SourceFile]:
        if isinstance(node, Opaque):
            return []
        text = read_text(self._report, node, path)
        if text is None:
            return []
        remote = text.startswith(("http://", "https://"))
        return self._remote(text, node, path) if remote else self._local(text, node, path, origin)

    def _by_map(
        self, node: Table, entries: Mapping[str, Entry], origin: Origin, path: str, choices: tuple[str, ...]
    ) -> list[SourceFile]:
        """Return the files of an include that is a map of `entries`. `choices`: the kinds of files that it may have."""
        kinds = [kind for kind in choices if kind in entries]
        if len(kinds) > 1:
            names = " and ".join(quote(kind) for kind in kinds)
            self._report.add(node, path, f"{names} do not go together", "keep one")
            return []
        if not kinds:
            message = "must have one of: " + ", ".join(choices)
            self._report.add(node, path, message, "say which file to include")
            return []
        kind = kinds[0]
        value, where = entries[kind].value, inside(path, kind)
        fields = Fields(self._report, entries, path)
        for key, owner in _OWNERS.items():
            if key in fields and kind != owner:
                fields.refuse_key(key, f'"{key}" requires a "{owner}"', "name it")
        if kind == "project":
            return self._project(node, entries, path)
        text = read_text(self._report, value, where)
        if text is None:
            return []
        if kind == "local":
            return self._local(text, value, where, origin)
        if kind == "remote":
            seconds = fields.read("cache", read_cache) or 0
            files = self._remote(text, value, where, seconds)
            return [file for file in files if fields.read("integrity", has_hash, file.text) is not False]
        if kind == "component":
            return self._component(text, value, where)
        template = self._sources.template(self._expand(text, value, where))
        return self._source(template, text, Origin(remote=True), value, where)

    def _local(self, text: str, at: Node, path: str, origin: Origin) -> list[SourceFile]:
        if origin.remote:
            message = "a remote file has no repository to include a local file from"
            self._report.add(at, path, message, "include it by project or address")
            return []
        name = normal_path(self._expand(text, at, path))
        if name is None:
            message = f"the path {quote(text)} leaves the repository"
            self._report.add(at, path, message, "name a file of this repository")
            return []
        names = [name]
        if is_include_glob(name):
            paths = self._sources.project_glob(origin.project, origin.ref, name) if origin.project else None
            found = self._sources.local_glob(name) if paths is None else paths
            names = [each for each in found if _describe_include(each, origin) not in self._included][: MAX_FILES + 1]
        # A pattern may end like no YAML file; the files that it means may not.
        other = next((each for each in names if not each.endswith((".yml", ".yaml"))), None)
        if other is not None:
            self._report.add(at, path, f"{quote(other)} is not a YAML file", "its name must end with .yml or .yaml")
            return []
        return [source for each in names for source in self._file(each, at, path, origin)]

    def _file(self, name: str, at: Node, path: str, origin: Origin) -> list[SourceFile]:
        if origin.project:
            text = self._sources.project(origin.project, origin.ref, name)
            return self._source(text, _describe_include(name, origin), origin, at, path)
        own = self._sources.local(name)
        if own is None:
            own = SourceProblem(reason=f"the repository has no file {quote(name)}", suggestion="check the path")
        return self._source(own, name, origin, at, path)

    def _project(self, node: Table, entries: Mapping[str, Entry], above: str) -> list[SourceFile]:
        fields, value, path = Fields(self._report, entries, above), entries["project"].value, inside(above, "project")
        project, ref = fields.text("project"), fields.text("ref")
        if "file" not in fields:
            self._report.add(node, above, '"project" requires a "file"', "name the file of that project")
            return []
        at, where = entries["file"].value, inside(above, "file")
        files = fields.one_or_more("file") or ()
        if project is None:
            return []
        ref = self._expand(ref, node, path) if ref else None
        origin = Origin(project=self._expand(project, value, path), ref=ref)
        return [source for file in files for source in self._local(file, at, where, origin)]

    def _remote(self, text: str, at: Node, path: str, cache_seconds: int = 0) -> list[SourceFile]:
        url = self._expand(text, at, path)
        if not url.startswith(("http://", "https://")):
            self._report.add(at, path, f"{quote(url)} is not a web address", "it must begin with https://")
            return []
        answer = self._sources.remote(url, cache_seconds=cache_seconds)
        return self._source(answer, url, Origin(remote=True), at, path)

    def _component(self, text: str, at: Node, path: str) -> list[SourceFile]:
        address = parse_address(self._expand(text, at, path))
        if address is None:
            message = f"{quote(text)} is not an address of a component"
            self._report.add(at, path, message, "write it like host/group/project/name@version")
            return []
        component = self._sources.component(address)
        if isinstance(component, SourceProblem):
            return self._source(component, "", Origin(), at, path)
        origin = Origin(project=component.project, ref=component.ref)
        context = {
            "name": address.name,
            "sha": component.ref,
            "version": component.version,
            "reference": address.version,
        }
        files = self._source(component.text, str(address), origin, at, path)
        return [msgspec.structs.replace(file, component=context) for file in files]

    def _source(self, text: str | SourceProblem, file: str, origin: Origin, at: Node, path: str) -> list[SourceFile]:
        """Return a list with the included file; if `text` is a problem, report it at `at` and return an empty list.
        Called after each read; stops the compilation after more than `MAX_FILES` reads."""
        self._files += 1
        if self._files > MAX_FILES:
            self._report.stop(at, path, f"more than {MAX_FILES} files are included", "include fewer files")
        if isinstance(text, SourceProblem):
            self._report.add(at, path, text.reason, text.suggestion)
            return []
        return [SourceFile(text=text, file=file, origin=origin)]

    def _expand(self, text: str, at: Node, path: str) -> str:
        try:
            return self._expansion.expand(text)
        except ExpansionError as error:
            self._report.stop(at, path, f"the path {error}", "use shorter variables")


def _describe_include(name: str, origin: Origin) -> str:
    """Return the name of a file of a repository in messages: with its project, if that is another one."""
    return f"{origin.project}:{name}" if origin.project else name


def _inputs(report: Report, node: Node, path: str) -> Mapping[str, Entry] | None:
    if isinstance(node, Table):
        return node.entries
    mistyped(report, node, path, "a map of inputs")
    return None
