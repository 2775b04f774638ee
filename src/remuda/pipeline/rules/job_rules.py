"""Reads and evaluates `rules`, `only` and `except` of a job.

The first rule that applies decides. For a job without rules `only` and `except` decide; by default it runs for branches
and tags, but not for merge requests unless `workflow` has rules. Rules are evaluated for each part of a parallel job,
because they may use the variables of its matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from remuda.pipeline.errors import Report, printable, quote
from remuda.pipeline.facts import Facts
from remuda.pipeline.keywords.needs import Needs, read_needs
from remuda.pipeline.keywords.variables import Variables, read_variables
from remuda.pipeline.rules.clauses import Changes, Clauses, Judge, read_clauses, read_paths
from remuda.pipeline.rules.expressions import Expression
from remuda.pipeline.rules.regex import PatternError, split_literal
from remuda.pipeline.spec import When
from remuda.pipeline.syntax.known_keys import ALLOW_FAILURE, AUTO_CANCEL, ONLY, RULE, Keys
from remuda.pipeline.syntax.tree import Entry, Items, Node, Table, flatten
from remuda.pipeline.syntax.typed_values import (
    Fields,
    is_text,
    mistyped,
    read_duration,
    read_fields,
    read_flag,
    read_numbers,
    read_strings,
    read_table,
)

MAX_START_IN = "1 week"
JOB_WHEN = ("on_success", "on_failure", "always", "manual", "delayed")
ON_NEW_COMMIT = ("conservative", "interruptible", "none")
ON_JOB_FAILURE = ("none", "all")


class AllowFailure(msgspec.Struct, frozen=True, kw_only=True):
    always: bool = False
    exit_codes: tuple[int, ...] = ()


class AutoCancel(msgspec.Struct, frozen=True, kw_only=True):
    """The keyword `auto_cancel` of `workflow` or a rule. None: the key is absent."""

    on_new_commit: str | None = None
    on_job_failure: str | None = None


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of `rules`: conditions, and the values that the job gets if they are true. None: the job's own value."""

    clauses: Clauses
    when: str | None = None
    start_in_seconds: int | None = None
    allow_failure: AllowFailure | None = None
    variables: Variables = Variables()
    needs: Needs | None = None
    interruptible: bool | None = None
    auto_cancel: AutoCancel | None = None


class RefPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The keyword `only` or `except`: refs, variables and changed files. None: the key is absent."""

    refs: tuple[str, ...] | None = None
    variables: tuple[Expression, ...] | None = None
    changes: tuple[str, ...] | None = None
    at: Node


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """`rules`, `only` and `except` (`excluded`) of a job, which decide if it is in the pipeline. None: absent."""

    rules: tuple[Rule, ...] | None = None
    only: RefPolicy | None = None
    excluded: RefPolicy | None = None


def read_conditions(report: Report, judge: Judge, entries: Mapping[str, Entry], name: str) -> Conditions:
    fields = Fields(report, entries, name)
    for key in ("only", "except"):
        if "rules" in fields and key in fields:
            fields.refuse_key(key, f'"{key}" and "rules" do not go together', f'write the "{key}" as rules')
    return Conditions(
        rules=fields.read("rules", read_rules, judge, RULE),
        only=fields.read("only", _policy, judge),
        excluded=fields.read("except", _policy, judge),
    )


def read_auto_cancel(report: Report, node: Node, path: str) -> AutoCancel:
    fields = read_fields(report, node, path, AUTO_CANCEL)
    return AutoCancel(
        on_new_commit=fields.choice("on_new_commit", ON_NEW_COMMIT),
        on_job_failure=fields.choice("on_job_failure", ON_JOB_FAILURE),
    )


def read_rules(report: Report, node: Node, path: str, judge: Judge, keys: Keys) -> tuple[Rule, ...]:
    return tuple(_rule(report, judge, item, path, keys) for item in flatten_rules(report, node, path))


def flatten_rules(report: Report, node: Node, path: str) -> list[Table]:
    """Return the maps in a list of rules and in nested lists. Reports an empty list, and entries that are not maps."""
    if not isinstance(node, Items):
        mistyped(report, node, path, "a list of rules", "put a - before it" if isinstance(node, Table) else "")
        return []
    if not node.items:
        report.add(node, path, "must not be empty", "give it at least one rule, or remove the key")
    tables: list[Table] = []
    for item in flatten(node):
        if isinstance(item, Table):
            if not item.entries:
                report.add(item, path, "a rule must not be empty", 'give it an "if" or a "when"')
            tables.append(item)
        else:
            mistyped(report, item, path, "a map, as every rule is")
    return tables


def _rule(report: Report, judge: Judge, node: Table, path: str, keys: Keys) -> Rule:
    entries = read_table(report, node, path, keys)
    fields = Fields(report, entries, path)
    choices = (*JOB_WHEN, "never") if keys is RULE else ("always", "never")
    when = fields.choice("when", choices)
    if when == "delayed" and "start_in" not in fields:
        fields.refuse_value("when", '"delayed" requires a "start_in"', "say how long to wait")
    if when != "delayed" and "start_in" in fields:
        fields.refuse_key("start_in", '"start_in" requires "when: delayed"', "set it, or remove this key")
    allow_failure = fields.flag("allow_failure")
    return Rule(
        clauses=read_clauses(report, judge, entries, path, node),
        when=when,
        start_in_seconds=fields.read("start_in", read_duration, MAX_START_IN),
        allow_failure=None if allow_failure is None else AllowFailure(always=allow_failure),
        variables=fields.read("variables", read_variables) or Variables(),
        needs=fields.read("needs", read_needs),
        interruptible=fields.flag("interruptible"),
        auto_cancel=fields.read("auto_cancel", read_auto_cancel),
    )


def read_allow_failure(report: Report, node: Node, path: str) -> AllowFailure:
    if not isinstance(node, Table):
        return AllowFailure(always=read_flag(report, node, path) or False)
    fields = read_fields(report, node, path, ALLOW_FAILURE)
    return AllowFailure(exit_codes=fields.read("exit_codes", read_numbers, 0, 999_999_999) or ())


def _policy(report: Report, node: Node, path: str, judge: Judge) -> RefPolicy:
    if not isinstance(node, Table):
        return RefPolicy(refs=_refs(report, node, path, judge, "a list of names or a map"), at=node)
    if not node.entries:
        report.add(node, path, "must not be empty", "give it a condition, or remove the key")
    fields = read_fields(report, node, path, ONLY)
    fields.choice("kubernetes", ("active",))
    return RefPolicy(
        refs=fields.read("refs", _refs, judge),
        variables=fields.read("variables", _expressions, judge),
        changes=fields.read("changes", read_paths),
        at=node,
    )


def _expressions(report: Report, node: Node, path: str, judge: Judge) -> tuple[Expression, ...]:
    if not isinstance(node, Items):
        mistyped(report, node, path, "a list of expressions", "put it in a list" if is_text(node) else "")
        return ()
    return tuple(each for item in node.items if (each := judge.expression(item, path)) is not None)


def _refs(
    report: Report, node: Node, path: str, judge: Judge, expected: str = "a list of names"
) -> tuple[str, ...] | None:
    """Read the names of refs; None, with a mistake reported, if it is no list. `expected`: what the message says."""
    if not isinstance(node, Items):
        mistyped(report, node, path, expected, "put it in a list" if is_text(node) else "")
        return None
    refs = read_strings(report, node, path)
    for ref in refs or ():
        literal = split_literal(ref.partition("@")[0])
        try:
            if literal:
                judge.patterns.compile(*literal)
        except PatternError as error:
            report.add(node, path, f"the regular expression {quote(ref)} is invalid: {error}", "correct it")
    return refs


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a job that rules can change, after its rules were evaluated."""

    when: When
    start_in_seconds: int | None
    allow_failure: AllowFailure
    variables: Variables
    needs: Needs | None
    interruptible: bool | None
    rule: str = ""
    """The rule that applied, such as "rule 2 (line 14)"."""


