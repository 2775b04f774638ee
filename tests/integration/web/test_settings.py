"""The settings of projects and groups, and who may open them."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser, Locator, expect
from tests.support.browser import Tab
from tests.support.cells.people import Person, add_member, create_group, create_group_project, create_person
from tests.support.cells.served_cell import ServedCell
from tests.support.web_pages import HOSTILE, check_hostile, check_pages

BUILD = "build: {script: [make]}"
SECTIONS = (
    "general",
    "members",
    "variables",
    "schedules",
    "triggers",
    "access_tokens",
    "deploy_tokens",
    "hooks",
    "protected_refs",
    "job_tokens",
    "resource_groups",
    "policy",
)


def _agree(tab: Tab) -> None:
    tab.find("confirm").click()


def _save(tab: Tab, button: Locator) -> None:
    """Click a button of a form after which the page is loaded again."""
    with tab.page.expect_navigation():
        button.click()


def test_general_settings(tab: Tab, cell: ServedCell) -> None:
    cell.new_project("shop", BUILD)
    tab.page.goto("/root/shop/-/settings")
    expect(tab.page).to_have_url(f"{cell.url}/root/shop/-/settings/general")
    tab.find("name").fill("The Shop")
    _save(tab, tab.find("save"))
    expect(tab.find("name")).to_have_value("The Shop")
    tab.find("timeout").fill("1800")
    tab.page.locator("#strategy").select_option("clone")
    _save(tab, tab.find("save-pipelines"))
    project = cell.api("GET", "/projects/root%2Fshop").json()
    assert (project["name"], project["build_timeout"], project["build_git_strategy"]) == ("The Shop", 1800, "clone")
    tab.find("archive").click()
    _agree(tab)
    tab.find("unarchive").click()
    expect(tab.find("archive")).to_be_visible()
    tab.find("typed").fill("root/wrong")
    tab.find("delete").click()
    assert cell.api("GET", "/projects/root%2Fshop").status == 200
    tab.find("typed").fill("root/shop")
    tab.find("delete").click()
    tab.page.wait_for_url("**/projects")
    assert cell.api("GET", "/projects/root%2Fshop").status == 404


def test_members(tab: Tab, cell: ServedCell) -> None:
    group = create_group(cell, "acme")
    project = create_group_project(cell, group, "shop")
    create_person(cell, "ann")
    tab.page.goto("/acme/shop/-/settings/members")
    expect(tab.find("member")).to_contain_text("inherited")
    tab.find("username").fill("nobody-here")
    tab.find("add").click()
    expect(tab.find("problem")).to_contain_text("User Not Found")
    tab.expect_refusals("404")
    tab.find("username").fill("ann")
    tab.find("level").select_option("30")
    tab.find("add").click()
    ann = tab.find("member").filter(has_text="@ann")
    expect(ann.locator("td").nth(1)).to_contain_text("Developer")
    ann.locator('[data-test="change"]').click()
    ann.locator('[data-test="new-level"]').select_option("40")
    _save(tab, ann.locator('[data-test="save-member"]'))
    expect(ann.locator("td").nth(1)).to_contain_text("Maintainer")
    assert [row["access_level"] for row in cell.api("GET", f"/projects/{project}/members").json()] == [40]
    ann.locator('[data-test="remove"]').click()
    _agree(tab)
    expect(ann).to_have_count(0)


@pytest.mark.parametrize("place", ["acme/shop", "groups/acme"])
def test_variables_are_hidden_until_asked(tab: Tab, cell: ServedCell, place: str) -> None:
    group = create_group(cell, "acme")
    create_group_project(cell, group, "shop")
    tab.page.goto(f"/{place}/-/settings/variables")
    expect(tab.find("empty")).to_contain_text("There are no variables")
    tab.find("new").click()
    form = tab.find("new-variable-form")
    form.locator('[data-test="key"]').fill("TOKEN")
    form.locator('[data-test="value"]').fill("not-yet-shown")
    form.locator('[data-test="masked"]').check()
    form.locator('[data-test="scope"]').fill("review/*")
    _save(tab, form.locator('[data-test="add"]'))
    row = tab.find("variable")
    expect(row.locator(".tag")).to_have_text(["masked"])
    assert "not-yet-shown" not in tab.page.content()
    tab.find("reveal").click()
    expect(tab.find("shown-value")).to_have_text("not-yet-shown")
    tab.find("reveal").click()
    expect(tab.find("shown-value")).not_to_contain_text("shown")
    tab.find("change").click()
    row.locator('[data-test="protected"]').check()
    _save(tab, row.locator('[data-test="save"]'))
    expect(row.locator(".tag")).to_have_text(["protected", "masked"])
    kind = "groups/acme" if place.startswith("groups") else "projects/acme%2Fshop"
    (stored,) = cell.api("GET", f"/{kind}/variables").json()
    assert (stored["value"], stored["protected"], stored["environment_scope"]) == ("not-yet-shown", True, "review/*")
    tab.find("remove").click()
    _agree(tab)
    expect(tab.find("empty")).to_be_visible()


def test_schedules(tab: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop", BUILD)
    tab.page.goto("/root/shop/-/settings/schedules")
    tab.find("new").click()
    tab.find("description").fill("nightly")
    tab.find("cron").fill("wrong")
    tab.find("save").click()
    expect(tab.find("problem")).to_contain_text("cron")
    tab.expect_refusals("400")
    tab.find("cron").fill("0 3 * * *")
    tab.find("zone").fill("Europe/Berlin")
    tab.find("save").click()
    expect(tab.find("next-run")).to_contain_text("UTC")
    tab.find("key").fill("DEEP")
    tab.find("value").fill("yes")
    tab.find("add").click()
    expect(tab.find("variable")).to_contain_text("DEEP")
    tab.find("play").click()
    expect(tab.page.locator("#pipelines")).to_contain_text("pending")
    _save(tab, tab.find("pause"))
    expect(tab.find("next-run")).to_have_text("paused")
    (schedule,) = cell.api("GET", f"/projects/{project}/pipeline_schedules").json()
    assert (schedule["active"], schedule["cron_timezone"]) == (False, "Europe/Berlin")
    owner = create_person(cell, "ann")
    add_member(cell, f"projects/{project}", owner, 40)
    owner.api("POST", f"/projects/{project}/pipeline_schedules/{schedule['id']}/take_ownership")
    tab.page.reload()
    tab.find("take").click()
    _agree(tab)
    expect(tab.page.locator("dd", has_text="Administrator")).to_be_visible()


@pytest.mark.parametrize("section", ["access_tokens", "deploy_tokens"])
@pytest.mark.parametrize("place", ["root/shop", "groups/acme"])
def test_a_token_is_shown_once(tab: Tab, cell: ServedCell, place: str, section: str) -> None:
    create_group(cell, "acme")
    cell.new_project("shop")
    tab.page.goto(f"/{place}/-/settings/{section}")
    tab.find("new-token-part").locator("summary").click()
    tab.find("name").fill("robot")
    tab.page.get_by_role("checkbox", name="read_repository").check()
    tab.find("create").click()
    expect(tab.find("secret")).to_contain_text("gl")
    secret = tab.find("secret").inner_text()
    expect(tab.find("token")).to_contain_text("robot")
    tab.page.reload()
    assert secret not in tab.page.content()
    tab.find("revoke").click()
    _agree(tab)
    expect(tab.find("revoke")).to_have_count(0)


def test_trigger_tokens(tab: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop", BUILD)
    tab.page.goto("/root/shop/-/settings/triggers")
    tab.find("description").fill("from outside")
    tab.find("create").click()
    expect(tab.find("secret")).to_contain_text("glptt-")
    body = {"token": tab.find("secret").inner_text(), "ref": "main"}
    assert cell.send("POST", f"/api/v4/projects/{project}/trigger/pipeline", body).status == 201
    tab.find("remove").click()
    _agree(tab)
    expect(tab.find("trigger")).to_have_count(0)


class _Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "8")
        self.end_headers()
        self.wfile.write(b"received")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[str]:
    """A server that answers every webhook."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Receiver)
    thread = Thread(target=server.serve_forever, name="webhook receiver")
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook"
    server.shutdown()
    thread.join()
    server.server_close()


