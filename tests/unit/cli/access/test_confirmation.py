"""Questions before something is deleted, and secrets from stdin."""

import io

import pytest

from remuda.cli.access.confirmation import confirm, read_secret
from remuda.lib.exits import BadInputError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def answer(text: str, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Let a user on a terminal type `text`. Returns what the terminal shows."""
    screen = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(text))
    monkeypatch.setattr("sys.stderr", screen)
    return screen


@pytest.mark.parametrize("text", ["y\n", "Yes\n"])
def test_yes_on_a_terminal(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = answer(text, monkeypatch)
    confirm("delete the job", yes=False)
    assert screen.getvalue() == "This will delete the job. Continue? [y/N] "


@pytest.mark.parametrize("text", ["\n", "n\n", "", "yep\n"])
def test_everything_else_changes_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(text, monkeypatch)
    with pytest.raises(BadInputError, match="nothing was changed"):
        confirm("delete the job", yes=False)


def test_without_a_terminal_yes_is_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(BadInputError, match="confirm it with --yes"):
        confirm("delete the job", yes=False)
    confirm("delete the job", yes=True)


def test_with_stdin_closed_yes_is_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(BadInputError, match="confirm it with --yes"):
        confirm("delete the job", yes=False)


def test_one_line_break_at_the_end_of_a_secret_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, secret in (("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a b ", "a b "), ("", "")):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert read_secret("Value") == secret
