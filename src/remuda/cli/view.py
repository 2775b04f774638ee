"""What there is to see of a running pipeline, and what of it is shown: pure functions of what the cell answered.

`RunView` is one look at the pipeline. From it come the rows of the live view (`rows`) and, from two looks, the lines of
the plain output (`events`). Who draws them is decided elsewhere (`live`, `plain`); how a run is summed up, in `report`.
Nothing here reads a clock or knows a terminal.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from remuda.wire.user_client import JobInfo, PipelineInfo

OVER = frozenset({"success", "failed", "canceled", "skipped"})
"""Statuses a job or pipeline does not leave."""

QUIET = frozenset({"created", "pending", "waiting_for_resource", "preparing", "scheduled"})
"""Statuses of a job that only waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step of a job."""

    name: str
    status: str
    """running, success, failure, cancelled, skipped"""
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int | None = None

    def seconds(self, now: float) -> float | None:
        """How long it took, or has been taking."""
        return _span(self.started_at, self.finished_at, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job: the newest try of its name."""

    id: int
    name: str
    stage: str
    status: str
    allow_failure: bool = False
    created_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    waiting_seconds: float | None = None
    failure_reason: str | None = None
    exit_code: int | None = None
    has_artifacts: bool = False
    steps: tuple[StepView, ...] = ()

    def seconds(self, now: float) -> float | None:
        """How long it ran, or has been running."""
        return _span(self.started_at, self.finished_at, now)

    def is_over(self) -> bool:
        return self.status in OVER

    def has_failed(self) -> bool:
        """Whether it ended badly, allowed or not."""
        return self.status == "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """A stage with its jobs."""

    name: str
    jobs: tuple[JobView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One look at a pipeline."""

    pipeline_id: int
    status: str
    now: float
    stages: tuple[StageView, ...] = ()

    @property
    def jobs(self) -> tuple[JobView, ...]:
        return tuple(job for stage in self.stages for job in stage.jobs)

    def is_over(self) -> bool:
        """Whether nothing more will happen by itself: a blocking manual job waits for a person."""
        return self.status in OVER or self.status == "manual"


def build(
    pipeline: PipelineInfo,
    jobs: Sequence[JobInfo],
    steps: Mapping[int, tuple[StepView, ...]],
    stages: Sequence[str],
    now: float,
) -> RunView:
    """Put the cell's answers together: stages in the order of the file, jobs in the order they were made."""
    order = {name: number for number, name in enumerate(stages)}
    by_stage: dict[str, list[JobView]] = {}
    for job in sorted(jobs, key=lambda job: (order.get(job.stage, len(order)), job.id)):
        by_stage.setdefault(job.stage, []).append(_job(job, steps.get(job.id, ())))
    return RunView(
        pipeline_id=pipeline.id,
        status=pipeline.status,
        now=now,
        stages=tuple(StageView(name=name, jobs=tuple(found)) for name, found in by_stage.items()),
    )


def _job(job: JobInfo, steps: tuple[StepView, ...]) -> JobView:
    return JobView(
        id=job.id,
        name=job.name,
        stage=job.stage,
        status=job.status,
        allow_failure=job.allow_failure,
        created_at=moment(job.created_at),
        started_at=moment(job.started_at),
        finished_at=moment(job.finished_at),
        waiting_seconds=job.queued_duration,
        failure_reason=job.failure_reason,
        exit_code=job.exit_code,
        has_artifacts=job.artifacts_file is not None,
        steps=steps,
    )


def moment(stamp: str | None) -> float | None:
    """A time of the API as seconds since the epoch."""
    return datetime.fromisoformat(stamp).timestamp() if stamp else None


def _span(start: float | None, end: float | None, now: float) -> float | None:
    return None if start is None else max((now if end is None else end) - start, 0.0)


def duration(seconds: float) -> str:
    """A time as people say it: 0.4s, 12.3s, 2m 03s, 1h 02m."""
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m"


def note_of(job: JobView) -> str:
    """What is worth saying about how a job stands."""
    words = []
    if job.has_failed():
        if job.failure_reason:
            words.append(job.failure_reason)
        if job.exit_code:
            words.append(f"exit code {job.exit_code}")
        if job.allow_failure:
            words.append("allowed to fail")
    elif job.status == "manual":
        words.append("waits for a person; a local run does not start it")
    return ", ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened between two looks, for the plain output."""

    at: float
    job: str
    status: str
    seconds: float | None = None
    note: str = ""


def events(before: RunView | None, after: RunView) -> list[Event]:
    """What is new. A job that was both started and ended between the looks gives both events."""
    known = {job.name: job for job in before.jobs} if before else {}
    found: list[Event] = []
    for job in after.jobs:
        old = known.get(job.name)
        if old is not None and old.id != job.id:
            found.append(Event(at=after.now, job=job.name, status="retrying", note=f"as job {job.id}"))
            old = None
        if (old is None or old.started_at is None) and job.started_at is not None:
            found.append(Event(at=job.started_at, job=job.name, status="running"))
        if old is not None and old.status == job.status:
            continue
        if job.status not in QUIET and job.status != "running":
            at = after.now if job.finished_at is None else job.finished_at
            seconds = job.seconds(after.now) if job.is_over() else None
            found.append(Event(at=at, job=job.name, status=job.status, seconds=seconds, note=note_of(job)))
    return sorted(found, key=lambda event: event.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the live view."""

    depth: int
    status: str
    """A job's or step's; `warning` for a failure that is allowed."""
    name: str
    seconds: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Detail:
    """How much of the pipeline is drawn."""

    steps: frozenset[str] = frozenset()
    """Statuses of the jobs whose steps are drawn."""
    jobs: frozenset[str] | None = None
    """Statuses of the jobs that get a row of their own; None means all."""


_ACTIVE = frozenset({"running", "canceling", "failed", "manual"})
_DETAILS = (
    _Detail(steps=frozenset({"running", "canceling", "failed"})),
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
        drawn = [row for stage in view.stages for row in _stage_rows(stage, detail, view.now)]
        if len(drawn) <= height:
            return drawn
    return drawn[: max(height, 1)]


def _stage_rows(stage: StageView, detail: _Detail, now: float) -> list[Row]:
    found = [Row(depth=0, status=_stage_status(stage), name=stage.name)]
    folded: Counter[str] = Counter()
    for job in stage.jobs:
        if detail.jobs is not None and job.status not in detail.jobs:
            folded[job.status] += 1
            continue
        status = "warning" if job.has_failed() and job.allow_failure else job.status
        found.append(Row(depth=1, status=status, name=job.name, seconds=job.seconds(now), note=note_of(job)))
        if job.status in detail.steps:
            found.extend(
                Row(depth=2, status=step.status, name=step.name, seconds=step.seconds(now))
                for step in job.steps
                if step.status != "skipped"
            )
    if folded:
        counts = ", ".join(f"{count} {status}" for status, count in folded.items())
        found[0] = Row(depth=0, status=found[0].status, name=stage.name, note=counts)
    return found


def _stage_status(stage: StageView) -> str:
    """How a stage stands: the most urgent of its jobs' statuses."""
    statuses = {job.status for job in stage.jobs if not (job.has_failed() and job.allow_failure)}
    for status in ("running", "canceling", "failed", "manual", "pending", "created", "canceled", "success", "skipped"):
        if status in statuses:
            return status
    return "success" if stage.jobs else "created"
