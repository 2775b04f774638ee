"""Access tokens of projects and groups: a bot user with one membership, for the API and for git."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.people import (
    Person,
    add_member,
    create_group,
    create_group_project,
    create_organization,
    create_person,
)
from tests.support.cells.served_cell import ServedCell
from tests.support.git_client import Clone

from remuda.wire.routable_token import decode

PIPELINE = "job: {script: [echo]}\n"


@pytest.fixture
def group(cell: ServedCell) -> int:
    return create_group(cell, "acme")


@pytest.fixture
def shop(cell: ServedCell, group: int) -> str:
    return f"/projects/{create_group_project(cell, group, 'shop', PIPELINE)}"


@pytest.fixture
def maintainer(cell: ServedCell, group: int) -> Person:
    ada = create_person(cell, "ada")
    add_member(cell, f"groups/{group}", ada, 40)
    return ada


def create(caller: Any, place: str, **fields: Any) -> dict[str, Any]:
    body = {"name": "deploy", "scopes": ["api"], "access_level": 30, **fields}
    created = caller.api("POST", f"{place}/access_tokens", body)
    assert created.status == 201, created
    token: dict[str, Any] = created.json()
    return token


def bot(cell: ServedCell, token: dict[str, Any]) -> Person:
    return Person(cell, token["user_id"], "bot", token["token"])


def test_a_project_token_acts_as_a_bot_with_its_level(cell: ServedCell, maintainer: Person, shop: str) -> None:
    token = create(maintainer, shop, description="for the release")
    assert token["token"].startswith("glpat-")
    assert (token["access_level"], token["active"], token["revoked"]) == (30, True, False)
    assert (token["scopes"], token["description"]) == (["api"], "for the release")
    assert token["expires_at"], "a token that asks for no expiry gets one, as in GitLab"
    robot = bot(cell, token)
    me = robot.api("GET", "/user").json()
    assert me["bot"] is True
    assert me["username"].startswith(f"project_{shop.rpartition('/')[2]}_bot_")
    assert robot.api("GET", shop).status == 200
    assert robot.api("GET", f"{shop}/variables").status == 403, "a developer"
    [listed] = maintainer.api("GET", f"{shop}/access_tokens").json()
    assert listed["id"] == token["id"]
    assert "token" not in listed
    assert listed["last_used_at"] is not None
    assert maintainer.api("GET", f"{shop}/access_tokens/{token['id']}").json()["name"] == "deploy"
    assert me["id"] in [row["id"] for row in maintainer.api("GET", f"{shop}/members").json()]


def test_a_project_token_reaches_no_other_private_project(
    cell: ServedCell, group: int, maintainer: Person, shop: str
) -> None:
    other = create_group_project(cell, group, "other", PIPELINE)
    robot = bot(cell, create(maintainer, shop, access_level=40))
    assert robot.api("GET", f"/projects/{other}").status == 404
    assert robot.api("GET", f"/groups/{group}").status == 404
    assert robot.api("POST", "/projects", {"name": "own"}).status == 400
    assert robot.api("POST", "/groups", {"name": "own", "path": "own"}).status == 403
    new = {"name": "more", "scopes": ["api"]}
    assert robot.api("POST", f"{shop}/access_tokens", new).status == 403, "a bot creates no tokens"
    assert robot.api("POST", "/user/personal_access_tokens", new).status == 403
    assert maintainer.api("POST", f"/groups/{group}/members", {"user_id": robot.id, "access_level": 10}).status == 403
    answer = cell.api("POST", f"/projects/{other}/members", {"user_id": robot.id, "access_level": 10})
    assert answer.status == 400, "a bot stays in its project"


def test_only_maintainers_manage_the_tokens_of_a_project(
    cell: ServedCell, group: int, maintainer: Person, shop: str
) -> None:
    bob = create_person(cell, "bob")
    add_member(cell, f"groups/{group}", bob, 30)
    assert bob.api("GET", f"{shop}/access_tokens").status == 403
    new = {"name": "x", "scopes": ["api"], "access_level": 10}
    assert bob.api("POST", f"{shop}/access_tokens", new).status == 403
    assert maintainer.api("POST", f"{shop}/access_tokens", {**new, "access_level": 50}).status == 403
    assert maintainer.api("POST", f"{shop}/access_tokens", {**new, "access_level": 33}).status == 400
    assert maintainer.api("POST", f"{shop}/access_tokens", {**new, "scopes": ["sudo"]}).status == 400
    assert maintainer.api("POST", f"{shop}/access_tokens", {**new, "scopes": []}).status == 400
    assert maintainer.api("POST", f"{shop}/access_tokens", {**new, "expires_at": "2001-01-01"}).status == 400
    place = f"/groups/{group}/access_tokens"
    assert maintainer.api("POST", place, new).status == 403, "group tokens are for owners"
    assert maintainer.api("GET", place).status == 403


def test_scopes_limit_the_token(cell: ServedCell, maintainer: Person, shop: str) -> None:
    robot = bot(cell, create(maintainer, shop, scopes=["read_api"], access_level=40))
    assert robot.api("GET", f"{shop}/variables").status == 200
    assert robot.api("POST", f"{shop}/variables", {"key": "A", "value": "b"}).status == 403


def test_revocation_ends_the_token_and_its_bot(cell: ServedCell, maintainer: Person, shop: str) -> None:
    token = create(maintainer, shop)
    robot = bot(cell, token)
    assert maintainer.api("DELETE", f"{shop}/access_tokens/{token['id']}").status == 204
    assert robot.api("GET", shop).status == 401
    assert cell.api("GET", f"/users/{robot.id}").json()["state"] == "blocked"
    assert maintainer.api("GET", f"{shop}/access_tokens?state=active").json() == []
    [old] = maintainer.api("GET", f"{shop}/access_tokens?state=inactive").json()
    assert (old["revoked"], old["active"]) == (True, False)
    assert maintainer.api("POST", f"{shop}/access_tokens/{token['id']}/rotate").status == 400
    assert maintainer.api("DELETE", f"{shop}/access_tokens/999").status == 404


def test_rotation_keeps_the_bot(cell: ServedCell, maintainer: Person, shop: str) -> None:
    token = create(maintainer, shop, scopes=["read_api", "self_rotate"])
    rotated = maintainer.api("POST", f"{shop}/access_tokens/{token['id']}/rotate", {"expires_at": "2999-12-31"})
    assert (rotated.status, rotated.json()["user_id"]) == (200, token["user_id"])
    assert rotated.json()["expires_at"] == "2999-12-31"
    assert bot(cell, token).api("GET", shop).status == 401
    again = bot(cell, rotated.json()).api("POST", f"{shop}/access_tokens/self/rotate")
    assert again.status == 200
    assert bot(cell, again.json()).api("GET", shop).status == 200
    assert maintainer.api("POST", f"{shop}/access_tokens/self/rotate").status == 405, "a personal token"


def test_git_over_http(cell: ServedCell, maintainer: Person, shop: str, tmp_path: Path) -> None:
    robot = bot(cell, create(maintainer, shop, scopes=["read_repository"]))
    clone = Clone(tmp_path / "clone")
    clone.git("init", "-q")
    clone.git("pull", robot.address("acme/shop"), "main")
    writer = bot(cell, create(maintainer, shop, scopes=["write_repository"]))
    clone.commit(**{"a.txt": "a"})
    assert clone.run("push", robot.address("acme/shop"), "HEAD:refs/heads/side", ok=False).returncode != 0
    clone.git("push", writer.address("acme/shop"), "HEAD:refs/heads/side")


def test_a_group_token_reaches_the_projects_of_the_group(cell: ServedCell, group: int, shop: str) -> None:
    token = create(cell, f"/groups/{group}", access_level=40)
    robot = bot(cell, token)
    assert robot.api("GET", "/user").json()["username"].startswith(f"group_{group}_bot_")
    assert robot.api("GET", f"{shop}/variables").status == 200
    assert cell.api("GET", f"{shop}/access_tokens").json() == []
    assert cell.api("GET", f"{shop}/access_tokens/{token['id']}").status == 404
    assert cell.api("DELETE", f"/groups/{group}/access_tokens/{token['id']}").status == 204


def test_deleting_the_project_deletes_its_bots(cell: ServedCell, maintainer: Person, shop: str) -> None:
    token = create(maintainer, shop)
    assert cell.api("DELETE", shop).status == 202
    assert bot(cell, token).api("GET", "/user").status == 401
    assert cell.api("GET", f"/users/{token['user_id']}").status == 404


def test_python_gitlab(cell: ServedCell, shop: str) -> None:
    import gitlab

    project = gitlab.Gitlab(cell.url, private_token=cell.token).projects.get(int(shop.rpartition("/")[2]))
    token = project.access_tokens.create(
        {"name": "py", "scopes": ["api"], "access_level": 30, "expires_at": "2999-01-01"}
    )
    assert [row.id for row in project.access_tokens.list()] == [token.id]
    rotated = project.access_tokens.rotate(token.id)
    project.access_tokens.delete(rotated["id"])
    assert project.access_tokens.get(rotated["id"]).active is False


def test_the_membership_of_a_bot_changes_only_with_its_token(cell: ServedCell, maintainer: Person, shop: str) -> None:
    token = create(maintainer, shop)
    member = f"{shop}/members/{token['user_id']}"
    for caller in (maintainer, bot(cell, token)):
        refused = caller.api("DELETE", member)
        assert refused.status == 400, refused
        assert "access_tokens" in refused.json()["message"]
    assert maintainer.api("PUT", member, {"access_level": 40, "expires_at": ""}).status == 400
    [listed] = maintainer.api("GET", f"{shop}/access_tokens").json()
    assert listed["access_level"] == 30
    assert maintainer.api("DELETE", f"{shop}/access_tokens/{token['id']}").status == 204
    assert bot(cell, token).api("GET", "/user").status == 401


def test_the_text_of_a_token_has_the_organization_of_its_place(cell: ServedCell) -> None:
    organization = create_organization(cell, "beta")
    group = create_group(cell, "beta-group", organization_id=organization)
    token = create(cell, f"/groups/{group}")
    assert decode(token["token"]).routing["o"] == organization


def test_access_can_be_taken_away_in_an_archived_project(cell: ServedCell, maintainer: Person, shop: str) -> None:
    token = create(maintainer, shop)
    deploy = {"name": "d", "scopes": ["read_repository"]}
    deploy_id = maintainer.api("POST", f"{shop}/deploy_tokens", deploy).json()["id"]
    trigger_id = maintainer.api("POST", f"{shop}/triggers", {"description": "t"}).json()["id"]
    hook_id = maintainer.api("POST", f"{shop}/hooks", {"url": "https://ci.example/"}).json()["id"]
    eve = create_person(cell, "eve")
    add_member(cell, shop.lstrip("/"), eve, 30)
    assert cell.api("POST", f"{shop}/archive").status == 201
    assert maintainer.api("POST", f"{shop}/deploy_tokens", deploy).status == 403
    assert maintainer.api("POST", f"{shop}/access_tokens/{token['id']}/rotate").status == 403
    assert eve.api("DELETE", f"{shop}/deploy_tokens/{deploy_id}").status == 403
    removed = (
        *(f"access_tokens/{token['id']}", f"deploy_tokens/{deploy_id}", f"triggers/{trigger_id}", f"hooks/{hook_id}"),
        f"members/{eve.id}",
    )
    for path in removed:
        answer = maintainer.api("DELETE", f"{shop}/{path}")
        assert answer.status == 204, (path, answer)
    assert bot(cell, token).api("GET", "/user").status == 401


def test_a_bot_cannot_become_an_administrator(cell: ServedCell, maintainer: Person, shop: str) -> None:
    token = create(maintainer, shop)
    assert cell.api("PUT", f"/users/{token['user_id']}", {"admin": True}).status == 400
    assert bot(cell, token).api("GET", "/user").json()["is_admin"] is False
