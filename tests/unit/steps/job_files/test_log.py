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


class StepLog:
    """A log with the raw output file of one step. `crash` leaves the files as after kill -9 and opens them again."""

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

    def read_all(self) -> bytes:
        return self.log.read(0, 10**9)


@pytest.fixture
def step_log(tmp_path: Path) -> StepLog:
    return StepLog(tmp_path)


def test_lines_have_a_header_of_32_bytes(step_log: StepLog) -> None:
    step_log.log.open(1, "hello", "two\nlines")
    step_log.print(b"one\n\ntwo\n")
    step_log.consume()
    assert step_log.read_all() == (
        b"2025-06-15T15:06:40.000000Z 00O hello\n"
        b"2025-06-15T15:06:40.000000Z 00O two\n"
        b"2025-06-15T15:06:40.000000Z 00O lines\n"
        b"2025-06-15T15:06:40.000000Z 01O one\n"
        b"2025-06-15T15:06:40.000000Z 01O \n"
        b"2025-06-15T15:06:40.000000Z 01O two\n"
    )


def test_lines_of_the_agent_are_written_once_and_masked(step_log: StepLog) -> None:
    step_log.log.open(1, "a secret")
    step_log.log.open(1, "again")
    step_log.crash()
    step_log.log.open(1, "again")
    assert plain_lines(step_log.read_all(), b"00O") == [b"a [MASKED]"]
    step_log.log.close(1, "bye")
    step_log.log.close(1, "bye")
    step_log.crash()
    assert step_log.log.is_closed(1)
    step_log.log.close(1, "bye")
    assert plain_lines(step_log.read_all(), b"00O") == [b"a [MASKED]", b"bye"]
    step_log.log.keep([STEP])
    assert not step_log.log.is_closed(1)


def test_lines_of_parallel_steps_are_complete_and_have_a_stream_number(step_log: StepLog) -> None:
    other_raw = step_log.folder / "other"
    other_raw.write_bytes(b"one\ntw")
    step_log.log.open(7, stream=2)
    other = Output(step_log.log, 7, other_raw)
    step_log.print(b"eins\nzw")
    step_log.consume()
    other.take(other.read())
    step_log.output.show_partial()
    other.show_partial()
    step_log.crash()
    other = Output(step_log.log, 7, other_raw)
    with other_raw.open("ab") as file:
        file.write(b"o\n")
    step_log.print(b"ei\n")
    other.take(other.read())
    step_log.consume()
    assert [line[28:] for line in step_log.read_all().split(b"\n")] == [
        b"01O eins", b"02O one", b"01O zw", b"02O tw", b"02O+o", b"01O+ei", b""
    ]  # fmt: skip


def test_a_new_mask_applies_to_pending_output(step_log: StepLog) -> None:
    step_log.print(b"a hid")
    step_log.consume()
    step_log.log.secrets = SECRETS.with_values(["hidden", "sec"])
    step_log.print(b"den and hidden and secret\n")
    step_log.consume()
    assert plain_lines(step_log.read_all(), b"01O") == [b"a hidden and [MASKED] and [MASKED]"]


async def test_an_unfinished_line_is_written_after_a_delay_and_continued(step_log: StepLog) -> None:
    step_log.print(b"half")
    step_log.consume()
    assert step_log.read_all() == b""
    assert step_log.output.partial_due_at == step_log.clock.now() + PARTIAL_SECONDS
    step_log.output.show_partial()
    step_log.print(b" and half\n")
    step_log.consume()
    first, second, _ = step_log.read_all().split(b"\n")
    assert (first[28:], second[28:]) == (b"01O half", b"01O+ and half")


def test_a_possible_beginning_of_a_secret_is_not_written_early(step_log: StepLog) -> None:
    step_log.print(b"a sec")
    step_log.consume()
    step_log.output.show_partial()
    assert step_log.read_all().endswith(b"01O a \n")
    step_log.crash()
    step_log.print(b"ret b\n")
    step_log.consume()
    assert plain_lines(step_log.read_all(), b"01O") == [b"a [MASKED] b"]


