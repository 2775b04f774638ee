"""The pages of projects and groups: lists, search, creation, homes; and the addresses that the API answers."""

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect
from tests.support.browser import Tab
from tests.support.cells.people import add_member, create_group, create_group_project, create_person
from tests.support.cells.served_cell import ScriptedRunner, ServedCell
from tests.support.web_pages import HOSTILE, check_hostile, check_pages

BUILD = "build: {script: [make]}"


def test_the_list_follows_pipelines_and_filters(tab: Tab, cell: ServedCell, runner: ScriptedRunner) -> None:
    group = create_group(cell, "acme")
    create_group_project(cell, group, "shop", BUILD)
    create_group_project(cell, group, "old")
    cell.api("POST", "/projects/acme%2Fold/archive")
    tab.page.goto("/projects")
    expect(tab.find("project")).to_have_count(1)
    expect(tab.find("project")).to_contain_text("pending")
    runner.put(runner.take(), "success")
    expect(tab.find("project")).to_contain_text("success")
    tab.page.locator("#filter-archived").select_option("only")
    tab.page.get_by_role("button", name="Filter").click()
    expect(tab.find("project")).to_contain_text("old")
    expect(tab.find("archived")).to_have_text("archived")
    tab.page.goto("/projects?search=nothing-fits")
    expect(tab.find("empty")).to_contain_text("No project fits")


def test_the_search_finds_projects_and_groups(tab: Tab, cell: ServedCell) -> None:
    create_group_project(cell, create_group(cell, "workshop"), "tools")
    cell.new_project("shop")
    tab.page.goto("/projects")
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("shop")
    tab.page.keyboard.press("Enter")
    expect(tab.find("project")).to_have_count(2)
    expect(tab.find("group")).to_contain_text("workshop")
    tab.find("group").get_by_role("link").click()
    expect(tab.page.locator("h1")).to_have_text("workshop")


def test_create_a_group_a_subgroup_and_a_project_and_push(tab: Tab, cell: ServedCell) -> None:
    tab.page.goto("/groups/new")
    tab.find("name").fill("Acme")
    tab.find("path").fill("acme")
    tab.find("create").click()
    expect(tab.page).to_have_url(f"{cell.url}/groups/acme")
    tab.find("new-subgroup").click()
    tab.find("name").fill("Tools")
    tab.find("path").fill("tools")
    tab.find("create").click()
    expect(tab.page.locator("h1")).to_have_text("Tools")
    tab.find("new-project").click()
    expect(tab.find("path")).to_have_value("acme/tools/")
    tab.find("path").fill("acme/tools/hammer")
    tab.find("create").click()
    expect(tab.page).to_have_url(f"{cell.url}/acme/tools/hammer")
    expect(tab.find("push-existing")).to_contain_text(f"git remote add origin {cell.url}/acme/tools/hammer.git")
    # A pipeline appears without a reload.
    body = {
        "branch": "main",
        "commit_message": "First",
        "actions": [{"action": "create", "file_path": ".gitlab-ci.yml", "content": BUILD}],
    }
    assert cell.api("POST", "/projects/acme%2Ftools%2Fhammer/repository/commits", body).status == 201
    expect(tab.find("pipelines")).to_contain_text("pending")


def test_a_path_that_is_taken_is_explained(tab: Tab, cell: ServedCell) -> None:
    cell.new_project("shop")
    tab.page.goto("/projects/new")
    tab.find("path").fill("root/shop")
    tab.find("create").click()
    expect(tab.find("problem")).to_contain_text("taken")
    tab.expect_refusals("400")


def test_paths_of_groups_users_and_organizations(tab: Tab, cell: ServedCell) -> None:
    create_group(cell, "acme")
    create_person(cell, "ann")
    for path, title in (("/acme", "acme"), ("/ann", "Ann @ann"), ("/root/", "Administrator @root"), ("/o/default", "")):
        tab.page.goto(path)
        expect(tab.page.locator("h1")).to_contain_text(title)
    assert tab.page.request.get("/acme", headers={"Accept": "text/html"}).url.endswith("/groups/acme")
    tab.page.goto("/no/such/place")
    expect(tab.find("error")).to_contain_text("There is nothing here")
    tab.expect_refusals("404")


def test_programs_get_the_plain_404(cell: ServedCell) -> None:
    for path in ("/acme", "/acme/shop", "/no/such/place"):
        answer = cell.send("GET", path, Accept="application/json")
        assert (answer.status, answer.json()) == (404, {"error": "404 Not Found"}), answer
    asked = cell.send("GET", "/acme/shop", Accept="text/html")
    assert asked.status == 303, asked
    assert asked.headers["Location"].startswith("/-/sign-in")


