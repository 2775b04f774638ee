"""Decides who may push to protected branches and tags, force-push to them and start their pipelines.

The default branch is protected for maintainers, unless a rule of its own says otherwise or its protection was removed.
If a ref matches several rules, the most permissive counts, as in GitLab. A ref that matches none is open to developers.
Refs are full names (`refs/heads/main`)."""

from collections.abc import Iterable
from typing import NamedTuple

from remuda.cell.values import Project
from remuda.cell.values.people import Level
from remuda.cell.values.projects import ProtectedRef, RefGrant

HEADS, TAGS = "refs/heads/", "refs/tags/"
NOBODY = 0
MAX_RULES = 200
"""How many rules for branches, and for tags, a project can have. All go to git's hook with every push."""

MAX_STARS = 5
"""How many `*` a rule's name can have: the shell's matching in git's hook takes exponential time."""


class Rule(NamedTuple):
    """A rule with the full pattern of its refs."""

    pattern: str
    row: ProtectedRef


class Pusher(NamedTuple):
    """Who wants to push: a user with an access level in the project."""

    user_id: int
    level: int


class PushPatterns(NamedTuple):
    """Patterns of full refs for git's hook: a ref that matches `protected` must match `allowed` to be pushed, and
    `forced` to be force-pushed."""

    protected: tuple[str, ...]
    allowed: tuple[str, ...]
    forced: tuple[str, ...]


def default_rule(project: Project, default_branch: str) -> ProtectedRef:
    """Return the rule of the default branch, if it is protected without a rule of its own."""
    maintainers = (RefGrant(id=project.id, level=Level.MAINTAINER),)
    return ProtectedRef(
        id=project.id,
        name=default_branch,
        push=maintainers,
        merge=maintainers,
        allow_force_push=project.allow_force_push,
    )


def branch_rules(project: Project, default_branch: str | None) -> tuple[ProtectedRef, ...]:
    rows = project.protected_branches
    if not default_branch or not project.default_branch_protected or any(row.name == default_branch for row in rows):
        return rows
    return (default_rule(project, default_branch), *rows)


def rules_of(project: Project, default_branch: str | None) -> tuple[Rule, ...]:
    """Return the rules of a project for branches and tags. `default_branch` is its current one, None if unknown."""
    return (
        *(Rule(HEADS + row.name, row) for row in branch_rules(project, default_branch)),
        *(Rule(TAGS + row.name, row) for row in project.protected_tags),
    )


def match_rules(rules: Iterable[Rule], ref: str) -> list[ProtectedRef]:
    return [rule.row for rule in rules if matches(rule.pattern, ref)]


def is_protected(rules: Iterable[Rule], ref: str) -> bool:
    return bool(match_rules(rules, ref))


def admits(grants: Iterable[RefGrant], who: Pusher) -> bool:
    """Return whether one of the grants admits a user. A user who is named must still be a developer."""
    return any(
        (grant.level is not None and grant.level != NOBODY and who.level >= grant.level)
        or (grant.user_id == who.user_id and who.level >= Level.DEVELOPER)
        for grant in grants
    )


def can_push(rules: Iterable[Rule], ref: str, who: Pusher) -> bool:
    """Return whether a user may push to a branch, or create a tag. Nobody may move a protected tag."""
    rows = match_rules(rules, ref)
    return any(admits(row.push, who) for row in rows) if rows else who.level >= Level.DEVELOPER


def can_run(rules: Iterable[Rule], ref: str, who: Pusher) -> bool:
    """Return whether a user may start pipelines of a ref and act on them: whoever may push or merge to it."""
    rows = match_rules(rules, ref)
    return any(admits((*row.push, *row.merge), who) for row in rows) if rows else who.level >= Level.DEVELOPER


def allows_force_push(rules: Iterable[Rule], ref: str) -> bool:
    rows = match_rules(rules, ref)
    return not rows or any(row.allow_force_push for row in rows)


def can_unprotect(row: ProtectedRef, who: Pusher) -> bool:
    return admits(row.unprotect, who) if row.unprotect else who.level >= Level.MAINTAINER


def push_patterns(rules: Iterable[Rule], who: Pusher) -> PushPatterns:
    """Return the rules of one user's push as patterns for git's hook."""
    rules = tuple(rules)
    return PushPatterns(
        protected=tuple(dict.fromkeys(rule.pattern for rule in rules)),
        allowed=tuple(dict.fromkeys(rule.pattern for rule in rules if admits(rule.row.push, who))),
        forced=tuple(dict.fromkeys(rule.pattern for rule in rules if rule.row.allow_force_push)),
    )


def matches(pattern: str, ref: str) -> bool:
    """Return whether a pattern, in which `*` stands for any characters, matches the whole ref. Takes linear time."""
    first, *rest = pattern.split("*")
    if not rest:
        return ref == pattern
    *middle, last = rest
    if not ref.startswith(first) or not ref.endswith(last) or len(ref) < len(first) + len(last):
        return False
    place, end = len(first), len(ref) - len(last)
    for part in middle:
        place = ref.find(part, place, end)
        if place < 0:
            return False
        place += len(part)
    return True
