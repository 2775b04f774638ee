"""The job's log: masked lines with timestamps in one file. Agent, manager and server use the same bytes and offsets.

    2026-11-15T09:40:00.123456Z 01O text        (01: stream, 00: the agent; `+` for the blank: continues a line)

Steps that run at the same time have different stream numbers. Log bytes are written first. Then the *mark* is written
to a second file, in one write: how long the log is and, for every open step, how far its raw output file is read and
the masker's state. Only bytes before the mark are sent to clients. After a crash a new agent cuts the log at the mark
and reads the raw files from the recorded offsets. So bytes that a client has seen never change, and a step's first and
last lines appear once.

When a client has confirmed that it has stored bytes, their disk space is freed by punching holes into the file. When
unconfirmed bytes reach a limit, steps are paused until more is confirmed. An unfinished line is written after a short
delay."""

import os
import shutil
import struct
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from remuda.lib.clock import Clock, stamp
from remuda.lib.files import write_all
from remuda.lib.killpoints import reach
from remuda.lib.masking import Masker, Secrets
from remuda.steps.job_files.open_files import OpenFile
from remuda.steps.process.kernel import punch_hole
from remuda.steps.process.usage import format_bytes

LONGEST_LINE = 64 * 1024
"""A longer unfinished line is written in parts."""
PARTIAL_SECONDS = 0.5
"""How long an unfinished line waits for its end."""
READ_BYTES = 64 * 1024
HOLE_BYTES = 16 * 1024 * 1024
"""Consumed raw output and confirmed log bytes are freed on the disk in pieces of at least this size."""
MOST_WAITING_BYTES = 1024**3
"""Limit of unconfirmed bytes for a job without a limit of its own; at most a tenth of the free disk space."""
JOB = 2**32 - 1
"""Serial number that stands for the job itself: its first and its last lines."""

_CONTINUED, _IN_TOKEN, _CLOSED = 1, 2, 4
_FULL = 1
_HEAD = struct.Struct("<BBQIQ")
_UNCOUNTED_HEAD = struct.Struct("<BBQI")
_PART = struct.Struct("<IBBQI")
_FORMER = struct.Struct("<BBIQQQI")
_VERSION, _UNCOUNTED_VERSION, _FORMER_VERSION = 3, 2, 1


@dataclass(slots=True, kw_only=True)
class Part:
    """How much of one step's raw output is in the log, safe from a crash, and the state of its masker there."""

    serial: int
    stream: int
    raw_offset: int = 0
    covered: int = 0
    continued: bool = False
    in_token: bool = False
    closed: bool = False
    """Its last lines are written."""

    def pack(self) -> bytes:
        flags = self.continued * _CONTINUED | self.in_token * _IN_TOKEN | self.closed * _CLOSED
        return _PART.pack(self.serial, self.stream, flags, self.raw_offset, self.covered)


@dataclass(slots=True, kw_only=True)
class Mark:
    """How many bytes of the log survive a crash, with their checksum: a new agent cuts the log file at this length."""

    length: int = 0
    checksum: int = 0
    full: bool = False
    """The limit is reached: further output of steps is dropped."""
    printed: int = 0
    """How many bytes of the log are output of steps, without time stamps. Of an older agent's log: all bytes."""

    def pack(self, parts: Iterable[Part]) -> bytes:
        head = _HEAD.pack(_VERSION, self.full * _FULL, self.length, self.checksum, self.printed)
        return head + b"".join([part.pack() for part in parts]) + b"\0" * _PART.size

    @classmethod
    def unpack(cls, data: bytes) -> tuple["Mark", dict[int, Part]]:
        """Parse the mark file, which may end with bytes of an older, longer mark. Returns the mark and the state of
        each step by its serial number. Raises struct.error or ValueError if the file is damaged."""
        if data[0] not in (_VERSION, _UNCOUNTED_VERSION, _FORMER_VERSION):
            raise ValueError("no version of a mark")
        if data[0] == _FORMER_VERSION:
            _, _, _, _, length, _, checksum = _FORMER.unpack(data)
            return cls(length=length, checksum=checksum, printed=length), {}
        head = _HEAD if data[0] == _VERSION else _UNCOUNTED_HEAD
        _, full, length, checksum, *counted = head.unpack_from(data)
        parts: dict[int, Part] = {}
        for offset in range(head.size, len(data) - _PART.size + 1, _PART.size):
            serial, stream, flags, raw_offset, covered = _PART.unpack_from(data, offset)
            if stream == 0:
                break
            parts[serial] = Part(
                serial=serial,
                stream=stream,
                raw_offset=raw_offset,
                covered=covered,
                continued=bool(flags & _CONTINUED),
                in_token=bool(flags & _IN_TOKEN),
                closed=bool(flags & _CLOSED),
            )
        else:
            raise ValueError("the mark has no end")
        return cls(length=length, checksum=checksum, full=bool(full), printed=counted[0] if counted else length), parts


