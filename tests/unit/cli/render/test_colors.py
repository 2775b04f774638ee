"""Colours appear only on a terminal that wants them."""

import io

import pytest

from remuda.cli.render import listing
from remuda.cli.render.colors import color_status, has_colors


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_environment(environment: dict[str, str], expected: bool) -> None:
    assert has_colors(Terminal(), environment) is expected
    assert has_colors(io.StringIO(), environment) is False


def test_statuses() -> None:
    assert color_status("failed ") == "\x1b[31mfailed \x1b[0m"
    assert color_status("online, paused") == "\x1b[33monline, paused\x1b[0m"
    assert color_status("my own") == "my own"


def test_a_table_on_a_terminal_is_aligned_in_spite_of_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    table = [("job", "status", "name", ""), ("7", "success", "failed", ""), ("12", "failed", "b", "")]
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    listing.print_table(table)
    colored = terminal.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    listing.print_table(table)
    plain = terminal.getvalue()
    assert plain == "job  status   name\n7    success  failed\n12   failed   b\n"
    assert colored == ("job  status   name\n7    \x1b[32msuccess\x1b[0m  failed\n12   \x1b[31mfailed \x1b[0m  b\n")
