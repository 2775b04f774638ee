"""Checks that every page must pass, whatever it shows; and names and texts that try to be executed."""

from collections.abc import Iterable

from playwright.sync_api import expect
from tests.support.browser import HEIGHT, PHONE_WIDTH, WIDTH, Tab

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'-alert(1)-'",
    "javascript:alert(1)",
    "{{7*7}}${7*7}",
    "\u202egnp.exe\u202c",
    "</textarea></title><svg onload=alert(1)>",
    "W" * 200,
)
"""Names and texts that a careless page executes or that break its layout."""


def check_pages(tab: Tab, paths: Iterable[str]) -> None:
    """Open each page in light and dark and at the width of a phone: it answers 200, is accessible and fits."""
    for path in paths:
        tab.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
        for scheme in ("light", "dark"):
            tab.page.emulate_media(color_scheme=scheme)
            answer = tab.page.goto(path)
            assert answer is not None, path
            assert answer.status == 200, path
            assert tab.find_accessibility_problems() == [], path
        tab.page.set_viewport_size({"width": PHONE_WIDTH, "height": HEIGHT})
        tab.check_width()
        assert tab.problems == [], path
    tab.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})


def check_hostile(tab: Tab, paths: Iterable[str], text: str) -> None:
    """Open each page and check that `text` is shown as text on it. `Tab` fails if anything was executed or reported."""
    tab.page.on("dialog", lambda dialog: tab.problems.append(f"dialog: {dialog.message}"))
    for path in paths:
        tab.page.goto(path)
        expect(tab.page.locator("body")).to_contain_text(text)
        assert tab.page.locator("img[src=x], main svg[onload], a[href^='javascript:']").count() == 0, path
        assert tab.problems == [], path
