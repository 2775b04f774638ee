"""The help of commands on terminals of any width."""

import textwrap

import pytest

from remuda.cli.main import call
from remuda.cli.render.help_text import join_lines


def test_lines_of_a_paragraph_are_joined_and_examples_stay() -> None:
    docstring = """Do it.

    One sentence that
    goes on.

    Try:

        remuda up
        remuda job list
    """
    assert join_lines(docstring) == (
        "Do it.\n\nOne sentence that goes on.\n\nTry:\n\n    remuda up\n    remuda job list"
    )


@pytest.mark.parametrize("columns", [60, 80, 130])
def test_the_help_fills_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    call(["cell", "serve", "-h"])
    _, _, *paragraphs = capsys.readouterr().out.partition("Try:")[0].strip().split("\n\n")
    assert paragraphs
    for paragraph in paragraphs:
        lines = [line.rstrip() for line in paragraph.splitlines()]
        assert lines == textwrap.wrap(" ".join(lines), columns, break_on_hyphens=False, break_long_words=False)
