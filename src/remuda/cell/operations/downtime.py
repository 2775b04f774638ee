"""Records in a file when the cell did not run, so that no job times out because its runner could not reach the cell.

The file lists the outages; its modification time is when the cell last ran. All processes of a cell share it. While one
of them runs there is no outage, unless a process records one, because the store was unavailable or the process was
blocked."""

import asyncio
import contextlib
import os
from pathlib import Path

import msgspec

from remuda.cell.core.waiting.downtime import Outage, with_outage
from remuda.lib.clock import Clock
from remuda.lib.files import write_whole
from remuda.lib.waiting import wait_for_event
from remuda.telemetry.logs import logger

NOTE_SECONDS = 1.0
KEPT_SECONDS = 7 * 24 * 3600.0
"""Older outages are forgotten; the default limits are far shorter."""
_JUMP_SECONDS = 5.0
"""If the wall clock differs by more than this from the clock for deadlines, somebody set it."""

_log = logger("cell")


class DowntimeFile:
    """The times when this cell did not run (`outages`), recorded in `file`. Without a file, they are None: unknown."""

    def __init__(self, clock: Clock, file: Path | None = None) -> None:
        self.outages: tuple[Outage, ...] | None = None
        self._clock = clock
        self._file = file
        self._was_set = False

    def begin(self) -> None:
        """Call this at the start of the process: record the time since the cell last ran as an outage. If the file is
        missing or unreadable, all time before now counts as one outage."""
        if self._file is None:
            return
        now = self._clock.now()
        try:
            noted_at = self._file.stat().st_mtime
            self.outages = _read(self._file)
        except (OSError, msgspec.DecodeError):
            noted_at, self.outages = 0.0, ()
        self.outages = with_outage(self.outages, Outage(noted_at, now), kept_seconds=KEPT_SECONDS)
        self._write(now)

    def add(self, outage: Outage) -> None:
        """Record an outage in memory and in the file, so that it still counts after a restart."""
        if self.outages is None:
            return
        # Other processes may have added some. Of two that write at the same moment the later wins, and the other writes
        # its outages again with the next one.
        others: tuple[Outage, ...] = ()
        if self._file is not None:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                others = _read(self._file)
        for recorded in (*others, outage):
            self.outages = with_outage(self.outages, recorded, kept_seconds=KEPT_SECONDS)
        self._write(self._clock.now())

    def _write(self, now: float) -> None:
        if self._file is None:
            return
        try:
            write_whole(self._file, msgspec.json.encode(self.outages))
            os.utime(self._file, (now, now))
        except OSError as error:
            _log.warning(
                "cannot write the list of the cell's outages; after a restart, job timeouts may include these outages",
                file=str(self._file),
                error=error.strerror,
            )

    async def watch(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, touch the file every second to show that the cell runs; log jumps of the wall clock."""
        while not await wait_for_event(stop, within_seconds=NOTE_SECONDS):
            now = self._clock.now()
            if self._file is not None:
                with contextlib.suppress(OSError):
                    os.utime(self._file, (now, now))
            ahead = self._clock.wall() - now
            if self._was_set is not (abs(ahead) > _JUMP_SECONDS):
                self._was_set = not self._was_set
                if self._was_set:
                    _log.warning(
                        "wall clock jumped; the clock used for the timeouts of jobs follows it slowly",
                        seconds=round(ahead, 1),
                    )
                else:
                    _log.info("wall clock agrees again with the clock used for the timeouts of jobs")


def _read(file: Path) -> tuple[Outage, ...]:
    return msgspec.json.decode(file.read_bytes(), type=tuple[Outage, ...])
