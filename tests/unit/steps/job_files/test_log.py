import errno
import os
import random
import resource
import struct
import tempfile
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.clock import VirtualClock
from remuda.lib.masking import Secrets
from remuda.steps.job_files.log import (
    LONGEST_LINE,
    PARTIAL_SECONDS,
    LogFile,
    Mark,
    Output,
    Part,
    default_waiting_bytes,
)
from remuda.testing.agent_process import plain_lines

SECRETS = Secrets(["secret"], ["tok-"])
STEP = 0


class Desk:
    """A log with a raw file beside it; `crash` is what a kill -9 leaves to the next agent."""

    def __init__(self, folder: Path, limit_bytes: int = 0) -> None:
        self.folder, self.limit_bytes = folder, limit_bytes
        self.clock = VirtualClock()
        self.raw = folder / "raw"
        self.raw.touch()
        self.open()

    def open(self) -> None:
        self.log = LogFile(self.folder, secrets=SECRETS, limit_bytes=self.limit_bytes, clock=self.clock)
        self.log.open(STEP)
        self.output = Output(self.log, STEP, self.raw)

    def print(self, data: bytes) -> None:
        with self.raw.open("ab") as file:
            file.write(data)

    def consume(self) -> None:
        while data := self.output.read():
            self.output.take(data)

    def finish(self) -> None:
        self.output.finish()
        self.log.close(STEP, "end")

    def crash(self) -> None:
        with (self.folder / "log").open("ab") as file:
            file.write(b"bytes of a write that was never recorded")
        self.open()

    def shown(self) -> bytes:
        return self.log.read(0, 10**9)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_lines_have_a_header_of_32_bytes(desk: Desk) -> None:
    desk.log.open(1, "hello", "two\nlines")
    desk.print(b"one\n\ntwo\n")
    desk.consume()
    assert desk.shown() == (
        b"2025-06-15T15:06:40.000000Z 00O hello\n"
        b"2025-06-15T15:06:40.000000Z 00O two\n"
        b"2025-06-15T15:06:40.000000Z 00O lines\n"
        b"2025-06-15T15:06:40.000000Z 01O one\n"
        b"2025-06-15T15:06:40.000000Z 01O \n"
        b"2025-06-15T15:06:40.000000Z 01O two\n"
    )


def test_the_agents_lines_are_written_once_and_masked(desk: Desk) -> None:
    desk.log.open(1, "a secret")
    desk.log.open(1, "again")
    desk.crash()
    desk.log.open(1, "again")
    assert plain_lines(desk.shown(), b"00O") == [b"a [MASKED]"]
    desk.log.close(1, "bye")
    desk.log.close(1, "bye")
    desk.crash()
    assert desk.log.is_closed(1)
    desk.log.close(1, "bye")
    assert plain_lines(desk.shown(), b"00O") == [b"a [MASKED]", b"bye"]
    desk.log.keep([STEP])
    assert not desk.log.is_closed(1)


def test_lines_of_steps_at_the_same_time_are_whole_and_can_be_told_apart(desk: Desk) -> None:
    other_raw = desk.folder / "other"
    other_raw.write_bytes(b"one\ntw")
    desk.log.open(7, stream=2)
    other = Output(desk.log, 7, other_raw)
    desk.print(b"eins\nzw")
    desk.consume()
    other.take(other.read())
    desk.output.show_partial()
    other.show_partial()
    desk.crash()
    other = Output(desk.log, 7, other_raw)
    with other_raw.open("ab") as file:
        file.write(b"o\n")
    desk.print(b"ei\n")
    other.take(other.read())
    desk.consume()
    assert [line[28:] for line in desk.shown().split(b"\n")] == [
        b"01O eins", b"02O one", b"01O zw", b"02O tw", b"02O+o", b"01O+ei", b""
    ]  # fmt: skip


