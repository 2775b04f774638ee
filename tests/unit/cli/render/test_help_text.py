"""The help of commands on terminals of any width."""

import inspect
import re
import shlex
import textwrap
from importlib import import_module

import pytest

from remuda.cli.main import COMMANDS, call
from remuda.cli.render.help_text import format_help


def test_lines_of_a_paragraph_are_joined_and_examples_stay() -> None:
    docstring = """Do it.

    One sentence that
    goes on.

    Try:

        remuda up
        remuda job list
    """
    assert format_help(docstring, 80) == (
        "Do it.\n\nOne sentence that goes on.\n\nTry:\n\n    remuda up\n    remuda job list"
    )


def test_a_long_command_continues_after_a_backslash() -> None:
    docstring = """Do it.

    Try:

        remuda schedule create "30 7 * * 1-5" --name nightly -d "working days" > out
        remuda up   # comments stay where they fit
        remuda completion zsh > ~/.zfunc/_remuda   # with fpath+=~/.zfunc in ~/.zshrc
        TOKEN=x \\
            remuda up
    """
    assert format_help(docstring, 48).partition("Try:\n\n")[2].splitlines() == [
        '    remuda schedule create "30 7 * * 1-5" \\',
        '        --name nightly -d "working days" > out',
        "    remuda up   # comments stay where they fit",
        "    # with fpath+=~/.zfunc in ~/.zshrc",
        "    remuda completion zsh > ~/.zfunc/_remuda",
        "    TOKEN=x remuda up",
    ]


def read_docstring(words: str) -> str:
    [target] = [command.target for command in COMMANDS if command.words == words]
    module, _, name = target.partition(":")
    return inspect.cleandoc(getattr(import_module(module), name).__doc__)


def examples(text: str) -> list[str]:
    return [line for part in text.split("\n\n") if part.startswith(" ") for line in part.splitlines()]


def split_as_a_shell(lines: list[str]) -> list[list[str]]:
    """Return the words of each command; lines with a comment only have none."""
    text = re.sub(r"\\\n", "", "\n".join(lines))
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("columns", [70, 80, 130])
@pytest.mark.parametrize("words", [command.words for command in COMMANDS])
def test_the_examples_of_every_command_fit_and_can_be_copied(words: str, columns: int) -> None:
    docstring = read_docstring(words)
    lines = examples(format_help(docstring, columns))
    assert [line for line in lines if len(line) > columns] == []
    assert split_as_a_shell(lines) == split_as_a_shell(examples(docstring))


@pytest.mark.parametrize("columns", [60, 80, 130])
@pytest.mark.parametrize("words", ["cell serve", "manager doctor", "completion"])
def test_the_help_fills_the_terminal(
    words: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    call([*words.split(), "-h"])
    text, _, more = capsys.readouterr().out.partition("Try:")
    _, _, *paragraphs = text.strip().split("\n\n")
    assert paragraphs
    for paragraph in paragraphs:
        lines = [line.rstrip() for line in paragraph.splitlines()]
        assert lines == textwrap.wrap(" ".join(lines), columns, break_on_hyphens=False, break_long_words=False)
    # The examples are printed as they were formatted: rich has wrapped none of them.
    shown = [line.rstrip() for line in more.partition("╭")[0].strip("\n").splitlines()]
    assert shown == examples(format_help(read_docstring(words), columns))