class LogFile:
    def __init__(
        self, folder: Path, *, secrets: Secrets, limit_bytes: int, clock: Clock, waiting_limit_bytes: int = -1
    ) -> None:
        """Create the log of a job, or restore it after a restart. `limit_bytes`: how much output of steps is kept (0:
        no limit). `waiting_limit_bytes`: steps are paused when this many bytes are not confirmed by a client; 0: a
        default, negative: no limit."""
        self.secrets = secrets
        """The texts to mask. May be replaced by a larger set."""
        self.clock = clock
        self._log = OpenFile(f"{folder}/log")
        self._mark_file = OpenFile(f"{folder}/mark")
        self._limit_bytes = limit_bytes
        self.mark = Mark()
        self._parts: dict[int, Part] = {}
        self.damage = ""
        """What is wrong with the files; empty if nothing is. Undamaged bytes are shown, at their old offsets."""
        self.freed = self.confirmed = self._read_files(folder)
        """First byte that still exists, and first byte that is not confirmed."""
        self._most_waiting = waiting_limit_bytes or default_waiting_bytes(folder)
        self._held_since: float | None = None
        self._tail: bytes | None = None
        """Bytes after those in the file, kept in memory since `leave_disk`; None: all bytes are written to the file."""

    def _read_files(self, folder: Path) -> int:
        """Cut the log at its mark (its complete length). Returns the offset of the first byte that was not freed."""
        for name in ("mark", "log"):
            if (folder / name).is_dir():
                (folder / name).rename(folder / f"{name}.damaged")
                self.damage = f"{name} is a folder"
        log, mark = folder / "log", folder / "mark"
        try:
            if mark.exists() and (data := mark.read_bytes()):
                self.mark, self._parts = Mark.unpack(data)
        except (struct.error, ValueError):
            self.damage = "mark cannot be read"
        if self.damage.startswith("mark") and log.exists():
            shown = log.read_bytes()
            shown = shown[: shown.rfind(b"\n") + 1]
            self.mark = Mark(length=len(shown), checksum=crc32(shown))
        lost = self.mark.length - (log.stat().st_size if log.exists() else 0)
        if lost > 0:
            self.damage = self.damage or f"log lacks its last {lost} bytes"
            log.touch(mode=0o600)
        if log.exists():
            os.truncate(log, self.mark.length)
        return self._first_kept() if lost <= 0 else self.mark.length

    def read(self, offset: int, limit: int) -> bytes:
        size = min(limit, self.mark.length - offset)
        if size <= 0:
            return b""
        tail = self._tail or b""
        in_file = self.mark.length - len(tail) - offset
        if in_file <= 0:
            return tail[-in_file : size - in_file]
        return os.pread(self._log.descriptor(), min(size, in_file), offset)

    def leave_disk(self) -> None:
        self._tail = self._tail or b""

    def confirm(self, offset: int) -> None:
        """Record that a client has stored all bytes before `offset`, so that their disk space can be freed."""
        self.confirmed = max(self.confirmed, min(offset, self.mark.length))
        if self.confirmed - self.freed >= 2 * HOLE_BYTES:
            # Keep the last confirmed bytes: a client that lost its position is not far behind.
            end = self.confirmed - HOLE_BYTES
            punch_hole(self._log.descriptor(), self.freed, end - self.freed)
            self.freed = end

    def holds_back(self) -> bool:
        """True if steps must pause for unconfirmed log bytes. Writes a warning into the log when the pause ends."""
        waiting = self.mark.length - self.confirmed
        if self._held_since is None:
            if 0 < self._most_waiting <= waiting and not self.mark.full:
                self._held_since = self.clock.monotonic()
        elif waiting <= self._most_waiting * 3 // 4:
            seconds = self.clock.monotonic() - self._held_since
            self._held_since = None
            with suppress(OSError):  # a full disk: the next write of output finds that out
                self.say(
                    f"WARNING: output was held back for {seconds:.0f} s: {format_bytes(self._most_waiting)} of this "
                    "log waited on the machine's disk, and nobody fetched it"
                )
        return self._held_since is not None

    def shut(self) -> None:
        self._log.close()
        self._mark_file.close()

    def open(self, serial: int, *lines: str, stream: int = 1) -> None:
        """Write the first lines of the attempt `serial`, unless they are in the log. `stream`: number on its lines."""
        if serial not in self._parts:
            self._parts[serial] = Part(serial=serial, stream=stream)
            try:
                if lines:
                    self._write(self._agent_lines(lines))
            except OSError:
                del self._parts[serial]
                raise

    def say(self, *lines: str) -> None:
        """Write lines of the agent itself. If the agent is killed meanwhile, the next one may write them again."""
        self._write(self._agent_lines(lines))

    def part(self, serial: int) -> Part:
        return self._parts[serial]

    def is_closed(self, serial: int) -> bool:
        return serial in self._parts and self._parts[serial].closed

    def close(self, serial: int, *lines: str) -> None:
        """Write the last lines of a step's attempt `serial`, unless the log has them. Call it after `Output.finish`."""
        part = self._parts.setdefault(serial, Part(serial=serial, stream=1))
        if not part.closed:
            part.closed = True
            try:
                self._write(self._agent_lines(lines))
            except OSError:
                part.closed = False
                raise

    def forget(self, serial: int) -> None:
        """Drop what is recorded about the output of a step's attempt whose end is stored in the journal."""
        self._parts.pop(serial, None)

    def keep(self, serials: Collection[int]) -> None:
        """Drop what is recorded about the output of all attempts except `serials`, and except the job itself."""
        self._parts = {serial: part for serial, part in self._parts.items() if serial in serials or serial == JOB}

    def write_output(self, part: Part, text: bytes, after: Part) -> None:
        """Write lines of a step's output, with time stamps; beyond the log's limit they are dropped. `part`, `after`:
        how far its output is in the log before and after. After an OSError nothing has changed: the call can be
        repeated."""
        if self.mark.full:
            return
        # The line feed after an unfinished line is not the job's.
        printed, room, notice = len(text) - after.continued, self._limit_bytes - self.mark.printed, b""
        if self._limit_bytes and printed > room:
            text = _cut(text, max(room, 0))
            notice = self._agent_lines(
                (f"The log has reached its limit of {self._limit_bytes} bytes: the job goes on, its output is dropped",)
            )
            self.mark.full = True
        self._parts[part.serial] = after
        try:
            self._write(self._step_lines(part, text) + notice, printed=printed)
        except OSError:
            self._parts[part.serial] = part
            self.mark.full = False
            raise

    def _step_lines(self, part: Part, text: bytes) -> bytes:
        if not text:
            return b""
        head = b"%s %02xO" % (stamp(self.clock.now()).encode(), part.stream)
        body = text[:-1].replace(b"\n", b"\n" + head + b" ")
        return head + (b"+" if part.continued else b" ") + body + b"\n"

    def _first_kept(self) -> int:
        if not self.mark.length:
            return 0
        try:
            return min(os.lseek(self._log.descriptor(), 0, os.SEEK_DATA), self.mark.length)
        except OSError:  # only a hole, or a file system without SEEK_DATA
            return 0

    def _agent_lines(self, lines: Iterable[str]) -> bytes:
        head = stamp(self.clock.now()).encode() + b" 00O "
        texts = (self.secrets.mask(line).encode("utf-8", "surrogateescape") for line in lines)
        return b"".join(head + part + b"\n" for text in texts for part in text.split(b"\n"))

    def _write(self, data: bytes, *, printed: int = 0) -> None:
        # `self.mark` changes last, so that only bytes that are written are sent to clients.
        mark = Mark(
            length=self.mark.length + len(data),
            checksum=crc32(data, self.mark.checksum),
            full=self.mark.full,
            printed=self.mark.printed + printed,
        )
        if self._tail is not None:
            self._tail += data
            self.mark = mark
            return
        if data:
            write_all(self._log.descriptor(), data, self.mark.length)
        reach("agent.log_appended")
        write_all(self._mark_file.descriptor(), mark.pack(self._parts.values()), 0)
        reach("agent.log_recorded")
        self.mark = mark


