"""Stored values of projects: project, variable, schedule, trigger token, release; and users' personal access tokens."""

from typing import Any

import msgspec

from remuda.cell.values.stored import NAMESPACE_ID, ORGANIZATION_ID, USER_ID, Value
from remuda.model.job import JobId, PipelineId, ProjectId


class RefGrant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Admits users to a protected branch or tag: those with a level, or one user."""

    id: int
    level: int | None = None
    """The lowest level; 0 admits nobody, 60 administrators. None: `user_id` says who."""
    user_id: int | None = None


class ProtectedRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule for branches or tags. A ref that matches several rules is open to those whom one of them admits."""

    id: int
    """Unique among the rules and grants of the project."""
    name: str
    """The name of a branch or tag, without `refs/`; `*` matches any characters."""
    push: tuple[RefGrant, ...] = ()
    """Who may push to the branch; for a tag: who may create, move and delete it."""
    merge: tuple[RefGrant, ...] = ()
    """Who may, without pushing, start pipelines for the branch."""
    unprotect: tuple[RefGrant, ...] = ()
    """Who may change or remove the rule; empty: maintainers."""
    allow_force_push: bool = False


class Project(Value, frozen=True, kw_only=True):
    """A project and its git repository. `repo_path` is relative to the folder of repositories."""

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
    """Initial priority of its jobs, from -MAX_PRIORITY to MAX_PRIORITY."""
    organization_id: int = ORGANIZATION_ID
    namespace_id: int = NAMESPACE_ID
    group_ids: tuple[int, ...] = ()
    """Its groups, the nearest first; none for a project in the namespace of a user."""
    visibility: str = "private"
    """private, internal or public."""
    creator_id: int = USER_ID
    allow_force_push: bool = False
    """Allow force pushes to its default branch, if that is protected without a rule of its own."""
    default_branch_protected: bool = True
    """The default branch is protected, for maintainers, even if no rule of `protected_branches` has its name."""
    protected_branches: tuple[ProtectedRef, ...] = ()
    protected_tags: tuple[ProtectedRef, ...] = ()
    job_token_scope_enabled: bool = True
    """Only jobs of the projects and groups below may access it. If False, jobs of all projects may."""
    job_token_projects: tuple[int, ...] = ()
    """Other projects whose jobs may access it."""
    job_token_groups: tuple[int, ...] = ()
    """Groups whose projects' jobs may access it."""
    lfs_enabled: bool = True
    """Serve Git LFS for it."""
    ci_deploy_token_id: int = 0
    """The deploy token that its jobs get; 0: none was created."""
    topics: tuple[str, ...] = ()
    archived: bool = False
    """It can be read, but nothing in it changes and no pipeline starts, until it is unarchived."""
    ci_config_path: str = ""
    """Where its pipeline file is (`core.pipelines.config_path`); empty: `.gitlab-ci.yml`."""
    auto_cancel_pending_pipelines: str = "enabled"
    """enabled or disabled: whether a newer pipeline of a ref may cancel older ones (`workflow:auto_cancel`)."""
    build_git_strategy: str = "fetch"
    """fetch or clone; the variable GIT_STRATEGY overrides it."""
    ci_default_git_depth: int = 20
    """How many commits jobs fetch, 0 for all; the variable GIT_DEPTH overrides it."""
    ci_separated_caches: bool = True
    """Protected refs have caches of their own."""
    keep_latest_artifact: bool = True
    """Artifacts of the newest successful pipeline of a ref do not expire, if the cell's setting says so, too."""
    ci_pipeline_variables_minimum_override_role: str = "developer"
    """Who may set variables of the pipelines that they start: no_one_allowed, developer, maintainer or owner."""
    restrict_user_defined_variables: bool = False
    """Only maintainers may, if the role above is developer."""
    last_activity_at: float = 0
    """Time of its last push, up to an hour old; 0: none since its creation."""
    shared_runners_enabled: bool = True
    """Its jobs may run on instance runners."""
    group_runners_enabled: bool = True
    """Its jobs may run on runners of its groups."""
    removed_at: float | None = None
    """Set when it was deleted: it is invisible, its path is free, and its repository will be removed."""


class ProjectVariable(Value, frozen=True, kw_only=True):
    """A CI/CD variable of a project, of a group (`project_id` is 0), or of the whole cell (both ids are 0). Only one
    variable can have the same owner, key and environment scope."""

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
    """Name of the environment whose jobs get it, or a pattern with `*`."""
    hidden: bool = False
    """Its value is never shown after its creation."""


class UserToken(Value, frozen=True, kw_only=True):
    """A personal access token. Only its SHA-256 is stored."""

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

    def is_valid(self, now: float) -> bool:
        return not self.revoked and (self.expires_at is None or self.expires_at > now)


class Schedule(Value, frozen=True, kw_only=True):
    """A pipeline schedule: creates pipelines of a ref at the times of a cron expression."""

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
    """Why the last due run created no pipeline; None: it did, or none was due yet."""


class TriggerToken(Value, frozen=True, kw_only=True):
    """A pipeline trigger token. It can only start pipelines of its project. Its SHA-256 and its first characters are
    stored, not the whole token."""

    id: int
    project_id: ProjectId
    token_hash: str
    token_start: str
    """Its first characters, shown in lists."""
    description: str
    created_at: float
    updated_at: float
    last_used_at: float | None = None
    user_id: int = USER_ID


class Release(Value, frozen=True, kw_only=True):
    """A release of a project: a tag with a name and a description."""

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
    """The job with the keyword `release` that created it."""
