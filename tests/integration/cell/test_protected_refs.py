"""Protected branches and tags: their API, and what git pushes and pipelines make of them."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import gitlab
import pytest
from tests.support.cells.people import Person, add_member, create_group, create_group_project, create_person
from tests.support.cells.served_cell import ServedCell
from tests.support.git_client import Clone

PIPELINE = "job: {script: [echo]}\n"


@pytest.fixture
def shop(cell: ServedCell) -> str:
    group = create_group(cell, "acme")
    return f"/projects/{create_group_project(cell, group, 'shop', PIPELINE)}"


@pytest.fixture
def developer(cell: ServedCell, shop: str) -> Person:
    ada = create_person(cell, "ada")
    add_member(cell, shop.lstrip("/"), ada, 30)
    return ada


@pytest.fixture
def maintainer(cell: ServedCell, shop: str) -> Person:
    max_ = create_person(cell, "max")
    add_member(cell, shop.lstrip("/"), max_, 40)
    return max_


@pytest.fixture
def clone(cell: ServedCell, shop: str, developer: Person, tmp_path: Path) -> Clone:
    repository = Clone(tmp_path / "clone")
    repository.git("init", "-q", "-b", "main")
    repository.git("pull", "-q", developer.address("acme/shop"), "main")
    return repository


def push(clone: Clone, person: Person, refspec: str, *words: str) -> bool:
    """True if the push succeeds, False if the cell's rules refuse it."""
    with suppress(AssertionError):
        clone.run("push", *words, person.address("acme/shop"), refspec)
        return True
    return False


def protect(cell: ServedCell, shop: str, kind: str = "branches", **fields: Any) -> dict[str, Any]:
    created = cell.api("POST", f"{shop}/protected_{kind}", fields)
    assert created.status == 201, created
    rule: dict[str, Any] = created.json()
    return rule


def test_a_wildcard_protects_branches_from_developers(
    cell: ServedCell, shop: str, developer: Person, maintainer: Person, clone: Clone
) -> None:
    rule = protect(cell, shop, name="release/*")
    assert [level["access_level"] for level in rule["push_access_levels"]] == [40]
    assert rule["code_owner_approval_required"] is False
    clone.commit(**{"a.txt": "a"})
    assert not push(clone, developer, "HEAD:refs/heads/release/1.0")
    assert push(clone, developer, "HEAD:refs/heads/other")
    assert push(clone, maintainer, "HEAD:refs/heads/release/1.0")
    branch = cell.api("GET", f"{shop}/repository/branches/release%2F1.0").json()
    assert (branch["protected"], branch["developers_can_push"]) == (True, False)
    [pipeline] = [p for p in cell.api("GET", f"{shop}/pipelines").json() if p["ref"] == "release/1.0"]
    assert developer.api("POST", f"{shop}/pipelines/{pipeline['id']}/cancel").status == 403
    assert developer.api("POST", f"{shop}/pipeline", {"ref": "release/1.0"}).status == 400
    new = {"branch": "release/2.0", "ref": "main"}
    assert developer.api("POST", f"{shop}/repository/branches", new).status == 403
    assert cell.api("POST", f"{shop}/protected_branches", {"name": "release/*"}).status == 409
    assert cell.api("DELETE", f"{shop}/protected_branches/release%2F*").status == 204
    assert push(clone, developer, "HEAD:refs/heads/release/2.0")


def test_developers_may_push_where_a_rule_admits_them(
    cell: ServedCell, shop: str, developer: Person, clone: Clone
) -> None:
    protect(cell, shop, name="stable", push_access_level=30, allow_force_push=False)
    clone.commit(**{"a.txt": "a"})
    assert push(clone, developer, "HEAD:refs/heads/stable")
    clone.git("commit", "-q", "--amend", "-m", "other")
    assert not push(clone, developer, "HEAD:refs/heads/stable", "--force"), "no force push"
    assert not push(clone, developer, ":refs/heads/stable"), "deleting and pushing again is a force push, too"
    change = {"allow_force_push": True}
    assert cell.api("PATCH", f"{shop}/protected_branches/stable", change).json()["allow_force_push"] is True
    assert push(clone, developer, "HEAD:refs/heads/stable", "--force")
    assert developer.api("POST", f"{shop}/pipeline", {"ref": "stable"}).status == 201


def test_no_one_and_single_users(
    cell: ServedCell, shop: str, developer: Person, maintainer: Person, clone: Clone
) -> None:
    rule = protect(cell, shop, name="frozen", push_access_level=0)
    clone.commit(**{"a.txt": "a"})
    assert not push(clone, maintainer, "HEAD:refs/heads/frozen")
    path = f"{shop}/protected_branches/frozen"
    change = {"allowed_to_push": [{"user_id": developer.id}]}
    changed = cell.api("PATCH", path, change).json()
    assert [level["user_id"] for level in changed["push_access_levels"]] == [None, developer.id]
    assert push(clone, developer, "HEAD:refs/heads/frozen")
    change = {"allowed_to_push": [{"id": rule["push_access_levels"][0]["id"], "_destroy": True}]}
    assert len(cell.api("PATCH", path, change).json()["push_access_levels"]) == 1
    assert cell.api("PATCH", path, {"allowed_to_push": [{"group_id": 1}]}).status == 400
    assert cell.api("PATCH", path, {"allowed_to_push": [{"user_id": 9999}]}).status == 404


