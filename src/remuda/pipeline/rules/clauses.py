"""Whether something is part of the pipeline: the clauses that rules of jobs, of `workflow` and of includes share.

Decided here: what `if`, `changes` and `exists` mean, and what they cost. `Judge` holds what one compilation judges
against: facts, regular expressions, file patterns, each with an allowance. The keys beside the clauses (when, variables
...) are read in `rules`.

Invariant: a clause is true only if it is known to be, with GitLab's exceptions: without knowledge of changed files
every `changes` holds, without knowledge of files, or with too many to look at, every `exists` holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NoReturn

import msgspec

from remuda.pipeline.errors import Placed, Report
from remuda.pipeline.facts import Facts, SourceProblem
from remuda.pipeline.keywords.variables import Variables
from remuda.pipeline.rules.expressions import Expression, ExpressionError, holds, parse_expression
from remuda.pipeline.rules.globs import Glob
from remuda.pipeline.rules.regex import PatternError, Patterns, TooCostlyError
from remuda.pipeline.syntax.known_keys import CHANGES, EXISTS
from remuda.pipeline.syntax.tree import Entry, Items, Node, Scalar, Table
from remuda.pipeline.syntax.typed_values import inside, mistyped, read_strings, read_table, read_text
from remuda.pipeline.syntax.variable_expansion import Expansion, ExpansionError

MAX_PATTERNS = 50
# As in GitLab: beyond this many comparisons `exists` is true without a look.
MAX_EXISTS_CHECKS = 50_000
MAX_CHECKS = 1_000_000
MAX_JUDGED = 200_000


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """`changes`: patterns, and the ref to compare with."""

    paths: tuple[str, ...]
    compare_to: str | None
    at: Node
    key: str = "changes"
    """Where it stands, for mistakes."""


class Clauses(msgspec.Struct, frozen=True, kw_only=True):
    """What must hold for a rule to apply; all that is given must."""

    condition: Expression | None = None
    changes: Changes | None = None
    exists: tuple[str, ...] | None = None
    at: Node


class Judge:
    """What the rules of one pipeline are judged with."""

    def __init__(self, report: Report, facts: Facts) -> None:
        self.facts = facts
        self.patterns = Patterns()
        self._report = report
        self._predefined = facts.pipeline_variables()
        self._expressions: dict[str, Expression] = {}
        self._found: dict[tuple[tuple[str, ...], str | None], bool] = {}
        self._contents: dict[tuple[str, ...], list[str]] = {}
        self._checks = 0
        self._judged = 0
        # The rules of one job ask one after the other with the same variables.
        self._last: tuple[Variables, dict[str, str]] | None = None

    def known(self, own: Variables) -> dict[str, str]:
        """Every variable that is known now: predefined ones, the file's over them, the project's over both."""
        if self._last is None or self._last[0] is not own:
            self._last = own, {**self._predefined, **own.values, **self.facts.variables}
        return self._last[1]

    def expansion(self, own: Variables, *, keep_unknown: bool = False) -> Expansion:
        """Expands texts with all that is known."""
        raw = (own.raw - self.facts.variables.keys()) | self.facts.raw
        return Expansion(self.known(own), raw=raw, keep_unknown=keep_unknown)

    def expression(self, node: Node, path: str) -> Expression | None:
        """A condition as written; None and a mistake if it is none."""
        text = read_text(self._report, node, path)
        if text is None:
            return None
        if text not in self._expressions:
            try:
                self._expressions[text] = parse_expression(text, self.patterns)
            except ExpressionError as error:
                message = f"bad condition: {error} (character {error.offset + 1})"
                self._report.add(node, path, message, 'write it like $CI_COMMIT_BRANCH == "main"')
                return None
            except TooCostlyError:
                self.too_costly(node, path)
        return self._expressions[text]

    def holds(self, expression: Expression, variables: Mapping[str, str], at: Placed) -> bool:
        """Whether a condition is true."""
        try:
            return holds(expression, variables, self.patterns)
        except TooCostlyError:
            self.too_costly(at, "")

    def found(self, text: str, flags: str, subject: str, at: Placed) -> bool:
        """Whether a regular expression matches; one that does not work matches nothing."""
        try:
            return self.patterns.is_match(text, flags, subject)
        except PatternError:
            return False
        except TooCostlyError:
            self.too_costly(at, "")

    def too_costly(self, at: Placed, path: str) -> NoReturn:
        """Give up on a file whose regular expressions take too long."""
        self._report.stop(at, path, "the regular expressions take too long to judge", "use simpler or fewer ones")

    def applies(self, clauses: Clauses, own: Variables) -> bool:
        """Whether all clauses of a rule hold."""
        self._judged += 1
        if self._judged > MAX_JUDGED:
            message = f"rules are judged more than {MAX_JUDGED} times"
            self._report.stop(clauses.at, "", message, "use fewer rules in parallel jobs")
        if clauses.condition is not None and not self.holds(clauses.condition, self.known(own), clauses.at):
            return False
        if clauses.changes is not None and not self._changed(clauses.changes, own):
            return False
        return clauses.exists is None or self._exists(clauses.exists, own, clauses.at)

    def changed(self, paths: tuple[str, ...], own: Variables, at: Node) -> bool:
        """Whether one of the files that changed fits one of the patterns."""
        return self._changed(Changes(paths=paths, compare_to=None, at=at), own)

    def _changed(self, changes: Changes, own: Variables) -> bool:
        paths = self._expanded(changes.paths, own, changes.at)
        compare_to = changes.compare_to and self._expanded((changes.compare_to,), own, changes.at)[0]
        if (paths, compare_to or "") not in self._found:
            files = self.facts.changed(compare_to)
            if isinstance(files, SourceProblem):
                self._report.add(changes.at, changes.key, files.reason, files.suggestion)
                files = None
            self._found[paths, compare_to or ""] = files is None or self._any(paths, files, changes.at)
        return self._found[paths, compare_to or ""]

    def _exists(self, patterns: tuple[str, ...], own: Variables, at: Node) -> bool:
        paths = self._expanded(patterns, own, at)
        if (paths, None) not in self._found:
            files = self.facts.files
            too_many = files is not None and len(files) * sum(Glob(p).literal is None for p in paths)
            known = files is not None and too_many <= MAX_EXISTS_CHECKS
            self._found[paths, None] = not known or self._any(paths, (files or {}).keys(), at)
        return self._found[paths, None]

    def contents_of(self, patterns: tuple[str, ...], at: Node) -> list[str]:
        """The ids of the contents of all files that fit, in the order of their paths."""
        if patterns not in self._contents:
            files = self.facts.files or {}
            globs = [Glob(pattern) for pattern in patterns]
            found = {glob.literal for glob in globs if glob.literal in files}
            for glob in globs:
                if glob.literal is None:
                    self._check_files(len(files), at)
                    found.update(path for path in files if glob.fits(path))
            self._contents[patterns] = [files[path] for path in sorted(filter(None, found))]
        return self._contents[patterns]

    def _check_files(self, count: int, at: Node) -> None:
        self._checks += count
        if self._checks > MAX_CHECKS:
            message = f"the rules compare more than {MAX_CHECKS} files with patterns"
            self._report.stop(at, "", message, "use fewer patterns, or plain paths")

    def _any(self, patterns: tuple[str, ...], files: Collection[str], at: Node) -> bool:
        for pattern in patterns:
            glob = Glob(pattern)
            if glob.literal is not None:
                if glob.literal in files:
                    return True
                continue
            self._check_files(len(files), at)
            if any(glob.fits(path) for path in files):
                return True
        return False

    def _expanded(self, texts: tuple[str, ...], own: Variables, at: Node) -> tuple[str, ...]:
        if not any("$" in text for text in texts):
            return texts
        expansion = self.expansion(own)
        try:
            return tuple(expansion.expand(text) for text in texts)
        except ExpansionError as error:
            self._report.stop(at, "", f"the path {error}", "use shorter variables")


def read_clauses(report: Report, judge: Judge, entries: Mapping[str, Entry], path: str, at: Node) -> Clauses:
    """The clauses of one rule."""
    return Clauses(
        condition=judge.expression(entries["if"].value, inside(path, "if")) if "if" in entries else None,
        changes=_changes(report, entries["changes"].value, inside(path, "changes")) if "changes" in entries else None,
        exists=_exists(report, entries["exists"].value, inside(path, "exists")) if "exists" in entries else None,
        at=at,
    )


def _changes(report: Report, node: Node, path: str) -> Changes | None:
    if not isinstance(node, Table):
        paths = read_paths(report, node, path)
        return None if paths is None else Changes(paths=paths, compare_to=None, at=node)
    entries = read_table(report, node, path, CHANGES)
    if "paths" not in entries:
        report.add(node, path, 'has no "paths"', "name the files")
        return None
    paths = read_paths(report, entries["paths"].value, inside(path, "paths"))
    ref = entries.get("compare_to")
    if paths is None or ref is None:
        return None if paths is None else Changes(paths=paths, compare_to=None, at=node)
    key = inside(path, "compare_to")
    return Changes(paths=paths, compare_to=read_text(report, ref.value, key), at=ref.value, key=key)


def _exists(report: Report, node: Node, path: str) -> tuple[str, ...] | None:
    if isinstance(node, Table):
        entries = read_table(report, node, path, EXISTS)
        if "paths" not in entries:
            if "paths" not in node.entries:
                report.add(node, path, 'has no "paths"', "name the files")
            return None
        node, path = entries["paths"].value, inside(path, "paths")
    return read_paths(report, node, path)


def read_paths(report: Report, node: Node, path: str) -> tuple[str, ...] | None:
    """A list of file patterns."""
    if isinstance(node, Scalar):
        mistyped(report, node, path, "a list of paths", "put it in a list" if node.kind == "text" else "")
        return None
    paths = read_strings(report, node, path)
    if paths is not None and len(paths) > MAX_PATTERNS and isinstance(node, Items):
        report.add(node, path, f"has more than {MAX_PATTERNS} entries", "use patterns that name more files each")
    return paths
