"""The escape sequence `~.` of the shell's terminal hangs up at the start of a line, and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cli.job.shell import Escape


@pytest.mark.parametrize(
    ("typed", "sent", "hangs_up"),
    [
        (b"ls\r", b"ls\r", False),
        (b"~.", b"", True),
        (b"ls\r~.", b"ls\r", True),
        (b"ls\n~.rest", b"ls\n", True),
        (b"ls ~.\r", b"ls ~.\r", False),
        (b"~~.\r", b"~.\r", False),
        (b"~user\r", b"~user\r", False),
        (b"\r~\r~.", b"\r~\r", True),
        (b"~", b"", False),
    ],
)
def test_escape(typed: bytes, sent: bytes, *, hangs_up: bool) -> None:
    assert Escape().feed(typed) == (sent, hangs_up)


@given(st.lists(st.binary(max_size=8)))
def test_the_result_does_not_depend_on_how_the_input_is_split(pieces: list[bytes]) -> None:
    whole = Escape().feed(b"".join(pieces))
    escape = Escape()
    sent, is_hung_up = b"", False
    for piece in pieces:
        more, is_hung_up = escape.feed(piece)
        sent += more
        if is_hung_up:
            break
    assert (sent, is_hung_up) == whole


@given(st.binary())
def test_input_without_a_tilde_is_sent_unchanged(data: bytes) -> None:
    plain = data.replace(b"~", b"")
    assert Escape().feed(plain) == (plain, False)
