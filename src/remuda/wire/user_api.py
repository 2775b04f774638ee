"""Messages between user clients and a cell that GitLab's API does not have.

`remuda.wire.user_client` sends the requests, `remuda.cell.http` answers them. New fields get defaults, so that client
and cell may have different versions.
"""

from collections.abc import Mapping
from typing import Any

import msgspec


class NewPipelineRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """POST /api/remuda/v1/projects/:id/pipelines: a pipeline with everything that can be said about it."""

    ref: str
    """A branch, a tag, or the whole name of a ref."""
    source: str = "api"
    """What the pipeline's jobs see as CI_PIPELINE_SOURCE."""
    sha: str = ""
    """A commit of the repository; then `ref` is a whole name, which need not lead there. Empty: where `ref` leads."""
    before_sha: str = ""
    variables: Mapping[str, str] = {}
    file_variables: tuple[str, ...] = ()
    """Names among `variables` whose values a job finds in a file."""
    inputs: Mapping[str, Any] = {}
    file: str = ""
    """The path of the pipeline file; empty: `.gitlab-ci.yml`."""
    text: str | None = None
    """The pipeline file itself, instead of the one in the repository."""
    jobs: tuple[str, ...] = ()
    """Only these jobs; without `jobs` and `stages`: all."""
    stages: tuple[str, ...] = ()
    with_needs: bool = True
    """With the jobs that the chosen ones wait for."""
    changes_since: str | None = None
    """The commit against which `rules:changes` looks."""
    predefined: Mapping[str, str] = {}
    """Predefined variables that this pipeline alone has."""


class MistakeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake in a pipeline file."""

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
    """A file that a job has left."""

    type: str
    """archive, junit, dotenv ..."""
    filename: str
    format: str = "raw"
    """zip, gzip or raw"""


class JobOverview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client shows of a job. Times are seconds since the epoch."""

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
    """For a runner, until it started."""
    failure_reason: str | None = None
    failure_message: str | None = None
    exit_code: int | None = None
    waits_for: tuple[str, ...] = ()
    """Jobs that must be over before it gets its turn."""
    starts_at: float | None = None
    """When a delayed job starts."""
    resource_group: str = ""
    files: tuple[FileInfo, ...] = ()
    """Its artifacts and reports."""


class JobProgress(JobOverview, frozen=True, kw_only=True, omit_defaults=True):
    """A job of a pipeline in progress, with its steps and the pipeline that it started."""

    stage_index: int = 0
    downstream: "PipelineProgress | None" = None
    """What a trigger job has started."""
    steps: tuple[dict[str, Any], ...] = ()
    """What the agent reported of its steps, in order."""
    steps_note: str = ""
    """Why not all of them are here, and where they are."""


class PipelineProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """GET /api/remuda/v1/pipelines/:pipeline_id/progress: a pipeline, its jobs, and the pipelines that they started."""

    id: int
    project_id: int
    project: str = ""
    status: str
    ref: str = ""
    source: str = ""
    name: str = ""
    jobs: tuple[JobProgress, ...] = ()


class JobEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job, as GET /api/remuda/v1/events tells it. Times are seconds since the epoch."""

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
    """A newer job of the same name has taken its place."""
    runner_id: int | None = None
    created_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    failure_reason: str | None = None
    exit_code: int | None = None
    downstream_id: int | None = None
    """The pipeline that a trigger job started."""


class PipelineEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pipeline, as GET /api/remuda/v1/events tells it."""

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
    """A runner, as GET /api/remuda/v1/events tells it."""

    id: int
    description: str = ""
    runner_type: str = ""
    status: str
    """online, offline, stale, never_contacted; removed: there is no such runner any more."""
    paused: bool = False
    locked: bool = False
    protected: bool = False
    run_untagged: bool = False
    tags: tuple[str, ...] = ()


class ResetEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something may have been missed: read again whatever matters. Events go on from here."""

    reason: str = ""
