"""Stored values of pipelines and jobs: pipeline, job, artifact, step result."""

from typing import Any

import msgspec

from remuda.cell.values.stored import ORGANIZATION_ID, USER_ID, Value
from remuda.model.job import JobId, JobState, PipelineId, ProjectId, RunnerId
from remuda.model.progress import When
from remuda.model.runner import CapabilityKey
from remuda.pipeline import JobSpec

UNDER_WAY = frozenset({JobState.PENDING, JobState.LEASED, JobState.RUNNING})
"""While a job with a higher id is in one of these states, the success of another job of its pipeline can be stored
alone (`JobStore.end_beside`): the end of the former then decides about the pipeline."""


class ExternalStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The status of a check of a commit that another system runs and reports. It counts in the status of the pipeline
    like a job. GitLab: external job, generic commit status."""

    id: JobId
    """From the same range as the ids of jobs."""
    name: str
    state: JobState
    created_at: float
    updated_at: float
    started_at: float | None = None
    finished_at: float | None = None
    target_url: str = ""
    description: str = ""
    coverage: float | None = None
    user_id: int = USER_ID
    allow_failure: bool = False
    retried: bool = False
    """A newer status of the same name replaces it."""


class Pipeline(Value, frozen=True, kw_only=True):
    """One run of a project's CI file for a commit."""

    id: PipelineId
    iid: int
    project_id: ProjectId
    ref: str
    tag: bool
    sha: str
    before_sha: str
    source: str
    """GitLab's name of the source: push, api ..."""
    status: str
    created_at: float
    updated_at: float
    started_at: float | None = None
    finished_at: float | None = None
    yaml_errors: str | None = None
    yaml_warnings: str | None = None
    """The warnings about its file, a line each."""
    user_id: int = USER_ID
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    """Set when the pipeline was created. They override those of the file."""
    protected: bool = False
    """Its ref is protected: its jobs get protected variables and may run on protected runners."""
    file_variables: tuple[str, ...] = ()
    """Names of `variables` that a job gets as files."""
    predefined: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables that cannot be computed later: CI_MERGE_REQUEST_*, the commit message ..."""
    origin: str = ""
    """The real source, if the caller set `source` to another value for rules; empty: same as `source`."""
    is_text_given: bool = False
    """The text of its file came with the request; `file` is only a name."""
    name: str = ""
    """`workflow:name` of the file."""
    file: str = ".gitlab-ci.yml"
    cancel_on_new_commit: str = "none"
    """What a newer pipeline of the same ref cancels: none, conservative or interruptible."""
    cancel_on_job_failure: str = "none"
    """Which jobs a failed job cancels: none or all."""
    merge_request_iid: int | None = None
    """If set, `ref` is the full `refs/merge-requests/<iid>/head`."""
    upstream_job_id: JobId | None = None
    """The trigger job that started it; unique."""
    upstream_pipeline_id: PipelineId | None = None
    is_child: bool = False
    """It belongs to the pipeline of its trigger job: it is canceled with it and not listed alone."""
    depth: int = 0
    """Number of upstream pipelines."""
    schedule_id: int | None = None
    organization_id: int = ORGANIZATION_ID
    group_ids: tuple[int, ...] = ()
    """Groups of its project at its creation."""
    closed_to: tuple[str, ...] = ()
    """Types of runners that its project did not use when the pipeline was created."""
    external: tuple[ExternalStatus, ...] = ()
    """Statuses that other systems have reported for its commit, oldest first."""


class EnvironmentPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the keyword `environment` of a job says about its environment, with the variables of the pipeline."""

    url: str = ""
    """May contain variables that are known only after the job, such as those of its dotenv report."""
    on_stop: str = ""
    """Name of the job that stops the environment."""
    auto_stop_in: str = ""
    tier: str = ""
    """Empty: as the name of the environment suggests."""


