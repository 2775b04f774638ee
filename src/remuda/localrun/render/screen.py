"""Shows the progress of `remuda run`: a live tree on a terminal (`live_tree`), else lines of events and logs. Writing
may fail because the terminal or the reader of the pipe is gone; `GuardedScreen` reports that once, and the run stops.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol, Self, TextIO

from remuda.localrun import report
from remuda.localrun.render.columns import pad, shorten, width
from remuda.localrun.render.log_text import without_escapes
from remuda.localrun.render.summary import output_columns, summary_lines, times_lines
from remuda.localrun.render.words import duration
from remuda.localrun.report import Outcome
from remuda.localrun.view import Event, RunView, events, note_of

NO_LINES: Mapping[int, Sequence[str]] = {}
LONGEST_NAME = 24
"""Most columns for the name of the job before a line of its log."""
COLOURS = ("36", "33", "32", "35", "34", "96", "93", "92", "95", "94")
"""Colours of the names before lines of logs; red is for errors."""
_STARTS = frozenset({"retrying", "running"})
"""Statuses of events that come before the lines of a job's log."""


class Screen(Protocol):
    @property
    def shows_steps(self) -> bool:
        """True if the screen shows the steps of running jobs."""

    @property
    def streams(self) -> bool:
        """True if the screen prints the lines of logs that `show` gets."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: Any) -> None: ...

    def say(self, text: str) -> None:
        """Print a message about the run itself, such as a warning."""

    def show(self, view: RunView, lines: Mapping[int, Sequence[str]]) -> None:
        """Show the newest state of the pipeline, and new lines of logs, by job."""

    def finish(self, outcome: Outcome) -> None:
        """Print logs, test results and the summary after the end of the pipeline."""


class PlainScreen:
    """Prints a line per event and, if it streams, each line of the jobs' logs as it comes. For files, pipes, simple
    terminals and `--follow`."""

    shows_steps = False

    def __init__(
        self, out: TextIO, *, streams: bool = False, has_one_job: bool = False, has_colours: bool = False
    ) -> None:
        """`streams`: print logs while jobs run; they are not repeated at the end. `has_one_job`: their lines need no
        name of the job."""
        self.streams = streams
        self._out = out
        self._has_one_job = has_one_job
        self.has_colours = has_colours
        self._last: RunView | None = None
        self._names: dict[int, str] = {}
        """Of all jobs so far, by number, also of attempts that were retried."""
        self._colours: dict[str, str] = {}
        self._streamed: set[int] = set()
        """Jobs with lines that were printed while they ran."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        return

    def say(self, text: str) -> None:
        self._print(text)

    def show(self, view: RunView, lines: Mapping[int, Sequence[str]] = NO_LINES) -> None:
        names = {job.id: name for name, _, job in view.all_jobs()}
        self._names |= names
        self._streamed |= lines.keys()
        longest = max(map(width, names.values()), default=0)
        columns = min(longest, LONGEST_NAME)
        news = events(self._last, view)
        # A job's log stands between its start and its end, that of an attempt before the next one.
        for job, texts in lines.items():
            if job not in names:
                self._print_log(self._names.get(job, f"job {job}"), columns, texts)
        for event in news:
            if event.status in _STARTS:
                self._print(event_line(event, longest))
        for job, texts in lines.items():
            if job in names:
                self._print_log(names[job], columns, texts)
        for event in news:
            if event.status not in _STARTS:
                self._print(event_line(event, longest))
        self._last = view

    def _print_log(self, name: str, columns: int, lines: Sequence[str]) -> None:
        head = "" if self._has_one_job else f"{pad(shorten(name, columns), columns)} | "
        if self.has_colours:
            colour = self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
            head = f"\x1b[{colour}m{head}\x1b[0m" if head else ""
            self._print("\n".join(f"{head}{line}\x1b[0m" if "\x1b" in line else head + line for line in lines))
        else:
            self._print("\n".join(f"{head}{without_escapes(line)}".rstrip() for line in lines))

    def finish(self, outcome: Outcome) -> None:
        view = outcome.view
        above: list[str] = []
        for name, _, job in view.all_jobs():
            if not outcome.tails.get(job.id):
                continue
            if outcome.has_whole_logs or job.id not in self._streamed:
                self._print(f"\n{outcome.log_title} of {name} (job {job.id}):")
                for line in outcome.tails[job.id]:
                    self._print(f"  {without_escapes(line)}")
            elif not self._has_one_job:
                note = note_of(job, view.now)
                above.append(f"\n{name} (job {job.id}) failed{f': {note}' if note else ''}; its log is above")
        if above:
            self._print("".join(above))
        if outcome.tests:
            self._print("")
        for line in report.lines_of_tests(outcome.tests):
            self._print(line)
        self._print("")
        for row in summary_lines(view, output_columns()):
            self._print(row.text)
        self._print(f"\n{report.headline(view)}")
        for line in times_lines(view, output_columns()):
            self._print(line)

    def _print(self, text: str) -> None:
        print(text, file=self._out, flush=True)


class GuardedScreen:
    """Wraps a screen so that a failed write, such as to a closed pipe, does not raise. The first OSError is kept in
    `lost`, and `on_lost` is called to stop the run, perhaps in another thread; later ones are ignored."""

    def __init__(self, screen: Screen, *, on_lost: Callable[[], None]) -> None:
        self._screen = screen
        self._on_lost = on_lost
        self.lost: OSError | None = None
        self.shows_steps = screen.shows_steps
        self.streams = screen.streams

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

    def show(self, view: RunView, lines: Mapping[int, Sequence[str]]) -> None:
        with self._guard():
            self._screen.show(view, lines)

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
    words = [time, pad(event.job, width), event.status]
    if event.seconds is not None:
        words.append(duration(event.seconds))
    line = "  ".join(words[:2]) + "  " + " ".join(words[2:])
    return f"{line} ({event.note})" if event.note else line


def screen_for(output: str, *, follows: bool, has_one_job: bool, environ: Mapping[str, str]) -> Screen:
    """Return the screen for `--output` and `--follow`. A terminal gets a live tree, or the logs if the run has one job
    or they are asked for; everything else gets lines. With json, lines go to stderr, because stdout gets the JSON."""
    if output == "json":
        return PlainScreen(sys.stderr, streams=follows)
    is_terminal = sys.stdout.isatty() and environ.get("TERM", "") not in ("", "dumb")
    if is_terminal and not follows and not has_one_job:
        # Imports rich, which takes as long as a short job.
        from remuda.localrun.render.live_tree import LiveScreen

        return LiveScreen()
    has_colours = is_terminal and not environ.get("NO_COLOR")
    return PlainScreen(sys.stdout, streams=True, has_one_job=has_one_job, has_colours=has_colours)
