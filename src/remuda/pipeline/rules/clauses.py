"""Reads and evaluates `if`, `changes` and `exists`, the conditions in the rules of jobs, `workflow` and includes.

As in GitLab, every `changes` is true if the changed files are unknown, and every `exists` is true if the files are
unknown or too many."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NoReturn

import msgspec

from remuda.pipeline.errors import Placed, Report, quote
from remuda.pipeline.facts import Facts, SourceProblem
from remuda.pipeline.include.port import Sources
from remuda.pipeline.keywords.variables import Variables
from remuda.pipeline.rules.expressions import Expression, ExpressionError, find_doubts, holds, parse_expression
from remuda.pipeline.rules.globs import Glob
from remuda.pipeline.rules.path_regex import MAX_PATH_REGEX, PathRegex
from remuda.pipeline.rules.regex import PatternError, Patterns, TooCostlyError, UnsupportedError
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


class Regex(msgspec.Struct, frozen=True, kw_only=True):
    """The value of `regexp`, as written, and its place."""

    text: str
    at: Node
    key: str


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The condition `changes`: file patterns, and the ref to compare with."""

    paths: tuple[str, ...] = ()
    regex: Regex | None = None
    """Instead of `paths`."""
    compare_to: str | None = None
    at: Node
    key: str = "changes"
    """The path of its key, for mistakes."""


class Exists(msgspec.Struct, frozen=True, kw_only=True):
    """The condition `exists`: file patterns, and the project and ref to look in if it is not the pipeline's own."""

    paths: tuple[str, ...] = ()
    regex: Regex | None = None
    """Instead of `paths`."""
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
        self._answers: dict[tuple[tuple[str, ...] | str, str | None], bool] = {}
        self._elsewhere: dict[tuple[tuple[str, ...] | str, str, str], bool] = {}
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
        paths = self._expand_paths(changes, own)
        compare_to = changes.compare_to and self._expand((changes.compare_to,), own, changes.at)[0]
        key = (paths, compare_to or "")
        if key not in self._answers:
            files = self.facts.changes_since(compare_to)
            if isinstance(files, SourceProblem):
                self._report.add(changes.at, changes.key, files.reason, files.suggestion)
                files = None
            self._answers[key] = files is None or self._any_match(paths, files, changes)
        return self._answers[key]

    def _exists(self, exists: Exists, own: Variables) -> bool:
        paths = self._expand_paths(exists, own)
        if exists.project:
            return self._exists_elsewhere(exists, paths, own)
        if (paths, None) not in self._answers:
            files = self.facts.files
            wild = 0 if isinstance(paths, str) else sum(Glob(path).literal is None for path in paths)
            if files is None or len(files) * wild > MAX_EXISTS_CHECKS:
                self._answers[paths, None] = True
            else:
                self._answers[paths, None] = self._has_any(paths, files.keys(), exists)
        return self._answers[paths, None]

    def _exists_elsewhere(self, exists: Exists, paths: tuple[str, ...] | str, own: Variables) -> bool:
        """Return whether another project has a file that matches. Reports a project or ref that is not available."""
        project, ref = self._expand((exists.project, exists.ref or ""), own, exists.at)
        key = (paths, project, ref)
        if key not in self._elsewhere:
            files = list(self._sources.project_glob(project, ref or None, _EVERYTHING)) if self._sources else []
            # The pattern itself as the only path means that the project is not available.
            text = None
            if self._sources and files == [_EVERYTHING]:
                text = self._sources.project(project, ref or None, _EVERYTHING)
            if isinstance(text, SourceProblem):
                self._report.add(exists.at, exists.key, text.reason, text.suggestion)
                files = []
            self._elsewhere[key] = self._has_any(paths, files, exists)
        return self._elsewhere[key]

    def contents_of(self, patterns: tuple[str, ...], at: Node) -> list[str]:
        """Return the content hashes of the files that match a pattern, ordered by path, for `cache:key:files`."""
        if patterns not in self._contents:
            files = self.facts.files or {}
            globs = [Glob(pattern.removeprefix("./").lstrip("/")) for pattern in patterns]
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

    def _has_any(self, paths: tuple[str, ...] | str, files: Collection[str], exists: Exists) -> bool:
        """True if there is a file that matches, or that is in one of the folders: plain paths that end in `/`."""
        folders = () if isinstance(paths, str) else tuple(path for path in map(_literal, paths) if path.endswith("/"))
        if folders:
            self._count_checks(len(files), exists.at)
            if any(path.startswith(folders) for path in files):
                return True
        return self._any_match(paths, files, exists)

    def _any_match(self, paths: tuple[str, ...] | str, files: Collection[str], condition: Changes | Exists) -> bool:
        """True if a file matches one of the patterns, or the regular expression."""
        if isinstance(paths, str):
            return condition.regex is None or self._regex_matches(paths, files, condition.regex)
        for pattern in paths:
            glob = Glob(pattern)
            if glob.literal is not None:
                if glob.literal in files:
                    return True
                continue
            self._count_checks(len(files), condition.at)
            if any(glob.fits(path) for path in files):
                return True
        return False

    def _regex_matches(self, text: str, files: Collection[str], regex: Regex) -> bool:
        """True if the regular expression, with its variables expanded, matches in a path, or cannot be evaluated."""
        compiled = self.path_regex(msgspec.structs.replace(regex, text=text))
        if compiled is None or len(files) > MAX_EXISTS_CHECKS:
            return True
        self._count_checks(len(files), regex.at)
        try:
            return compiled.fits_any(files)
        except TooCostlyError:
            self.too_costly(regex.at, regex.key)

    def path_regex(self, regex: Regex) -> PathRegex | None:
        """Compile a regular expression for paths. None, with a mistake reported, if it is invalid; None, with a
        warning, if only GitLab can evaluate it."""
        if len(regex.text) > MAX_PATH_REGEX:
            message = f"has {len(regex.text)} characters, and at most {MAX_PATH_REGEX} are allowed"
            self._report.add_of_value(regex.at, regex.key, message, "use a shorter expression")
            return None
        try:
            return PathRegex(regex.text, self.patterns)
        except UnsupportedError as error:
            message = f"counts as true here, because {error}"
            self._report.warn(regex.at, regex.key, message, "look ahead only after ^ at the beginning, or use paths")
        except PatternError as error:
            message = f"the regular expression is invalid: {error}"
            self._report.add_of_value(regex.at, regex.key, message, "correct it")
        except TooCostlyError:
            self.too_costly(regex.at, regex.key)
        return None

    def _expand_paths(self, condition: Changes | Exists, own: Variables) -> tuple[str, ...] | str:
        """Return its patterns, or its regular expression as one text, with their variables expanded."""
        if condition.regex is None:
            return self._expand(condition.paths, own, condition.at)
        return self._expand((condition.regex.text,), own, condition.regex.at)[0]

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
        changes=fields.read("changes", _changes, judge),
        exists=fields.read("exists", _exists, judge),
        at=at,
    )


