"""Computes the rows of the live tree. If they do not fit on the terminal, leaves out details: first the steps, then
jobs that are not running, failed or manual, then all jobs. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from remuda.lib.dataclass import dataclass
from remuda.localrun.render.log_text import without_escapes
from remuda.localrun.render.step_events import StepView
from remuda.localrun.view import RunView, StageView, note_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    depth: int
    status: str
    """The status of the job or step; `warning` for an allowed failure."""
    name: str
    seconds: float | None = None
    note: str = ""
    last_line: str = ""
    """The last line of the log, of a running job."""
    kind: str = "job"
    """`stage`, `job` or `step`."""


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
            return tree
    return tree[: max(height, 1)]


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
        note, last_line = note_of(job, now), without_escapes(job.last_line)
        below.append(
            Row(depth=depth + 1, status=status, name=job.name, seconds=job.seconds(now), note=note, last_line=last_line)
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
