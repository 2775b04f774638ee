"""The file that says when the cell last ran, so that a start knows for how long nobody could be heard.

Decided here: how often that is noted. The outages stand in the file, the time of the last note is its own time. Several
processes of one cell share the file: as long as one of them runs there is no outage, except for those that one of them
adds because it could not hear the runners that poll it. What outages mean is decided in `core.presence`.
`remuda.cell.service` opens it and runs `watch`; dispatch reads the outages.
"""

import asyncio
import contextlib
import os
from pathlib import Path

import msgspec

from remuda.cell.core.waiting.downtime import Outage, with_outage
from remuda.lib.clock import Clock
from remuda.lib.files import write_whole
from remuda.lib.waiting import happens
from remuda.telemetry.logs import logger

NOTE_SECONDS = 1.0
KEPT_SECONDS = 7 * 24 * 3600.0
"""Older outages are forgotten; no limit that a runner has is so long."""
_JUMP_SECONDS = 5.0
"""A wall clock that is further away than that was set."""

_log = logger("cell")


class DowntimeFile:
    """When this cell was away. `file` is None where nothing is kept."""

    def __init__(self, clock: Clock, file: Path | None = None) -> None:
        self.outages: tuple[Outage, ...] | None = None
        """None where nothing is known of them."""
        self._clock = clock
        self._file = file
        self._was_set = False

    def begin(self) -> None:
        """Note the outage before this start. Without a file that can be read the cell has always been away."""
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
        """Note that nobody could be heard meanwhile, in the file too: the cell may start anew before it is over."""
        if self.outages is None:
            return
        # Other processes may have added some meanwhile. Of two that write in one moment the later wins, and the other
        # writes its own again with its next outage.
        others: tuple[Outage, ...] = ()
        if self._file is not None:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                others = _read(self._file)
        for each in (*others, outage):
            self.outages = with_outage(self.outages, each, kept_seconds=KEPT_SECONDS)
        self._write(self._clock.now())

    def _write(self, now: float) -> None:
        if self._file is None:
            return
        try:
            write_whole(self._file, msgspec.json.encode(self.outages))
            os.utime(self._file, (now, now))
        except OSError as error:
            _log.warning("cannot write the presence file", file=str(self._file), error=error.strerror)

    async def watch(self, stop: asyncio.Event) -> None:
        """Until told to stop: note that the cell runs, and say when the machine's clock was set."""
        while not await happens(stop, within_seconds=NOTE_SECONDS):
            now = self._clock.now()
            if self._file is not None:
                with contextlib.suppress(OSError):
                    os.utime(self._file, (now, now))
            ahead = self._clock.wall() - now
            if self._was_set is not (abs(ahead) > _JUMP_SECONDS):
                self._was_set = not self._was_set
                if self._was_set:
                    _log.warning(
                        "wall clock jumped; deadlines keep running on boot time",
                        seconds=round(ahead, 1),
                    )
                else:
                    _log.info("wall clock and deadlines agree again")


def _read(file: Path) -> tuple[Outage, ...]:
    return msgspec.json.decode(file.read_bytes(), type=tuple[Outage, ...])
