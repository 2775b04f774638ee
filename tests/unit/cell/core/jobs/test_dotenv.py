"""Parsing of dotenv reports, with limits and error messages."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.jobs.dotenv import read_dotenv
from remuda.cell.errors import InvalidError


def read(content: str | bytes, *, limit_bytes: int = 5120, limit_variables: int = 50) -> dict[str, str]:
    raw = content.encode() if isinstance(content, str) else content
    return read_dotenv(gzip.compress(raw), limit_bytes=limit_bytes, limit_variables=limit_variables)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("A=1\nB=2\n", {"A": "1", "B": "2"}),
        ("A=1", {"A": "1"}),
        ("", {}),
        ("A=1\nA=2\n", {"A": "2"}),
        ("A = spaces around \r\n", {"A": "spaces around"}),
        ("URL=https://x/?a=b", {"URL": "https://x/?a=b"}),
        ("Q='single' \"double\"", {"Q": "'single' \"double\""}),
        ("EMPTY=\n", {"EMPTY": ""}),
        ("1ST=x", {"1ST": "x"}),
        ("\ufeffA=ü\n", {"A": "ü"}),
        ("A=$B", {"A": "$B"}),
    ],
)
def test_valid_files(content: str, expected: dict[str, str]) -> None:
    assert read(content) == expected
    assert read_dotenv(content.encode(), limit_bytes=5120, limit_variables=50) == expected


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("A=1\n\nB=2\n", "line 2 is empty"),
        ("A=1\n# note\n", "line 2 is a comment"),
        ("A=1\nB\n", "line 2 has no ="),
        ("A=1\n=x\n", "line 2 begins with ''"),
        ("A-B=1", "line 1 begins with 'A-B'"),
        ("Ä=1", "line 1 begins with '\\xc4'"),
        ("A=1\nB=x\0y\n", "line 2 holds a zero byte"),
        (b"A=1\nB=\xff\n", "not UTF-8 (line 2)"),
        ("A=" + "x" * 5119, "limit of 5120 bytes"),
        ("\n".join(f"V{number}=1" for number in range(51)), "has 51 variables; at most 50"),
    ],
)
def test_error_messages_for_invalid_files(content: str | bytes, reason: str) -> None:
    with pytest.raises(InvalidError) as caught:
        read(content)
    assert reason in str(caught.value)


def test_concatenated_gzip_members() -> None:
    packed = gzip.compress(b"A=1\n") + gzip.compress(b"B=2\n")
    assert read_dotenv(packed, limit_bytes=100, limit_variables=2) == {"A": "1", "B": "2"}


def test_a_gzip_bomb_is_refused() -> None:
    bomb = gzip.compress(b"A=" + b"x" * 50_000_000)
    with pytest.raises(InvalidError, match="limit of 100 bytes"):
        read_dotenv(bomb, limit_bytes=100, limit_variables=5)
    many = gzip.compress(b"") * 1000 + gzip.compress(b"A=1\n")
    assert read_dotenv(many, limit_bytes=100, limit_variables=5) == {"A": "1"}


@pytest.mark.parametrize("cut", [1, 8, 12])
def test_a_truncated_file_is_refused(cut: int) -> None:
    with pytest.raises(InvalidError, match="not a whole gzip file"):
        read_dotenv(gzip.compress(b"A=1\n")[:-cut], limit_bytes=100, limit_variables=5)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    for raw in (content, b"\x1f\x8b" + content, gzip.compress(content)):
        try:
            variables = read_dotenv(raw, limit_bytes=200, limit_variables=5)
        except InvalidError:
            continue
        assert len(variables) <= 5
