"""What plugins write, as lines of our log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.fleeting.output import LONGEST_BYTES, MOST_LINES, Gate, Line, Reader, Splitter


@given(st.lists(st.binary(max_size=50)))
def test_lines_do_not_depend_on_the_pieces(pieces: list[bytes]) -> None:
    def lines(fed: list[bytes]) -> list[str]:
        splitter = Splitter()
        return [line for piece in [*fed, b""] for line in splitter.feed(piece)]

    # No data is the end, so it is never fed in between.
    whole = b"".join(pieces)
    assert lines([piece for piece in pieces if piece]) == lines([whole] if whole else [])


def test_a_line_without_end_comes_in_pieces() -> None:
    splitter = Splitter()
    found = [line for _ in range(5) for line in splitter.feed(b"x" * LONGEST_BYTES)]
    assert {len(line) for line in found} == {LONGEST_BYTES}
    assert len(found) == 4


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("anything", Line(level="debug", text="anything", values={})),
        ("[WARN] careful", Line(level="warning", text="careful", values={})),
        ("[TRACE] x", Line(level="debug", text="x", values={})),
        (
            '{"@level":"info","@message":"up","@timestamp":"2026","addr":"a:1"}',
            Line(level="info", text="up", values={"addr": "a:1"}),
        ),
        ('{"@level":"odd","@message":"up"}', Line(level="debug", text='{"@level":"odd","@message":"up"}', values={})),
        ("{no json", Line(level="debug", text="{no json", values={})),
        ("panic: oh", Line(level="error", text="panic: oh", values={})),
    ],
)
def test_levels_of_lines(text: str, line: Line) -> None:
    assert Reader().read(text) == line


def test_what_follows_a_panic_is_an_error() -> None:
    reader = Reader()
    assert [reader.read(text).level for text in ("before", "panic: oh", "", "goroutine 1")] == [
        "debug",
        "error",
        "error",
        "error",
    ]


@given(st.text())
def test_any_line_is_read(text: str) -> None:
    assert Reader().read("{" + text).level in ("debug", "info", "warning", "error")


def test_more_lines_than_a_log_should_have_are_counted() -> None:
    gate = Gate()
    assert sum(gate.passes(1.5) for _ in range(MOST_LINES + 30)) == MOST_LINES
    assert gate.passes(2.0)
    assert (gate.left_out(), gate.left_out()) == (30, 0)
