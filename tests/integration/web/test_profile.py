"""The page of one's own account: sessions in browsers and personal access tokens."""

from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, expect
from tests.support.browser import PHONE_WIDTH, Tab
from tests.support.cells.page_client import PageClient
from tests.support.cells.people import create_person
from tests.support.cells.served_cell import ServedCell

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "{{ 7 * 7 }}",
    "\u202eevil\u202c",
    "\x01\x1b[31m",
    "x" * 255,
)


def test_sessions_are_listed_and_ended(tab: Tab, cell: ServedCell) -> None:
    others = [PageClient(cell) for _ in range(3)]
    for other in others:
        other.sign_in(cell.token)
    tab.page.goto("/-/profile")
    expect(tab.find("session")).to_have_count(4)
    mine = tab.find("session").filter(has_text="this browser")
    expect(mine).to_have_count(1)
    expect(mine).to_contain_text("Chrome on Linux")
    expect(mine).to_contain_text("by token")
    expect(mine).to_contain_text("127.0.0.1")
    expect(mine.locator("button")).to_have_count(0)
    tab.find("end-session").first.click()
    expect(tab.find("session")).to_have_count(3)
    assert sorted(other.is_signed_in for other in others) == [False, True, True]
    tab.find("end-others").click()
    tab.find("confirm").click()
    expect(tab.find("session")).to_have_count(1)
    expect(tab.find("end-others")).to_have_count(0)
    assert not any(other.is_signed_in for other in others)


def test_a_token_is_created_shown_once_and_revoked(tab: Tab, cell: ServedCell) -> None:
    tab.page.goto("/-/profile")
    tab.find("token-name").fill("laptop")
    tab.find("scope-read_api").check()
    tab.find("scope-read_repository").check()
    tab.find("create").click()
    expect(tab.find("token-text")).not_to_be_empty()
    text = tab.find("token-text").text_content()
    row = tab.find("token-row").filter(has_text="laptop")
    expect(row).to_contain_text("read_apiread_repository")
    day = (datetime.now(UTC) + timedelta(days=90)).date()
    expect(row).to_contain_text(str(day))
    shown = cell.send("GET", "/api/v4/personal_access_tokens/self", PRIVATE_TOKEN=text).json()
    assert (shown["name"], shown["scopes"], shown["expires_at"]) == (
        "laptop",
        ["read_api", "read_repository"],
        str(day),
    )
    tab.page.reload()
    assert text not in tab.page.content()
    other = PageClient(cell)
    other.sign_in(text)
    assert other.is_signed_in
    tab.find("token-row").filter(has_text="laptop").locator("button").click()
    tab.find("confirm").click()
    expect(tab.find("token-row").filter(has_text="laptop")).to_have_count(0)
    assert not other.is_signed_in, "a session ends with its token"


def test_a_refused_token_says_why(tab: Tab) -> None:
    tab.page.goto("/-/profile")
    tab.find("token-name").fill("x")
    tab.find("create").click()
    expect(tab.find("problem")).to_contain_text("scopes is empty")
    tab.expect_refusals("400")


def test_a_token_that_may_only_read_shows_no_buttons(visitor: Tab, cell: ServedCell) -> None:
    ada = create_person(cell, "ada")
    visitor.sign_in(ada.with_scopes("read_api").token)
    visitor.page.goto("/-/profile")
    expect(visitor.page.get_by_text("a token that may only read")).to_be_visible()
    for name in ("end-session", "end-others", "revoke", "create"):
        expect(visitor.find(name)).to_have_count(0)


def test_the_page_is_accessible_and_fits_a_phone(tab: Tab, cell: ServedCell) -> None:
    for number in range(3):
        PageClient(cell).sign_in(cell.token)
        body = {"name": f"token {number}", "scopes": ["api", "read_api", "read_repository", "write_repository"]}
        assert cell.api("POST", "/user/personal_access_tokens", body).status == 201
    for width in (1280, PHONE_WIDTH):
        tab.page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            tab.page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
            tab.page.goto("/-/profile")
            tab.check_accessibility()
            tab.check_width()


def test_hostile_names_are_only_text(browser: Browser, cell: ServedCell) -> None:
    for name in HOSTILE:
        assert cell.api("POST", "/user/personal_access_tokens", {"name": name, "scopes": ["api"]}).status == 201
    for agent in ("<img src=x onerror=alert(1)>", '"><script>alert(1)</script>'):
        client = PageClient(cell)
        client.post_form("/-/sign-in", {"token": cell.token}, User_Agent=agent)
    with Tab(browser, cell.url) as tab:
        tab.sign_in(cell.token)
        tab.page.goto("/-/profile")
        expect(tab.find("token-row")).to_have_count(len(HOSTILE) + 1)
        for name in HOSTILE[:5]:
            expect(tab.find("token-row").filter(has_text=name).first).to_be_visible()
        tab.check_width()
        assert tab.page.evaluate("document.images.length") == 1


@pytest.mark.parametrize("with_token", [True, False])
def test_the_end_of_a_session_in_an_open_page(tab: Tab, cell: ServedCell, with_token: bool) -> None:
    tab.page.goto("/-/profile")
    if with_token:
        sessions = cell.send("GET", "/api/remuda/v1/sessions", PRIVATE_TOKEN=cell.token).json()
        for session in sessions:
            cell.send("DELETE", f"/api/remuda/v1/sessions/{session['id']}", PRIVATE_TOKEN=cell.token)
    else:
        assert cell.send("DELETE", "/api/remuda/v1/sessions", PRIVATE_TOKEN=cell.token).status == 204
    tab.find("token-name").fill("x")
    tab.find("scope-api").check()
    tab.find("create").click()
    expect(tab.find("problem")).to_contain_text("You are not signed in any more")
    tab.expect_refusals("401")
