"""The state of a running pipeline, built from the cell's answer to a poll. Pure. `events` compares two states for the
plain output, `render.tree_rows` draws the live tree of one, and `report` summarizes the last."""

from collections.abc import Iterator, Sequence

import msgspec

from remuda.localrun.containers import ContainerUse
from remuda.localrun.local_jobs import LocalJobs
from remuda.localrun.render.step_events import StepView, fold, span
from remuda.localrun.render.words import duration, first_sentence
from remuda.wire.user_api import JobOverview, JobProgress, PipelineProgress

OVER = frozenset({"success", "failed", "canceled", "skipped"})
"""Final statuses of a job or pipeline."""

QUIET = frozenset({"created", "pending", "preparing"})
"""Statuses of a job that waits for its turn; the plain output does not print them."""

BELOW = " > "
"""Joins the name of a trigger job and the name of a job in the pipeline that it started."""

RUNNING = ("running", "canceling")
NAMED_WAITS = 3
"""How many of the jobs that a job waits for are named."""


class JobView(JobOverview, frozen=True, kw_only=True):
    """The state of a job's newest attempt, with its steps and its downstream pipeline."""

    steps: tuple[StepView, ...] = ()
    downstream: "RunView | None" = None
    """The pipeline that this job started, if it is a trigger job."""
    containers: ContainerUse | None = None
    """The image and services that the job names; None: none, or the job has not started."""
    last_lines: tuple[str, ...] = ()
    """The last lines of the log of a running job."""
    is_local: bool = True
    """True if `remuda run` runs the job, false if it is shown with commands for a cell."""

    def seconds(self, now: float) -> float | None:
        """Return how many seconds the job ran, or has been running at `now`; None if it has not started."""
        return span(self.started_at, self.finished_at, now)

    @property
    def warning(self) -> str:
        """The warnings of the runner in one text, such as an ignored image; else ''."""
        return ", ".join(self.warnings)

    def is_over(self) -> bool:
        return self.status in OVER

    def has_failed(self) -> bool:
        """True if the job failed, even if it is allowed to fail."""
        return self.status == "failed"


class StageView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    jobs: tuple[JobView, ...]


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a pipeline at one poll, with its stages and jobs."""

    pipeline_id: int
    status: str
    now: float
    project_id: int = 0
    project: str = ""
    stages: tuple[StageView, ...] = ()

    @property
    def jobs(self) -> tuple[JobView, ...]:
        """The pipeline's own jobs, without those of downstream pipelines."""
        return tuple(job for stage in self.stages for job in stage.jobs)

    def pipelines(self) -> Iterator["RunView"]:
        """Yield this pipeline and all downstream pipelines, recursively."""
        yield self
        for job in self.jobs:
            if job.downstream is not None:
                yield from job.downstream.pipelines()

    def all_jobs(self, above: str = "") -> Iterator[tuple[str, "RunView", JobView]]:
        """Yield all jobs of this and all downstream pipelines as (unique name, the job's pipeline, job). A name begins
        with `above` and the names of the trigger jobs on the way to the job's pipeline."""
        for job in self.jobs:
            yield above + job.name, self, job
            if job.downstream is not None:
                yield from job.downstream.all_jobs(f"{above}{job.name}{BELOW}")

    def is_over(self) -> bool:
        """True if this and all downstream pipelines have ended, or only wait for somebody to start a manual job."""
        return all(each.status in OVER or each.status == "manual" for each in self.pipelines())


def build(pipeline: PipelineProgress, now: float, reports: LocalJobs | None = None) -> RunView:
    """Convert the cell's answer to a view, with stages in the order of the file and jobs in the order of their ids.
    `reports`: what the manager has reported about jobs; None: the cell belongs to no local run."""
    by_stage: dict[str, list[JobView]] = {}
    for job in sorted(pipeline.jobs, key=lambda job: (job.stage_index, job.id)):
        by_stage.setdefault(job.stage, []).append(_job(job, now, reports))
    return RunView(
        pipeline_id=pipeline.id,
        status=pipeline.status,
        now=now,
        project_id=pipeline.project_id,
        project=pipeline.project,
        stages=tuple(StageView(name=name, jobs=tuple(jobs)) for name, jobs in by_stage.items()),
    )


