import tomllib

import pytest

from remuda.lib.exits import BadInputError
from remuda.localrun.settings import answers
from remuda.localrun.settings.places import user_file


def test_an_answer_is_added_to_the_file_and_the_rest_stays(capsys: pytest.CaptureFixture[str]) -> None:
    answers.remember("allow-fetch", "git.example/acme/ci")
    assert user_file().read_text() == 'allow-fetch = ["git.example/acme/ci"]\n'
    assert user_file().stat().st_mode & 0o077 == 0
    text = "# mine\njobs = 2 # two\n\n[variable]\nA = '1'\n"
    user_file().write_text(text)
    for value in ("git.example/acme/ci", "git.example/acme/ci", "git.example/other/ci"):
        answers.remember("allow-fetch", value)
    answers.remember("templates", "https://git.example")
    stored = user_file().read_text()
    assert tomllib.loads(stored) == {
        "jobs": 2,
        "allow-fetch": ["git.example/acme/ci", "git.example/other/ci"],
        "templates": "https://git.example",
        "variable": {"A": "1"},
    }
    assert "# mine\njobs = 2 # two\n" in stored
    assert f'stored in {user_file()}: templates "https://git.example"' in capsys.readouterr().err


def test_a_file_that_cannot_be_changed_is_named() -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_text("jobs = \n")
    with pytest.raises(BadInputError, match=r"settings.toml: the answer cannot be stored.*answer y"):
        answers.remember("allow-fetch", "x")
    assert user_file().read_text() == "jobs = \n"


def test_without_a_terminal_nothing_is_permitted(capsys: pytest.CaptureFixture[str]) -> None:
    assert not answers.is_permitted("Fetch acme/ci?", "allow-fetch", "git.example/acme/ci")
    assert not answers.confirm("Really?")
    assert capsys.readouterr().err == ""
