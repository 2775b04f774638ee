"""Access levels of users from memberships and visibility, and the limits by token scopes."""

import pytest

from remuda.cell.core.access.rights import (
    ADMINISTRATOR,
    active_members,
    group_level,
    project_level,
    scopes_allow,
    sight,
    unknown_scopes,
)
from remuda.cell.values.people import FIRST_USER, Level, Member, Namespace, User
from remuda.model.runner import Pool
from remuda.testing.builders import a_project

ADA = User(id=2, username="ada", name="Ada", email="ada@x.org", created_at=0, namespace_id=20)


def a_member(owner: Pool, level: int, expires_at: float | None = None) -> Member:
    return Member(owner=owner, user_id=ADA.id, level=level, created_at=0, expires_at=expires_at)


def test_the_highest_of_all_levels_counts() -> None:
    project = a_project(id=7, namespace_id=5, group_ids=(5, 4))
    members = [a_member(("group", 4), Level.GUEST), a_member(("project", 7), Level.DEVELOPER)]
    assert project_level(ADA, members, project) == Level.DEVELOPER
    assert project_level(ADA, [*members, a_member(("group", 4), Level.OWNER)], project) == Level.OWNER
    assert project_level(ADA, [a_member(("group", 7), Level.OWNER), a_member(("project", 5), 50)], project) is None


def test_the_owner_of_a_namespace_owns_its_projects() -> None:
    assert project_level(ADA, [], a_project(namespace_id=20)) == Level.OWNER
    own = Namespace(id=20, path="ada", name="Ada", created_at=0, owner_id=ADA.id)
    assert group_level(ADA, [], own) == Level.OWNER
    assert group_level(ADA, [], Namespace(id=1, path="root", name="R", created_at=0, owner_id=1)) is None


@pytest.mark.parametrize(("visibility", "level"), [("private", None), ("internal", 20), ("public", 20)])
def test_internal_and_public_projects_are_readable_in_the_organization(visibility: str, level: int | None) -> None:
    assert project_level(ADA, [], a_project(namespace_id=5, visibility=visibility)) == level
    elsewhere = a_project(namespace_id=5, visibility=visibility, organization_id=9)
    assert project_level(ADA, [a_member(("project", 1), Level.OWNER)], elsewhere) is None
    assert project_level(FIRST_USER, [], elsewhere) == ADMINISTRATOR


def test_level_in_a_group() -> None:
    group = Namespace(id=5, path="a/b", name="B", created_at=0, parent_id=4, above=(4,))
    assert group_level(ADA, [], group) is None
    assert group_level(ADA, [a_member(("group", 4), Level.MAINTAINER)], group) == Level.MAINTAINER
    internal = Namespace(id=6, path="c", name="C", created_at=0, visibility="internal")
    assert group_level(ADA, [], internal) == 0
    of_other_organization = Namespace(id=6, path="c", name="C", created_at=0, visibility="public", organization_id=9)
    assert group_level(ADA, [a_member(("group", 6), Level.OWNER)], of_other_organization) is None


def test_expired_memberships_do_not_count() -> None:
    active = [a_member(("group", 4), 30), a_member(("group", 5), 30, expires_at=11)]
    assert active_members([*active, a_member(("group", 6), 30, expires_at=10)], 10) == active


def test_sight_of_a_user_and_of_an_administrator() -> None:
    ada_sight = sight(ADA, [a_member(("group", 4), 10), a_member(("project", 7), 10)])
    assert ada_sight is not None
    assert (ada_sight.group_ids, ada_sight.project_ids, ada_sight.namespace_id) == (frozenset({4}), frozenset({7}), 20)
    assert sight(FIRST_USER, []) is None


@pytest.mark.parametrize(
    ("scopes", "reading", "also", "expected"),
    [
        (["api"], False, [], True),
        (["read_api"], True, [], True),
        (["read_api"], False, [], False),
        (["create_runner"], False, ["create_runner"], True),
        (["create_runner"], True, [], False),
        (["read_repository", "self_rotate"], True, ["read_user"], False),
        ([], True, [], False),
    ],
)
def test_scopes(scopes: list[str], reading: bool, also: list[str], expected: bool) -> None:
    assert scopes_allow(scopes, is_reading=reading, also=also) is expected


def test_scopes_that_a_token_cannot_have() -> None:
    assert unknown_scopes(["api", "everything", "sudo"], ADA) == ["everything", "sudo"]
    assert unknown_scopes(["api", "sudo", "admin_mode"], FIRST_USER) == []