class Job(Value, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a job, which changes. Its spec (script, image, rules) never changes and is stored separately. Fields
    that have their default value are not stored, so that jobs are small: all jobs of a pipeline are often read
    together. So a field's default must never change, because that would change jobs that are stored already."""

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
    """Names of the jobs that it needs, if it does not wait by stage."""
    artifacts_from: tuple[str, ...] = ()
    """Names of jobs whose artifacts it gets."""
    timeout_seconds: int | None = None
    retry_max: int = 0
    retry_when: tuple[str, ...] = ("always",)
    tries: int = 1
    lost_tries: int = 0
    """Earlier tries that the platform lost before their script began. They do not count as retries."""
    lost: bool = False
    """This try was lost before its script began, and a new one replaces it."""
    retried: bool = False
    """A newer job of the same name replaces it."""
    epoch: int = 0
    """Number of hand-outs. Only a token of the current epoch is valid."""
    runner_id: RunnerId | None = None
    system_id: str | None = None
    request_id: str | None = None
    """X-Request-Id of the request that got the job: a repeated request gets it again."""
    lease_until: float | None = None
    graceful_cancel: bool = False
    """Its manager can cancel gracefully."""
    pending_at: float | None = None
    leased_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    failure_reason: str | None = None
    failure_message: str | None = None
    exit_code: int | None = None
    warnings: tuple[str, ...] = ()
    """What it asks for and does not get, as its runner says, such as its image."""
    reported: str | None = None
    """The final state that the runner sent, to recognize a repeated message."""
    trace_bytes: int = 0
    """Size of the complete log. This and `trace_checksum` are set when the job has ended."""
    trace_checksum: str | None = None
    end_put_off_at: float | None = None
    """When the runner first sent the end of the job while its stored trace was incomplete or wrong."""
    is_log_refused: bool = False
    """The stored trace is not what the runner logged, so the runner sends it again from the first byte."""
    is_traced: bool = False
    """Its scripts print their commands (CI_DEBUG_TRACE), so only developers may read its log."""
    erased: bool = False
    """A user removed its trace and artifacts."""
    is_trigger: bool = False
    """It starts another pipeline; no runner ever gets it."""
    downstream_id: PipelineId | None = None
    """The pipeline that a trigger job started."""
    start_in_seconds: int | None = None
    scheduled_at: float | None = None
    """Start time of a delayed job."""
    allow_failure_exit_codes: tuple[int, ...] = ()
    retry_exit_codes: tuple[int, ...] = ()
    interruptible: bool = False
    resource_group: str = ""
    """Of the jobs of a project with the same resource group, only one runs at a time."""
    environment: str = ""
    """Expanded name of the environment that it deploys to."""
    environment_action: str = ""
    environment_plan: EnvironmentPlan | None = None
    """None: none of its fields is set."""
    coverage: float | None = None
    priority: int = 0
    """Jobs with a higher priority are handed out first."""
    play_variables: dict[str, str] = msgspec.field(default_factory=dict)
    """Set by the user who played the manual job."""
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    """Values for inputs of the job, from the user who played or retried it; else the defaults in its definition."""
    gets: tuple[JobId, ...] = ()
    """Jobs of other pipelines whose artifacts its payload names."""
    token_hash: str = ""
    """Hash of its opaque token; empty if its token is signed."""
    erased_at: float | None = None
    artifacts_gone: bool = False
    """Its archive or dotenv report has expired or was deleted."""
    organization_id: int = ORGANIZATION_ID
    group_ids: tuple[int, ...] = ()
    closed_to: tuple[str, ...] = ()
    """Types of runners that its project did not use when the pipeline was created."""
    ends_alone: bool = False
    """Its success can only end its pipeline: no job waits for it or its resource group, and it has no release,
    coverage or environment. Computed at its creation."""
    two_phase: bool = False
    """Its manager acknowledges the start (two-phase commit). Otherwise the job starts with the hand-out."""

    def key(self) -> CapabilityKey:
        """Return what a runner must match to get the job: tags, protection, project, groups and organization."""
        return CapabilityKey(
            tags=frozenset(self.tags),
            protected=self.protected,
            project_id=self.project_id,
            group_ids=self.group_ids,
            closed_to=self.closed_to,
            organization_id=self.organization_id,
        )

    def start_time(self) -> float | None:
        """Return when the job started; None if it has not. A leased job started when its runner got it, unless the
        runner confirms the start later (`two_phase`); then it has not started."""
        is_begun = self.started_at is None and self.state is JobState.LEASED and not self.two_phase
        return self.leased_at if is_begun else self.started_at

    def status(self) -> str:
        """Return GitLab's name of the job's state. A leased job (given to a runner) counts as running."""
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
    """Variables of a dotenv report."""
    expires_at: float | None = None
    """None: never, or stored by a version without this field."""
    look_at: float | None = None
    """When to check whether to remove it. Later than `expires_at` while another rule keeps it."""


class StepResult(Value, frozen=True, kw_only=True):
    """A report about one step of a job, as the agent (the program that runs the steps on the job's machine) sent it."""

    job_id: JobId
    seq: int
    body: msgspec.Raw
    total_bytes: int = 0
    """Size of the bodies up to this one; 0 if stored by a version without the limit."""
    is_note: bool = False
    """Marks the place after which results are dropped, because of the limit."""


class NewJob(Value, frozen=True, kw_only=True):
    """The definition of a job to create in a new pipeline. The store sets its id, pipeline id and state."""

    spec: JobSpec
    waits_for: tuple[str, ...]
    artifacts_from: tuple[str, ...]
    resource_group: str = ""
    """Expanded name of the spec's resource group."""
    environment: str = ""
    """Expanded name of the spec's environment."""
    environment_plan: EnvironmentPlan | None = None
    priority: int = 0
    """Priority of the project."""
    ends_alone: bool = False
    """See `Job.ends_alone`."""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline with the newest attempt of each of its jobs."""

    pipeline: Pipeline
    jobs: tuple[Job, ...]
    taken: frozenset[str] = frozenset()
    """Resource groups of its jobs that a job of another pipeline occupies, or gets first by their process mode."""
