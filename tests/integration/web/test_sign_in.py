"""Signing in to the web pages, and out."""

from playwright.sync_api import expect
from tests.support.browser import PHONE_WIDTH, Tab
from tests.support.cells.served_cell import ServedCell


def test_sign_in_with_a_token_and_out(visitor: Tab, cell: ServedCell) -> None:
    visitor.page.goto("/projects?search=shop")
    expect(visitor.page.locator("h1")).to_have_text("Sign in")
    visitor.find("token").fill("wrong")
    visitor.find("sign-in").click()
    expect(visitor.find("problem")).to_contain_text("There is no such token")
    visitor.expect_refusals("422")
    visitor.sign_in(cell.token)
    assert visitor.page.url == f"{cell.url}/projects?search=shop"
    visitor.find("user-menu").click()
    visitor.find("sign-out").click()
    expect(visitor.page.locator("h1")).to_have_text("Sign in")
    visitor.page.goto("/")
    assert visitor.page.url == f"{cell.url}/-/sign-in"


def test_a_link_signs_in_once(visitor: Tab, cell: ServedCell) -> None:
    link = cell.send("POST", "/api/remuda/v1/sign_in_links", PRIVATE_TOKEN=cell.token).json()["url"]
    visitor.page.goto(link)
    expect(visitor.page.locator("h1")).to_have_text("Overview")
    visitor.context.clear_cookies()
    visitor.page.goto(link)
    expect(visitor.find("problem")).to_contain_text("has been used")
    visitor.expect_refusals("422")


def test_the_form_is_accessible(visitor: Tab) -> None:
    for width in (1280, PHONE_WIDTH):
        visitor.page.set_viewport_size({"width": width, "height": 800})
        for scheme in ("light", "dark"):
            visitor.page.emulate_media(color_scheme=scheme)
            visitor.page.goto("/-/sign-in")
            visitor.check_accessibility()
            visitor.check_width()
