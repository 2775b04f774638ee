"""`rules`, `only` and `except` of a job: what they say, and what follows for the job.

Decided here: the first rule that applies decides; a job without rules is judged by `only` and `except`, and by
default runs for branches and tags but not for merge requests, unless `workflow` has rules. What a single clause
means is decided in `conditions`. Called by `job` to read, by `unfolding` to judge, once for each part of a parallel
job, since the variables of a matrix count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from remuda.pipeline.errors import Report, printable, quote
from remuda.pipeline.facts import MERGE_REQUEST, Facts
from remuda.pipeline.keywords.needs import Needs, read_needs
from remuda.pipeline.keywords.variables import Variables, read_variables
from remuda.pipeline.rules.clauses import Clauses, Judge, read_clauses, read_paths
from remuda.pipeline.rules.expressions import Expression
from remuda.pipeline.rules.regex import PatternError, split_literal
from remuda.pipeline.spec import When
from remuda.pipeline.syntax.known_keys import ALLOW_FAILURE, AUTO_CANCEL, ONLY, RULE, Keys
from remuda.pipeline.syntax.tree import Entry, Items, Node, Table
from remuda.pipeline.syntax.typed_values import (
    inside,
    is_null,
    mistyped,
    read_choice,
    read_duration,
    read_flag,
    read_numbers,
    read_strings,
    read_table,
)

JOB_WHEN = ("on_success", "on_failure", "always", "manual", "delayed")
ON_NEW_COMMIT = ("conservative", "interruptible", "none")
ON_JOB_FAILURE = ("none", "all")

# Words in `only:refs` that name a way to start a pipeline.
_SOURCES = {
    "api": "api",
    "chat": "chat",
    "external": "external",
    "external_pull_requests": "external_pull_request_event",
    "merge_requests": MERGE_REQUEST,
    "pipelines": "pipeline",
    "pushes": "push",
    "schedules": "schedule",
    "triggers": "trigger",
    "web": "web",
}


class AllowFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Always or never, or only for some exit codes."""

    always: bool = False
    exit_codes: tuple[int, ...] = ()


class AutoCancel(msgspec.Struct, frozen=True, kw_only=True):
    """`auto_cancel`; None: not given."""

    on_new_commit: str | None = None
    on_job_failure: str | None = None


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `rules`. None: the job's own value stays."""

    clauses: Clauses
    when: str | None = None
    start_in_seconds: int | None = None
    allow_failure: AllowFailure | None = None
    variables: Variables = Variables()
    needs: Needs | None = None
    interruptible: bool | None = None
    auto_cancel: AutoCancel | None = None


class RefPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`only` or `except`. None: not given."""

    refs: tuple[str, ...] | None = None
    variables: tuple[Expression, ...] | None = None
    changes: tuple[str, ...] | None = None
    at: Node


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides whether a job is in the pipeline."""

    rules: tuple[Rule, ...] | None = None
    only: RefPolicy | None = None
    excluded: RefPolicy | None = None


def read_conditions(report: Report, judge: Judge, entries: Mapping[str, Entry], name: str) -> Conditions:
    """What a job says about when it is part of a pipeline."""
    rules = (
        read_rules(report, judge, entries["rules"].value, inside(name, "rules"), RULE) if "rules" in entries else None
    )
    for key in ("only", "except"):
        if rules is not None and key in entries:
            message = f'"{key}" and "rules" do not go together'
            report.add(entries[key].key, inside(name, key), message, f'write the "{key}" as rules')
    return Conditions(
        rules=rules,
        only=_policy(report, judge, entries["only"].value, inside(name, "only")) if "only" in entries else None,
        excluded=_policy(report, judge, entries["except"].value, inside(name, "except"))
        if "except" in entries
        else None,
    )


def read_auto_cancel(report: Report, node: Node, path: str) -> AutoCancel:
    """`auto_cancel` of `workflow` or of one of its rules."""
    entries = read_table(report, node, path, AUTO_CANCEL)
    given = {key: (entry.value, inside(path, key)) for key, entry in entries.items()}
    return AutoCancel(
        on_new_commit=read_choice(report, *at, ON_NEW_COMMIT) if (at := given.get("on_new_commit")) else None,
        on_job_failure=read_choice(report, *at, ON_JOB_FAILURE) if (at := given.get("on_job_failure")) else None,
    )


