"""Shows a run on a terminal as a tree of stages, jobs, steps and downstream pipelines, redrawn at every poll. Draws the
rows of `tree_rows` and the summary of `report` with rich. `screen` chooses it if stdout is a terminal."""

from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from remuda.localrun import report
from remuda.localrun.render.screen import HEADINGS
from remuda.localrun.render.tree_rows import Row, rows
from remuda.localrun.render.words import duration
from remuda.localrun.report import Outcome
from remuda.localrun.view import RunView

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
    "scheduled": ("◷", "@", "yellow"),
    "waiting_for_resource": ("◷", "@", "yellow"),
}
"""Mark, its ASCII form and style per status of a job or step. Statuses in `_SPINNING` get a spinner, others a dot."""

_SPINNING = ("running", "canceling")


class LiveScreen:
    shows_steps = True

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

    def show(self, view: RunView) -> None:
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
        self._console.print(self._table(view))
        style = _style("success" if outcome.exit == 0 else "failed")
        self._console.print(Text(f"\n{report.headline(view)}", style=style))
        if times := report.where_time_went(view):
            self._console.print(Text(f"where the time went: {times}"))

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


def row_text(row: Row, now: float, *, ascii_only: bool = False) -> Text:
    """Format a row of the tree: status mark, name, duration, explanation. `now` selects the spinner's frame."""
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
    return text


def _style(status: str) -> str:
    return _MARKS.get(status, ("", "", "dim"))[2]