def test_a_mask_that_is_added_holds_for_what_is_kept_back(desk: Desk) -> None:
    desk.print(b"a hid")
    desk.consume()
    desk.log.secrets = SECRETS.with_values(["hidden", "sec"])
    desk.print(b"den and hidden and secret\n")
    desk.consume()
    assert plain_lines(desk.shown(), b"01O") == [b"a hidden and [MASKED] and [MASKED]"]


async def test_an_unfinished_line_waits_then_shows_then_continues(desk: Desk) -> None:
    desk.print(b"half")
    desk.consume()
    assert desk.shown() == b""
    assert desk.output.partial_due_at == desk.clock.now() + PARTIAL_SECONDS
    desk.output.show_partial()
    desk.print(b" and half\n")
    desk.consume()
    first, second, _ = desk.shown().split(b"\n")
    assert (first[28:], second[28:]) == (b"01O half", b"01O+ and half")


def test_what_could_become_a_secret_is_never_shown_early(desk: Desk) -> None:
    desk.print(b"a sec")
    desk.consume()
    desk.output.show_partial()
    assert desk.shown().endswith(b"01O a \n")
    desk.crash()
    desk.print(b"ret b\n")
    desk.consume()
    assert plain_lines(desk.shown(), b"01O") == [b"a [MASKED] b"]


def test_a_token_goes_on_behind_a_crash(desk: Desk) -> None:
    desk.print(b"tok-abc")
    desk.consume()
    desk.output.show_partial()
    desk.crash()
    desk.print(b"def ok\n")
    desk.consume()
    assert plain_lines(desk.shown(), b"01O") == [b"tok-[MASKED] ok"]


def test_a_long_line_is_written_in_parts(desk: Desk) -> None:
    text = bytes(range(11, 256)) * 2000
    desk.print(text + b"\n")
    desk.consume()
    assert plain_lines(desk.shown(), b"01O") == [text]
    assert max(map(len, desk.shown().split(b"\n"))) < 3 * LONGEST_LINE


def test_the_end_of_a_step_ends_its_line_and_resets(desk: Desk) -> None:
    desk.print(b"no newline, sec")
    desk.consume()
    desk.finish()
    desk.finish()
    assert plain_lines(desk.shown(), b"01O") == [b"no newline, sec"]
    assert plain_lines(desk.shown(), b"00O") == [b"end"]
    assert b"O+" not in desk.shown()


def test_the_limit_cuts_at_a_line_and_says_so(tmp_path: Path) -> None:
    desk = Desk(tmp_path, limit_bytes=200)
    for number in range(50):
        desk.print(b"line %d\n" % number)
        desk.consume()
    desk.crash()
    desk.print(b"more\n" * 1000)
    desk.consume()
    desk.finish()
    lines = plain_lines(desk.shown(), b"01O")
    assert lines == [b"line %d" % number for number in range(len(lines))]
    notice, end = plain_lines(desk.shown(), b"00O")
    assert b"limit of 200 bytes" in notice
    assert end == b"end"
    assert len(desk.shown()) < 500


def test_output_that_was_emptied_goes_on_from_its_begin(desk: Desk) -> None:
    desk.print(b"one\ntwo\n")
    desk.consume()
    desk.raw.write_bytes(b"x\n")
    desk.consume()
    desk.print(b"y\n")
    desk.crash()
    desk.consume()
    assert plain_lines(desk.shown(), b"01O") == [b"one", b"two", b"x", b"y"]


def test_space_of_consumed_output_is_given_back(desk: Desk) -> None:
    line = b"x" * 99 + b"\n"
    desk.print(line * 200_000)
    desk.consume()
    assert desk.raw.stat().st_size == 20_000_000
    assert desk.raw.stat().st_blocks * 512 < 10_000_000