def read_rules(report: Report, judge: Judge, node: Node, path: str, keys: Keys) -> tuple[Rule, ...]:
    """Rules in their order."""
    return tuple(_rule(report, judge, item, path, keys) for item in flat(report, node, path))


def flat(report: Report, node: Node, path: str) -> list[Table]:
    """The maps of a list, lists inside it laid flat."""
    if not isinstance(node, Items):
        mistyped(report, node, path, "a list of rules", "put a - before it" if isinstance(node, Table) else "")
        return []
    found: list[Table] = []
    nodes: list[Node] = list(reversed(node.items))
    while nodes:
        item = nodes.pop()
        if isinstance(item, Items):
            nodes.extend(reversed(item.items))
        elif isinstance(item, Table):
            found.append(item)
        else:
            mistyped(report, item, path, "a map, as every rule is")
    return found


def _rule(report: Report, judge: Judge, node: Table, path: str, keys: Keys) -> Rule:
    entries = read_table(report, node, path, keys)
    given = {key: (entry.value, inside(path, key)) for key, entry in entries.items()}
    choices = (*JOB_WHEN, "never") if keys is RULE else ("always", "never")
    when = read_choice(report, *at, choices) if (at := given.get("when")) else None
    start_in = read_duration(report, *at) if (at := given.get("start_in")) else None
    if when == "delayed" and "start_in" not in entries:
        report.add(entries["when"].value, inside(path, "when"), '"delayed" wants a "start_in"', "say how long to wait")
    return Rule(
        clauses=read_clauses(report, judge, entries, path, node),
        when=when,
        start_in_seconds=start_in,
        allow_failure=read_allow_failure(report, *at) if (at := given.get("allow_failure")) else None,
        variables=read_variables(report, *at) if (at := given.get("variables")) else Variables(),
        needs=read_needs(report, *at) if (at := given.get("needs")) else None,
        interruptible=read_flag(report, *at) if (at := given.get("interruptible")) else None,
        auto_cancel=read_auto_cancel(report, *at) if (at := given.get("auto_cancel")) else None,
    )


def read_allow_failure(report: Report, node: Node, path: str) -> AllowFailure:
    """`allow_failure` of a job or a rule."""
    if not isinstance(node, Table):
        return AllowFailure(always=read_flag(report, node, path) or False)
    entries = read_table(report, node, path, ALLOW_FAILURE)
    if "exit_codes" not in entries:
        return AllowFailure()
    codes = read_numbers(report, entries["exit_codes"].value, inside(path, "exit_codes"), low=0, high=999_999_999)
    return AllowFailure(exit_codes=codes)


def _policy(report: Report, judge: Judge, node: Node, path: str) -> RefPolicy:
    if not isinstance(node, Table):
        return RefPolicy(refs=_refs(report, judge, node, path), at=node)
    entries = read_table(report, node, path, ONLY)
    given = {key: (entry.value, inside(path, key)) for key, entry in entries.items()}
    expressions: list[Expression] | None = None
    if at := given.get("variables"):
        nodes = at[0].items if isinstance(at[0], Items) else (at[0],)
        expressions = [each for item in nodes if (each := judge.expression(item, at[1])) is not None]
    return RefPolicy(
        refs=_refs(report, judge, *at) if (at := given.get("refs")) else None,
        variables=None if expressions is None else tuple(expressions),
        changes=read_paths(report, *at) if (at := given.get("changes")) else None,
        at=node,
    )


