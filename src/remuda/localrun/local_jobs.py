"""What the runner manager of a run reports about its jobs while they run: the image and services that each names, and
its log. The manager is in this process, so the display needs no calls to the cell and shows each line at once. The
bytes of a log may come more than once, and in pieces of any size."""

from collections import deque
from collections.abc import Container, Mapping, Sequence
from typing import Any

from remuda.localrun.containers import ContainerUse, use_of
from remuda.localrun.render.log_text import LogText, final_text

LAST_LINES = 10
"""How many lines of a running job's log the display can show."""


class LocalJobs:
    """`is_ignored`: no job runs in a container, whatever it names. `streams`: lines are collected for `take`."""

    def __init__(self, *, is_ignored: bool = False, streams: bool = False) -> None:
        self._is_ignored = is_ignored
        self._streams = streams
        self._uses: dict[int, ContainerUse] = {}
        self._logs: dict[int, _JobLog] = {}

    def note_start(
        self, job: int, image: Mapping[str, Any] | None, services: Sequence[Mapping[str, Any]] | None
    ) -> None:
        if (use := use_of(image, services, is_ignored=self._is_ignored)) is not None:
            self._uses[job] = use

    def note_log(self, job: int, offset: int, data: bytes) -> None:
        """Add bytes of a job's log, which begin at `offset`."""
        if job not in self._logs:
            self._logs[job] = _JobLog(keeps_lines=self._streams)
        self._logs[job].add(offset, data)

    def use_of(self, job: int) -> ContainerUse | None:
        return self._uses.get(job)

    def last_lines(self, job: int) -> tuple[str, ...]:
        """Return the last lines of a job's log that are not blank, at most `LAST_LINES`."""
        return self._logs[job].last_lines() if job in self._logs else ()

    def take(self, ended: Container[int] = ()) -> dict[int, list[str]]:
        """Return the lines, by job, that are new since the last call. A line that may still grow is returned when
        nothing was added to its log between two calls, or its job has `ended`."""
        return {job: lines for job, log in self._logs.items() if (lines := log.take(has_ended=job in ended))}


class _JobLog:
    __slots__ = ("_is_current_out", "_is_quiet", "_keeps_lines", "_last", "_lines", "_received", "_tail", "_text")

    def __init__(self, *, keeps_lines: bool) -> None:
        self._keeps_lines = keeps_lines
        self._received = 0
        self._text = LogText()
        self._lines: list[str] = []
        self._tail = ""
        """The text after the last line break."""
        self._is_current_out = False
        """`take` has returned what was there of the current line."""
        self._is_quiet = True
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        """The last lines that are not blank, without `_tail`."""

    def add(self, offset: int, data: bytes) -> None:
        if not offset <= self._received < offset + len(data):
            return
        data = data[self._received - offset :]
        self._received += len(data)
        self._is_quiet = False
        text = self._text.feed(data)
        if self._is_current_out and text:
            # After the line break that ends the returned line, or with a continuation as a line of its own.
            text = text.removeprefix("\n")
            self._is_current_out = False
        *lines, self._tail = (self._tail + text).split("\n")
        if self._keeps_lines:
            self._lines += map(final_text, lines)
        self._last.extend(shown for line in lines[-LAST_LINES:] if (shown := final_text(line).rstrip()))

    def last_lines(self) -> tuple[str, ...]:
        current = final_text(self._tail).rstrip()
        return (*self._last, current)[-LAST_LINES:] if current else tuple(self._last)

    def take(self, *, has_ended: bool) -> list[str]:
        lines, self._lines = self._lines, []
        if self._keeps_lines and (self._is_quiet or has_ended) and self._tail:
            lines.append(final_text(self._tail))
            self._tail, self._is_current_out = "", True
        self._is_quiet = True
        return lines
