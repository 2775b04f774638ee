import webbrowser

import pytest

from remuda.cli.access.pages import open_link

LINK = "http://127.0.0.1:1/-/sign-in/link?code=x"


class FakeBrowser(webbrowser.BaseBrowser):
    def __init__(self, *, works: bool) -> None:
        super().__init__("fake")
        self.opened: list[str] = []
        self.works = works

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
        self.opened.append(url)
        return self.works


def use_browser(monkeypatch: pytest.MonkeyPatch, *, works: bool) -> FakeBrowser:
    browser = FakeBrowser(works=works)
    monkeypatch.setattr(webbrowser, "open", browser.open)
    monkeypatch.setenv("BROWSER", "fake")
    return browser


def test_a_link_is_opened(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    browser = use_browser(monkeypatch, works=True)
    assert open_link(LINK)
    assert browser.opened == [LINK]
    assert capsys.readouterr() == ("", "")


def test_a_machine_without_a_browser_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    browser = use_browser(monkeypatch, works=False)
    assert not open_link(LINK)
    assert browser.opened == [LINK]
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not open_link(LINK)
    assert browser.opened == [LINK]
    assert capsys.readouterr().err.count("there is no browser on this machine") == 2


def test_a_cell_without_pages_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert not open_link("")
    assert "web.enabled is false" in capsys.readouterr().err