def _refs(report: Report, judge: Judge, node: Node, path: str) -> tuple[str, ...] | None:
    nodes = (
        node if isinstance(node, Items) else Items(items=(node,), line=node.line, column=node.column, file=node.file)
    )
    refs = None if is_null(node) else read_strings(report, nodes, path)
    for ref in refs or ():
        literal = split_literal(ref.partition("@")[0])
        try:
            if literal:
                judge.patterns.compile(*literal)
        except PatternError as error:
            report.add(node, path, f"the regular expression {quote(ref)} does not work: {error}", "correct it")
    return refs


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a job becomes once its conditions are judged."""

    when: When
    start_in_seconds: int | None
    allow_failure: AllowFailure
    variables: Variables
    needs: Needs | None
    interruptible: bool | None
    # Which rule decided, in words.
    rule: str = ""


def judge_job(
    judge: Judge, conditions: Conditions, own: Variables, by_job: Verdict, *, explicit: bool, workflow_rules: bool
) -> Verdict | str:
    """What the job becomes, or why it is not in the pipeline. `explicit`: it says itself what failure it allows."""
    if conditions.rules is None:
        return _why_not(judge, conditions, own, workflow_rules=workflow_rules) or by_job
    for number, rule in enumerate(conditions.rules, 1):
        if not judge.applies(rule.clauses, own):
            continue
        name = f"rule {number} ({_place(rule.clauses.at)})"
        if rule.when == "never":
            return f"{name}: when: never"
        allow_failure = rule.allow_failure or by_job.allow_failure
        if rule.allow_failure is None and rule.when is not None and not explicit:
            # A manual job that a rule makes holds up the pipeline, unlike one that is manual by itself.
            allow_failure = AllowFailure()
        return Verdict(
            when=cast(When, rule.when or by_job.when),
            start_in_seconds=rule.start_in_seconds or by_job.start_in_seconds,
            allow_failure=allow_failure,
            variables=rule.variables,
            needs=rule.needs or by_job.needs,
            interruptible=by_job.interruptible if rule.interruptible is None else rule.interruptible,
            rule=name,
        )
    return "no rule matched"


def _place(node: Node) -> str:
    return f"{printable(node.file)}:{node.line}" if node.file else f"line {node.line}"


def _why_not(judge: Judge, conditions: Conditions, own: Variables, *, workflow_rules: bool) -> str:
    """What `only` and `except` have against the job; empty: nothing."""
    facts = judge.facts
    only, excluded = conditions.only, conditions.excluded
    if only is None:
        if not workflow_rules and facts.is_merge_request:
            return "without rules it does not run for merge requests"
    else:
        refs = only.refs if only.refs is not None else ("branches", "tags")
        if not any(_fits_ref(judge, facts, ref, only.at) for ref in refs):
            return f"only:refs ({_place(only.at)}): none fits"
        if only.variables is not None and not _any_holds(judge, only.variables, own, only.at):
            return f"only:variables ({_place(only.at)}): none holds"
        if only.changes is not None and not judge.changed(only.changes, own, only.at):
            return f"only:changes ({_place(only.at)}): no such file changed"
    if excluded is None:
        return ""
    place = _place(excluded.at)
    if any(_fits_ref(judge, facts, ref, excluded.at) for ref in excluded.refs or ()):
        return f"except:refs ({place}): one fits"
    if excluded.variables is not None and _any_holds(judge, excluded.variables, own, excluded.at):
        return f"except:variables ({place}): one holds"
    if excluded.changes is not None and judge.changed(excluded.changes, own, excluded.at):
        return f"except:changes ({place}): such a file changed"
    return ""


def _any_holds(judge: Judge, expressions: tuple[Expression, ...], own: Variables, at: Node) -> bool:
    variables = judge.known(own)
    return any(judge.holds(each, variables, at) for each in expressions)


def _fits_ref(judge: Judge, facts: Facts, ref: str, at: Node) -> bool:
    ref, _, project = ref.partition("@")
    if project and project != facts.predefined.get("CI_PROJECT_PATH", project):
        return False
    if ref in _SOURCES:
        return facts.source == _SOURCES[ref]
    if ref == "branches":
        return not facts.is_tag and not facts.is_merge_request
    if ref == "tags":
        return facts.is_tag
    if facts.is_merge_request:
        return False
    literal = split_literal(ref)
    return judge.found(*literal, facts.ref, at) if literal else ref == facts.ref