def _changes(report: Report, node: Node, path: str, judge: Judge) -> Changes | None:
    if not isinstance(node, Table):
        paths = read_paths(report, node, path)
        return None if paths is None else Changes(paths=paths, at=node)
    fields = read_fields(report, node, path, CHANGES)
    wanted = _paths_or_regex(report, fields, node, path, judge)
    if wanted is None:
        return None
    paths, regex = wanted
    if "compare_to" not in fields:
        return Changes(paths=paths, regex=regex, at=node)
    ref, key = node.entries["compare_to"].value, inside(path, "compare_to")
    return Changes(paths=paths, regex=regex, compare_to=fields.text("compare_to"), at=ref, key=key)


def _exists(report: Report, node: Node, path: str, judge: Judge) -> Exists | None:
    if not isinstance(node, Table):
        paths = read_paths(report, node, path)
        return None if paths is None else Exists(paths=paths, at=node)
    fields = read_fields(report, node, path, EXISTS)
    wanted = _paths_or_regex(report, fields, node, path, judge)
    if "ref" in fields and "project" not in node.entries:
        fields.refuse_key("ref", '"ref" requires a "project"', "name it")
    if wanted is None:
        return None
    paths, regex = wanted
    if "project" not in fields:
        return Exists(paths=paths, regex=regex, at=node)
    at, key = node.entries["project"].value, inside(path, "project")
    project = fields.text("project") or ""
    return Exists(paths=paths, regex=regex, project=project, ref=fields.text("ref"), at=at, key=key)


def _paths_or_regex(
    report: Report, fields: Fields, node: Node, path: str, judge: Judge
) -> tuple[tuple[str, ...], Regex | None] | None:
    """Read `paths` or `regexp` of a condition that is a map; None, with a mistake reported, without a valid one."""
    if "regexp" in fields and "paths" in fields:
        report.add(node, path, '"paths" and "regexp" do not go together', "keep one")
        return None
    if "regexp" in fields:
        regex = fields.read("regexp", _regex, judge)
        return None if regex is None else ((), regex)
    if "paths" not in fields:
        report.add(node, path, 'has no "paths"', "name the files")
        return None
    paths = fields.read("paths", read_paths)
    return None if paths is None else (paths, None)


def _regex(report: Report, node: Node, path: str, judge: Judge) -> Regex | None:
    text = read_text(report, node, path)
    if text is None:
        return None
    regex = Regex(text=text, at=node, key=path)
    judge.path_regex(regex)
    return regex


def read_paths(report: Report, node: Node, path: str) -> tuple[str, ...] | None:
    """Read a list of file patterns; None, with a mistake reported, if it is not a list."""
    if isinstance(node, Scalar):
        mistyped(report, node, path, "a list of paths", "put it in a list" if node.kind == "text" else "")
        return None
    paths = read_strings(report, node, path)
    if paths is not None and len(paths) > MAX_PATTERNS and isinstance(node, Items):
        report.add(node, path, f"has more than {MAX_PATTERNS} entries", "use patterns that name more files each")
    for each in paths or ():
        if each.startswith(("/", "./")):
            report.warn(node, path, f"{quote(each)} matches no file", "begin with the first folder, without ./ and /")
    return paths