def test_webhooks_show_their_deliveries(browser: Browser, tmp_path: Path, receiver: str) -> None:
    with ServedCell(tmp_path / "local", hook_local_addresses=True) as cell, Tab(browser, cell.url) as tab:
        tab.sign_in(cell.token)
        cell.new_project("shop", BUILD)
        tab.page.goto("/root/shop/-/settings/hooks")
        tab.find("new").click()
        tab.find("url").fill(receiver)
        tab.find("push_events").check()
        tab.find("save").click()
        tab.find("test-push_events").click()
        delivery = tab.find("delivery")
        expect(delivery).to_contain_text("200")
        delivery.locator("summary").click()
        expect(delivery).to_contain_text("X-Gitlab-Event")
        expect(delivery).to_contain_text('"object_kind": "push"')
        expect(delivery).to_contain_text("received")
        tab.find("resend").first.click()
        expect(tab.find("delivery").first).to_contain_text("2 tries")
        tab.find("remove").click()
        _agree(tab)
        expect(tab.find("empty")).to_contain_text("There are no webhooks")


def test_protected_refs_and_job_tokens(tab: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop", BUILD)
    cell.new_project("other")
    create_group(cell, "acme")
    tab.page.goto("/root/shop/-/settings/protected_refs")
    expect(tab.find("branch-rule")).to_contain_text("main")
    tab.find("branch").fill("release/*")
    tab.find("add-branch").click()
    expect(tab.find("branch-rule").filter(has_text="release/*")).to_contain_text("refused")
    tab.find("branch-rule").filter(has_text="release/*").locator('[data-test="force"]').click()
    expect(tab.find("branch-rule").filter(has_text="release/*")).to_contain_text("allowed")
    tab.find("branch-rule").filter(has_text="release/*").locator('[data-test="unprotect"]').click()
    _agree(tab)
    expect(tab.find("branch-rule")).to_have_count(1)
    tab.find("tag").fill("v*")
    tab.find("add-tag").click()
    expect(tab.find("tag-rule")).to_contain_text("v*")
    tab.page.goto("/root/shop/-/settings/job_tokens")
    tab.find("project-path").fill("root/other")
    tab.find("add-project").click()
    expect(tab.find("allowed-project")).to_have_count(2)
    tab.find("group-path").fill("acme")
    tab.find("add-group").click()
    expect(tab.find("allowed-group")).to_contain_text("acme")
    tab.find("disable").click()
    _agree(tab)
    expect(tab.find("scope")).to_contain_text("all projects")
    assert cell.api("GET", f"/projects/{project}/job_token_scope").json()["inbound_enabled"] is False


def test_policy(tab: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop")
    tab.page.goto("/root/shop/-/settings/policy")
    tab.find("document").fill("{")
    tab.find("save").click()
    expect(tab.find("problem")).to_contain_text("not valid JSON")
    tab.find("document").fill('{"unknown": 1}')
    tab.find("save").click()
    expect(tab.find("problem")).to_contain_text("unknown")
    tab.expect_refusals("400")
    tab.find("document").fill('{"default": "deny"}')
    _save(tab, tab.find("save"))
    stored = cell.send("GET", f"/api/remuda/v1/policies/project/{project}", PRIVATE_TOKEN=cell.token).json()
    assert stored["document"] == {"default": "deny"}
    assert json.loads(tab.find("document").input_value()) == {"default": "deny"}


def test_environments_and_resource_groups(tab: Tab, cell: ServedCell) -> None:
    job = (
        "deploy: {script: [x], resource_group: prod, environment: {name: production, url: 'https://shop.example.com'}}"
    )
    cell.new_project("shop", job)
    runner = cell.new_runner()
    runner.put(runner.take(), "success")
    tab.page.goto("/root/shop/-/environments")
    expect(tab.find("environment")).to_contain_text("available")
    expect(tab.page.get_by_role("link", name="Open")).to_have_attribute("href", "https://shop.example.com")
    tab.page.get_by_role("link", name="production").click()
    expect(tab.find("deployment")).to_contain_text("deploy")
    tab.page.go_back()
    tab.find("stop").click()
    _agree(tab)
    expect(tab.find("state")).to_have_text("stopped")
    tab.find("delete").click()
    _agree(tab)
    expect(tab.find("empty")).to_be_visible()
    tab.page.goto("/root/shop/-/settings/resource_groups")
    expect(tab.find("resource-group")).to_contain_text("free")
    tab.find("change").click()
    tab.find("mode").select_option("oldest_first")
    _save(tab, tab.find("save"))
    expect(tab.find("resource-group").locator("td").nth(1)).to_contain_text("oldest first")


def test_releases(tab: Tab, cell: ServedCell) -> None:
    project = cell.new_project("shop", BUILD)
    tab.page.goto("/root/shop/-/releases")
    tab.find("new").click()
    tab.find("tag").fill("v1/a")
    tab.find("notes").fill("All *new*.")
    tab.find("create").click()
    expect(tab.find("notes")).to_have_text("All *new*.")
    link = {"name": "bad", "url": "https://example.com/file", "filepath": "/file"}
    body = {"tag_name": "v2", "ref": "main", "assets": {"links": [link]}}
    assert cell.api("POST", f"/projects/{project}/releases", body).status == 201
    tab.page.goto("/root/shop/-/releases")
    tab.page.get_by_role("link", name="v2").click()
    expect(tab.find("file").get_by_role("link")).to_have_attribute("href", "https://example.com/file")
    tab.find("delete").click()
    _agree(tab)
    expect(tab.find("release")).to_have_count(1)


def _visible(tab: Tab, person: Person, place: str) -> list[str]:
    tab.context.clear_cookies()
    tab.page.goto("/-/sign-in")
    tab.sign_in(person.token)
    tab.page.goto(f"{place}/-/settings/members")
    return [link.inner_text() for link in tab.find("sections").get_by_role("link").all()]


def test_each_level_sees_and_opens_its_sections(visitor: Tab, cell: ServedCell) -> None:
    group = create_group(cell, "acme")
    project = create_group_project(cell, group, "shop", BUILD)
    counts = {}
    for level in (10, 20, 30, 40, 50):
        person = create_person(cell, f"user{level}")
        add_member(cell, f"projects/{project}", person, level)
        counts[level] = len(_visible(visitor, person, "/acme/shop"))
        for section in SECTIONS:
            answer = visitor.page.request.get(f"/acme/shop/-/settings/{section}", headers={"Accept": "text/html"})
            shown = visitor.page.locator(f'[data-test="sections"] a[href$="/{section}"]').count()
            assert answer.status == (200 if shown else 403), (level, section)
    assert counts == {10: 1, 20: 2, 30: 3, 40: 11, 50: 11}


def test_pages_are_accessible_and_fit(tab: Tab, cell: ServedCell) -> None:
    group = create_group(cell, "acme")
    project = create_group_project(cell, group, "shop", "a: {script: [x], environment: production, resource_group: r}")
    for place in (f"projects/{project}", f"groups/{group}"):
        cell.api("POST", f"/{place}/variables", {"key": "TOKEN", "value": "secret", "description": "For deployments"})
        cell.api("POST", f"/{place}/access_tokens", {"name": "bot", "scopes": ["api"], "access_level": 30})
        cell.api("POST", f"/{place}/deploy_tokens", {"name": "server", "scopes": ["read_repository"]})
        cell.api("POST", f"/{place}/hooks", {"url": "http://127.0.0.1:9/x"})
    cell.api(
        "POST", f"/projects/{project}/pipeline_schedules", {"description": "n", "ref": "main", "cron": "0 3 * * *"}
    )
    cell.api("POST", f"/projects/{project}/triggers", {"description": "outside"})
    cell.api("POST", f"/projects/{project}/releases", {"tag_name": "v1", "ref": "main", "description": "First"})
    of_project = (*SECTIONS, "schedules/1", "hooks/1")
    of_group = ("general", "members", "variables", "access_tokens", "deploy_tokens", "hooks", "hooks/2", "policy")
    others = ("environments", "environments/1", "releases", "releases/v1")
    check_pages(
        tab,
        [f"/acme/shop/-/settings/{name}" for name in of_project]
        + [f"/groups/acme/-/settings/{name}" for name in of_group]
        + [f"/acme/shop/-/{name}" for name in others],
    )
    for path, opener in (("variables", "new"), ("schedules", "new"), ("hooks", "new")):
        tab.page.goto(f"/acme/shop/-/settings/{path}")
        tab.find(opener).click()
        tab.check_accessibility()


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_values_are_only_text(tab: Tab, cell: ServedCell, text: str) -> None:
    project = cell.new_project("shop", BUILD)
    root = f"/projects/{project}"
    cell.api("POST", f"{root}/variables", {"key": "A", "value": text, "description": text})
    cell.api("POST", f"{root}/pipeline_schedules", {"description": text, "ref": "main", "cron": "0 3 * * *"})
    cell.api("POST", f"{root}/triggers", {"description": text})
    cell.api("POST", f"{root}/access_tokens", {"name": text, "scopes": ["api"], "access_level": 30})
    cell.api("POST", f"{root}/hooks", {"url": "http://127.0.0.1:9/x", "name": text})
    links = {"links": [{"name": text, "url": "https://example.com/"}]}
    release = {"tag_name": "v1", "ref": "main", "name": text, "description": text, "assets": links}
    assert cell.api("POST", f"{root}/releases", release).status == 201
    base = "/root/shop/-"
    names = ("variables", "schedules", "schedules/1", "triggers", "access_tokens", "hooks", "hooks/1")
    check_hostile(tab, [f"{base}/settings/{name}" for name in names] + [f"{base}/releases"], text[:100])
    tab.page.goto(f"{base}/settings/variables")
    tab.find("reveal").click()
    expect(tab.find("shown-value")).to_have_text(text)
