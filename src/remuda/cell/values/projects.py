"""A project and what people keep with it: variables, schedules, tokens of triggers, releases; and their own tokens."""

from typing import Any

import msgspec

from remuda.cell.values.stored import NAMESPACE_ID, ORGANIZATION_ID, USER_ID, Value
from remuda.model.job import JobId, PipelineId, ProjectId


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
    allow_force_push: bool = False
    """Whether a push may take commits away from its protected branch."""
    job_token_scope_enabled: bool = True
    """Jobs of other projects need a place in the two lists below to reach it; without, those of all may."""
    job_token_projects: tuple[int, ...] = ()
    """The other projects whose jobs it lets in."""
    job_token_groups: tuple[int, ...] = ()
    """The groups whose projects' jobs it lets in."""
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
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    file_variables: tuple[str, ...] = ()
    created_at: float
    updated_at: float
    user_id: int = USER_ID
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
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
