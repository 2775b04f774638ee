"""Shows the progress of `remuda run`: a live tree on a terminal (`live_tree`), else a line per event. Writing may fail
because the terminal or the reader of the pipe is gone; `GuardedScreen` reports that once, so that the run stops."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol, Self, TextIO

from remuda.localrun import report
from remuda.localrun.render.columns import align
from remuda.localrun.render.log_text import without_escapes
from remuda.localrun.render.words import duration
from remuda.localrun.report import Outcome
from remuda.localrun.view import Event, RunView, events

HEADINGS = ("job", "status", "waited", "ran", "where the time went", "")


class Screen(Protocol):
    @property
    def shows_steps(self) -> bool:
        """True if the screen shows the steps of running jobs."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: Any) -> None: ...

    def say(self, text: str) -> None:
        """Print a message about the run itself, such as a warning."""

    def show(self, view: RunView) -> None:
        """Show the newest state of the pipeline."""

    def finish(self, outcome: Outcome) -> None:
        """Print logs, test results and the summary after the end of the pipeline."""


class PlainScreen:
    """Prints a line per event, for output to files and pipes."""

    shows_steps = False

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last: RunView | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
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
        if times := report.where_time_went(view):
            self._print(f"where the time went: {times}")

    def _print(self, text: str) -> None:
        print(text, file=self._out, flush=True)


class GuardedScreen:
    """Wraps a screen so that a failed write, such as to a closed pipe, does not raise. The first OSError is kept in
    `lost`, and `on_lost` is called to stop the run; later ones are ignored."""

    def __init__(self, screen: Screen, *, on_lost: Callable[[], None]) -> None:
        self._screen = screen
        self._on_lost = on_lost
        self.lost: OSError | None = None
        self.shows_steps = screen.shows_steps

    def __enter__(self) -> Self:
        with self._guard():
            self._screen.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        with self._guard():
            self._screen.__exit__(*error)

    def say(self, text: str) -> None:
        with self._guard():
            self._screen.say(text)

    def show(self, view: RunView) -> None:
        with self._guard():
            self._screen.show(view)

    def finish(self, outcome: Outcome) -> None:
        with self._guard():
            self._screen.finish(outcome)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self.lost is None:
                self.lost = error
                self._on_lost()


def event_line(event: Event, width: int) -> str:
    """Format a change of a job's status as a line: local time, name padded to `width`, status, duration, note."""
    time = datetime.fromtimestamp(event.at).astimezone().strftime("%H:%M:%S")
    words = [time, event.job.ljust(width), event.status]
    if event.seconds is not None:
        words.append(duration(event.seconds))
    line = "  ".join(words[:2]) + "  " + " ".join(words[2:])
    return f"{line} ({event.note})" if event.note else line


def columns(view: RunView) -> list[str]:
    """Format a line per job: status, waiting and run time, how time was used, explanation. Without colours."""
    return align([HEADINGS, *((r.job, r.status, r.waited, r.ran, r.where, r.note) for r in report.lines(view))])


def screen_for(output: str) -> Screen:
    """Return the screen for `--output`: json: lines to stderr (stdout gets JSON); text: a live tree on a terminal."""
    if output == "json":
        return PlainScreen(sys.stderr)
    if sys.stdout.isatty():
        # Imports rich, which takes as long as a short job.
        from remuda.localrun.render.live_tree import LiveScreen

        return LiveScreen()
    return PlainScreen(sys.stdout)