marks = st.builds(Mark, length=st.integers(0, 2**63), checksum=st.integers(0, 2**32 - 1), full=st.booleans())
parts = st.builds(
    Part,
    serial=st.integers(0, 2**32 - 1),
    stream=st.integers(1, 255),
    raw_offset=st.integers(0, 2**63),
    covered=st.integers(0, 2**32 - 1),
    continued=st.booleans(),
    in_token=st.booleans(),
    closed=st.booleans(),
)


@given(marks, st.lists(parts, max_size=5, unique_by=lambda part: part.serial), st.binary(max_size=50))
def test_a_mark_survives_its_bytes(mark: Mark, parts: list[Part], rest_of_a_longer_one: bytes) -> None:
    found, again = Mark.unpack(mark.pack(parts) + rest_of_a_longer_one)
    assert (found, list(again.values())) == (mark, parts)


def test_the_mark_of_a_former_agent_says_how_long_the_log_is() -> None:
    former = struct.pack("<BBIQQQI", 1, 0, 5, 10, 1234, 0, 99)
    assert Mark.unpack(former) == (Mark(length=1234, checksum=99), {})


pieces = st.lists(
    st.sampled_from([b"secret", b"sec", b"ret", b"tok-", b"abc", b"\n", b" ", b"\0\xff", b"\r\n"]), max_size=25
)


@given(pieces, st.integers(0, 2**32))
def test_whatever_happens_the_lines_are_the_masked_lines(pieces: list[bytes], seed: int) -> None:
    rng = random.Random(seed)
    whole = b"".join(pieces)
    with tempfile.TemporaryDirectory() as folder:
        desk, shown = Desk(Path(folder)), b""
        for piece in pieces:
            desk.print(piece)
            for event in rng.choices(["consume", "show_partial", "crash"], k=rng.randrange(3)):
                {"consume": desk.consume, "show_partial": desk.output.show_partial, "crash": desk.crash}[event]()
            assert desk.shown().startswith(shown)
            shown = desk.shown()
        desk.consume()
        desk.finish()
        lines = plain_lines(desk.shown(), b"01O")
        assert desk.log.mark.checksum == crc32(desk.shown())
    assert b"\n".join(lines) == SECRETS.mask_bytes(whole).removesuffix(b"\n")


