"""Shows a run on a terminal as a tree of stages, jobs, steps and downstream pipelines, redrawn at every poll. Draws the
rows of `tree_rows` and the summary of `report` with rich. `screen` chooses it if stdout is a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from remuda.localrun import report
from remuda.localrun.render.screen import NO_LINES
from remuda.localrun.render.summary import summary_lines, times_lines
from remuda.localrun.render.tree_rows import Row, rows
from remuda.localrun.render.words import duration
from remuda.localrun.report import Outcome
from remuda.localrun.view import RunView

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINNER_ASCII = "|/-\\"

WARNING = "yellow"
_MARKS = {
    "success": ("✔", "+", "green"),
    "failed": ("✘", "x", "bold red"),
    "failure": ("✘", "x", "bold red"),
    "warning": ("!", "!", WARNING),
    "canceled": ("⊘", "o", "magenta"),
    "cancelled": ("⊘", "o", "magenta"),
    "skipped": ("–", "-", "dim"),
    "manual": ("▷", ">", "blue"),
    "pending": ("•", ".", "yellow"),
    "scheduled": ("◷", "@", "yellow"),
    "waiting_for_resource": ("◷", "@", "yellow"),
}
"""Mark, its ASCII form and style per status of a job or step. Statuses in `_SPINNING` get a spinner, others a dot."""

_SPINNING = ("running", "canceling")


class LiveScreen:
    shows_steps = True
    streams = False

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._ascii = not self._console.encoding.lower().startswith("utf")

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.__exit__(*error)

    def say(self, text: str) -> None:
        self._console.print(Text(text, style="dim"))

    def show(self, view: RunView, lines: Mapping[int, Sequence[str]] = NO_LINES) -> None:
        # Two lines stay free, so that the cursor's line and one remark never make the terminal scroll.
        texts = [row_text(row, view.now, ascii_only=self._ascii) for row in rows(view, self._console.height - 2)]
        self._live.update(Group(*texts), refresh=True)

    def finish(self, outcome: Outcome) -> None:
        view = outcome.view
        self._live.stop()
        for name, _, job in view.all_jobs():
            if outcome.tails.get(job.id):
                self._console.print(Text(f"\n{outcome.log_title} of {name} (job {job.id}):", style="bold"))
                for line in outcome.tails[job.id]:
                    self._console.print(Text("  ") + Text.from_ansi(line))
        if outcome.tests:
            self._console.print()
        for line in report.lines_of_tests(outcome.tests):
            self._console.print(Text(line, style="" if line.startswith(("tests", " ")) else "red"))
        self._console.print()
        warnings = list({job.warning for _, _, job in view.all_jobs() if job.warning})
        for row in summary_lines(view, self._console.width):
            text = Text(row.text, no_wrap=True)
            if row.status:
                text.stylize(_style(row.status), row.position, row.position + len(row.status))
            text.highlight_words(warnings, WARNING)
            self._console.print(text)
        style = _style("success" if outcome.exit == 0 else "failed")
        self._console.print(Text(f"\n{report.headline(view)}", style=style))
        for times in times_lines(view, self._console.width):
            self._console.print(Text(times))


def row_text(row: Row, now: float, *, ascii_only: bool = False) -> Text:
    """Format a row of the tree: status mark, name, duration, explanation. `now` selects the spinner's frame."""
    if row.kind == "log":
        text = Text("  " * row.depth, no_wrap=True, overflow="ellipsis")
        return text.append_text(Text.from_ansi(row.name))
    mark, ascii_mark, style = _MARKS.get(row.status, ("·", ".", "dim"))
    if row.status in _SPINNING:
        frames = SPINNER_ASCII if ascii_only else SPINNER
        mark = ascii_mark = frames[int(now * 10) % len(frames)]
        style = "cyan"
    text = Text("  " * row.depth, no_wrap=True, overflow="ellipsis")
    text.append(f"{ascii_mark if ascii_only else mark} ", style=style)
    text.append(row.name, style={"stage": "bold", "step": "dim"}.get(row.kind, ""))
    if row.seconds is not None:
        text.append(f"  {duration(row.seconds)}", style="dim")
    if row.note:
        text.append(f"  {row.note}", style=style)
    if row.warning:
        text.highlight_words([row.warning], WARNING)
    if row.last_line:
        text.append(f"  {row.last_line}", style="dim")
    return text


def _style(status: str) -> str:
    return _MARKS.get(status, ("", "", "dim"))[2]
