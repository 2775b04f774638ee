"""A real browser (Chromium) that looks at the web pages of a cell, and reports what a person would not see: errors in
the console, refusals of the content security policy, failed requests, findings of axe about accessibility."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

PROGRAM = "/usr/bin/chromium"
_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDTH, HEIGHT, PHONE_WIDTH = 1280, 900, 390
_RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")


def is_installed() -> bool:
    return Path(PROGRAM).exists()


@contextmanager
def run_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=list(_OPTIONS))
        yield browser
        browser.close()


class Tab:
    """A tab of a browser with one user. Leaving the `with` block fails if the pages caused an error."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.problems: list[str] = []
        """Errors in the console, exceptions of scripts, refusals of the content security policy."""
        settings = {"viewport": {"width": WIDTH, "height": HEIGHT}, "base_url": url, "reduced_motion": "reduce"}
        self.context: BrowserContext = browser.new_context(**{**settings, **options})
        self.page: Page = self.context.new_page()
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def __enter__(self) -> "Tab":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.context.close()
        if kind is None:
            assert not self.problems, self.problems

    def sign_in(self, token: str) -> None:
        """Fill in the sign-in form, to which the cell has redirected or which is opened now."""
        if "/-/sign-in" not in self.page.url:
            self.page.goto("/-/sign-in")
        self.find("token").fill(token)
        self.find("sign-in").click()
        self.page.wait_for_url(lambda url: "/-/sign-in" not in url)

    def find(self, name: str) -> Any:
        """The elements with this `data-test`, as a locator of Playwright."""
        return self.page.locator(f'[data-test="{name}"]')

    def expect_refusals(self, *texts: str) -> None:
        """Check that every problem so far contains one of the texts, and forget them: the test caused these."""
        assert all(any(text in problem for text in texts) for problem in self.problems), self.problems
        self.problems.clear()

    def find_accessibility_problems(self) -> list[str]:
        """Return what axe finds on the page, one line for each element."""
        script = files("axe_playwright_python").joinpath("axe.min.js").read_text()
        # In a world of its own, because the pages allow no foreign scripts.
        session = self.context.new_cdp_session(self.page)
        tree = session.send("Page.getFrameTree")
        world = session.send(
            "Page.createIsolatedWorld", {"frameId": tree["frameTree"]["frame"]["id"], "worldName": "axe"}
        )
        options = json.dumps({"runOnly": {"type": "tag", "values": _RULES}, "resultTypes": ["violations"]})
        answer = session.send(
            "Runtime.evaluate",
            {
                "expression": f"{script};axe.run(document, {options}).then(found => JSON.stringify(found.violations))",
                "contextId": world["executionContextId"],
                "awaitPromise": True,
                "returnByValue": True,
            },
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        violations = json.loads(answer["result"]["value"])
        return [f"{rule['id']}: {node['html'][:200]}" for rule in violations for node in rule["nodes"]]

    def check_accessibility(self) -> None:
        assert self.find_accessibility_problems() == []

    def check_width(self) -> None:
        """Check that the page fits the window: only parts of it, such as tables, scroll to the side."""
        overhang = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overhang <= 0, f"the page is {overhang} pixels wider than the window"