def test_strange_addresses_are_only_missing(tab: Tab, cell: ServedCell) -> None:
    cell.new_project("shop", BUILD)
    strange = ("%00", "a%0D%0Ab", "%FF%FE", "..%2F..%2Fetc", "x/-/y", "%3Cscript%3E", "o/", "o/%00", "groups/%00")
    for path in (*strange, "root/shop/-/tree/%00", "root/shop/-/blob/main/%00", "root/shop/-/commit/%00"):
        answer = tab.page.request.get(f"/{path}", headers={"Accept": "text/html"})
        assert answer.status in (400, 404), (path, answer.status)
        assert "text/html" in answer.headers["content-type"], path


def test_a_guest_sees_no_repository_and_a_stranger_nothing(visitor: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop", BUILD)
    guest = create_person(cell, "guest")
    create_person(cell, "stranger")
    visitor.sign_in(guest.token)
    visitor.page.goto("/root/shop")
    expect(visitor.find("error")).to_contain_text("There is nothing here")
    visitor.expect_refusals("404")
    add_member(cell, f"projects/{project}", guest, 10)
    visitor.page.goto("/root/shop")
    expect(visitor.find("pipelines")).to_contain_text("You may not see the pipelines")
    expect(visitor.find("run")).to_have_count(0)
    expect(visitor.find("files")).to_have_count(0)


def _addresses(value: Any) -> set[str]:
    """All `web_url` in a JSON value, and the other addresses of pages that responses have."""
    if isinstance(value, list):
        return set().union(*map(_addresses, value))
    if not isinstance(value, dict):
        return set()
    own = {value[key] for key in ("web_url", "commit_path", "tag_path", "self") if isinstance(value.get(key), str)}
    return own.union(*map(_addresses, value.values()))


def test_every_web_url_leads_to_a_page(tab: Tab, cell: ServedCell) -> None:
    group = create_group(cell, "acme")
    create_group(cell, "tools", parent_id=group)
    project = create_group_project(cell, group, "shop", BUILD)
    person = create_person(cell, "ann")
    add_member(cell, f"projects/{project}", person, 30)
    root = f"/projects/{project}"
    for name in ("feature/login", "odd#1%2f", "v1/x"):
        assert cell.api("POST", f"{root}/repository/branches", {"branch": name, "ref": "main"}).status == 201
    assert cell.api("POST", f"{root}/releases", {"tag_name": "rel/1", "ref": "main"}).status == 201
    paths = (
        "/projects",
        "/groups",
        "/namespaces",
        "/organizations",
        "/users",
        "/user",
        root,
        f"/groups/{group}/subgroups",
        f"{root}/repository/branches",
        f"{root}/repository/commits",
        f"{root}/repository/tags",
        f"{root}/members",
        f"{root}/releases",
        f"{root}/pipelines",
        f"{root}/jobs",
        f"{root}/repository/compare?from=main&to=feature%2Flogin",
    )
    addresses = set().union(*(_addresses(cell.api("GET", path).json()) for path in paths))
    # Pipelines and jobs are the subject of other tests.
    own = {address for address in addresses if not re.search(r"/-/(pipelines|jobs)/", address)}
    assert len(own) > 12
    for address in sorted(own):
        path = address.removeprefix(cell.url)
        assert path.startswith("/"), address
        assert not urlsplit(address).fragment, address
        answer = tab.page.request.get(path, headers={"Accept": "text/html"})
        assert answer.status == 200, f"{address} answers {answer.status}"
        assert "text/html" in answer.headers["content-type"], address


def test_pages_are_accessible_and_fit(tab: Tab, cell: ServedCell) -> None:
    group = create_group(cell, "acme", description="Tools")
    create_group(cell, "tools", parent_id=group)
    create_group_project(cell, group, "shop", BUILD, description="The shop")
    cell.new_project("empty")
    check_pages(
        tab,
        (
            "/projects",
            "/projects/new",
            "/search?q=shop",
            "/groups",
            "/groups/new?in=acme",
            "/groups/acme",
            "/acme/shop",
            "/root/empty",
            "/root",
            "/o/default",
        ),
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_are_only_text(tab: Tab, cell: ServedCell, text: str) -> None:
    # A name has no control characters; a description may have any.
    name = text if text.isprintable() else "printable"
    group = create_group(cell, "acme", name=name, description=text)
    create_group_project(cell, group, "shop", BUILD, description=text)
    cell.api("PUT", "/projects/acme%2Fshop", {"name": name, "topics": [name.replace(",", "")[:200]]})
    check_hostile(tab, ("/groups/acme", "/acme/shop", "/acme/shop/-/settings/general"), text[:150])
    tab.page.goto("/search?q=" + text.replace("#", "").replace("%", ""))
