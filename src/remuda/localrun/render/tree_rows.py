"""Computes the rows of the live tree. If they do not fit on the terminal, leaves out details: first the steps, then
jobs that are not running, failed or manual, then all jobs. While a single job runs, rows that are left show the end of
its log. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from remuda.lib.dataclass import dataclass
from remuda.localrun.render.log_text import without_escapes
from remuda.localrun.render.step_events import StepView
from remuda.localrun.view import RUNNING, RunView, StageView, note_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    depth: int
    status: str
    """The status of the job or step; `warning` for an allowed failure."""
    name: str
    seconds: float | None = None
    note: str = ""
    warning: str = ""
    """The part of the note that is a warning."""
    last_line: str = ""
    """The last line of the log, of a running job."""
    kind: str = "job"
    """`stage`, `job`, `step`, or `log`: a line of the log, which is the name."""


@dataclass(frozen=True, slots=True)
class _Detail:
    """A level of detail of the live tree: which jobs get rows and which show steps. Lower ones need fewer rows."""

    steps: frozenset[str] = frozenset()
    """Statuses of the jobs whose steps are drawn."""
    jobs: frozenset[str] | None = None
    """Statuses of the jobs that get a row of their own; None means all."""


_ACTIVE = frozenset({"running", "canceling", "failed", "manual"})
_DETAILS = (
    _Detail(steps=frozenset({"running", "canceling"})),
    _Detail(),
    _Detail(jobs=_ACTIVE),
    _Detail(jobs=frozenset()),
)
"""From most to least; `rows` takes the first that fits."""


def rows(view: RunView, height: int) -> list[Row]:
    """Return the rows for stages, jobs and steps, with as many details as fit into `height` lines."""
    tree: list[Row] = []
    for detail in _DETAILS:
        tree = _pipeline_rows(view, detail, 0)
        if len(tree) <= height:
            return _with_log(tree, view, height - len(tree))
    return tree[: max(height, 1)]


def _with_log(tree: list[Row], view: RunView, room: int) -> list[Row]:
    """Add the last lines of the log below the only job that runs, and its steps, if there is room for more than one."""
    running = [job for _, _, job in view.all_jobs() if job.status in RUNNING and job.downstream is None]
    lines = running[0].last_lines[-room:] if len(running) == 1 and room > 1 else ()
    index = next((index for index, row in enumerate(tree) if row.last_line), None)
    if index is None or len(lines) < 2:
        return tree
    row = tree[index]
    below = next((end for end in range(index + 1, len(tree)) if tree[end].depth <= row.depth), len(tree))
    log = [Row(depth=row.depth + 1, status="", name=line, kind="log") for line in lines]
    return [*tree[:index], replace(row, last_line=""), *tree[index + 1 : below], *log, *tree[below:]]


def _pipeline_rows(view: RunView, detail: _Detail, depth: int) -> list[Row]:
    return [row for stage in view.stages for row in _stage_rows(stage, detail, view.now, depth)]


def _stage_rows(stage: StageView, detail: _Detail, now: float, depth: int) -> list[Row]:
    head = Row(depth=depth, status=_stage_status(stage), name=stage.name, kind="stage")
    below: list[Row] = []
    folded: Counter[str] = Counter()
    for job in stage.jobs:
        if detail.jobs is not None and job.status not in detail.jobs:
            folded[job.status] += 1
            continue
        status = "warning" if job.has_failed() and job.allow_failure else job.status
        below.append(
            Row(
                depth=depth + 1,
                status=status,
                name=job.name,
                seconds=job.seconds(now),
                note=note_of(job, now),
                warning=job.warning,
                last_line=without_escapes("".join(job.last_lines[-1:])).strip(),
            )
        )
        if job.status in detail.steps:
            below.extend(_step_rows(job.steps, now, depth + 2))
        if job.downstream is not None:
            below.extend(_pipeline_rows(job.downstream, detail, depth + 2))
    counts = ", ".join(f"{count} {status}" for status, count in folded.items())
    return [replace(head, note=counts), *below]


def _step_rows(steps: Sequence[StepView], now: float, depth: int) -> Iterator[Row]:
    """Yield a row per step, without skipped ones and those in finished ones. `depth`: indentation of the outermost."""
    folded = None
    for step in steps:
        if folded is not None and step.depth > folded:
            continue
        folded = None if step.status == "running" else step.depth
        if step.status != "skipped":
            seconds = step.seconds(now)
            yield Row(depth=depth + step.depth, status=step.status, name=step.name, seconds=seconds, kind="step")


def _stage_status(stage: StageView) -> str:
    """Return the first of these statuses that a job of the stage has: running, canceling, failed, manual, one of the
    waiting ones, canceled, success, skipped. Allowed failures do not count; if there is nothing else, success."""
    statuses = {job.status for job in stage.jobs if not (job.has_failed() and job.allow_failure)}
    waiting = ("pending", "scheduled", "waiting_for_resource", "preparing", "created")
    for status in ("running", "canceling", "failed", "manual", *waiting, "canceled", "success", "skipped"):
        if status in statuses:
            return status
    return "success" if stage.jobs else "created"
