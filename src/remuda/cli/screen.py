"""Where a run is shown: a live tree on a terminal, a line an event elsewhere. Draws what `view` and `report` decided.

A screen is given every look at the pipeline in turn, and at the end the summary. `remuda run` is the caller. Writing
may fail at any time because the terminal or the reader is gone; `GuardedScreen` turns that into one call of the
caller's, who then stops the run.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from remuda.cli import report
from remuda.cli.logtext import without_escapes
from remuda.cli.view import Event, Row, RunView, duration, events, rows

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINNER_ASCII = "|/-\\"

_MARKS = {
    "success": ("✔", "+", "green"),
    "failed": ("✘", "x", "bold red"),
    "failure": ("✘", "x", "bold red"),
    "warning": ("!", "!", "yellow"),
    "canceled": ("⊘", "o", "magenta"),
    "cancelled": ("⊘", "o", "magenta"),
    "skipped": ("–", "-", "dim"),
    "manual": ("▷", ">", "blue"),
    "pending": ("•", ".", "yellow"),
}
"""Mark, its ASCII form and style per status; what is not here has not begun."""

_SPINNING = ("running", "canceling")


class Screen(Protocol):
    """What a run is shown on."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def say(self, text: str) -> None:
        """A remark of the run itself."""
        ...

    def show(self, view: RunView) -> None:
        """The newest look at the pipeline."""
        ...

    def finish(self, view: RunView, tails: Mapping[int, Sequence[str]]) -> None:
        """The end: logs of what failed, and the summary."""
        ...


class PlainScreen:
    """A line an event: for files, pipes and other programs."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last: RunView | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def say(self, text: str) -> None:
        self._print(text)

    def show(self, view: RunView) -> None:
        width = max((len(job.name) for job in view.jobs), default=0)
        for event in events(self._last, view):
            self._print(event_line(event, width))
        self._last = view

    def finish(self, view: RunView, tails: Mapping[int, Sequence[str]]) -> None:
        for job in view.jobs:
            if job.id in tails:
                self._print(f"\nend of the log of {job.name} (job {job.id}):")
                for line in tails[job.id]:
                    self._print(f"  {without_escapes(line)}")
        self._print("")
        for row in columns(view):
            self._print(row)
        self._print(f"\n{report.headline(view)}")
        if spent := report.where_time_went(view):
            self._print(f"where the time went: {spent}")

    def _print(self, text: str) -> None:
        print(text, file=self._out, flush=True)


class LiveScreen:
    """A tree that is drawn anew with every look."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._ascii = not console.encoding.lower().startswith("utf")

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        self._console.print(Text(text, style="dim"))

    def show(self, view: RunView) -> None:
        # Two lines stay free, so that the cursor's line and one remark never make the terminal scroll.
        drawn = [row_text(row, view.now, ascii_only=self._ascii) for row in rows(view, self._console.height - 2)]
        self._live.update(Group(*drawn), refresh=True)

    def finish(self, view: RunView, tails: Mapping[int, Sequence[str]]) -> None:
        self._live.stop()
        for job in view.jobs:
            if job.id in tails:
                self._console.print(Text(f"\nend of the log of {job.name} (job {job.id}):", style="bold"))
                for line in tails[job.id]:
                    self._console.print(Text("  ") + Text.from_ansi(line))
        self._console.print()
        self._console.print(self._table(view))
        style = _style("success" if report.exit_of(view) == 0 else "failed")
        self._console.print(Text(f"\n{report.headline(view)}", style=style))
        if spent := report.where_time_went(view):
            self._console.print(Text(f"where the time went: {spent}"))

    def _table(self, view: RunView) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in HEADINGS:
            table.add_column(name, justify="right" if name in ("waited", "ran") else "left")
        for line in report.lines(view):
            table.add_row(
                Text(line.job),
                Text(line.status, style=_style(line.status)),
                line.waited,
                line.ran,
                Text(line.where, style="dim"),
                Text(line.note),
            )
        return table


class GuardedScreen:
    """A screen whose loss does not break the run: the first failing write is reported once, the rest is silence."""

    def __init__(self, screen: Screen, *, on_lost: Callable[[], None]) -> None:
        self._screen = screen
        self._on_lost = on_lost
        self._lost = False

    def __enter__(self) -> Self:
        with self._guarded():
            self._screen.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._guarded():
            self._screen.__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        with self._guarded():
            self._screen.say(text)

    def show(self, view: RunView) -> None:
        with self._guarded():
            self._screen.show(view)

    def finish(self, view: RunView, tails: Mapping[int, Sequence[str]]) -> None:
        with self._guarded():
            self._screen.finish(view, tails)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            if not self._lost:
                self._lost = True
                self._on_lost()


HEADINGS = ("job", "status", "waited", "ran", "where the time went", "")


def event_line(event: Event, width: int) -> str:
    """An event as one line, in local time."""
    at = datetime.fromtimestamp(event.at).astimezone().strftime("%H:%M:%S")
    words = [at, event.job.ljust(width), event.status]
    if event.seconds is not None:
        words.append(duration(event.seconds))
    line = "  ".join(words[:2]) + "  " + " ".join(words[2:])
    return f"{line} ({event.note})" if event.note else line


def row_text(row: Row, now: float, *, ascii_only: bool = False) -> Text:
    """A row of the live view with its mark; the spinner's turn follows from the time of the look."""
    mark, ascii_mark, style = _MARKS.get(row.status, ("·", ".", "dim"))
    if row.status in _SPINNING:
        frames = SPINNER_ASCII if ascii_only else SPINNER
        mark = ascii_mark = frames[int(now * 10) % len(frames)]
        style = "cyan"
    text = Text("  " * row.depth, no_wrap=True, overflow="ellipsis")
    text.append(f"{ascii_mark if ascii_only else mark} ", style=style)
    text.append(row.name, style="bold" if row.depth == 0 else "dim" if row.depth == 2 else "")
    if row.seconds is not None:
        text.append(f"  {duration(row.seconds)}", style="dim")
    if row.note:
        text.append(f"  {row.note}", style=style)
    return text


def columns(view: RunView) -> list[str]:
    """The summary as aligned plain lines."""
    table = [HEADINGS, *((r.job, r.status, r.waited, r.ran, r.where, r.note) for r in report.lines(view))]
    widths = [max(len(row[number]) for row in table) for number in range(len(HEADINGS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def screen_for(output: str) -> Screen:
    """The screen that suits: a program that reads JSON from stdout gets the progress on stderr."""
    if output == "json":
        return PlainScreen(sys.stderr)
    if sys.stdout.isatty():
        return LiveScreen(Console())
    return PlainScreen(sys.stdout)


def _style(status: str) -> str:
    return _MARKS.get(status, ("", "", "dim"))[2]