def test_the_default_branch(cell: ServedCell, shop: str, developer: Person, clone: Clone) -> None:
    clone.commit(**{"a.txt": "a"})
    assert not push(clone, developer, "HEAD:refs/heads/main")
    assert cell.api("POST", f"{shop}/protected_branches", {"name": "main"}).status == 409
    change = {"allowed_to_push": [{"access_level": 30}]}
    changed = cell.api("PATCH", f"{shop}/protected_branches/main", change).json()
    assert [level["access_level"] for level in changed["push_access_levels"]] == [40, 30]
    assert push(clone, developer, "HEAD:refs/heads/main")
    assert cell.api("DELETE", f"{shop}/protected_branches/main").status == 204
    assert cell.api("GET", f"{shop}/protected_branches").json() == []
    assert cell.api("GET", f"{shop}/protected_branches/main").status == 404
    clone.git("commit", "-q", "--amend", "-m", "other")
    assert push(clone, developer, "HEAD:refs/heads/main", "--force")
    protect(cell, shop, name="main")
    clone.commit(**{"b.txt": "b"})
    assert not push(clone, developer, "HEAD:refs/heads/main")


def test_an_unprotect_level_guards_the_rule(cell: ServedCell, shop: str, maintainer: Person) -> None:
    protect(cell, shop, name="x", unprotect_access_level=60)
    assert maintainer.api("DELETE", f"{shop}/protected_branches/x").status == 403
    assert maintainer.api("PATCH", f"{shop}/protected_branches/x", {"allow_force_push": True}).status == 403
    assert cell.api("DELETE", f"{shop}/protected_branches/x").status == 204


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "a", "push_access_level": 33},
        {"name": "a", "code_owner_approval_required": True},
        {"name": "a?b"},
        {"name": "*a*b*c*d*e*"},
        {"name": ""},
    ],
)
def test_bad_rules_are_refused(cell: ServedCell, shop: str, fields: dict[str, Any]) -> None:
    assert cell.api("POST", f"{shop}/protected_branches", fields).status == 400


def test_protected_tags(
    cell: ServedCell, shop: str, developer: Person, maintainer: Person, clone: Clone, tmp_path: Path
) -> None:
    rule = protect(cell, shop, "tags", name="v*")
    assert [level["access_level"] for level in rule["create_access_levels"]] == [40]
    assert cell.api("POST", f"{shop}/protected_tags", {"name": "v*"}).status == 409
    assert cell.api("POST", f"{shop}/variables", {"key": "SECRET", "value": "hidden", "protected": True}).status == 201
    assert not push(clone, developer, "HEAD:refs/tags/v1")
    assert push(clone, developer, "HEAD:refs/tags/x1")
    tag = {"tag_name": "v1", "ref": "main"}
    assert developer.api("POST", f"{shop}/repository/tags", tag).status == 403
    assert developer.api("POST", f"{shop}/releases", {**tag, "name": "one"}).status == 403
    assert push(clone, maintainer, "HEAD:refs/tags/v1")
    assert cell.api("GET", f"{shop}/repository/tags/v1").json()["protected"] is True
    assert cell.api("GET", f"{shop}/repository/tags/x1").json()["protected"] is False
    runner = cell.new_runner()
    keys = {}
    for job in [runner.take() for _ in range(3)]:
        keys[job["git_info"]["ref"]] = "SECRET" in [variable["key"] for variable in job["variables"]]
    assert keys == {"main": True, "x1": False, "v1": True}
    assert [row["name"] for row in cell.api("GET", f"{shop}/protected_tags").json()] == ["v*"]
    assert cell.api("DELETE", f"{shop}/protected_tags/v*").status == 204
    assert cell.api("GET", f"{shop}/protected_tags/v*").status == 404
    assert push(clone, developer, "HEAD:refs/tags/v2")


def test_releases_of_a_protected_tag_are_for_those_who_may_create_the_tag(
    cell: ServedCell, shop: str, developer: Person, maintainer: Person
) -> None:
    assert maintainer.api("POST", f"{shop}/repository/tags", {"tag_name": "v1", "ref": "main"}).status == 201
    protect(cell, shop, "tags", name="v*")
    release = {"tag_name": "v1", "name": "one"}
    refused = developer.api("POST", f"{shop}/releases", release)
    assert (refused.status, "the tag v1 is protected" in refused.json()["message"]) == (403, True)
    assert maintainer.api("POST", f"{shop}/releases", release).status == 201
    assert developer.api("POST", f"{shop}/releases", release).status == 403, "not told whether there is one"
    assert developer.api("PUT", f"{shop}/releases/v1", {"name": "mine"}).status == 403
    assert developer.api("DELETE", f"{shop}/releases/v1").status == 403
    assert developer.api("GET", f"{shop}/releases/v1").json()["name"] == "one"
    assert maintainer.api("PUT", f"{shop}/releases/v1", {"name": "two"}).json()["name"] == "two"
    assert maintainer.api("DELETE", f"{shop}/releases/v1").status == 200


