"""A plugin's program as people start it."""

import pytest

from remuda.fleeting.handshake import COOKIE
from remuda.fleeting.sdk import capabilities
from remuda.fleeting.serving import serve
from remuda.testing.instance_groups import PlainGroup, TableGroup


@pytest.mark.parametrize("word", ["version", "-version", "--version"])
def test_the_version_is_printed(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(TableGroup(), [word]) == 0
    assert capsys.readouterr().out == "Name: fleeting-plugin-table\nVersion: 1.2.3\n"


@pytest.mark.parametrize("cookie", [None, "other"])
def test_by_hand_it_says_what_it_is(
    cookie: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(COOKIE, raising=False)
    if cookie is not None:
        monkeypatch.setenv(COOKIE, cookie)
    assert serve(TableGroup(), []) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert 'plugin = "fleeting-plugin-table"' in said.err


def test_unknown_words_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(TableGroup(), ["--help"]) == 2
    assert "Known are: version, serve." in capsys.readouterr().err


def test_abilities_are_methods() -> None:
    assert capabilities(TableGroup()) == {"heartbeat", "suspend_resume", "remuda.stats", "remuda.recover"}
    assert capabilities(PlainGroup()) == frozenset()
