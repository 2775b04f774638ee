"""The job's log: masked, time-stamped lines in one file. Its bytes and offsets are the same for agent, manager, cell.

Raw output of the running step goes in, whole physical lines come out:
    2026-11-15T09:40:00.123456Z 01O text        (00: the agent's own lines, `+` for the blank: continues the line)

Log bytes are written first, then the *mark*, in one write: how long the log is, how far the raw file is consumed,
the masker's state, which of the agent's own lines stand in it. Only bytes before the mark are ever shown, and a new
agent cuts the file there and reads the raw file from the recorded offset. So bytes that were shown never change.

An unfinished line is kept back for a moment; that needs no state of its own, because the recorded offset then
still points to the begin of that line. Which lines the agent adds is decided in `runner`.
"""

import os
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from remuda.lib.clock import Clock, stamp
from remuda.lib.killpoints import reach
from remuda.lib.masking import Masker, Secrets
from remuda.steps.kernel import punch_hole

LONGEST_LINE = 64 * 1024
"""An unfinished line above this is written in parts."""
PARTIAL_SECONDS = 0.5
"""An unfinished line waits this long for its end."""
READ_BYTES = 64 * 1024
HOLE_BYTES = 16 * 1024 * 1024
"""Space of consumed raw output is given back in pieces of this size."""

AGENT, STEP = b"00O", b"01O"
_CONTINUED, _IN_TOKEN, _FULL = 1, 2, 4
_LAYOUT = struct.Struct("<BBIQQQI")
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What the log holds for certain."""

    stage: int = 0
    """Counts the agent's own lines, so that a new agent does not write them twice."""
    raw_offset: int = 0
    length: int = 0
    checksum: int = 0
    covered: int = 0
    continued: bool = False
    in_token: bool = False
    full: bool = False
    """The limit is reached: further output of steps is dropped."""

    def pack(self) -> bytes:
        flags = self.continued * _CONTINUED | self.in_token * _IN_TOKEN | self.full * _FULL
        return _LAYOUT.pack(_VERSION, flags, self.stage, self.raw_offset, self.length, self.covered, self.checksum)

    @classmethod
    def unpack(cls, data: bytes) -> "Mark":
        _, flags, stage, raw_offset, length, covered, checksum = _LAYOUT.unpack(data)
        return cls(
            stage=stage,
            raw_offset=raw_offset,
            length=length,
            checksum=checksum,
            covered=covered,
            continued=bool(flags & _CONTINUED),
            in_token=bool(flags & _IN_TOKEN),
            full=bool(flags & _FULL),
        )