def test_a_job_has_the_rights_of_its_user_for_releases(
    cell: ServedCell, shop: str, developer: Person, maintainer: Person, clone: Clone
) -> None:
    protect(cell, shop, "tags", name="v*")
    runner = cell.new_runner()
    assert push(clone, developer, "HEAD:refs/heads/topic")
    jobs = {job["git_info"]["ref"]: job for job in [runner.take() for _ in range(2)]}
    release = {"tag_name": "v1", "ref": "main", "name": "one"}
    path = f"/api/v4{shop}/releases"
    assert cell.send("POST", path, release, JOB_TOKEN=jobs["topic"]["token"]).status == 403
    assert cell.send("POST", path, release, JOB_TOKEN=jobs["main"]["token"]).status == 201


def test_nobody_moves_a_protected_tag(
    cell: ServedCell, shop: str, developer: Person, maintainer: Person, clone: Clone
) -> None:
    for tag in ("v1", "x1"):
        assert push(clone, developer, f"HEAD:refs/tags/{tag}")
    protect(cell, shop, "tags", name="v*", create_access_level=30)
    clone.commit(**{"a.txt": "a"})
    refused = clone.run("push", "--force", maintainer.address("acme/shop"), "HEAD:refs/tags/v1", ok=False)
    assert "refs/tags/v1 is protected, so nobody can move it" in refused.stderr
    assert push(clone, developer, "HEAD:refs/tags/x1", "--force")
    assert push(clone, developer, "HEAD:refs/tags/v2")
    assert push(clone, developer, "HEAD~:refs/tags/v1", "--force"), "nothing changes"
    moved = {"refs": {"refs/tags/v1": clone.git("rev-parse", "HEAD").strip()}}
    answer = cell.send("PUT", f"/api/remuda/v1{shop}/refs", moved, PRIVATE_TOKEN=cell.token)
    assert (answer.status, b"so nobody can move it" in answer.body) == (403, True)


def test_maintainers_delete_protected_tags_and_git_does_not(
    cell: ServedCell, shop: str, developer: Person, maintainer: Person, clone: Clone
) -> None:
    for tag in ("v1", "x1", "x2"):
        assert push(clone, developer, f"HEAD:refs/tags/{tag}")
    protect(cell, shop, "tags", name="v*", create_access_level=30)
    refused = clone.run("push", maintainer.address("acme/shop"), ":refs/tags/v1", ok=False)
    assert "DELETE /projects/:id/repository/tags/:tag_name" in refused.stderr
    assert push(clone, developer, ":refs/tags/x1")
    assert developer.api("DELETE", f"{shop}/repository/tags/x2").status == 204
    assert developer.api("DELETE", f"{shop}/repository/tags/v1").status == 403
    assert maintainer.api("DELETE", f"{shop}/repository/tags/v1").status == 204


def test_a_branch_can_be_protected_before_the_first_push(cell: ServedCell) -> None:
    project = f"/projects/{cell.api('POST', '/projects', {'name': 'empty'}).json()['id']}"
    protect(cell, project, name="main", push_access_level=30)
    [rule] = cell.api("GET", f"{project}/protected_branches").json()
    assert [level["access_level"] for level in rule["push_access_levels"]] == [30]


def test_python_gitlab(cell: ServedCell, shop: str, client: gitlab.Gitlab) -> None:
    project = client.projects.get(int(shop.rpartition("/")[2]))
    project.protectedbranches.create({"name": "stable-*", "merge_access_level": 30, "push_access_level": 40})
    assert project.protectedbranches.get("stable-*").merge_access_levels[0]["access_level"] == 30
    project.protectedbranches.delete("stable-*")
    project.protectedtags.create({"name": "v*", "create_access_level": 40})
    assert [tag.name for tag in project.protectedtags.list()] == ["v*"]
    project.protectedtags.delete("v*")


def test_git_deletes_no_protected_branch_and_the_api_does(
    cell: ServedCell, shop: str, developer: Person, maintainer: Person, clone: Clone
) -> None:
    protect(cell, shop, name="stable", push_access_level=30, allow_force_push=True)
    assert push(clone, developer, "HEAD:refs/heads/stable")
    refused = clone.run("push", maintainer.address("acme/shop"), ":refs/heads/stable", ok=False)
    assert "DELETE /projects/:id/repository/branches/:branch" in refused.stderr
    assert developer.api("DELETE", f"{shop}/repository/branches/stable").status == 403
    assert maintainer.api("DELETE", f"{shop}/repository/branches/stable").status == 204
    assert push(clone, developer, "HEAD:refs/heads/other")
    assert push(clone, developer, ":refs/heads/other")