def _job(job: JobProgress, now: float, reports: LocalJobs | None) -> JobView:
    return JobView(
        **{name: getattr(job, name) for name in JobOverview.__struct_fields__},
        # A step that never reported its end lasted no longer than its job.
        steps=fold(job.steps, now if job.finished_at is None else job.finished_at),
        downstream=build(job.downstream, now, reports) if job.downstream is not None else None,
        containers=reports.use_of(job.id) if reports else None,
        last_lines=reports.last_lines(job.id) if reports and job.status in RUNNING else (),
        is_local=reports is not None,
    )


def note_of(job: JobView, now: float) -> str:
    """Return a short explanation of a job's status: why it failed, or what it waits for; which image and services its
    runner ignored; and its coverage; else ''."""
    coverage = "" if job.coverage is None else f"coverage {job.coverage:g}%"
    match job.status:
        case "success":
            return ", ".join(word for word in (job.warning, coverage) if word)
        case "running" | "canceling" | "canceled":
            return job.warning
        case "failed":
            words = [job.failure_reason or ""]
            if job.failure_message and job.failure_reason != "script_failure":
                words.append(first_sentence(job.failure_message))
            if job.exit_code:
                words.append(f"exit code {job.exit_code}")
            if job.allow_failure:
                words.append("allowed to fail")
            words += [job.warning, coverage]
            return ", ".join(word for word in words if word)
        case "created" if job.waits_for:
            more = len(job.waits_for) - NAMED_WAITS
            return f"waits for {', '.join(job.waits_for[:NAMED_WAITS])}{' and more' if more > 0 else ''}"
        case "pending":
            return "waits for a free slot"
        case "waiting_for_resource":
            return f"waits for resource group {job.resource_group}, which another job has"
        case "scheduled" if job.starts_at is not None:
            return f"delayed, starts in {duration(max(job.starts_at - now, 0.0))}"
        case "manual":
            starter = f"--manual '{job.name}'" if job.is_local else f"`remuda job play {job.id}`"
            return f"waits for a person; {starter} starts it"
    return ""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the status of one job, found by comparing two polls. The plain output prints one line for each."""

    at: float
    job: str
    status: str
    seconds: float | None = None
    note: str = ""


def events(before: RunView | None, after: RunView) -> list[Event]:
    """Return the status changes between two states. A job that started and ended in between gives two events."""
    old_jobs = {name: job for name, _, job in before.all_jobs()} if before else {}
    changes: list[Event] = []
    for name, _, job in after.all_jobs():
        old = old_jobs.get(name)
        if old is not None and old.id != job.id:
            at = after.now if job.started_at is None else job.started_at
            changes.append(Event(at=at, job=name, status="retrying", note=f"as job {job.id}"))
            old = None
        if (old is None or old.started_at is None) and job.started_at is not None:
            changes.append(Event(at=job.started_at, job=name, status="running"))
        if old is not None and old.status == job.status:
            continue
        if job.status not in QUIET and job.status != "running":
            at = after.now if job.finished_at is None else job.finished_at
            seconds = job.seconds(after.now) if job.is_over() else None
            note = note_of(job, after.now)
            changes.append(Event(at=at, job=name, status=job.status, seconds=seconds, note=note))
    return sorted(changes, key=lambda event: event.at)


def unfinished_tags(view: RunView) -> frozenset[str]:
    return frozenset(tag for _, _, job in view.all_jobs() if not job.is_over() for tag in job.tags)


def manual_jobs(view: RunView) -> Sequence[tuple[str, RunView, JobView]]:
    """Return manual jobs that wait to be started, also downstream: each as (unique name, its pipeline, job)."""
    return [entry for entry in view.all_jobs() if entry[2].status == "manual"]
