from textwrap import dedent

from hypothesis import given
from hypothesis import strategies as st

from remuda.localrun.render.columns import width
from remuda.localrun.render.excerpts import describe_mistakes, excerpt
from remuda.pipeline import Mistake, PipelineError, compile_pipeline


def test_mistakes_are_shown_in_the_text() -> None:
    text = "job:\n  scirpt: [x]\n  tags: 5\n"
    try:
        compile_pipeline(text, file="f")
    except PipelineError as error:
        lines = describe_mistakes(error.errors, {"f": text})
    assert "\n".join(lines) == dedent(
        """\
        f:2:3: job:scirpt: unknown key "scirpt"; did you mean "script"?
             2 |   scirpt: [x]
               |   ^
        f:3:9: job:tags: must be a list of strings, not the number "5"
             3 |   tags: 5
               |         ^"""
    )


def test_an_unavailable_file_has_no_excerpt() -> None:
    mistake = Mistake(file="a\x1b[31m\nb", line=1, column=1, key="", message="bad")
    assert describe_mistakes([mistake], {}) == ["a\\x1b[31m\\nb:1:1: bad"]


def test_the_caret_stands_under_wide_and_strange_characters() -> None:
    assert excerpt(["測試: x"], 1, 5) == ["     1 | 測試: x", "       |       ^"]
    assert excerpt(["\t\x1b: x"], 1, 3) == ["     1 |   : x", "       |   ^"]


def test_lines_are_counted_as_yaml_counts_them() -> None:
    mistake = Mistake(file="f", line=4, column=1, key="", message="bad")
    assert describe_mistakes([mistake], {"f": "\ufeffa\r\nb\rc\u2028d"})[1] == "     4 | d"


def test_a_long_line_is_shown_in_part() -> None:
    excerpt_line, caret = excerpt(["x" * 500 + "!" + "y" * 500], 1, 501)
    assert len(excerpt_line) < 120
    assert excerpt_line[caret.index("^")] == "!"


def test_an_empty_or_missing_line_has_no_excerpt() -> None:
    assert excerpt(["", "  "], 1, 1) == []
    assert excerpt(["a"], 9, 1) == []


@given(st.text(max_size=300), st.integers(0, 400))
def test_an_excerpt_never_breaks_the_terminal(text: str, column: int) -> None:
    for line in excerpt([text], 1, column):
        assert line.isprintable()
        assert width(line) < 320
