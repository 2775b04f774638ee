"""Frames of a shell session are read as they were written, however their bytes arrive; invalid frames are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.wire.shell import (
    EXIT,
    FROM_COMMAND,
    LONGEST_FRAME,
    REFUSED,
    SIZE,
    TO_COMMAND,
    FrameError,
    Frames,
    code_of,
    exit_frame,
    frame,
    refusal_frame,
    size_frame,
    size_of,
)

kinds = st.sampled_from([bytes([kind]) for kind in FROM_COMMAND])


@given(frames=st.lists(st.tuples(kinds, st.binary(max_size=50))), cuts=st.lists(st.integers(min_value=1, max_value=20)))
def test_frames_are_read_as_they_were_written(frames: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    stream = b"".join(frame(kind, data) for kind, data in frames)
    reader, result = Frames(FROM_COMMAND), []
    for cut in [*cuts, len(stream)]:
        result += reader.feed(stream[:cut])
        stream = stream[cut:]
    assert result == frames


@given(st.binary(min_size=5, max_size=200))
def test_any_bytes_are_frames_or_refused(data: bytes) -> None:
    try:
        result = Frames(TO_COMMAND).feed(data)
    except FrameError:
        return
    assert all(kind in TO_COMMAND for kind, _ in result)


def test_values() -> None:
    def read_single_frame(data: bytes) -> tuple[bytes, bytes]:
        [(kind, value)] = Frames(TO_COMMAND + FROM_COMMAND).feed(data)
        return kind, value

    assert read_single_frame(size_frame(80, 24))[0] == SIZE
    assert size_of(read_single_frame(size_frame(80, 70_000))[1]) == (80, 65535)
    assert read_single_frame(exit_frame(-1)) == (EXIT, b"\xff\xff\xff\xff")
    assert code_of(read_single_frame(exit_frame(137))[1]) == 137
    assert read_single_frame(refusal_frame("no")) == (REFUSED, b"no")
    for read in (size_of, code_of):
        with pytest.raises(FrameError):
            read(b"123")


def test_a_frame_that_is_too_long_is_refused_by_its_header() -> None:
    with pytest.raises(FrameError):
        Frames(TO_COMMAND).feed(b"d" + (LONGEST_FRAME + 1).to_bytes(4, "big"))
