import pytest

from remuda.cli.render.listing import print_table
from remuda.localrun.render.words import on_one_line


def test_control_characters_in_names_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert on_one_line("bäckerei ☃") == "bäckerei ☃"
    assert on_one_line("a\x1b[2J\nb\x9b\u2028") == "a\\x1b[2J\\nb\\x9b\\u2028"
    print_table([("name", "stage"), ("two\nlines", "test")])
    assert capsys.readouterr().out == "name        stage\ntwo\\nlines  test\n"


def test_wide_characters_take_two_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("name", "stage"), ("測試", "test"), ("build", "build")])
    assert capsys.readouterr().out == "name   stage\n測試   test\nbuild  build\n"
