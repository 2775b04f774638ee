"""Messages between a cell and its user clients: of the calls that only Remuda's API has, and of GitLab's `ci/lint`. New
fields get defaults, so that client and cell may have different versions."""

from collections.abc import Mapping
from typing import Any

import msgspec


class NewPipelineRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The request body of POST /api/remuda/v1/projects/:id/pipelines."""

    ref: str
    """A branch, a tag, or the full name of a ref."""
    source: str = "api"
    """What the pipeline's jobs see as CI_PIPELINE_SOURCE."""
    sha: str = ""
    """A commit of the repository; then `ref` must be a full name and need not point to the commit. Empty: the commit of
    `ref`."""
    before_sha: str = ""
    variables: Mapping[str, str] = {}
    file_variables: tuple[str, ...] = ()
    """Names of `variables` that jobs get as files."""
    inputs: Mapping[str, Any] = {}
    file: str = ""
    """The path of the pipeline file; empty: `.gitlab-ci.yml`."""
    text: str | None = None
    """The pipeline file itself, instead of the one in the repository."""
    jobs: tuple[str, ...] = ()
    """Create only these jobs. Without `jobs` and `stages`: all jobs."""
    stages: tuple[str, ...] = ()
    with_needs: bool = True
    """Also create the jobs that the selected ones depend on."""
    changes_since: str | None = None
    """The commit that `rules:changes` compares with."""
    predefined: Mapping[str, str] = {}
    """Predefined variables for this pipeline only."""


class MistakeInfo(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    line: int
    column: int
    key: str = ""
    message: str = ""
    suggestion: str = ""


class LintInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The response of GitLab's endpoint `ci/lint`."""

    valid: bool
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    merged_yaml: str | None = None
    jobs: tuple[dict[str, Any], ...] = ()
    mistakes: tuple[MistakeInfo, ...] = ()


class FileInfo(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    """archive, junit, dotenv ..."""
    filename: str
    format: str = "raw"
    """zip, gzip or raw"""


class JobOverview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a job that a client shows. Times are seconds since the epoch."""

    id: int
    name: str
    stage: str
    status: str
    allow_failure: bool = False
    tags: tuple[str, ...] = ()
    created_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    waiting_seconds: float | None = None
    """Seconds that the job was pending: until it started, ended or, if it still waits, now. None: it never was."""
    failure_reason: str | None = None
    failure_message: str | None = None
    exit_code: int | None = None
    warnings: tuple[str, ...] = ()
    """What the job asks for and does not get, as its runner says: `image python:3.12 ignored`."""
    coverage: float | None = None
    """Test coverage in percent, from the job's log."""
    waits_for: tuple[str, ...] = ()
    """Names of the jobs that must end before this one can start."""
    starts_at: float | None = None
    """When a delayed job starts."""
    resource_group: str = ""
    files: tuple[FileInfo, ...] = ()
    """Its artifacts and reports."""


class JobAttempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt of a job that a retry replaced."""

    id: int
    status: str
    created_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    failure_reason: str | None = None


class JobProgress(JobOverview, frozen=True, kw_only=True, omit_defaults=True):
    """A job in a `PipelineProgress`, with its steps and the pipeline that it started."""

    stage_index: int = 0
    is_trigger: bool = False
    """It starts another pipeline; no runner gets it."""
    by_stage: bool = False
    """With `graph`: it waits for all jobs of earlier stages."""
    needs: tuple[str, ...] = ()
    """With `graph`: names of the jobs that it waits for, if it does not wait by stage."""
    pending_at: float | None = None
    """With `graph`: when it became ready for a runner."""
    no_runner_reason: str = ""
    """With `graph`: why no runner could take the waiting job now; empty if one could."""
    attempts: tuple[JobAttempt, ...] = ()
    """With `graph`: earlier attempts that a retry replaced, oldest first."""
    downstream: "PipelineProgress | None" = None
    """The pipeline that a trigger job started."""
    steps: tuple[dict[str, Any], ...] = ()
    """Step results of the job, in order."""
    steps_note: str = ""
    """Why `steps` is incomplete, and where to get the rest."""


class PipelineRef(msgspec.Struct, frozen=True, kw_only=True):
    """Names a pipeline for a link to it."""

    id: int
    project: str


class PipelineProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """GET /api/remuda/v1/pipelines/:pipeline_id/progress: a pipeline, its jobs, and the pipelines that they started."""

    id: int
    project_id: int
    project: str = ""
    status: str
    ref: str = ""
    source: str = ""
    name: str = ""
    created_at: float | None = None
    """Only sent if the request asks for `graph`, as `finished_at`."""
    finished_at: float | None = None
    upstream: PipelineRef | None = None
    """With `graph`: the pipeline whose trigger job started this one, if the caller may see it."""
    jobs: tuple[JobProgress, ...] = ()


class JobEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Data of an event about a job in GET /api/remuda/v1/events: its current state. Times are Unix timestamps."""

    id: int
    name: str
    stage: str
    status: str
    project_id: int
    pipeline_id: int
    ref: str = ""
    tags: tuple[str, ...] = ()
    allow_failure: bool = False
    retried: bool = False
    """A newer job of the same name replaces it."""
    runner_id: int | None = None
    created_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    failure_reason: str | None = None
    exit_code: int | None = None
    downstream_id: int | None = None
    """The pipeline that a trigger job started."""


class PipelineEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data of an event about a pipeline in the stream GET /api/remuda/v1/events: its current state."""

    id: int
    iid: int
    project_id: int
    status: str
    ref: str = ""
    sha: str = ""
    source: str = ""
    name: str = ""
    created_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None


class RunnerEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data of an event about a runner in the stream GET /api/remuda/v1/events: its current state."""

    id: int
    description: str = ""
    runner_type: str = ""
    status: str
    """`online`, `offline`, `stale`, `never_contacted`, or `removed` if the runner no longer exists."""
    paused: bool = False
    locked: bool = False
    protected: bool = False
    run_untagged: bool = False
    tags: tuple[str, ...] = ()


class ResetEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Events may be lost: the client must read all again. The stream ends; reconnect with this id for later ones."""

    reason: str = ""