class Output:
    """Moves the raw output of one running step (its file before masking) into the log. If a method raises OSError
    because the log cannot be written, it can be called again: lines that were not written are kept."""

    def __init__(self, log: LogFile, serial: int, raw: Path | str) -> None:
        self._log = log
        self._serial = serial
        self._raw = str(raw)
        part = log.part(serial)
        self._pending = b""
        self._pending_since = 0.0
        self._unwritten: tuple[bytes, Part] | None = None
        """Lines that could not be written to the log, and the state to record with them."""
        self._consumed = self._freed = part.raw_offset
        self._masker = Masker(log.secrets, covered=part.covered, in_token=part.in_token)

    @property
    def is_full(self) -> bool:
        return self._log.mark.full

    def read(self) -> bytes:
        """Read the next bytes of the raw output, for `take`. Empty if there is nothing new, or the log is full."""
        try:
            fd = os.open(self._raw, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:  # it has not printed anything
            return b""
        try:
            if self._log.mark.full:
                size = os.fstat(fd).st_size - self._consumed
                self._free(fd, self._consumed)
                # Drop it without reading.
                self._consumed += size
                return b""
            self._free(fd, self._log.part(self._serial).raw_offset)
            data = os.pread(fd, READ_BYTES, self._consumed)
            if not data and os.fstat(fd).st_size < self._consumed:
                # A program has truncated the file by opening its own output; unread bytes are lost.
                self._consumed = self._freed = 0
                data = os.pread(fd, READ_BYTES, 0)
            return data
        finally:
            os.close(fd)

    def take(self, data: bytes) -> None:
        """Mask these bytes and write the complete lines to the log. An unfinished last line waits for its end."""
        self.write_rest()
        self._masker.use(self._log.secrets)
        masked = self._masker.feed(data)
        self._consumed += len(data)
        end = masked.rfind(b"\n") + 1
        whole = b""
        if end:
            whole, self._pending = self._pending + masked[:end], b""
            masked = masked[end:]
        if masked:
            if not self._pending:
                self._pending_since = self._log.clock.now()
            self._pending += masked
        if whole:
            # No mask spans a line feed, so after the last one the masker starts afresh.
            behind = len(data) - (data.rfind(b"\n") + 1)
            self._write(whole, raw_offset=self._consumed - behind, covered=0, in_token=False, continued=False)
        if len(self._pending) > LONGEST_LINE:
            self.show_partial()

    @property
    def partial_due_at(self) -> float | None:
        """When the unfinished line must be written without waiting for its end; None if there is no unfinished line."""
        return self._pending_since + PARTIAL_SECONDS if self._pending else None

    def show_partial(self) -> None:
        """Write the unfinished last line now. Its rest is written later, marked as a continuation."""
        self.write_rest()
        if self._pending:
            data, self._pending = self._pending + b"\n", b""
            self._write(
                data,
                raw_offset=self._consumed - self._masker.pending,
                covered=self._masker.covered,
                in_token=self._masker.in_token,
                continued=True,
            )

    def finish(self) -> None:
        self._pending += self._masker.finish()
        self.show_partial()

    def write_rest(self) -> bool:
        """Write the lines that an earlier call could not write (OSError). Returns False if there are none."""
        if self._unwritten is None:
            return False
        self._log.write_output(self._log.part(self._serial), *self._unwritten)
        self._unwritten = None
        return True

    def _free(self, fd: int, safe: int) -> None:
        if safe - self._freed >= HOLE_BYTES:
            punch_hole(fd, self._freed, safe - self._freed)
            self._freed = safe

    def _write(self, text: bytes, *, raw_offset: int, covered: int, in_token: bool, continued: bool) -> None:
        part = self._log.part(self._serial)
        after = Part(
            serial=part.serial,
            stream=part.stream,
            raw_offset=raw_offset,
            covered=covered,
            in_token=in_token,
            continued=continued,
        )
        self._unwritten = (text, after)
        self.write_rest()


def _cut(text: bytes, most: int) -> bytes:
    """Return the first `most` bytes without a part of a character at the end, as whole lines."""
    kept = text[:most]
    if most < len(text) and text[most] & 0xC0 == 0x80:
        start = next((at for at in range(most - 1, max(most - 4, -1), -1) if text[at] & 0xC0 != 0x80), most)
        kept = text[:start] if start < most and text[start] >= 0xC0 else kept
    return kept if not kept or kept.endswith(b"\n") else kept + b"\n"


def default_waiting_bytes(folder: Path) -> int:
    return min(MOST_WAITING_BYTES, shutil.disk_usage(folder).free // 10)
