import pytest

from remuda.cli.render.listing import print_table, project_of
from remuda.localrun.render.words import on_one_line


def test_control_characters_in_names_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert on_one_line("bäckerei ☃") == "bäckerei ☃"
    assert on_one_line("a\x1b[2J\nb\x9b\u2028") == "a\\x1b[2J\\nb\\x9b\\u2028"
    print_table([("name", "stage"), ("two\nlines", "test")])
    assert capsys.readouterr().out == "name        stage\ntwo\\nlines  test\n"


def test_wide_characters_take_two_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("name", "stage"), ("測試", "test"), ("build", "build")])
    assert capsys.readouterr().out == "name   stage\n測試   test\nbuild  build\n"


@pytest.mark.parametrize(
    "url", ["https://ci.example", "https://ci.example/", "https://ci.example/ci", "https://x/a/b/"]
)
def test_the_path_of_the_cell_is_no_part_of_the_project(url: str) -> None:
    page = f"{url.rstrip('/')}/root/shop/-/jobs/7"
    assert project_of(url)({"web_url": page}) == "root/shop"
    assert project_of(url)({}) == ""
