"""Where a run is shown: a live tree on a terminal (`live`), a line an event elsewhere. Draws what others decided.

A screen is given every look at the pipeline in turn, and at the end the summary. `remuda run` is the caller. Writing
may fail at any time because the terminal or the reader is gone; `GuardedScreen` turns that into one call of the
caller's, who then stops the run.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self, TextIO

from remuda.cli.render.columns import laid_out
from remuda.cli.render.log_text import without_escapes
from remuda.cli.render.step_events import duration
from remuda.localrun import report
from remuda.localrun.report import Outcome
from remuda.localrun.view import Event, RunView, events

HEADINGS = ("job", "status", "waited", "ran", "where the time went", "")


class Screen(Protocol):
    """What a run is shown on."""

    @property
    def shows_steps(self) -> bool:
        """Whether it has use for the steps of running jobs."""
        ...

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

    def finish(self, outcome: Outcome) -> None:
        """The end: logs of what failed, what the tests say, and the summary."""
        ...


class PlainScreen:
    """A line an event: for files, pipes and other programs."""

    shows_steps = False

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
        width = max((len(name) for name, _, _ in view.all_jobs()), default=0)
        for event in events(self._last, view):
            self._print(event_line(event, width))
        self._last = view

    def finish(self, outcome: Outcome) -> None:
        view = outcome.view
        for name, _, job in view.all_jobs():
            if outcome.tails.get(job.id):
                self._print(f"\n{outcome.log_title} of {name} (job {job.id}):")
                for line in outcome.tails[job.id]:
                    self._print(f"  {without_escapes(line)}")
        if outcome.tests:
            self._print("")
        for line in report.lines_of_tests(outcome.tests):
            self._print(line)
        self._print("")
        for row in columns(view):
            self._print(row)
        self._print(f"\n{report.headline(view)}")
        if spent := report.where_time_went(view):
            self._print(f"where the time went: {spent}")

    def _print(self, text: str) -> None:
        print(text, file=self._out, flush=True)


class GuardedScreen:
    """A screen whose loss does not break the run: the first failing write is reported once, the rest is silence."""

    def __init__(self, screen: Screen, *, on_lost: Callable[[], None]) -> None:
        self._screen = screen
        self._on_lost = on_lost
        self.lost: OSError | None = None
        self.shows_steps = screen.shows_steps

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

    def finish(self, outcome: Outcome) -> None:
        with self._guarded():
            self._screen.finish(outcome)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self.lost is None:
                self.lost = error
                self._on_lost()


def event_line(event: Event, width: int) -> str:
    """An event as one line, in local time."""
    at = datetime.fromtimestamp(event.at).astimezone().strftime("%H:%M:%S")
    words = [at, event.job.ljust(width), event.status]
    if event.seconds is not None:
        words.append(duration(event.seconds))
    line = "  ".join(words[:2]) + "  " + " ".join(words[2:])
    return f"{line} ({event.note})" if event.note else line


def columns(view: RunView) -> list[str]:
    """The summary as aligned plain lines."""
    return laid_out([HEADINGS, *((r.job, r.status, r.waited, r.ran, r.where, r.note) for r in report.lines(view))])


def screen_for(output: str) -> Screen:
    """The screen that suits: a program that reads JSON from stdout gets the progress on stderr."""
    if output == "json":
        return PlainScreen(sys.stderr)
    if sys.stdout.isatty():
        # Only here: its import costs as much as a job.
        from remuda.cli.render.live_tree import live_screen

        return live_screen()
    return PlainScreen(sys.stdout)