def test_a_token_is_masked_across_a_crash(step_log: StepLog) -> None:
    step_log.print(b"tok-abc")
    step_log.consume()
    step_log.output.show_partial()
    step_log.crash()
    step_log.print(b"def ok\n")
    step_log.consume()
    assert plain_lines(step_log.read_all(), b"01O") == [b"tok-[MASKED] ok"]


def test_a_long_line_is_written_in_parts(step_log: StepLog) -> None:
    text = bytes(range(11, 256)) * 2000
    step_log.print(text + b"\n")
    step_log.consume()
    assert plain_lines(step_log.read_all(), b"01O") == [text]
    assert max(map(len, step_log.read_all().split(b"\n"))) < 3 * LONGEST_LINE


def test_the_end_of_a_step_ends_its_line_once(step_log: StepLog) -> None:
    step_log.print(b"no newline, sec")
    step_log.consume()
    step_log.finish()
    step_log.finish()
    assert plain_lines(step_log.read_all(), b"01O") == [b"no newline, sec"]
    assert plain_lines(step_log.read_all(), b"00O") == [b"end"]
    assert b"O+" not in step_log.read_all()


def test_the_limit_counts_the_bytes_of_the_job_and_a_notice_is_written(tmp_path: Path) -> None:
    step_log = StepLog(tmp_path, limit_bytes=200)
    for number in range(50):
        step_log.print(b"line %d\n" % number)
        step_log.consume()
        if number == 5:
            step_log.crash()
    step_log.crash()
    step_log.print(b"more\n" * 1000)
    step_log.consume()
    step_log.finish()
    output = b"".join(b"line %d\n" % number for number in range(50))
    assert plain_lines(step_log.read_all(), b"01O") == output[:200].splitlines()
    notice, end = plain_lines(step_log.read_all(), b"00O")
    assert b"limit of 200 bytes" in notice
    assert end == b"end"


@pytest.mark.parametrize("piece", [b"x" * 9 + b"\n", b"x" * 10])
@pytest.mark.parametrize(("more", "is_cut"), [(b"", False), (b"y", True)])
def test_exactly_as_many_bytes_as_the_limit_are_complete(
    tmp_path: Path, piece: bytes, more: bytes, is_cut: bool
) -> None:
    step_log = StepLog(tmp_path, limit_bytes=200)
    for _ in range(20):
        step_log.print(piece)
        step_log.consume()
        step_log.output.show_partial()
    step_log.print(more)
    step_log.consume()
    step_log.finish()
    text = step_log.read_all()
    assert (b"has reached its limit" in text) == is_cut
    assert text.count(b"x") == piece.count(b"x") * 20
    assert b"y" not in text.split(b" 00O ")[0]


def test_the_limit_cuts_no_character_in_two(tmp_path: Path) -> None:
    step_log = StepLog(tmp_path, limit_bytes=5)
    step_log.print("ääää\n".encode())
    step_log.consume()
    assert plain_lines(step_log.read_all(), b"01O") == ["ää".encode()]


def test_truncated_output_is_read_from_its_beginning(step_log: StepLog) -> None:
    step_log.print(b"one\ntwo\n")
    step_log.consume()
    step_log.raw.write_bytes(b"x\n")
    step_log.consume()
    step_log.print(b"y\n")
    step_log.crash()
    step_log.consume()
    assert plain_lines(step_log.read_all(), b"01O") == [b"one", b"two", b"x", b"y"]


def test_disk_space_of_consumed_output_is_freed(step_log: StepLog) -> None:
    line = b"x" * 99 + b"\n"
    step_log.print(line * 200_000)
    step_log.consume()
    assert step_log.raw.stat().st_size == 20_000_000
    assert step_log.raw.stat().st_blocks * 512 < 10_000_000


