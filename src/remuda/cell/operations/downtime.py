"""Records in a file when the cell did not run, so that no job times out because its runner could not reach the cell.

The file lists the outages; its modification time is when the cell last ran. All processes of a cell share it: while one
of them runs there is no outage, except when a process records one because it could not serve its runners.
"""

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
    """The times when this cell did not run, stored in `file`. Without a file, `outages` is None: unknown."""

    def __init__(self, clock: Clock, file: Path | None = None) -> None:
        self.outages: tuple[Outage, ...] | None = None
        self._clock = clock
        self._file = file
        self._was_set = False

    def begin(self) -> None:
        """Record the outage from the last run until now. If the file is missing or unreadable, all time before now
        counts as one outage.
        """
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
        """Record an outage in memory and, so that it still counts after a restart, in the file."""
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
        """Until `stop` is set: update the file's time every second, and log when the wall clock begins or ceases to
        differ from the clock used for the timeouts of jobs."""
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