class Waiting:
    """A log of a job with a limit on what waits."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder, self.limit_bytes = folder, limit_bytes
        self.clock = VirtualClock()
        self.open()

    def open(self) -> None:
        self.log = LogFile(
            self.folder, secrets=SECRETS, limit_bytes=0, clock=self.clock, waiting_limit_bytes=self.limit_bytes
        )

    def write(self, size: int) -> None:
        line = "x" * 1023
        self.log.say(*[line] * (size // 1024))


@pytest.fixture
def waiting(tmp_path: Path) -> Waiting:
    return Waiting(tmp_path, limit_bytes=100_000)


async def test_a_log_that_nobody_fetches_holds_steps_back_until_somebody_does(waiting: Waiting) -> None:
    log = waiting.log
    waiting.write(90_000)
    assert not log.holds_back()
    waiting.write(20_000)
    assert log.holds_back()
    await waiting.clock.advance(90)
    log.confirm(log.mark.length - 99_000)
    assert log.holds_back()
    length = log.mark.length
    log.confirm(log.mark.length - 20_000)
    assert not log.holds_back()
    said = log.read(length, 1000)
    assert b"held back for 90 s: 97.66 KiB of this log waited" in said
    assert not log.holds_back()
    assert log.mark.length == length + len(said)


def test_confirming_less_changes_nothing(waiting: Waiting) -> None:
    waiting.write(50_000)
    waiting.log.confirm(40_000)
    waiting.log.confirm(30_000)
    assert waiting.log.confirmed == 40_000
    waiting.log.confirm(10**12)
    assert waiting.log.confirmed == waiting.log.mark.length


def test_there_is_no_limit_where_nobody_confirms(tmp_path: Path) -> None:
    waiting = Waiting(tmp_path, limit_bytes=-1)
    waiting.write(3_000_000)
    assert not waiting.log.holds_back()


def test_by_default_the_disk_decides(tmp_path: Path) -> None:
    assert 0 < default_waiting_bytes(tmp_path) <= 1024**3


def test_what_was_confirmed_is_given_back_to_the_disk(waiting: Waiting) -> None:
    log = waiting.log
    for _ in range(80):
        waiting.write(1024 * 1024)
    whole = log.read(0, 10**9)
    log.confirm(70 * 1024 * 1024)
    used = (waiting.folder / "log").stat().st_blocks * 512
    assert log.freed == 54 * 1024 * 1024
    assert used < 40 * 1024 * 1024
    assert log.read(log.freed, 10**9) == whole[log.freed :]
    waiting.open()
    assert waiting.log.freed == log.freed
    assert waiting.log.read(log.freed, 10**9) == whole[log.freed :]
    assert crc32(whole) == waiting.log.mark.checksum


def test_last_lines_that_cannot_be_written_are_shown_all_the_same(desk: Desk) -> None:
    desk.print(b"one\n")
    desk.consume()
    stored = desk.shown()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(stored), before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            desk.log.close(STEP, "end")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert desk.shown() == stored
    desk.log.leave_disk()
    desk.log.close(STEP, "end")
    desk.log.close(STEP, "end")
    desk.log.say("last")
    pieces, at = b"", 0
    while piece := desk.log.read(at, 7):
        pieces, at = pieces + piece, at + len(piece)
    assert pieces.startswith(stored)
    assert plain_lines(pieces, b"00O") == [b"end", b"last"]
    assert (len(pieces), crc32(pieces)) == (desk.log.mark.length, desk.log.mark.checksum)
    assert (desk.folder / "log").read_bytes() == stored


@pytest.mark.parametrize("number", [0, 1], ids=["log", "mark"])
@pytest.mark.parametrize("limit_bytes", [0, 80], ids=["no limit", "limit reached"])
def test_output_that_cannot_be_written_is_written_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, limit_bytes: int
) -> None:
    (tmp_path / "failing").mkdir()
    (tmp_path / "plain").mkdir()
    desk, plain = Desk(tmp_path / "failing", limit_bytes), Desk(tmp_path / "plain", limit_bytes)
    writes: list[int] = []

    def fail_once(file: int, data: bytes, offset: int) -> None:
        writes.append(file)
        if len(writes) == number + 1:
            os.pwrite(file, data[:3], offset)
            raise OSError(errno.ENOSPC, "full")
        os.pwrite(file, data, offset)

    for text in (b"one\ntwo\nthr", b"ee\nfour secr", b"et"):
        plain.print(text)
        plain.consume()
        desk.print(text)
        writes.clear()
        with monkeypatch.context() as patch:
            patch.setattr("remuda.steps.job_files.log.write_all", fail_once)
            try:
                desk.consume()
            except OSError:
                if not limit_bytes:
                    desk.log.say("between")  # of a step that runs at the same time
                desk.output.write_rest()
        desk.consume()
    plain.finish()
    writes.clear()
    with monkeypatch.context() as patch:
        patch.setattr("remuda.steps.job_files.log.write_all", fail_once)
        with pytest.raises(OSError, match="full"):
            desk.finish()
        desk.finish()
    assert plain_lines(desk.shown(), b"01O") == plain_lines(plain.shown(), b"01O")
    desk.crash()
    assert plain_lines(desk.shown(), b"01O") == plain_lines(plain.shown(), b"01O")


def test_first_lines_that_cannot_be_written_are_written_by_the_next_call(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_file: int, _data: bytes, _offset: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr("remuda.steps.job_files.log.write_all", fail)
        with pytest.raises(OSError, match="full"):
            desk.log.open(7, "begin")
    desk.log.open(7, "begin")
    desk.log.open(7, "begin")
    assert plain_lines(desk.shown(), b"00O") == [b"begin"]
