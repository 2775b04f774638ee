"""Reads and evaluates `if`, `changes` and `exists`, the conditions in the rules of jobs, `workflow` and includes.

As in GitLab, every `changes` is true if the changed files are unknown, and every `exists` is true if the files are
unknown or too many."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NoReturn

import msgspec

from remuda.pipeline.errors import Placed, Report
from remuda.pipeline.facts import Facts, SourceProblem
from remuda.pipeline.include.port import Sources
from remuda.pipeline.keywords.variables import Variables
from remuda.pipeline.rules.expressions import Expression, ExpressionError, find_doubts, holds, parse_expression
from remuda.pipeline.rules.globs import Glob
from remuda.pipeline.rules.regex import PatternError, Patterns, TooCostlyError
from remuda.pipeline.syntax.known_keys import CHANGES, EXISTS
from remuda.pipeline.syntax.tree import Entry, Items, Node, Scalar, Table
from remuda.pipeline.syntax.typed_values import Fields, inside, mistyped, read_fields, read_strings, read_text
from remuda.pipeline.syntax.variable_expansion import Expansion, ExpansionError

MAX_PATTERNS = 50
MAX_EXISTS_CHECKS = 50_000
"""As in GitLab, `exists` is true if it would need more comparisons."""
MAX_CHECKS = 1_000_000
MAX_JUDGED = 200_000
_EVERYTHING = "**"
"""The pattern of an include that all paths match."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The condition `changes`: file patterns, and the ref to compare with."""

    paths: tuple[str, ...]
    compare_to: str | None
    at: Node
    key: str = "changes"
    """The path of its key, for mistakes."""


class Exists(msgspec.Struct, frozen=True, kw_only=True):
    """The condition `exists`: file patterns, and the project and ref to look in if it is not the pipeline's own."""

    paths: tuple[str, ...]
    project: str = ""
    ref: str | None = None
    at: Node
    key: str = "exists"
    """The path of its key, for mistakes."""


