"""What a cell keeps, as values. The store holds them, `core/` makes new ones from old ones, none is changed in place.

Every stored value carries the version of its meaning. Times are seconds since the epoch.
"""

import msgspec

from remuda.model.job import JobId, JobState, PipelineId, ProjectId, RunnerId
from remuda.model.progress import When
from remuda.model.runner import CapabilityKey, Fingerprint, RunnerType
from remuda.pipeline import JobSpec

ORGANIZATION_ID = 1
"""The one organization a cell has until organizations are managed."""

USER_ID = 1
"""The administrator, who is the one user a cell has until users are managed."""


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A stored value."""

    version: int = 1


class Project(Value, frozen=True, kw_only=True):
    """A project and its git repository (`repo_path` is relative to the repositories' folder)."""

    id: ProjectId
    path: str
    """Full path, for example `acme/shop`; unique without regard to case."""
    name: str
    created_at: float
    description: str = ""
    default_branch: str = "main"
    repo_path: str = ""
    timeout_seconds: int = 3600


class ProjectVariable(Value, frozen=True, kw_only=True):
    """A variable that every job of the project gets."""

    project_id: ProjectId
    key: str
    value: str
    masked: bool = False
    protected: bool = False
    file: bool = False
    raw: bool = False
    description: str | None = None


class UserToken(Value, frozen=True, kw_only=True):
    """A person's token; only its SHA-256 is kept."""

    token_hash: str
    name: str
    user_id: int = USER_ID
    created_at: float = 0


class Pipeline(Value, frozen=True, kw_only=True):
    """One run of a project's pipeline file."""

    id: PipelineId
    iid: int
    project_id: ProjectId
    ref: str
    tag: bool
    sha: str
    before_sha: str
    source: str
    """push, api ... in GitLab's words."""
    status: str
    created_at: float
    updated_at: float
    started_at: float | None = None
    finished_at: float | None = None
    yaml_errors: str | None = None
    user_id: int = USER_ID
    variables: dict[str, str] = {}
    """Given when the pipeline was created; they win over the file's."""
    protected: bool = False
    """Its ref is protected: its jobs get protected variables and may run on runners that take only such jobs."""


class Job(Value, frozen=True, kw_only=True):
    """A job's changing part. Its unchanging part, the spec, is kept beside it and read only when it is handed out."""

    id: JobId
    pipeline_id: PipelineId
    project_id: ProjectId
    name: str
    stage: str
    stage_index: int
    ref: str
    tag: bool
    state: JobState
    created_at: float
    updated_at: float
    when: When = When.ON_SUCCESS
    allow_failure: bool = False
    protected: bool = False
    tags: tuple[str, ...] = ()
    by_stage: bool = False
    """It waits for all jobs of earlier stages."""
    waits_for: tuple[str, ...] = ()
    """Names of the jobs it needs, where it does not wait by stage."""
    artifacts_from: tuple[str, ...] = ()
    """Names of the jobs whose artifacts it gets."""
    timeout_seconds: int | None = None
    retry_max: int = 0
    retry_when: tuple[str, ...] = ("always",)
    tries: int = 1
    retried: bool = False
    """A newer job of the same name has taken its place."""
    epoch: int = 0
    """Counts hand-outs; only a token of the current epoch opens the job."""
    runner_id: RunnerId | None = None
    system_id: str | None = None
    request_id: str | None = None
    """X-Request-Id of the call that got the job: the same call again gets it again."""
    lease_until: float | None = None
    graceful_cancel: bool = False
    """The manager that has the job can cancel gracefully."""
    pending_at: float | None = None
    leased_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    failure_reason: str | None = None
    failure_message: str | None = None
    exit_code: int | None = None
    reported: str | None = None
    """The final state that the runner sent, so that the same message sent twice is known as such."""
    trace_bytes: int = 0
    """Set when the trace is archived."""
    trace_checksum: str | None = None
    erased: bool = False

    def key(self) -> CapabilityKey:
        """What it needs of a runner."""
        return CapabilityKey(tags=frozenset(self.tags), protected=self.protected, project_id=self.project_id)

    def status(self) -> str:
        """The state in GitLab's words, for its API and the Job-Status header: a leased job counts as running."""
        return JobState.RUNNING.value if self.state is JobState.LEASED else self.state.value


class Runner(Value, frozen=True, kw_only=True):
    """A runner: one token, any number of managers."""

    id: RunnerId
    type: RunnerType
    token_hash: str
    created_at: float
    description: str = ""
    maintenance_note: str | None = None
    paused: bool = False
    locked: bool = False
    protected_only: bool = False
    run_untagged: bool = True
    tags: tuple[str, ...] = ()
    maximum_timeout: int | None = None
    project_ids: tuple[ProjectId, ...] = ()
    """For a project runner: the projects it serves."""
    registered: bool = False
    """It came through a registration token."""

    def fingerprint(self) -> Fingerprint:
        """What it offers."""
        return Fingerprint(
            tags=frozenset(self.tags),
            run_untagged=self.run_untagged,
            protected_only=self.protected_only,
            project_ids=frozenset(self.project_ids) if self.type is RunnerType.PROJECT else None,
        )


class RunnerManager(Value, frozen=True, kw_only=True):
    """A process that polls with a runner's token."""

    runner_id: RunnerId
    system_id: str
    contacted_at: float
    name: str = ""
    runner_version: str = ""
    revision: str = ""
    platform: str = ""
    architecture: str = ""
    executor: str = ""
    features: tuple[str, ...] = ()
    ip_address: str = ""


class Artifact(Value, frozen=True, kw_only=True):
    """An uploaded file of a job; `blob` is its key in the blob store."""

    job_id: JobId
    type: str
    format: str
    filename: str
    size: int
    sha256: str
    blob: str
    created_at: float
    expire_in: str | None = None


class StepResult(Value, frozen=True, kw_only=True):
    """One event of a step as the agent made it."""

    job_id: JobId
    seq: int
    body: msgspec.Raw


class NewJob(Value, frozen=True, kw_only=True):
    """A job to be stored: id, pipeline id and state come from the store's transaction; the rest is here."""

    spec: JobSpec
    waits_for: tuple[str, ...]
    artifacts_from: tuple[str, ...]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a list is wanted."""

    number: int = 1
    size: int = 20


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline with the newest try of each of its jobs."""

    pipeline: Pipeline
    jobs: tuple[Job, ...]
