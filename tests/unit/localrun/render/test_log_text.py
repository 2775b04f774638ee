import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.localrun.render.log_text import LogText, tail, without_escapes

STAMP = b"2026-01-02T03:04:05.678901Z "


def line(text: bytes, *, stream: bytes = b"01", kind: bytes = b"O", more: bytes = b" ") -> bytes:
    return STAMP + stream + kind + more + text + b"\n"


def text_of(data: bytes) -> str:
    log = LogText()
    return log.feed(data) + log.finish()


def test_headers_are_removed() -> None:
    assert text_of(line(b"one") + line(b"two", kind=b"E")) == "one\ntwo\n"


def test_a_continued_line_is_joined() -> None:
    assert text_of(line(b"half a") + line(b" line", more=b"+") + line(b"next")) == "half a line\nnext\n"


def test_section_markers_vanish_with_their_line_when_nothing_else_is_on_it() -> None:
    start = line(b"section_start:1750000000:step_script\r\x1b[0K")
    headed = line(b"section_start:1750000000:get_sources\r\x1b[0K\x1b[0KGetting source")
    end = line(b"section_end:1750000001:step_script\r\x1b[0K")
    assert text_of(start + line(b"work") + end + headed) == "work\n\x1b[0KGetting source\n"


def test_empty_lines_stay() -> None:
    assert text_of(line(b"a") + line(b"") + line(b"b")) == "a\n\nb\n"


def test_a_log_without_headers_passes_unchanged() -> None:
    assert text_of(b"plain\nlog without end") == "plain\nlog without end\n"


def test_an_empty_log_gives_an_empty_text() -> None:
    assert text_of(b"") == ""


def test_the_tail_counts_joined_lines() -> None:
    log = b"".join(line(b"%d" % number) for number in range(50)) + line(b"x", more=b"+")
    assert tail(log, 3) == ["47", "48", "49x"]


def test_escapes_are_removed() -> None:
    assert without_escapes("\x1b[32;1m$ make\x1b[0;m \x1b[0K") == "$ make "


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("\x1b]0;a title\x07named", "named"),
        ("\x1b]8;;https://example.org\x1b\\a link", "a link"),
        ("\x1bPnever ended", ""),
        ("\x1b(B\x1bcreset\x0e\x05\x9b31m", "reset31m"),
        ("\x1b[2Jcleared\x1b[1;1H\x1b[", "cleared"),
        ("a\tb", "a\tb"),
    ],
)
def test_terminal_sequences_and_control_characters_are_removed(line: str, expected: str) -> None:
    assert without_escapes(line) == expected
    assert tail(line.encode(), 1) == [expected]


@given(line=st.text(alphabet=st.sampled_from("\x1b[]m;07PX^_\\\x07\x9bac(\t")))
def test_no_control_character_is_left(line: str) -> None:
    assert not re.search(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", without_escapes(line))


def test_a_tail_keeps_colours_and_what_a_progress_bar_wrote_last() -> None:
    log = line(b"10%\r50%\r\x1b[32m100%\x1b[0m\r") + line(b"a\x0bb\xe2\x80\xa8c")
    assert tail(log, 5) == ["\x1b[32m100%\x1b[0m", "ab\u2028c"]
    assert tail(b"", 5) == []


def test_a_tail_cuts_very_long_lines() -> None:
    assert tail(b"x" * 3000, 1) == ["x" * 2000 + "... (3000 characters)"]


@given(data=st.binary(max_size=200) | st.lists(st.binary(max_size=20).map(line)).map(b"".join), cut=st.integers(0, 300))
def test_pieces_of_any_size_give_the_same_text(data: bytes, cut: int) -> None:
    log = LogText()
    assert log.feed(data[:cut]) + log.feed(data[cut:]) + log.finish() == text_of(data)


def plain(*pieces: bytes) -> str:
    log = LogText(is_plain=True)
    return "".join(log.feed(piece) for piece in pieces) + log.finish()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (line(b"\x1b[32;1m$ make\x1b[0;m"), "$ make\n"),
        (line(b"\x1b]0;a title\x07named\x1b[2K\x1b[1A"), "named\n"),
        (line(b"windows\r") + line(b"next\r"), "windows\nnext\n"),
        (line(b"10%\r50%\r100%"), "100%\n"),
        (line(b"10%") + line(b"\r20%", more=b"+") + line(b"\rdone", more=b"+"), "10%\n20%\ndone\n"),
        (line(b"10%\r") + line(b"20%", more=b"+"), "10%\n20%\n"),
        (line(b"a\x1b[3") + line(b"1mb\x1b", more=b"+") + line(b"[0mc", more=b"+"), "abc\n"),
        (line(b"cut\x1b[3") + line(b"next"), "cut\nnext\n"),
        (line(b"tab\there \x07\x00bell"), "tab\there bell\n"),
        (line(b"section_start:1750000000:get_sources\r\x1b[0K\x1b[0KGetting source"), "Getting source\n"),
        ("Zeile \u00e4\u20ac\n".encode(), "Zeile \u00e4\u20ac\n"),
        (b"", ""),
    ],
)
def test_plain_text_has_no_control_sequences(data: bytes, expected: str) -> None:
    assert plain(data) == expected
    assert plain(*(data[index : index + 1] for index in range(len(data)))) == expected


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_plain_text_never_has_an_escape(pieces: list[bytes]) -> None:
    lines = [line(piece.replace(b"\n", b""), more=b"+" if index % 2 else b" ") for index, piece in enumerate(pieces)]
    assert "\x1b" not in plain(*lines)
    assert "\r" not in plain(*lines)