def judge_job(
    judge: Judge, conditions: Conditions, own: Variables, by_job: Verdict, *, workflow_rules: bool
) -> Verdict | str:
    """Evaluate `rules`, or `only` and `except`. Returns the job's values, or the reason why the job is left out. `own`:
    variables of the file and the job. `by_job`: the job's values without rules. `workflow_rules`: the file has
    `workflow:rules`."""
    if conditions.rules is None:
        return _why_not(judge, conditions, own, workflow_rules=workflow_rules) or by_job
    for number, rule in enumerate(conditions.rules, 1):
        if not judge.applies(rule.clauses, own):
            continue
        name = f"rule {number} ({_place(rule.clauses.at)})"
        if rule.when == "never":
            return f"{name}: when: never"
        return Verdict(
            when=cast(When, rule.when or by_job.when),
            start_in_seconds=rule.start_in_seconds or by_job.start_in_seconds,
            # As in GitLab, a job that a rule makes manual blocks the pipeline, unlike one with `when: manual`.
            allow_failure=rule.allow_failure or by_job.allow_failure,
            variables=rule.variables,
            needs=rule.needs or by_job.needs,
            interruptible=by_job.interruptible if rule.interruptible is None else rule.interruptible,
            rule=name,
        )
    return "no rule matched"


def _place(node: Node) -> str:
    return f"{printable(node.file)}:{node.line}" if node.file else f"line {node.line}"


def _why_not(judge: Judge, conditions: Conditions, own: Variables, *, workflow_rules: bool) -> str:
    """Return why `only` or `except` leave the job out; empty if they do not. `own`: variables of file and job."""
    facts = judge.facts
    only, excluded = conditions.only, conditions.excluded
    if only is None:
        if not workflow_rules and facts.is_merge_request:
            return "without rules it does not run for merge requests"
    else:
        refs = only.refs if only.refs is not None else ("branches", "tags")
        if not any(_fits_ref(judge, facts, ref, only.at) for ref in refs):
            return f"only:refs ({_place(only.at)}): no entry matches"
        if only.variables is not None and not _any_holds(judge, only.variables, own, only.at):
            return f"only:variables ({_place(only.at)}): no condition is true"
        if only.changes is not None and not _has_changes(judge, only.changes, own, only.at):
            return f"only:changes ({_place(only.at)}): no matching file changed"
    if excluded is None:
        return ""
    place = _place(excluded.at)
    if any(_fits_ref(judge, facts, ref, excluded.at) for ref in excluded.refs or ()):
        return f"except:refs ({place}): an entry matches"
    if excluded.variables is not None and _any_holds(judge, excluded.variables, own, excluded.at):
        return f"except:variables ({place}): a condition is true"
    if excluded.changes is not None and _has_changes(judge, excluded.changes, own, excluded.at):
        return f"except:changes ({place}): a matching file changed"
    return ""


def _has_changes(judge: Judge, paths: tuple[str, ...], own: Variables, at: Node) -> bool:
    return judge.has_changes(Changes(paths=paths, compare_to=None, at=at), own)


def _any_holds(judge: Judge, expressions: tuple[Expression, ...], own: Variables, at: Node) -> bool:
    variables = judge.variables(own)
    return any(judge.holds(each, variables, at) for each in expressions)


def _names_of(source: str) -> tuple[str, str]:
    """Return the words in `only:refs` that mean a CI_PIPELINE_SOURCE: without `_event`, singular and plural."""
    name = source.removesuffix("_event")
    return name, f"{name}es" if name.endswith("sh") else f"{name}s"


def _fits_ref(judge: Judge, facts: Facts, ref: str, at: Node) -> bool:
    ref, _, project = ref.partition("@")
    if project and project != facts.predefined.get("CI_PROJECT_PATH", project):
        return False
    if ref in _names_of(facts.source):
        return True
    if ref == "branches":
        return not facts.is_tag and not facts.is_merge_request
    if ref == "tags":
        return facts.is_tag
    if facts.is_merge_request:
        return False
    literal = split_literal(ref)
    return judge.is_match(*literal, facts.ref, at) if literal else ref == facts.ref
