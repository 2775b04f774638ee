"""Deleting users, searching for projects and users, and the first administrator."""

import asyncio
from pathlib import Path

import gitlab
import pytest
from msgspec.structs import replace
from tests.support.cells.people import (
    add_member,
    create_group,
    create_group_project,
    create_organization,
    create_person,
)
from tests.support.cells.served_cell import ServedCell

from remuda.cell.store.sqlite.store import SqliteStore
from remuda.cell.values import USER_ID
from remuda.lib.clock import SystemClock, parse_shown_time

API_CLIENTS = Path(__file__).parents[3] / "docs" / "reference" / "generated" / "api-clients.md"
PIPELINE = "job: {script: [echo]}\n"


def test_a_deleted_user_loses_tokens_memberships_and_own_projects(cell: ServedCell) -> None:
    ada = create_person(cell, "ada")
    group = create_group(cell, "acme")
    shop = create_group_project(cell, group, "shop", PIPELINE)
    add_member(cell, f"groups/{group}", ada, 30)
    own = ada.api("POST", "/projects", {"name": "own"}).json()["id"]
    assert cell.api("DELETE", f"/users/{ada.id}").status == 204
    assert cell.api("GET", f"/users/{ada.id}").status == 404
    assert ada.api("GET", "/user").status == 401
    assert cell.api("GET", f"/projects/{own}").status == 404
    assert cell.api("GET", f"/projects/{shop}").status == 200
    assert [row["username"] for row in cell.api("GET", f"/groups/{group}/members").json()] == ["root"]
    assert create_person(cell, "ada").id != ada.id, "the name is free again"
    assert cell.api("DELETE", f"/users/{ada.id}").status == 404


def test_external_users_are_refused(cell: ServedCell) -> None:
    """Such a user would see what is internal, which GitLab does not show to external users."""
    ada = {"username": "ada", "name": "Ada", "email": "ada@example.com"}
    refused = cell.api("POST", "/users", {**ada, "external": True})
    assert refused.status == 400
    assert refused.json()["error"].startswith("external is not supported here")
    created = cell.api("POST", "/users", {**ada, "external": False})
    assert created.status == 201
    assert "X-Remuda-Ignored" not in created.headers
    assert cell.api("PUT", f"/users/{created.json()['id']}", {"external": True}).status == 400


def test_the_only_owner_of_a_group_is_deleted_with_the_group_or_not_at_all(cell: ServedCell) -> None:
    ada = create_person(cell, "ada")
    group = ada.api("POST", "/groups", {"name": "hers", "path": "hers"}).json()["id"]
    project = ada.api("POST", "/projects", {"name": "app", "namespace_id": group}).json()["id"]
    refused = cell.api("DELETE", f"/users/{ada.id}")
    assert (refused.status, b"hers" in refused.body) == (409, True)
    assert ada.api("GET", f"/projects/{project}").status == 200
    assert cell.api("DELETE", f"/users/{ada.id}?hard_delete=true").status == 204
    assert cell.api("GET", f"/groups/{group}").status == 404
    assert cell.api("GET", f"/projects/{project}").status == 404


def test_who_cannot_be_deleted(cell: ServedCell) -> None:
    ada, boss = create_person(cell, "ada"), create_person(cell, "boss", admin=True)
    assert ada.api("DELETE", f"/users/{boss.id}").status == 403
    assert boss.api("DELETE", f"/users/{boss.id}").status == 403
    assert boss.api("DELETE", "/users/1").status == 403


def test_search(cell: ServedCell) -> None:
    ada = create_person(cell, "ada")
    group = create_group(cell, "acme")
    shop = create_group_project(cell, group, "shop", PIPELINE)
    public = create_group_project(cell, group, "shop-window", PIPELINE, visibility="internal")
    create_organization(cell, "other")
    find = "search?scope=projects&search=shop"
    assert {row["id"] for row in cell.api("GET", f"/{find}").json()} == {shop, public}
    assert [row["id"] for row in ada.api("GET", f"/{find}").json()] == [public]
    assert {row["id"] for row in cell.api("GET", f"/groups/{group}/{find}").json()} == {shop, public}
    assert [row["username"] for row in ada.api("GET", "/search?scope=users&search=ada").json()] == ["ada"]
    page = cell.api("GET", f"/{find}&per_page=1")
    assert (len(page.json()), page.headers["X-Total"]) == (1, "2")


def test_lists_of_active_and_of_blocked_users(cell: ServedCell) -> None:
    for name in ("ada", "bob"):
        create_person(cell, name)
    assert cell.api("POST", f"/users/{cell.api('GET', '/users?username=ada').json()[0]['id']}/block").status == 201

    def names(query: str) -> list[str]:
        return sorted(user["username"] for user in cell.api("GET", f"/users?{query}").json())

    assert names("blocked=true") == ["ada"]
    assert names("active=true") == ["bob", "root"]
    assert names("active=false&blocked=false") == ["ada", "bob", "root"]
    assert names("active=true&blocked=true") == []
    assert names("username=ada&active=true") == []
    assert names("username=ada&blocked=true") == ["ada"]
    assert names("search=bob&blocked=true") == []


@pytest.mark.parametrize(
    "path",
    [
        "/search?search=x",
        "/search?scope=projects",
        "/search?scope=issues&search=x",
        "/groups/acme/search?scope=wiki_blobs&search=x",
    ],
)
def test_a_search_that_is_not_supported_says_so(cell: ServedCell, path: str) -> None:
    create_group_project(cell, create_group(cell, "acme"), "shop", PIPELINE)
    answer = cell.api("GET", path)
    assert (answer.status, b"scope" in answer.body or b"search" in answer.body) == (400, True)


def test_there_is_no_search_in_a_project(cell: ServedCell) -> None:
    create_group_project(cell, create_group(cell, "acme"), "shop", PIPELINE)
    assert cell.api("GET", "/projects/acme%2Fshop/search?scope=blobs&search=x").status == 404
    absent = API_CLIENTS.read_text().partition("## Absent")[2]
    assert "`projects/:id/search`" in absent


def test_python_gitlab(cell: ServedCell, client: gitlab.Gitlab) -> None:
    ada = create_person(cell, "ada")
    assert [row["id"] for row in client.search("users", "ada")] == [ada.id]
    client.users.delete(ada.id)


def test_the_first_administrator_was_created_at_the_first_start_of_the_cell(tmp_path: Path) -> None:
    before = SystemClock().wall() - 0.001  # times are shown in whole milliseconds
    with ServedCell(tmp_path / "cell") as cell:
        shown = cell.api("GET", "/user").json()["created_at"]
        assert before <= parse_shown_time(shown) <= SystemClock().wall()
    with ServedCell(tmp_path / "cell", admin_token="glpat-another-one") as cell:
        assert cell.api("GET", "/user").json()["created_at"] == shown


def test_the_first_administrator_of_an_older_cell_has_no_time(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell"):
        pass
    asyncio.run(forget_time_of_first_user(tmp_path / "cell" / "cell.sqlite"))
    with ServedCell(tmp_path / "cell", admin_token="glpat-another-one") as cell:
        assert cell.api("GET", "/user").json()["created_at"] is None
        [organization] = cell.api("GET", "/organizations").json()
        assert organization["created_at"] is None


async def forget_time_of_first_user(database: Path) -> None:
    """Make the cell one that was created by a version which stored no time."""
    store = SqliteStore.open(database, 1)
    try:
        user = await store.people.load_user(USER_ID)
        assert user is not None
        await store.people.put_user(replace(user, created_at=0))
    finally:
        await store.close()
