"""The live tree: a look at a pipeline as the lines of a terminal, as many as fit. Pure; `screen` draws them.

Decided here: what is left out where there is little room. Pipelines that a trigger job started stand below it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from remuda.cli.render.step_events import StepView
from remuda.lib.dataclass import dataclass
from remuda.localrun.view import RunView, StageView, note_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the live view."""

    depth: int
    status: str
    """A job's or step's; `warning` for a failure that is allowed."""
    name: str
    seconds: float | None = None
    note: str = ""
    kind: str = "job"
    """stage, job or step"""


@dataclass(frozen=True, slots=True)
class _Detail:
    """How much of the pipeline is drawn."""

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
"""From much to little; a smaller terminal gets less."""


def rows(view: RunView, height: int) -> list[Row]:
    """The tree of stages, jobs and steps, as detailed as fits into `height` lines."""
    drawn: list[Row] = []
    for detail in _DETAILS:
        drawn = _pipeline_rows(view, detail, 0)
        if len(drawn) <= height:
            return drawn
    return drawn[: max(height, 1)]


def _pipeline_rows(view: RunView, detail: _Detail, depth: int) -> list[Row]:
    return [row for stage in view.stages for row in _stage_rows(stage, detail, view.now, depth)]


def _stage_rows(stage: StageView, detail: _Detail, now: float, depth: int) -> list[Row]:
    head = Row(depth=depth, status=_stage_status(stage), name=stage.name, kind="stage")
    found: list[Row] = []
    folded: Counter[str] = Counter()
    for job in stage.jobs:
        if detail.jobs is not None and job.status not in detail.jobs:
            folded[job.status] += 1
            continue
        status = "warning" if job.has_failed() and job.allow_failure else job.status
        note = note_of(job, now)
        found.append(Row(depth=depth + 1, status=status, name=job.name, seconds=job.seconds(now), note=note))
        if job.status in detail.steps:
            found.extend(_step_rows(job.steps, now, depth + 2))
        if job.downstream is not None:
            found.extend(_pipeline_rows(job.downstream, detail, depth + 2))
    counts = ", ".join(f"{count} {status}" for status, count in folded.items())
    return [replace(head, note=counts), *found]


def _step_rows(steps: Sequence[StepView], now: float, depth: int) -> Iterator[Row]:
    """What was called by a step that is over is folded up."""
    folded = None
    for step in steps:
        if folded is not None and step.depth > folded:
            continue
        folded = None if step.status == "running" else step.depth
        if step.status != "skipped":
            seconds = step.seconds(now)
            yield Row(depth=depth + step.depth, status=step.status, name=step.name, seconds=seconds, kind="step")


def _stage_status(stage: StageView) -> str:
    """How a stage stands: the most urgent of its jobs' statuses."""
    statuses = {job.status for job in stage.jobs if not (job.has_failed() and job.allow_failure)}
    waiting = ("pending", "scheduled", "waiting_for_resource", "preparing", "created")
    for status in ("running", "canceling", "failed", "manual", *waiting, "canceled", "success", "skipped"):
        if status in statuses:
            return status
    return "success" if stage.jobs else "created"
