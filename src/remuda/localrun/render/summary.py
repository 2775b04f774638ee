"""Formats the summary of a run: a line per job with its status, times and explanation. The lines fit into the width of
the terminal: what is too long is cut, or continues on lines below. Pure, except `output_columns`."""

import shutil
import textwrap
from collections.abc import Iterator

from remuda.lib.dataclass import dataclass
from remuda.localrun import report
from remuda.localrun.render.columns import GAP, align, cut, shorten, width
from remuda.localrun.view import RunView

HEADINGS = ("job", "status", "waited", "ran", "where the time went", "")
USUAL_COLUMNS = 80
LEAST_COLUMNS = 40
LEAST_WHERE = 20
"""Columns that names of jobs leave for the column with the use of time."""
INDENT = "    "


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryLine:
    text: str
    status: str = ""
    """The status of the job, which begins at `position` of the text; empty for other lines."""
    position: int = 0


def output_columns() -> int:
    """Return the width of the terminal, or of COLUMNS; 80 if there is neither."""
    return max(shutil.get_terminal_size((USUAL_COLUMNS, 24)).columns, LEAST_COLUMNS)


def summary_lines(view: RunView, columns: int) -> list[SummaryLine]:
    """Format the heading and a line per job. If a line would have more than `columns` columns, explanations go below
    their jobs, and what does not fit is cut."""
    jobs = report.lines(view)
    cells = [HEADINGS, *((job.job, job.status, job.waited, job.ran, job.where, job.note) for job in jobs)]
    texts = align(cells)
    if max(map(width, texts)) <= columns:
        start = max(width(row[0]) for row in cells) + len(GAP)
        return _with_status(texts, [job.status for job in jobs], [[] for _ in jobs], start)
    fixed = sum(max(width(row[number]) for row in cells) + len(GAP) for number in (1, 2, 3))
    wanted = max(width(row[0]) for row in cells)
    names = min(wanted, max(columns - fixed - len(GAP) - LEAST_WHERE, LEAST_WHERE // 2))
    where = max(columns - fixed - len(GAP) - names, 0)
    narrow = [(shorten(row[0], names), *row[1:4], cut(row[4], where) if where else "") for row in cells]
    below = [textwrap.wrap(job.note, columns - len(INDENT)) for job in jobs]
    return _with_status(align(narrow), [job.status for job in jobs], below, names + len(GAP))


def times_lines(view: RunView, columns: int) -> Iterator[str]:
    """Yield the lines about the use of time of the whole run; none if nothing ran."""
    if times := report.where_time_went(view):
        yield from textwrap.wrap(f"where the time went: {times}", columns, subsequent_indent=INDENT)


def _with_status(texts: list[str], statuses: list[str], below: list[list[str]], start: int) -> list[SummaryLine]:
    """Join the formatted rows (with the heading) and the lines below each job. `start`: column of the statuses."""
    lines = [SummaryLine(text=texts[0])]
    for text, status, notes in zip(texts[1:], statuses, below, strict=True):
        lines.append(SummaryLine(text=text, status=status, position=text.find(status, _index(text, start))))
        lines += [SummaryLine(text=f"{INDENT}{note}") for note in notes]
    return lines


def _index(text: str, columns: int) -> int:
    """Return the index of the character at a column."""
    used = 0
    for index, character in enumerate(text):
        if used >= columns:
            return index
        used += width(character)
    return len(text)
