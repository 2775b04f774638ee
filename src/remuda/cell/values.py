"""What a cell keeps, as values. The store holds them, `core/` makes new ones from old ones, none is changed in place.

Every stored value carries the version of its meaning. Times are seconds since the epoch.
"""

from typing import Any

import msgspec

from remuda.model.job import JobId, JobState, PipelineId, ProjectId, RunnerId
from remuda.model.progress import When
from remuda.model.runner import CapabilityKey, Fingerprint, Pool, RunnerType
from remuda.pipeline import JobSpec

ORGANIZATION_ID = 1
"""The organization that every cell begins with."""

USER_ID = 1
"""The first administrator, whom every cell begins with."""

NAMESPACE_ID = 1
"""The first administrator's own namespace."""


LEGACY = "<legacy>"
"""GitLab's name for a manager that does not say its own."""

MAX_PRIORITY = 100
"""Priorities of jobs and runners go from minus this to this."""


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A stored value."""

    # Not a plain default, so that it is written even where defaults are not.
    version: int = msgspec.field(default_factory=lambda: 1)


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
    priority: int = 0
    """What its jobs are created with, from -MAX_PRIORITY to MAX_PRIORITY."""
    organization_id: int = ORGANIZATION_ID
    namespace_id: int = NAMESPACE_ID
    group_ids: tuple[int, ...] = ()
    """The groups it is in, the nearest first; none for a project in a user's own namespace."""
    visibility: str = "private"
    """private, internal or public."""
    creator_id: int = USER_ID
    removed_at: float | None = None
    """Set when it was deleted: nobody sees it any more, its path is free, and its repository goes."""


class ProjectVariable(Value, frozen=True, kw_only=True):
    """A variable that jobs get: of a project, of a group (then `project_id` is 0), or of all of the cell (both are 0).

    What it belongs to, its key and its environment scope together name it.
    """

    project_id: ProjectId = ProjectId(0)
    group_id: int = 0
    key: str
    value: str
    masked: bool = False
    protected: bool = False
    file: bool = False
    raw: bool = False
    description: str | None = None
    environment_scope: str = "*"
    """Jobs of which environments get it: a name, or a pattern with `*`."""
    hidden: bool = False
    """Its value is never shown again."""


