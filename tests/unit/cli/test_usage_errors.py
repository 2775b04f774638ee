"""What is said about wrong options and arguments."""

import pytest

from remuda.cli.main import call
from remuda.lib.exits import BadInputError


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("job cancel build", 'JOB must be a whole number, not "build".'),
        ("job list --limit many", '--limit must be a whole number, not "many".'),
        ("job show", "JOB is missing."),
        ("manager schema --config", "Unknown option: --config."),
        ("manager list --config", "--config needs a value."),
        ("variable set FOO bar", 'unexpected argument "bar".'),
        ("variable set FOO bar baz", 'unexpected arguments "bar" and "baz".'),
        ("job list --output xml", 'Invalid value "xml" for --output. Choose from: "text", "json".'),
    ],
)
def test_messages(words: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONFIG_FILE", raising=False)
    command = " ".join(words.split()[:2])
    with pytest.raises(BadInputError) as error:
        call(words.split())
    assert str(error.value) == f"{message} `remuda {command} --help` has examples"


def test_a_missing_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONFIG_FILE", raising=False)
    with pytest.raises(BadInputError, match=r"^--config is missing\."):
        call(["manager", "list"])


@pytest.mark.parametrize(
    ("words", "usage"),
    [("help", "remuda COMMAND"), ("help job", "remuda job COMMAND"), ("help job list", "remuda job list [OPTIONS]")],
)
def test_the_word_help_shows_the_help(words: str, usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(words.split()) == 0
    assert capsys.readouterr().out.startswith(f"Usage: {usage}\n")


def test_the_help_of_a_command_that_does_not_exist() -> None:
    with pytest.raises(BadInputError, match="did you mean `remuda job list`"):
        call(["help", "job", "lst"])


def test_the_short_version_option(capsys: pytest.CaptureFixture[str]) -> None:
    call(["-V"])
    assert capsys.readouterr().out.startswith("remuda ")
