"""Messages that explain a job: why it waits or failed, and where its time went.

`remuda.cell.core.waiting.why` and `remuda.cell.core.jobs.job_times` make these values, the command line reads them.
New fields get defaults, so that cell and command line may have different versions. Times are seconds since the epoch.
"""

import msgspec


class _Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of an answer."""


class JobRef(_Told, frozen=True, kw_only=True):
    """Another job that an explanation names."""

    id: int
    name: str
    stage: str = ""
    status: str = ""
    pipeline_id: int = 0


class WaitInfo(_Told, frozen=True, kw_only=True):
    """One thing that a job waits for."""

    kind: str
    """job, stage, person, time, resource_group, pipeline, runner or cell"""
    text: str
    job: JobRef | None = None
    stage: str = ""
    count: int = 0
    """Jobs of a stage that are not over."""
    until: float | None = None
    resource_group: str = ""
    pipeline_id: int = 0
    project: str = ""
    status: str = ""
    """Of a pipeline."""
    how: str = ""
    """For a person: what to call."""


class ReasonCount(_Told, frozen=True, kw_only=True):
    """How many runners do not fit for the same reason."""

    reason: str
    count: int


class RunnerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The runners, seen from one job."""

    known: int
    matching: int
    free: int = 0
    """Of the matching ones: there, and without a job."""
    busy: int = 0
    """There, and with jobs; they may have room for more."""
    silent: int = 0
    """Not heard of for some minutes, though without a job."""
    offline: int = 0
    never_seen: int = 0
    paused: int = 0
    last_seen_at: float | None = None
    """When the last of the matching ones was heard of."""
    others: tuple[ReasonCount, ...] = ()
    """Those that do not match."""


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job stands among those that the same runners could take."""

    ahead: int
    competing: int
    """Itself included."""
    priority: int
    priority_now: int
    """With what it gained by waiting."""
    project_running: int
    """Jobs of its project with runners: of equal priority, the project with fewer goes first."""


class EstimateInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How long a job may still wait."""

    seconds: float
    pick_ups: int
    """What it is based on: so many pick-ups by runners that fit ..."""
    within_seconds: float
    """... in the last so many seconds."""
    text: str


class FailureInfo(_Told, frozen=True, kw_only=True):
    """Why a job failed, and whose fault it is."""

    reason: str
    fault: str
    """Whose failure it is: user, runner or platform."""
    message: str = ""
    exit_code: int | None = None
    allowed: bool = False


class TimeSplit(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a job went: the parts sum to the whole, from its turn to its end or now."""

    source: str
    """What tells: `steps` that the agent reported, `sections` of the log, or only the job's own `times`."""
    total_seconds: float
    parts: dict[str, float]
    """waiting, machine, image, clone, cache, artifacts, script, upload, other; from `times`: waiting, running."""


class JobWhy(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of GET /api/remuda/v1/jobs/:job_id/why."""

    version: int = 1
    job_id: int
    name: str
    pipeline_id: int
    project: str
    status: str
    """GitLab's word for the state."""
    state: str
    since: float | None = None
    """When it came into this state, as far as that is known."""
    summary: str
    waits_for: tuple[WaitInfo, ...] = ()
    not_named: int = 0
    """How many more jobs it waits for than are named."""
    runners: RunnerCounts | None = None
    queue: QueueInfo | None = None
    estimate: EstimateInfo | None = None
    because: tuple[JobRef, ...] = ()
    """Other jobs that made it end so."""
    failure: FailureInfo | None = None
    tried_again_as: int | None = None
    upstream: JobRef | None = None
    """The trigger job that started its pipeline."""
    advice: tuple[str, ...] = ()
