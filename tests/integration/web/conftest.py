"""Fixtures of the tests of web pages: a browser, and a tab in which the administrator is signed in."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser
from tests.support import browser as chromium
from tests.support.browser import Tab
from tests.support.cells.served_cell import ScriptedRunner, ServedCell


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, which the tests of a module share. Not those of all modules: while it runs, Playwright's event loop
    counts as running, and asynchronous tests of other modules in this process would fail."""
    if not chromium.is_installed():
        pytest.skip("Chromium is not installed: make packages")
    with chromium.run_browser() as program:
        yield program


@pytest.fixture
def visitor(browser: Browser, cell: ServedCell) -> Iterator[Tab]:
    """A tab in which nobody is signed in."""
    with Tab(browser, cell.url) as tab:
        yield tab


@pytest.fixture
def tab(visitor: Tab, cell: ServedCell) -> Tab:
    """A tab in which the administrator is signed in."""
    visitor.sign_in(cell.token)
    return visitor


@pytest.fixture
def runner(cell: ServedCell) -> ScriptedRunner:
    """A runner that takes every job."""
    return cell.new_runner()
