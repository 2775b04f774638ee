"""`docs/reference/cli.md` names every command and no option that does not exist. The generated page has every
option."""

import re
from pathlib import Path

import pytest

from remuda.cli.main import COMMANDS, build_app

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
PAGE = (REFERENCE / "cli.md").read_text()
GENERATED = (REFERENCE / "generated" / "commands.md").read_text()
SECTIONS = {
    heading.split()[1]: text
    for heading, text in re.findall(r"^## (remuda .*)\n([\s\S]*?)(?=^## |\Z)", PAGE, re.MULTILINE)
}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
COMMON_OPTIONS = {"--help", "--version"}
"""Options that every command has, or the command `remuda` itself."""


def options_of(words: str) -> set[str]:
    app = build_app([])
    for word in words.split():
        app = app[word]
    return {name for argument in app.assemble_argument_collection() for name in argument.names if name.startswith("--")}


@pytest.mark.parametrize("command", [command.words for command in COMMANDS])
def test_every_command_and_option_is_described(command: str) -> None:
    assert f"remuda {command}" in PAGE
    section = GENERATED.split(f"\n## remuda {command}\n")[1].split("\n## ")[0]
    assert options_of(command) <= set(OPTION.findall(section))


@pytest.mark.parametrize("word", sorted({command.words.split()[0] for command in COMMANDS} - {"agent"}))
def test_no_other_option_is_described(word: str) -> None:
    existing = {name for command in COMMANDS if command.words.split()[0] == word for name in options_of(command.words)}
    # Options inside of git commands are not options of remuda.
    described = set(OPTION.findall(re.sub(r"`git [^`]*`", "", SECTIONS[word])))
    assert described <= existing | COMMON_OPTIONS
