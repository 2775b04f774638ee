"""Rules for protected branches and tags: who may push, force-push and start pipelines."""

import pytest
from msgspec.structs import replace

from remuda.cell.core.access.protected_refs import (
    Pusher,
    allows_force_push,
    can_push,
    can_run,
    is_protected,
    push_patterns,
    rules_of,
)
from remuda.cell.values.projects import ProtectedRef, RefGrant
from remuda.testing.builders import a_project

GUEST, DEVELOPER, MAINTAINER, ADMIN = (Pusher(user_id=5, level=level) for level in (10, 30, 40, 60))
MAIN, SIDE, RELEASE = "refs/heads/main", "refs/heads/side", "refs/heads/release/1.0"


def a_rule(name: str, *levels: int, merge: int = 40, **fields: object) -> ProtectedRef:
    push = tuple(RefGrant(id=number, level=level) for number, level in enumerate(levels, 1))
    rule = ProtectedRef(id=1, name=name, push=push, merge=(RefGrant(id=9, level=merge),))
    return replace(rule, **fields)


def test_the_default_branch_is_protected_without_a_rule() -> None:
    project = a_project()
    rules = rules_of(project, "main")
    assert is_protected(rules, MAIN)
    assert not is_protected(rules, SIDE)
    assert not is_protected(rules, "refs/tags/main")
    assert [can_push(rules, MAIN, who) for who in (DEVELOPER, MAINTAINER, ADMIN)] == [False, True, True]
    assert can_push(rules, SIDE, DEVELOPER)
    assert not allows_force_push(rules, MAIN)
    assert allows_force_push(rules_of(replace(project, allow_force_push=True), "main"), MAIN)


def test_protection_of_the_default_branch_can_be_removed_or_replaced() -> None:
    assert not is_protected(rules_of(replace(a_project(), default_branch_protected=False), "main"), MAIN)
    rules = rules_of(replace(a_project(), protected_branches=(a_rule("main", 30),)), "main")
    assert can_push(rules, MAIN, DEVELOPER)
    assert is_protected(rules, MAIN)


@pytest.mark.parametrize(
    ("pattern", "ref", "matches"),
    [
        ("release/*", RELEASE, True),
        ("release/*", "refs/heads/release", False),
        ("*", "refs/heads/a/b", True),
        ("*-stable", "refs/heads/1-stable", True),
        ("*-stable", "refs/heads/1-stable2", False),
        ("a.b", "refs/heads/axb", False),
        ("release", "refs/heads/Release", False),
    ],
)
def test_a_star_matches_any_characters(pattern: str, ref: str, matches: bool) -> None:
    rules = rules_of(replace(a_project(), protected_branches=(a_rule(pattern, 40),)), "main")
    assert is_protected(rules, ref) is matches


def test_of_several_rules_the_most_permissive_counts() -> None:
    rows = (a_rule("release/*", 40), a_rule("release/1.*", 30, allow_force_push=True))
    rules = rules_of(replace(a_project(), protected_branches=rows), "main")
    assert can_push(rules, RELEASE, DEVELOPER)
    assert allows_force_push(rules, RELEASE)
    assert not can_push(rules, "refs/heads/release/2.0", DEVELOPER)


def test_no_access_admits_nobody() -> None:
    rules = rules_of(replace(a_project(), protected_branches=(a_rule("main", 0, merge=0),)), "main")
    assert not can_push(rules, MAIN, ADMIN)
    assert not can_run(rules, MAIN, ADMIN)


def test_who_may_merge_may_run_pipelines() -> None:
    rules = rules_of(replace(a_project(), protected_branches=(a_rule("main", 0, merge=30),)), "main")
    assert (can_push(rules, MAIN, DEVELOPER), can_run(rules, MAIN, DEVELOPER)) == (False, True)
    assert not can_run(rules, SIDE, GUEST)


def test_a_single_user_can_be_admitted_but_must_be_a_developer() -> None:
    rule = a_rule("main", 40)
    rule = replace(rule, push=(*rule.push, RefGrant(id=2, user_id=5)))
    rules = rules_of(replace(a_project(), protected_branches=(rule,)), "main")
    assert can_push(rules, MAIN, DEVELOPER)
    assert not can_push(rules, MAIN, Pusher(user_id=6, level=30))
    assert not can_push(rules, MAIN, Pusher(user_id=5, level=20))


def test_protected_tags() -> None:
    rules = rules_of(replace(a_project(), protected_tags=(a_rule("v*", 40),)), "main")
    assert is_protected(rules, "refs/tags/v1")
    assert not is_protected(rules, "refs/heads/v1")
    assert [can_push(rules, "refs/tags/v1", who) for who in (DEVELOPER, MAINTAINER)] == [False, True]
    assert can_push(rules, "refs/tags/x", DEVELOPER)


def test_patterns_for_git() -> None:
    rows = (a_rule("release/*", 40), a_rule("open", 30, allow_force_push=True))
    rules = rules_of(replace(a_project(), protected_branches=rows, protected_tags=(a_rule("v*", 40),)), "main")
    patterns = push_patterns(rules, DEVELOPER)
    assert set(patterns.protected) == {MAIN, "refs/heads/release/*", "refs/heads/open", "refs/tags/v*"}
    assert patterns.allowed == ("refs/heads/open",)
    assert patterns.forced == ("refs/heads/open",)
