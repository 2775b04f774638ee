"""The pages of a repository: folders, files, commits, comparisons."""

import base64

import pytest
from playwright.sync_api import expect
from tests.support.browser import Tab
from tests.support.cells.people import add_member, create_person
from tests.support.cells.served_cell import ServedCell
from tests.support.web_pages import HOSTILE, check_hostile, check_pages

BUILD = "build: {script: [make]}"


def _commit(cell: ServedCell, project: int, message: str, *actions: dict[str, str], branch: str = "main") -> str:
    body = {"branch": branch, "commit_message": message, "actions": list(actions)}
    made = cell.api("POST", f"/projects/{project}/repository/commits", body)
    assert made.status == 201, made
    return str(made.json()["id"])


def test_browse_folders_and_files(tab: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop", BUILD, **{"docs/guide/a b.md": "one\n\ttwo & <b>three</b>\n", "empty": " "})
    binary = base64.b64encode(b"\0\1\2").decode()
    _commit(
        cell, project, "Binary", {"action": "create", "file_path": "x.bin", "content": binary, "encoding": "base64"}
    )
    _commit(cell, project, "Large", {"action": "create", "file_path": "large.txt", "content": "line\n" * 250_000})
    cell.api("POST", f"/projects/{project}/repository/branches", {"branch": "feature/x", "ref": "main"})
    tab.page.goto("/root/shop")
    tab.find("files").first.click()
    tab.page.get_by_role("link", name="docs/").click()
    tab.page.get_by_role("link", name="guide/").click()
    tab.page.get_by_role("link", name="a b.md").click()
    expect(tab.find("text").locator("tr")).to_have_count(2)
    expect(tab.find("text")).to_contain_text("two & <b>three</b>")
    assert tab.page.request.get(tab.find("raw").get_attribute("href")).text() == "one\n\ttwo & <b>three</b>\n"
    for ref in ("feature/x", "feature%2Fx"):
        tab.page.goto(f"/root/shop/-/tree/{ref}/docs/guide")
        expect(tab.find("files")).to_contain_text("a b.md")
    tab.find("ref").fill("main")
    tab.page.get_by_role("button", name="Show").click()
    expect(tab.page).to_have_url(f"{cell.url}/root/shop/-/tree/main")
    tab.page.goto("/root/shop/-/blob/main/x.bin")
    expect(tab.find("binary")).to_contain_text("binary file")
    tab.page.goto("/root/shop/-/blob/main/large.txt")
    expect(tab.find("too-large")).to_contain_text("up to 1 MiB")
    for missing in ("/-/tree/nothing", "/-/blob/main/nothing", "/-/blob/main/docs", "/-/commit/" + "0" * 40):
        tab.page.goto(f"/root/shop{missing}")
        expect(tab.find("error")).to_be_visible()
        tab.expect_refusals("404")


def test_a_commit_shows_its_changes_statuses_and_pipelines(tab: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop", BUILD, **{"a.txt": "one\ntwo\nthree\n"})
    sha = _commit(
        cell,
        project,
        "Change two\n\nBecause of three.",
        {"action": "update", "file_path": "a.txt", "content": "one\nTWO\nthree\n"},
        {"action": "move", "previous_path": ".gitlab-ci.yml", "file_path": "ci.yml", "content": BUILD},
    )
    status = {"state": "failed", "name": "scan", "target_url": "https://scan.example.com/1", "description": "2 finds"}
    assert cell.api("POST", f"/projects/{project}/statuses/{sha}", status).status == 201
    tab.page.goto(f"/root/shop/-/commit/{sha[:10]}")
    expect(tab.find("title")).to_have_text("Change two")
    expect(tab.find("message")).to_have_text("Because of three.")
    expect(tab.find("statuses")).to_contain_text("2 finds")
    link = tab.find("statuses").get_by_role("link", name="scan")
    expect(link).to_have_attribute("href", "https://scan.example.com/1")
    expect(link).to_have_attribute("rel", "noopener nofollow")
    expect(tab.find("pipelines")).to_contain_text("failed")
    rows = tab.find("file-diff").first.locator("tr.added, tr.removed")
    assert [row.locator(".text").inner_text() for row in rows.all()] == ["two", "TWO"]
    expect(tab.find("file-diff").nth(1)).to_contain_text(".gitlab-ci.yml → ci.yml")
    tab.find("parents").get_by_role("link").first.click()
    expect(tab.find("title")).to_have_text("First commit")
    expect(tab.find("parents")).to_contain_text("the first commit")


def test_compare_two_branches(tab: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop", BUILD)
    cell.api("POST", f"/projects/{project}/repository/branches", {"branch": "feature/x", "ref": "main"})
    _commit(cell, project, "More", {"action": "create", "file_path": "new.txt", "content": "new\n"}, branch="feature/x")
    tab.page.goto("/root/shop/-/compare/main...feature%2Fx")
    expect(tab.find("commits")).to_contain_text("More")
    expect(tab.find("file-diff")).to_contain_text("new.txt")
    tab.page.get_by_role("link", name="Other way round").click()
    expect(tab.page.locator("main")).to_contain_text("No file differs")


def test_a_guest_may_not_read_the_repository(visitor: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop", BUILD)
    guest = create_person(cell, "guest")
    add_member(cell, f"projects/{project}", guest, 10)
    visitor.sign_in(guest.token)
    for path in ("tree/main", "blob/main/.gitlab-ci.yml", "commits/main", "compare/main...main"):
        visitor.page.goto(f"/root/shop/-/{path}")
        expect(visitor.find("error")).to_be_visible()
        visitor.expect_refusals("403", "404")


def test_pages_are_accessible_and_fit(tab: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop", BUILD, **{"src/a.py": "x = 1\n" * 5})
    sha = _commit(
        cell, project, "More", {"action": "update", "file_path": "src/a.py", "content": "y = 2\n" + "z" * 300}
    )
    first = cell.api("GET", f"/projects/{project}/repository/commits/{sha}").json()["parent_ids"][0]
    root = "/root/shop/-"
    check_pages(
        tab,
        [
            f"{root}/tree/main",
            f"{root}/tree/main/src",
            f"{root}/blob/main/src/a.py",
            f"{root}/commits/main",
            f"{root}/commit/{sha}",
            f"{root}/compare/{first}...{sha}",
        ],
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_contents_are_only_text(tab: Tab, cell: ServedCell, text: str) -> None:
    name = text.replace("/", "-")
    files = [{"action": "create", "file_path": f"dir/{name}", "content": f"{text}\n\x1b[31m\x07 \x85 \u2028 end\n"}]
    project = cell.new_project("shop", BUILD)
    sha = _commit(cell, project, f"{text}\n\n{text}", *files)
    status = {"state": "success", "name": text, "description": text, "target_url": "javascript:alert(1)"}
    cell.api("POST", f"/projects/{project}/statuses/{sha}", status)
    first = cell.api("GET", f"/projects/{project}/repository/commits/{sha}").json()["parent_ids"][0]
    root = "/root/shop/-"
    check_hostile(tab, (f"{root}/commit/{sha}", f"{root}/commits/main", f"{root}/compare/{first}...{sha}"), text[:100])
    tab.page.goto(f"{root}/tree/main/dir")
    tab.find("files").get_by_role("link").nth(1).click()
    expect(tab.find("text")).to_contain_text(text)
