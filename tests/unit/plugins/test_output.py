"""Splitting a plugin's output into lines, their log levels, and the lines that explain a crash."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.plugins.output import LONGEST_BYTES, MOST_LINES, LastWords, Line, RateLimit, Reader, Splitter


@given(st.lists(st.binary(max_size=50)))
def test_lines_do_not_depend_on_the_pieces(pieces: list[bytes]) -> None:
    def split_lines(chunks: list[bytes]) -> list[str]:
        splitter = Splitter()
        return [line for piece in [*chunks, b""] for line in splitter.feed(piece)]

    # Empty data marks the end, so it is fed only as the last piece.
    whole = b"".join(pieces)
    assert split_lines([piece for piece in pieces if piece]) == split_lines([whole] if whole else [])


def test_a_line_without_end_comes_in_pieces() -> None:
    splitter = Splitter()
    lines = [line for _ in range(5) for line in splitter.feed(b"x" * LONGEST_BYTES)]
    assert {len(line) for line in lines} == {LONGEST_BYTES}
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("text", "level", "message", "values"),
    [
        ("anything", "debug", "anything", {}),
        ("[WARN] careful", "warning", "careful", {}),
        ("[TRACE] x", "debug", "x", {}),
        (
            '{"@level":"info","@message":"up","@timestamp":"2026","addr":"a:1"}',
            "info",
            "up",
            {"addr": "a:1"},
        ),
        ('{"@level":"odd","@message":"up"}', "debug", '{"@level":"odd","@message":"up"}', {}),
        ("{no json", "debug", "{no json", {}),
        ("panic: oh", "error", "panic: oh", {}),
    ],
)
def test_levels_of_lines(text: str, level: str, message: str, values: dict[str, str]) -> None:
    assert Reader().read(text) == Line(raw=text, level=level, text=message, values=values)


def test_lines_after_a_panic_are_errors() -> None:
    reader = Reader()
    assert [reader.read(text).level for text in ("before", "panic: oh", "", "goroutine 1")] == [
        "debug",
        "error",
        "error",
        "error",
    ]


PANIC = """{"@level":"info","@message":"up"}
panic: assignment to entry in nil map
goroutine 35 [running]:
panic({0x7a1b20, 0x8f3a10})
\t/usr/local/go/src/runtime/panic.go:770 +0x132
main.(*CloudGroup).Increase(0xc0001, {0x1, 0x2})
\t/home/me/cloud/plugin.go:45 +0x1d
gitlab.com/gitlab-org/fleeting/fleeting/plugin.(*GRPCServer).Increase(...)
\t/root/go/pkg/mod/gitlab.com/gitlab-org/fleeting/fleeting@v0.0.1/server.go:88
google.golang.org/grpc.(*Server).serveStreams.func1.1()
\t/root/go/pkg/mod/google.golang.org/grpc@v1.70.0/server.go:1018 +0x7f
created by google.golang.org/grpc.(*Server).serveStreams.func1 in goroutine 9
"""
TRACE = json.dumps({"@level": "error", "@message": "a fault\nTraceback:\n  File x\nKeyError: 'region'"})


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (PANIC, ["panic: assignment to entry in nil map", "/home/me/cloud/plugin.go:45"]),
        (PANIC.replace("/home/me/", "").replace("/root/go/pkg/mod/", ""),
         ["panic: assignment to entry in nil map", "cloud/plugin.go:45"]),
        ("fatal error: all goroutines are asleep\n", ["fatal error: all goroutines are asleep"]),
        (TRACE, ["a fault ... KeyError: 'region'"]),
        ("\n".join("abcdefg"), list("cdefg")),
    ],
    ids=["panic", "trimmed panic", "no frame", "logged", "many"],
)  # fmt: skip
def test_last_words(output: str, words: list[str]) -> None:
    reader, last = Reader(), LastWords()
    for text in Splitter().feed(f"{output}\n".encode()):
        last.add(reader.read(text))
    assert last.lines == words


@given(st.text())
def test_any_line_is_read(text: str) -> None:
    assert Reader().read("{" + text).level in ("debug", "info", "warning", "error")


def test_lines_above_the_rate_limit_are_dropped_and_counted() -> None:
    limit = RateLimit()
    assert sum(limit.allows(1.5) for _ in range(MOST_LINES + 30)) == MOST_LINES
    assert limit.allows(2.0)
    assert (limit.take_dropped(), limit.take_dropped()) == (30, 0)