class Clauses(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a rule, which applies if all of them are true."""

    condition: Expression | None = None
    changes: Changes | None = None
    exists: Exists | None = None
    at: Node


class Judge:
    """Evaluates conditions for a compilation's `facts`; caches results. Too costly rules stop the compilation."""

    def __init__(self, report: Report, facts: Facts, sources: Sources | None = None) -> None:
        self.facts = facts
        self._sources = sources
        self.patterns = Patterns()
        self._report = report
        self._predefined = facts.pipeline_variables()
        self._expressions: dict[str, Expression] = {}
        self._answers: dict[tuple[tuple[str, ...], str | None], bool] = {}
        self._elsewhere: dict[tuple[str, ...], bool] = {}
        self._contents: dict[tuple[str, ...], list[str]] = {}
        self._checks = 0
        self._judged = 0
        # Cache of `variables`: the rules of one job ask for the same ones.
        self._last: tuple[Variables, dict[str, str]] | None = None

    def variables(self, own: Variables) -> dict[str, str]:
        """Return predefined variables, overridden by `own` (file, job), then by `facts` (project, pipeline start)."""
        if self._last is None or self._last[0] is not own:
            self._last = own, {**self._predefined, **own.values, **self.facts.variables}
        return self._last[1]

    def expansion(self, own: Variables, *, keep_unknown: bool = False) -> Expansion:
        raw = (own.raw - self.facts.variables.keys()) | self.facts.raw
        return Expansion(self.variables(own), raw=raw, keep_unknown=keep_unknown)

    def expression(self, node: Node, path: str) -> Expression | None:
        """Parse the condition of an `if`; None, with a mistake reported, if it is invalid."""
        text = read_text(self._report, node, path)
        if text is None:
            return None
        if text not in self._expressions:
            try:
                self._expressions[text] = parse_expression(text, self.patterns)
            except ExpressionError as error:
                message = f"bad condition: {error} (character {error.offset + 1})"
                self._report.add_of_value(node, path, message, 'write it like $CI_COMMIT_BRANCH == "main"')
                return None
            except TooCostlyError:
                self.too_costly(node, path)
        for doubt in find_doubts(self._expressions[text]):
            self._report.warn(node, path, doubt)
        return self._expressions[text]

    def holds(self, expression: Expression, variables: Mapping[str, str], at: Placed) -> bool:
        try:
            return holds(expression, variables, self.patterns)
        except TooCostlyError:
            self.too_costly(at, "")

    def is_match(self, text: str, flags: str, subject: str, at: Placed) -> bool:
        """True if the regular expression `text` is valid and matches anywhere in `subject`. Stops the compilation, with
        a mistake at `at`, if the expressions of the file take too long."""
        try:
            return self.patterns.is_match(text, flags, subject)
        except PatternError:
            return False
        except TooCostlyError:
            self.too_costly(at, "")

    def too_costly(self, at: Placed, path: str) -> NoReturn:
        """Stop the compilation with the mistake that its regular expressions take too long."""
        self._report.stop(at, path, "the regular expressions take too long to evaluate", "use simpler or fewer ones")

    def applies(self, clauses: Clauses, own: Variables) -> bool:
        """True if all conditions of a rule are true. `own` are the variables of the file and the job."""
        self._judged += 1
        if self._judged > MAX_JUDGED:
            message = f"rules are evaluated more than {MAX_JUDGED} times"
            self._report.stop(clauses.at, "", message, "use fewer rules in parallel jobs")
        if clauses.condition is not None and not self.holds(clauses.condition, self.variables(own), clauses.at):
            return False
        if clauses.changes is not None and not self.has_changes(clauses.changes, own):
            return False
        return clauses.exists is None or self._exists(clauses.exists, own)

    def has_changes(self, changes: Changes, own: Variables) -> bool:
        """True if a changed file matches a pattern, or changes are unknown. `own`: variables of the file and the
        job."""
        paths = self._expand(changes.paths, own, changes.at)
        compare_to = changes.compare_to and self._expand((changes.compare_to,), own, changes.at)[0]
        if (paths, compare_to or "") not in self._answers:
            files = self.facts.changes_since(compare_to)
            if isinstance(files, SourceProblem):
                self._report.add(changes.at, changes.key, files.reason, files.suggestion)
                files = None
            self._answers[paths, compare_to or ""] = files is None or self._any_match(paths, files, changes.at)
        return self._answers[paths, compare_to or ""]

    def _exists(self, exists: Exists, own: Variables) -> bool:
        paths = self._expand(exists.paths, own, exists.at)
        if exists.project:
            return self._exists_elsewhere(exists, paths, own)
        if (paths, None) not in self._answers:
            files = self.facts.files
            checks = 0 if files is None else len(files) * sum(Glob(path).literal is None for path in paths)
            if files is None or checks > MAX_EXISTS_CHECKS:
                self._answers[paths, None] = True
            else:
                self._answers[paths, None] = self._has_any(paths, files.keys(), exists.at)
        return self._answers[paths, None]

    def _exists_elsewhere(self, exists: Exists, paths: tuple[str, ...], own: Variables) -> bool:
        """Return whether another project has a file that matches. Reports a project or ref that is not available."""
        project, ref = self._expand((exists.project, exists.ref or ""), own, exists.at)
        key = (project, ref, *paths)
        if key not in self._elsewhere:
            files = list(self._sources.project_glob(project, ref or None, _EVERYTHING)) if self._sources else []
            # The pattern itself as the only path means that the project is not available.
            text = None
            if self._sources and files == [_EVERYTHING]:
                text = self._sources.project(project, ref or None, _EVERYTHING)
            if isinstance(text, SourceProblem):
                self._report.add(exists.at, exists.key, text.reason, text.suggestion)
                files = []
            self._elsewhere[key] = self._has_any(paths, files, exists.at)
        return self._elsewhere[key]

    def contents_of(self, patterns: tuple[str, ...], at: Node) -> list[str]:
        """Return the content hashes of the files that match a pattern, ordered by path, for `cache:key:files`."""
        if patterns not in self._contents:
            files = self.facts.files or {}
            globs = [Glob(pattern) for pattern in patterns]
            paths = {glob.literal for glob in globs if glob.literal in files}
            for glob in globs:
                if glob.literal is None:
                    self._count_checks(len(files), at)
                    paths.update(path for path in files if glob.fits(path))
            self._contents[patterns] = [files[path] for path in sorted(filter(None, paths))]
        return self._contents[patterns]

    def _count_checks(self, count: int, at: Node) -> None:
        self._checks += count
        if self._checks > MAX_CHECKS:
            message = f"the rules compare more than {MAX_CHECKS} files with patterns"
            self._report.stop(at, "", message, "use fewer patterns, or plain paths")

    def _has_any(self, patterns: tuple[str, ...], files: Collection[str], at: Node) -> bool:
        """True if a file matches one of the patterns. A plain path that ends in `/` means a folder with any files."""
        folders = tuple(path for path in map(_literal, patterns) if path.endswith("/"))
        if folders:
            self._count_checks(len(files), at)
            if any(path.startswith(folders) for path in files):
                return True
        return self._any_match(patterns, files, at)

    def _any_match(self, patterns: tuple[str, ...], files: Collection[str], at: Node) -> bool:
        for pattern in patterns:
            glob = Glob(pattern)
            if glob.literal is not None:
                if glob.literal in files:
                    return True
                continue
            self._count_checks(len(files), at)
            if any(glob.fits(path) for path in files):
                return True
        return False

    def _expand(self, texts: tuple[str, ...], own: Variables, at: Node) -> tuple[str, ...]:
        if not any("$" in text for text in texts):
            return texts
        # As in GitLab, an unset variable stays as written: without it, the pattern could match every file.
        expansion = self.expansion(own, keep_unknown=True)
        try:
            return tuple(expansion.expand(text) for text in texts)
        except ExpansionError as error:
            self._report.stop(at, "", f"the path {error}", "use shorter variables")


def _literal(pattern: str) -> str:
    """Return the path that a pattern without wildcards means; empty for one with wildcards."""
    return Glob(pattern).literal or ""


def read_clauses(report: Report, judge: Judge, entries: Mapping[str, Entry], path: str, at: Node) -> Clauses:
    fields = Fields(report, entries, path)
    return Clauses(
        condition=judge.expression(entries["if"].value, inside(path, "if")) if "if" in entries else None,
        changes=fields.read("changes", _changes),
        exists=fields.read("exists", _exists),
        at=at,
    )


def _changes(report: Report, node: Node, path: str) -> Changes | None:
    if not isinstance(node, Table):
        paths = read_paths(report, node, path)
        return None if paths is None else Changes(paths=paths, compare_to=None, at=node)
    fields = read_fields(report, node, path, CHANGES)
    if "paths" not in fields:
        report.add(node, path, 'has no "paths"', "name the files")
        return None
    paths = fields.read("paths", read_paths)
    if paths is None or "compare_to" not in fields:
        return None if paths is None else Changes(paths=paths, compare_to=None, at=node)
    ref, key = node.entries["compare_to"].value, inside(path, "compare_to")
    return Changes(paths=paths, compare_to=fields.text("compare_to"), at=ref, key=key)


def _exists(report: Report, node: Node, path: str) -> Exists | None:
    if not isinstance(node, Table):
        paths = read_paths(report, node, path)
        return None if paths is None else Exists(paths=paths, at=node)
    fields = read_fields(report, node, path, EXISTS)
    if "paths" not in node.entries:
        report.add(node, path, 'has no "paths"', "name the files")
    if "ref" in fields and "project" not in node.entries:
        fields.refuse_key("ref", '"ref" requires a "project"', "name it")
    paths = fields.read("paths", read_paths)
    if paths is None:
        return None
    if "project" not in fields:
        return Exists(paths=paths, at=node)
    at, key = node.entries["project"].value, inside(path, "project")
    return Exists(paths=paths, project=fields.text("project") or "", ref=fields.text("ref"), at=at, key=key)


def read_paths(report: Report, node: Node, path: str) -> tuple[str, ...] | None:
    """Read a list of file patterns; None, with a mistake reported, if it is not a list."""
    if isinstance(node, Scalar):
        mistyped(report, node, path, "a list of paths", "put it in a list" if node.kind == "text" else "")
        return None
    paths = read_strings(report, node, path)
    if paths is not None and len(paths) > MAX_PATTERNS and isinstance(node, Items):
        report.add(node, path, f"has more than {MAX_PATTERNS} entries", "use patterns that name more files each")
    return paths
