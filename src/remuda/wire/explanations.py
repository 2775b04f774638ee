"""Messages that explain a job: why it waits or failed, and where its time went. Times are seconds since the epoch. New
fields get defaults, so that cell and command line may have different versions."""

import msgspec


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base class of the parts of these messages. A field that has its default value is not sent."""


class JobRef(_Part, frozen=True, kw_only=True):
    id: int
    name: str
    stage: str = ""
    status: str = ""
    pipeline_id: int = 0


class WaitInfo(_Part, frozen=True, kw_only=True):
    kind: str
    """job, stage, person, time, resource_group, pipeline, runner or cell"""
    text: str
    job: JobRef | None = None
    stage: str = ""
    count: int = 0
    """Number of unfinished jobs, for a stage."""
    until: float | None = None
    resource_group: str = ""
    pipeline_id: int = 0
    project: str = ""
    status: str = ""
    """Status of the pipeline that the job waits for."""
    how: str = ""
    """For kind `person`: the command that starts the job."""


class ReasonCount(_Part, frozen=True, kw_only=True):
    """A reason why runners cannot take a job, such as a missing tag, and the number of these runners."""

    reason: str
    count: int


class RunnerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many runners can take a job, by state (free, busy, offline…), and how many cannot, by reason."""

    known: int
    matching: int
    free: int = 0
    """Matching runners that are online and have no job."""
    busy: int = 0
    """Matching runners that have jobs, online or not; they may have capacity for more."""
    silent: int = 0
    """Matching runners without a job that have not called for some minutes."""
    offline: int = 0
    never_seen: int = 0
    paused: int = 0
    blocked: int = 0
    """Matching runners whose managers say that they can run no jobs now."""
    last_seen_at: float | None = None
    """When a matching runner last called."""
    others: tuple[ReasonCount, ...] = ()
    """Runners that do not match, by reason."""


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Position of a job in the queue of jobs that the same runners could take."""

    ahead: int
    competing: int
    """Number of jobs in the queue, including this one."""
    priority: int
    priority_now: int
    """Priority including the increase for the time that the job has waited."""
    project_running: int
    """Running jobs of the same project. Among jobs of equal priority, the project with fewer running jobs goes
    first."""


class EstimateInfo(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    pick_ups: int
    """Number of jobs that matching runners have taken, on which the estimate is based."""
    within_seconds: float
    """Period in which these jobs were taken."""
    text: str


class FailureInfo(_Part, frozen=True, kw_only=True):
    reason: str
    fault: str
    """Who has to act: `user`, `runner` or `platform`."""
    message: str = ""
    exit_code: int | None = None
    allowed: bool = False


class TimeSplit(msgspec.Struct, frozen=True, kw_only=True):
    """How long each part of a job took; together the time from when it became ready until its end or now."""

    source: str
    """Where the times come from: `steps` (reported by the agent), `sections` of the log, or only the `times` of the
    job."""
    total_seconds: float
    parts: dict[str, float]
    """waiting, machine, image, clone, cache, artifacts, script, upload, other; from `times`: waiting, running."""


class JobWhy(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of GET /api/remuda/v1/jobs/:job_id/why: why a job waits or ended with its status, and the facts."""

    version: int = 1
    job_id: int
    name: str
    pipeline_id: int
    project: str
    status: str
    """GitLab's word for the state."""
    state: str
    since: float | None = None
    """When the job entered this state, if known."""
    summary: str
    waits_for: tuple[WaitInfo, ...] = ()
    not_named: int = 0
    """Number of further jobs that it waits for and that are not listed."""
    runners: RunnerCounts | None = None
    queue: QueueInfo | None = None
    estimate: EstimateInfo | None = None
    because: tuple[JobRef, ...] = ()
    """Other jobs that caused this end."""
    failure: FailureInfo | None = None
    warnings: tuple[str, ...] = ()
    """What the job asks for and does not get, as its runner says, such as its image."""
    tried_again_as: int | None = None
    upstream: JobRef | None = None
    """The trigger job that started its pipeline."""
    advice: tuple[str, ...] = ()
