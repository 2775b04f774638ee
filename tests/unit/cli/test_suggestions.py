"""What a mistyped command probably meant."""

import pytest

from remuda.cli.main import COMMANDS, GROUPS, call
from remuda.cli.suggestions import explain_unknown_command, suggest_commands
from remuda.lib.exits import BadInputError

ALL = [*GROUPS, *(command.words for command in COMMANDS)]


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("jbo", "job"),
        ("jobs", "job"),
        ("job lst", "job list"),
        ("job rerun", "job retry"),
        ("logs", "job log"),
        ("Run", "run"),
        ("cell keys lst", "cell keys list"),
    ],
)
def test_suggestions(words: str, first: str) -> None:
    assert suggest_commands(words.split(), ALL)[0] == first


def test_a_command_without_its_group_is_found_in_every_group() -> None:
    assert {"job cancel", "pipeline cancel"} <= set(suggest_commands(["cancel"], ALL))


def test_the_message_names_the_command_and_the_help_of_its_group() -> None:
    assert explain_unknown_command(["job", "lst", "--all"], ALL) == (
        'there is no command "remuda job lst"; did you mean `remuda job list`? remuda job --help lists the commands'
    )
    assert explain_unknown_command(["qqq"], ALL) == 'there is no command "remuda qqq"; remuda --help lists the commands'


@pytest.mark.parametrize("arguments", [["job", "list", "--limt", "3"], ["job", "show"], ["job", "show", "x"]])
def test_a_wrong_option_or_value_names_the_help_of_its_command(arguments: list[str]) -> None:
    with pytest.raises(BadInputError, match=f"`remuda job {arguments[1]} --help` has examples"):
        call(arguments)


def test_a_misspelt_option_is_corrected() -> None:
    with pytest.raises(BadInputError, match="Did you mean --limit"):
        call(["job", "list", "--limt", "3"])


def test_version_option(capsys: pytest.CaptureFixture[str]) -> None:
    call(["version"])
    printed = capsys.readouterr().out
    call(["--version"])
    assert capsys.readouterr().out == printed != ""
