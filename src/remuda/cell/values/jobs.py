"""A pipeline, its jobs, and what these leave."""

import msgspec

from remuda.cell.values.stored import ORGANIZATION_ID, USER_ID, Value
from remuda.model.job import JobId, JobState, PipelineId, ProjectId, RunnerId
from remuda.model.progress import When
from remuda.model.runner import CapabilityKey
from remuda.pipeline import JobSpec

UNDER_WAY = frozenset({JobState.PENDING, JobState.LEASED, JobState.RUNNING})
"""States of a job while which its pipeline runs, and at whose end it is decided about the pipeline."""


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
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    """Given when the pipeline was created; they win over the file's."""
    protected: bool = False
    """Its ref is protected: its jobs get protected variables and may run on runners that take only such jobs."""
    file_variables: tuple[str, ...] = ()
    """Names among `variables` whose values a job finds in a file."""
    predefined: dict[str, str] = msgspec.field(default_factory=dict)
    """What this pipeline alone has: CI_MERGE_REQUEST_*, CI_PIPELINE_SCHEDULE_DESCRIPTION, the commit's message ..."""
    origin: str = ""
    """What really started it, where the caller could say what `source` is to be; empty: the source itself."""
    is_text_given: bool = False
    """Its file was sent along by who asked for it; `file` only names it."""
    name: str = ""
    """From the file's `workflow`."""
    file: str = ".gitlab-ci.yml"
    cancel_on_new_commit: str = "none"
    """What a newer pipeline of the same ref stops: none, conservative or interruptible."""
    cancel_on_job_failure: str = "none"
    """Whether a failed job stops the others: none or all."""
    merge_request_iid: int | None = None
    """Then `ref` is the whole `refs/merge-requests/<iid>/head`."""
    upstream_job_id: JobId | None = None
    """The trigger job that started it; no two pipelines have the same."""
    upstream_pipeline_id: PipelineId | None = None
    is_child: bool = False
    """It belongs to the pipeline of its trigger job: it is canceled with it, and is not listed by itself."""
    depth: int = 0
    """How many trigger jobs led to it."""
    schedule_id: int | None = None
    organization_id: int = ORGANIZATION_ID
    group_ids: tuple[int, ...] = ()
    """Those of its project when it was created."""


class Job(Value, frozen=True, kw_only=True, omit_defaults=True):
    """A job's changing part. Its unchanging part, the spec, is kept beside it and read only when it is handed out.

    What has its default is not written: a pipeline's jobs are read together, often. So a default never changes.
    """

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
    lost_tries: int = 0
    """How many tries before this one the platform lost before their script had begun; they count for nobody."""
    lost: bool = False
    """This try was lost so, and a further one has taken its place."""
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
    end_put_off_at: float | None = None
    """When the runner first said that it is over though bytes of its trace had not arrived, or were others."""
    is_log_refused: bool = False
    """The stored trace is not what the runner logged: it sends all of it again, from the first byte."""
    erased: bool = False
    """Its trace and artifacts were removed by a person, and no more will come."""
    is_trigger: bool = False
    """It starts another pipeline; no runner ever gets it."""
    downstream_id: PipelineId | None = None
    """The pipeline that a trigger job started."""
    start_in_seconds: int | None = None
    scheduled_at: float | None = None
    """When a delayed job starts."""
    allow_failure_exit_codes: tuple[int, ...] = ()
    retry_exit_codes: tuple[int, ...] = ()
    interruptible: bool = False
    resource_group: str = ""
    """Of the jobs of a project with the same one, only one is with a runner at a time."""
    environment: str = ""
    """The name of the environment it deploys to, expanded."""
    environment_action: str = ""
    coverage: float | None = None
    priority: int = 0
    """Jobs with a higher one go first."""
    play_variables: dict[str, str] = msgspec.field(default_factory=dict)
    """Given by the person who started a manual job."""
    gets: tuple[JobId, ...] = ()
    """Jobs elsewhere, of other pipelines or projects, whose artifacts it was told of when it was handed out."""
    token_hash: str = ""
    """Of the opaque token of its hand-out; empty when that has a signed one."""
    erased_at: float | None = None
    artifacts_gone: bool = False
    """It left an archive or variables for later jobs, and these have expired or were deleted."""
    organization_id: int = ORGANIZATION_ID
    group_ids: tuple[int, ...] = ()
    ends_alone: bool = False
    """Nothing but its pipeline's end can follow from its success: nobody waits for it or for its resource group, and
    neither a release nor its coverage is to be looked for. Known when it is created."""
    two_phase: bool = False
    """The manager that has the job says when it begins it (two-phase commit); otherwise it began at the hand-out."""

    def key(self) -> CapabilityKey:
        """What it needs of a runner."""
        return CapabilityKey(
            tags=frozenset(self.tags),
            protected=self.protected,
            project_id=self.project_id,
            group_ids=self.group_ids,
            organization_id=self.organization_id,
        )

    def start_time(self) -> float | None:
        """When it started; None: it has not. Of a manager without two-phase commit it counts from the hand-out on."""
        is_begun = self.started_at is None and self.state is JobState.LEASED and not self.two_phase
        return self.leased_at if is_begun else self.started_at

    def status(self) -> str:
        """The state in GitLab's words, for its API and the Job-Status header: a leased job counts as running."""
        return JobState.RUNNING.value if self.state is JobState.LEASED else self.state.value


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
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    """What a dotenv report holds."""
    expires_at: float | None = None
    """None: never, or it was stored before this was worked out."""
    look_at: float | None = None
    """When to look whether it is to be removed: that is later than `expires_at` while something else keeps it."""


class StepResult(Value, frozen=True, kw_only=True):
    """One event of a step as the agent made it."""

    job_id: JobId
    seq: int
    body: msgspec.Raw
    total_bytes: int = 0
    """Of the bodies of this one and all before it; 0 in those that are older than the limit."""
    is_note: bool = False
    """It says that none are kept from here on."""


class NewJob(Value, frozen=True, kw_only=True):
    """A job to be stored: id, pipeline id and state come from the store's transaction; the rest is here."""

    spec: JobSpec
    waits_for: tuple[str, ...]
    artifacts_from: tuple[str, ...]
    resource_group: str = ""
    """The spec's, expanded."""
    environment: str = ""
    """The name of the spec's environment, expanded."""
    priority: int = 0
    """The project's."""
    ends_alone: bool = False
    """See `Job`."""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline with the newest try of each of its jobs."""

    pipeline: Pipeline
    jobs: tuple[Job, ...]
    taken: frozenset[str] = frozenset()
    """Of the resource groups that its jobs name, those that a job of another pipeline has."""