class LogFile:
    """The log of one job and the raw output that is on its way into it."""

    def __init__(self, folder: Path, *, secrets: Secrets, limit_bytes: int, clock: Clock) -> None:
        self._log = folder / "log"
        self._mark_file = folder / "mark"
        self._secrets = secrets
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._pending = b""
        self._pending_since = 0.0
        self.mark = Mark()
        if self._mark_file.exists() and len(data := self._mark_file.read_bytes()) == _LAYOUT.size:
            self.mark = Mark.unpack(data)
        if self._log.exists():
            os.truncate(self._log, self.mark.length)
        self._consumed = self._freed = self.mark.raw_offset
        self._masker = Masker(secrets, covered=self.mark.covered, in_token=self.mark.in_token)

    def read(self, offset: int, limit: int) -> bytes:
        """Bytes that may be shown."""
        size = min(limit, self.mark.length - offset)
        if size <= 0:
            return b""
        fd = os.open(self._log, os.O_RDONLY)
        try:
            return os.pread(fd, size, offset)
        finally:
            os.close(fd)

    def say(self, stage: int, *lines: str) -> None:
        """Lines of the agent itself, once: a stage that is already written is left alone."""
        if self.mark.stage < stage:
            self._write(self._agent_lines(lines), stage=stage)

    def consume(self, raw: Path) -> int:
        """Take over what the step has written since the last time, at most one piece. Returns its size."""
        fd = os.open(raw, os.O_RDWR)
        try:
            if self.mark.full:
                size = os.fstat(fd).st_size - self._consumed
                self._consumed += size
            else:
                data = os.pread(fd, READ_BYTES, self._consumed)
                size = len(data)
                self._take(data)
            safe = self._consumed if self.mark.full else self.mark.raw_offset
            if safe - self._freed >= HOLE_BYTES:
                punch_hole(fd, self._freed, safe - self._freed)
                self._freed = safe
            return size
        finally:
            os.close(fd)

    @property
    def partial_due_at(self) -> float | None:
        """When the unfinished line is shown as it is."""
        return self._pending_since + PARTIAL_SECONDS if self._pending else None

    def show_partial(self) -> None:
        """Write the unfinished line with an artificial end; what follows continues it."""
        if self._pending:
            data, self._pending = self._step_lines(self._pending + b"\n"), b""
            self._write_output(
                data,
                raw_offset=self._consumed - self._masker.held,
                covered=self._masker.covered,
                in_token=self._masker.in_token,
                continued=True,
            )

    def finish_step(self, stage: int, *lines: str) -> None:
        """The step's output is complete: write the rest of it and the agent's lines behind it."""
        if self.mark.stage >= stage:
            return
        self._pending += self._masker.finish()
        self.show_partial()
        self._write(self._agent_lines(lines), stage=stage, raw_offset=0, covered=0, in_token=False, continued=False)
        self._masker = Masker(self._secrets)
        self._consumed = self._freed = 0

    def _take(self, data: bytes) -> None:
        masked = self._masker.feed(data)
        self._consumed += len(data)
        end = masked.rfind(b"\n") + 1
        if end:
            # No mask spans a line feed, so the last one written is the last one read, with a fresh masker behind it.
            behind = len(data) - (data.rfind(b"\n") + 1)
            whole, self._pending = self._pending + masked[:end], b""
            self._write_output(
                self._step_lines(whole),
                raw_offset=self._consumed - behind,
                covered=0,
                in_token=False,
                continued=False,
            )
            masked = masked[end:]
        if masked:
            if not self._pending:
                self._pending_since = self._clock.now()
            self._pending += masked
        if len(self._pending) > LONGEST_LINE:
            self.show_partial()

    def _step_lines(self, text: bytes) -> bytes:
        head = stamp(self._clock.now()).encode() + b" " + STEP
        body = text[:-1].replace(b"\n", b"\n" + head + b" ")
        return head + (b"+" if self.mark.continued else b" ") + body + b"\n"

    def _agent_lines(self, lines: tuple[str, ...]) -> bytes:
        head = stamp(self._clock.now()).encode() + b" " + AGENT + b" "
        texts = (self._secrets.mask(line).encode("utf-8", "surrogateescape") for line in lines)
        return b"".join(head + part + b"\n" for text in texts for part in text.split(b"\n"))

    def _write_output(self, data: bytes, **changes: Any) -> None:
        """Output of a step, up to the limit."""
        if self.mark.full:
            return
        room = self._limit_bytes - self.mark.length
        if self._limit_bytes and len(data) > room:
            notice = (
                f"The log has reached its limit of {self._limit_bytes} bytes: the job goes on, its output is dropped"
            )
            data = data[: data.rfind(b"\n", 0, max(room, 0)) + 1] + self._agent_lines((notice,))
            changes["full"] = True
            self._pending = b""
        self._write(data, **changes)

    def _write(self, data: bytes, **changes: Any) -> None:
        mark = replace(
            self.mark,
            length=self.mark.length + len(data),
            checksum=crc32(data, self.mark.checksum),
            **changes,
        )
        _write_at(self._log, data, self.mark.length)
        reach("agent.log_appended")
        _write_at(self._mark_file, mark.pack(), 0)
        reach("agent.log_recorded")
        self.mark = mark


def _write_at(path: Path, data: bytes, offset: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        view = memoryview(data)
        while view:
            written = os.pwrite(fd, view, offset)
            offset += written
            view = view[written:]
    finally:
        os.close(fd)
