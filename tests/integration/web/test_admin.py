"""The pages of administrators: health, settings, variables, users, organizations, audit log."""

import csv
import json

from playwright.sync_api import Browser, expect
from tests.support.browser import Tab
from tests.support.cells.cell_pages import HOSTILE, check_look
from tests.support.cells.people import create_person
from tests.support.cells.served_cell import ADMIN_TOKEN, ServedCell

PAGES = (
    "/admin",
    "/admin/health",
    "/admin/settings",
    "/admin/variables",
    "/admin/users",
    "/admin/organizations",
    "/admin/audit",
)


def test_health(tab: Tab, cell: ServedCell) -> None:
    tab.page.goto("/admin")
    for part in ("store", "traces", "blobs", "git"):
        expect(tab.find(f"part-{part}").locator(".status")).to_have_text("ok")
    expect(tab.find("health")).to_contain_text("SQLite")
    expect(tab.find("health")).to_contain_text("usage")
    expect(tab.find("disk")).to_contain_text("free of")
    health = cell.send("GET", "/api/remuda/v1/health", PRIVATE_TOKEN=cell.token).json()
    assert {"sweep", "upkeep", "usage"} <= set(health["tasks"])


def test_settings(tab: Tab, cell: ServedCell) -> None:
    tab.page.goto("/admin/settings")
    tab.find("runner_token_expiration_interval").fill("86400")
    tab.find("allow-registration").uncheck()
    tab.find("save").click()
    expect(tab.find("runner_token_expiration_interval")).to_have_value("86400")
    expect(tab.find("allow-registration")).not_to_be_checked()
    stored = cell.api("GET", "/application/settings").json()
    assert (stored["runner_token_expiration_interval"], stored["allow_runner_registration_token"]) == (86400, False)
    hold = tab.find("setting").filter(has_text="poll_hold_seconds").first
    expect(hold).to_contain_text("120")
    assert ADMIN_TOKEN not in tab.page.content()
    expect(tab.find("setting").filter(has_text="admin_token")).to_contain_text("secret, not shown")
    tab.find("show-registration-token").click()
    expect(tab.find("registration-token")).to_contain_text("GR1348941")
    before = tab.find("registration-token").inner_text()
    tab.find("reset-registration-token").click()
    tab.find("confirm").click()
    expect(tab.find("registration-token")).not_to_have_text(before)


def test_variables(tab: Tab, cell: ServedCell) -> None:
    tab.page.goto("/admin/variables")
    expect(tab.find("empty")).to_be_visible()
    tab.find("key").fill("PROXY")
    tab.find("value").fill("<script>alert(1)</script>")
    tab.find("add").click()
    expect(tab.find("variable")).to_contain_text("<script>alert(1)</script>")
    tab.find("key").fill("SECRET")
    tab.find("value").fill("short")
    tab.find("masked").check()
    tab.find("add").click()
    expect(tab.find("problem")).to_contain_text("a masked value must be")
    tab.expect_refusals("400")
    tab.find("remove-variable").click()
    tab.find("confirm").click()
    expect(tab.find("variable")).to_have_count(0)
    assert cell.api("GET", "/admin/ci/variables").json() == []


def test_users_and_organizations(tab: Tab, cell: ServedCell) -> None:
    tab.page.goto("/admin/organizations")
    tab.find("path").fill("far")
    tab.find("name").fill(HOSTILE[0])
    tab.find("create-organization").click()
    expect(tab.find("organization-row").filter(has_text="far")).to_contain_text(HOSTILE[0])
    tab.page.goto("/admin/users")
    tab.find("username").fill("ann")
    tab.find("name").fill(HOSTILE[1])
    tab.find("email").fill("ann@example.org")
    tab.find("organization").select_option(label="far")
    tab.find("create-user").click()
    row = tab.find("user-row").filter(has_text="ann@example.org")
    expect(row).to_contain_text("far")
    row.locator('[data-test="block"]').click()
    tab.find("confirm").click()
    expect(row).to_contain_text("blocked")
    row.locator('[data-test="unblock"]').click()
    expect(row).to_contain_text("active")
    row.locator('[data-test="promote"]').click()
    tab.find("confirm").click()
    expect(row.locator(".tag")).to_have_text("administrator")
    row.locator('[data-test="demote"]').click()
    tab.find("confirm").click()
    expect(row.locator(".tag")).to_have_count(0)
    row.locator('[data-test="delete"]').click()
    tab.find("confirm").click()
    expect(row).to_have_count(0)
    tab.page.goto("/admin/users?search=nobody")
    expect(tab.find("empty")).to_contain_text("No user matches")


def test_audit_log(tab: Tab, cell: ServedCell) -> None:
    for name in HOSTILE[:2]:
        cell.new_runner(description=name)
    cell.api("POST", "/admin/ci/variables", {"key": "A", "value": "top secret value"})
    cell.new_project("app")
    tab.page.goto("/admin/audit")
    expect(tab.find("event").filter(has_text="runner created")).to_have_count(2)
    tab.find("filter-action").fill("runner_created")
    tab.find("filter-author").fill("root")
    tab.find("filter").click()
    expect(tab.find("event")).to_have_count(2)
    with tab.page.expect_download() as download:
        tab.find("download-csv").click()
    rows = list(csv.DictReader(download.value.path().read_text().splitlines()))
    assert [(row["action"], row["author"], row["entity"]) for row in rows] == [("runner_created", "root", "")] * 2
    with tab.page.expect_download() as download:
        tab.find("download-json").click()
    assert [event["event_name"] for event in json.loads(download.value.path().read_text())] == ["runner_created"] * 2
    for query in ("entity_type=Runner&entity_id=1", "created_after=2020-01-01T00:00&action=project_created"):
        tab.page.goto(f"/admin/audit?{query}")
        expect(tab.find("event")).to_have_count(1)
    for query, text in {"author=nobody": "There is no user nobody", "entity_id=x": "no valid value"}.items():
        tab.page.goto(f"/admin/audit?{query}")
        expect(tab.find("problem")).to_contain_text(text)
        tab.expect_refusals("400")
    assert "top secret value" not in cell.api("GET", "/audit_events").body.decode()


def test_others_are_refused(browser: Browser, cell: ServedCell) -> None:
    person = create_person(cell, "ann")
    with Tab(browser, cell.url) as tab:
        tab.sign_in(person.token)
        expect(tab.page.locator("nav a", has_text="Admin")).to_have_count(0)
        for address in (*PAGES, "/admin/audit/download"):
            tab.page.goto(address)
            expect(tab.find("error")).to_be_visible()
            tab.expect_refusals("403")


def test_the_look(tab: Tab, cell: ServedCell) -> None:
    create_person(cell, "ann")
    cell.api("POST", "/admin/ci/variables", {"key": "A" * 60, "value": "v" * 500})
    check_look(tab, *PAGES)