marks = st.builds(
    Mark,
    length=st.integers(0, 2**63),
    checksum=st.integers(0, 2**32 - 1),
    full=st.booleans(),
    printed=st.integers(0, 2**63),
)
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
def test_a_packed_mark_can_be_unpacked(mark: Mark, parts: list[Part], trailing_bytes: bytes) -> None:
    unpacked_mark, unpacked_parts = Mark.unpack(mark.pack(parts) + trailing_bytes)
    assert (unpacked_mark, list(unpacked_parts.values())) == (mark, parts)


def test_the_mark_of_an_older_agent_has_the_length_of_the_log() -> None:
    former = struct.pack("<BBIQQQI", 1, 0, 5, 10, 1234, 0, 99)
    assert Mark.unpack(former) == (Mark(length=1234, checksum=99, printed=1234), {})


def test_a_mark_without_a_count_of_the_jobs_bytes_counts_the_whole_log() -> None:
    part = Part(serial=3, stream=1, raw_offset=7)
    former = struct.pack("<BBQI", 2, 1, 1234, 99) + part.pack() + bytes(18)
    assert Mark.unpack(former) == (Mark(length=1234, checksum=99, full=True, printed=1234), {3: part})


pieces = st.lists(
    st.sampled_from([b"secret", b"sec", b"ret", b"tok-", b"abc", b"\n", b" ", b"\0\xff", b"\r\n"]), max_size=25
)


@given(pieces, st.integers(0, 2**32))
def test_the_lines_are_masked_whatever_is_interrupted(pieces: list[bytes], seed: int) -> None:
    rng = random.Random(seed)
    whole = b"".join(pieces)
    with tempfile.TemporaryDirectory() as folder:
        step_log, previous = StepLog(Path(folder)), b""
        for piece in pieces:
            step_log.print(piece)
            for event in rng.choices(["consume", "show_partial", "crash"], k=rng.randrange(3)):
                match event:
                    case "consume":
                        step_log.consume()
                    case "show_partial":
                        step_log.output.show_partial()
                    case "crash":
                        step_log.crash()
            assert step_log.read_all().startswith(previous)
            previous = step_log.read_all()
        step_log.consume()
        step_log.finish()
        lines = plain_lines(step_log.read_all(), b"01O")
        assert step_log.log.mark.checksum == crc32(step_log.read_all())
    assert b"\n".join(lines) == SECRETS.mask_bytes(whole).removesuffix(b"\n")


class LimitedLog:
    """A log with a limit of unconfirmed bytes."""

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


def fail_to_write(_file: int, _data: bytes, _offset: int) -> None:
    raise OSError(errno.ENOSPC, "full")


@pytest.fixture
def limited_log(tmp_path: Path) -> LimitedLog:
    return LimitedLog(tmp_path, limit_bytes=100_000)


async def test_a_log_that_is_not_fetched_pauses_the_steps(limited_log: LimitedLog) -> None:
    log = limited_log.log
    limited_log.write(90_000)
    assert not log.holds_back()
    limited_log.write(20_000)
    assert log.holds_back()
    await limited_log.clock.advance(90)
    log.confirm(log.mark.length - 99_000)
    assert log.holds_back()
    length = log.mark.length
    log.confirm(log.mark.length - 20_000)
    assert not log.holds_back()
    warning = log.read(length, 1000)
    assert b"held back for 90 s: 97.66 KiB of this log waited" in warning
    assert not log.holds_back()
    assert log.mark.length == length + len(warning)