class UserToken(Value, frozen=True, kw_only=True):
    """A person's token; only its SHA-256 is kept."""

    token_hash: str
    name: str
    user_id: int = USER_ID
    created_at: float = 0
    id: int = 0
    description: str = ""
    scopes: tuple[str, ...] = ("api",)
    expires_at: float | None = None
    revoked: bool = False
    last_used_at: float | None = None


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
    file_variables: tuple[str, ...] = ()
    """Names among `variables` whose values a job finds in a file."""
    predefined: dict[str, str] = {}
    """What this pipeline alone has: CI_MERGE_REQUEST_*, CI_PIPELINE_SCHEDULE_DESCRIPTION, the commit's message ..."""
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
    """When the runner first said that it is over though bytes of its trace had not arrived."""
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
    play_variables: dict[str, str] = {}
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

    def key(self) -> CapabilityKey:
        """What it needs of a runner."""
        return CapabilityKey(
            tags=frozenset(self.tags),
            protected=self.protected,
            project_id=self.project_id,
            group_ids=self.group_ids,
            organization_id=self.organization_id,
        )

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
    priority: int = 0
    """Of the runners that wait for a job, those with a higher one get it first."""
    registered: bool = False
    """It came through a registration token."""
    organization_id: int = ORGANIZATION_ID
    """The only one whose jobs it ever gets."""
    group_id: int | None = None
    """For a group runner: the group it serves, with all groups in it."""
    token_expires_at: float | None = None
    user_id: int = USER_ID
    """Who made it."""

    def pools(self) -> frozenset[Pool]:
        """Whose jobs it serves."""
        match self.type:
            case RunnerType.INSTANCE:
                return frozenset({("organization", self.organization_id)})
            case RunnerType.GROUP:
                return frozenset({("group", self.group_id or 0)})
            case RunnerType.PROJECT:
                return frozenset(("project", project_id) for project_id in self.project_ids)

    def fingerprint(self) -> Fingerprint:
        """What it offers."""
        return Fingerprint(
            tags=frozenset(self.tags),
            run_untagged=self.run_untagged,
            protected_only=self.protected_only,
            pools=self.pools(),
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
    capacity: int | None = None
    """How many jobs it says that it can run at a time."""


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
    variables: dict[str, str] = {}
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


class Schedule(Value, frozen=True, kw_only=True):
    """Starts pipelines by the clock."""

    id: int
    project_id: ProjectId
    description: str
    ref: str
    cron: str
    timezone: str = "UTC"
    active: bool = True
    next_run_at: float | None = None
    variables: dict[str, str] = {}
    file_variables: tuple[str, ...] = ()
    created_at: float
    updated_at: float
    user_id: int = USER_ID
    inputs: dict[str, Any] = {}
    last_pipeline_id: PipelineId | None = None
    last_error: str | None = None
    """Why the last run that was due did not start a pipeline; None: it did, or none was due yet."""


class TriggerToken(Value, frozen=True, kw_only=True):
    """Opens `POST /projects/:id/trigger/pipeline` and nothing else; only its SHA-256 is kept."""

    id: int
    project_id: ProjectId
    token_hash: str
    token_start: str
    """Its first characters, by which people tell tokens apart."""
    description: str
    created_at: float
    updated_at: float
    last_used_at: float | None = None
    user_id: int = USER_ID


class Release(Value, frozen=True, kw_only=True):
    """A named state of a project, at a tag."""

    project_id: ProjectId
    tag: str
    name: str
    description: str = ""
    created_at: float
    released_at: float
    user_id: int = USER_ID
    sha: str = ""
    milestones: tuple[str, ...] = ()
    links: tuple[dict[str, str], ...] = ()
    """Assets: name, url, link_type."""
    job_id: JobId | None = None
    """The job that made it, when it was one with `release`."""


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


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a list is wanted."""

    number: int = 1
    size: int = 20
    ascending: bool | None = None
    """By ids, the lowest first or last; None: in the order that the list has of itself."""
    after: int | None = None
    """Only ids above this one."""
    before: int | None = None
    """Only ids below this one."""
    counted: bool = True
    """Whether the number of all that fit is wanted too; where it is not, 0 is told."""

    @property
    def order(self) -> str | None:
        """The order in SQL, if another than the list's own is wanted."""
        return None if self.ascending is None else f"id {'ASC' if self.ascending else 'DESC'}"

    @property
    def bounds(self) -> dict[str, int]:
        """What SQL asks of the ids, with the values."""
        asked = {"id > ?": self.after, "id < ?": self.before}
        return {sql: value for sql, value in asked.items() if value is not None}


class PipelineFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which pipelines of a project are wanted, and in which order; what is empty or None counts for nothing.

    Child pipelines are there only when `source` asks for them, as in GitLab.
    """

    ref: str = ""
    sha: str = ""
    statuses: tuple[str, ...] | None = None
    source: str = ""
    name: str = ""
    tag: bool | None = None
    has_mistakes: bool | None = None
    """With `yaml_errors`, or without."""
    schedule_id: int | None = None
    user_id: int | None = None
    updated_after: float | None = None
    updated_before: float | None = None
    created_after: float | None = None
    created_before: float | None = None
    order_by: str = "id"
    """id, status, ref, updated_at or user_id; pipelines alike in it come by their ids."""
    ascending: bool = False

    def fits(self, pipeline: Pipeline) -> bool:
        """Whether it is one of those wanted."""
        return (
            self.ref in ("", pipeline.ref)
            and self.sha in ("", pipeline.sha)
            and (self.statuses is None or pipeline.status in self.statuses)
            and (self.source == pipeline.source if self.source else not pipeline.is_child)
            and self.name in ("", pipeline.name)
            and self.tag in (None, pipeline.tag)
            and self.has_mistakes in (None, pipeline.yaml_errors is not None)
            and self.schedule_id in (None, pipeline.schedule_id)
            and self.user_id in (None, pipeline.user_id)
            and (self.updated_after is None or pipeline.updated_at > self.updated_after)
            and (self.updated_before is None or pipeline.updated_at < self.updated_before)
            and (self.created_after is None or pipeline.created_at > self.created_after)
            and (self.created_before is None or pipeline.created_at < self.created_before)
        )


ALL_PIPELINES = PipelineFilter()
"""All but child pipelines, newest first."""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline with the newest try of each of its jobs."""

    pipeline: Pipeline
    jobs: tuple[Job, ...]
    taken: frozenset[str] = frozenset()
    """Of the resource groups that its jobs name, those that a job of another pipeline has."""