def test_a_pause_ends_without_a_written_warning(limited_log: LimitedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = limited_log.log
    limited_log.write(110_000)
    assert log.holds_back()
    length = log.mark.length
    log.confirm(length)
    with monkeypatch.context() as patch:
        patch.setattr("remuda.steps.job_files.log.write_all", fail_to_write)
        assert not log.holds_back()
    log.say("after the pause")
    assert plain_lines(log.read(length, 1000), b"00O") == [b"after the pause"]


def test_confirming_a_smaller_length_changes_nothing(limited_log: LimitedLog) -> None:
    limited_log.write(50_000)
    limited_log.log.confirm(40_000)
    limited_log.log.confirm(30_000)
    assert limited_log.log.confirmed == 40_000
    limited_log.log.confirm(10**12)
    assert limited_log.log.confirmed == limited_log.log.mark.length


def test_without_a_limit_steps_are_not_paused(tmp_path: Path) -> None:
    limited_log = LimitedLog(tmp_path, limit_bytes=-1)
    limited_log.write(3_000_000)
    assert not limited_log.log.holds_back()


def test_the_default_limit_depends_on_the_disk(tmp_path: Path) -> None:
    assert 0 < default_waiting_bytes(tmp_path) <= 1024**3


def test_disk_space_of_confirmed_bytes_is_freed(limited_log: LimitedLog) -> None:
    log = limited_log.log
    for _ in range(80):
        limited_log.write(1024 * 1024)
    whole = log.read(0, 10**9)
    log.confirm(70 * 1024 * 1024)
    used = (limited_log.folder / "log").stat().st_blocks * 512
    assert log.freed == 54 * 1024 * 1024
    assert used < 40 * 1024 * 1024
    assert log.read(log.freed, 10**9) == whole[log.freed :]
    limited_log.open()
    assert limited_log.log.freed == log.freed
    assert limited_log.log.read(log.freed, 10**9) == whole[log.freed :]
    assert crc32(whole) == limited_log.log.mark.checksum


def test_last_lines_that_cannot_be_written_can_still_be_read(step_log: StepLog) -> None:
    step_log.print(b"one\n")
    step_log.consume()
    stored = step_log.read_all()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(stored), before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            step_log.log.close(STEP, "end")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert step_log.read_all() == stored
    step_log.log.leave_disk()
    step_log.log.close(STEP, "end")
    step_log.log.close(STEP, "end")
    step_log.log.say("last")
    output, offset = b"", 0
    while piece := step_log.log.read(offset, 7):
        output, offset = output + piece, offset + len(piece)
    assert output.startswith(stored)
    assert plain_lines(output, b"00O") == [b"end", b"last"]
    assert (len(output), crc32(output)) == (step_log.log.mark.length, step_log.log.mark.checksum)
    assert (step_log.folder / "log").read_bytes() == stored


@pytest.mark.parametrize("number", [0, 1], ids=["log", "mark"])
@pytest.mark.parametrize("limit_bytes", [0, 80], ids=["no limit", "limit reached"])
def test_next_call_writes_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, limit_bytes: int) -> None:
    (tmp_path / "failing").mkdir()
    (tmp_path / "plain").mkdir()
    step_log, plain = StepLog(tmp_path / "failing", limit_bytes), StepLog(tmp_path / "plain", limit_bytes)
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
        step_log.print(text)
        writes.clear()
        with monkeypatch.context() as patch:
            patch.setattr("remuda.steps.job_files.log.write_all", fail_once)
            try:
                step_log.consume()
            except OSError:
                if not limit_bytes:
                    step_log.log.say("between")  # a message about a step that runs at the same time
                step_log.output.write_rest()
        step_log.consume()
    plain.finish()
    writes.clear()
    with monkeypatch.context() as patch:
        patch.setattr("remuda.steps.job_files.log.write_all", fail_once)
        with pytest.raises(OSError, match="full"):
            step_log.finish()
        step_log.finish()
    assert plain_lines(step_log.read_all(), b"01O") == plain_lines(plain.read_all(), b"01O")
    step_log.crash()
    assert plain_lines(step_log.read_all(), b"01O") == plain_lines(plain.read_all(), b"01O")


def test_next_call_writes_first_lines_that_were_not_written(step_log: StepLog, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("remuda.steps.job_files.log.write_all", fail_to_write)
        with pytest.raises(OSError, match="full"):
            step_log.log.open(7, "begin")
    step_log.log.open(7, "begin")
    step_log.log.open(7, "begin")
    assert plain_lines(step_log.read_all(), b"00O") == [b"begin"]
