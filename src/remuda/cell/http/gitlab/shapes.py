"""What answers look like, as types: the checker holds the views to them, and the OpenAPI document is made of them.

Nothing is decided here but the names and kinds of fields, which are GitLab's wherever GitLab has the answer. Times are
texts (RFC 3339), days are `2026-01-31`. A field that only some answers have is `NotRequired`.
"""

from typing import Any, Literal, NotRequired, TypedDict


class UserShape(TypedDict):
    """A user; administrators, and the user, get the fields that may be missing too."""

    id: int
    username: str
    name: str
    state: str
    locked: bool
    avatar_url: None
    web_url: str
    email: NotRequired[str]
    is_admin: NotRequired[bool]
    created_at: NotRequired[str]
    organization_id: NotRequired[int]
    namespace_id: NotRequired[int]
    bot: NotRequired[bool]


class MemberShape(UserShape):
    """A user with the level in a group or project."""

    access_level: int
    expires_at: str | None


class NamespaceShape(TypedDict):
    id: int
    name: str
    path: str
    kind: str
    full_path: str
    parent_id: int | None
    avatar_url: NotRequired[None]
    web_url: str


class ExistsShape(TypedDict):
    exists: bool
    suggests: list[str]


class OrganizationShape(TypedDict):
    id: int
    name: str
    path: str
    description: str
    created_at: str | None
    updated_at: str | None
    web_url: str
    avatar_url: None


class GroupShape(TypedDict):
    id: int
    organization_id: int
    name: str
    path: str
    full_path: str
    full_name: str
    description: str
    visibility: str
    parent_id: int | None
    created_at: str | None
    avatar_url: None
    web_url: str
    shared_runners_setting: str


class ProjectShape(TypedDict):
    id: int
    description: str | None
    name: str
    name_with_namespace: str
    path: str
    path_with_namespace: str
    created_at: str | None
    default_branch: str | None
    http_url_to_repo: str
    ssh_url_to_repo: None
    web_url: str
    namespace: NamespaceShape
    visibility: str
    organization_id: int
    creator_id: int
    priority: int
    archived: bool
    jobs_enabled: bool
    builds_access_level: str
    shared_runners_enabled: bool
    build_timeout: int
    ci_config_path: str
    empty_repo: NotRequired[bool]


class CommitShape(TypedDict):
    id: str
    short_id: str
    title: str
    message: str
    parent_ids: list[str]
    author_name: str
    author_email: str
    authored_date: str | None
    committer_name: str
    committer_email: str
    committed_date: str | None
    created_at: str | None
    trailers: dict[str, str]
    web_url: str


class BranchShape(TypedDict):
    name: str
    commit: CommitShape
    merged: bool
    protected: bool
    default: bool
    developers_can_push: bool
    developers_can_merge: bool
    can_push: bool
    web_url: str


class TagShape(TypedDict):
    name: str
    message: str | None
    target: str
    commit: CommitShape
    release: dict[str, str] | None
    protected: bool


class TreeEntryShape(TypedDict):
    id: str
    name: str
    type: str
    path: str
    mode: str


class FileShape(TypedDict):
    file_name: str
    file_path: str
    size: int
    encoding: str
    content: str
    content_sha256: str
    ref: str
    blob_id: str
    commit_id: str
    last_commit_id: str
    execute_filemode: bool


class ChangedFileShape(TypedDict):
    file_path: str
    branch: str


class PipelineSummaryShape(TypedDict):
    """A pipeline in a list or inside a job."""

    id: int
    iid: int
    project_id: int
    sha: str
    ref: str
    status: str
    source: str
    created_at: str | None
    updated_at: str | None
    web_url: str
    name: str | None


class PipelineShape(PipelineSummaryShape):
    before_sha: str
    tag: bool
    yaml_errors: str | None
    user: UserShape
    started_at: str | None
    finished_at: str | None
    committed_at: None
    duration: int | None
    queued_duration: int | None
    coverage: str | None
    detailed_status: dict[str, Any]


class JobFileShape(TypedDict):
    file_type: str
    size: int
    filename: str
    file_format: str | None


class RunnerSummaryShape(TypedDict):
    id: int
    description: str
    ip_address: str | None
    active: bool
    paused: bool
    is_shared: bool
    runner_type: str
    name: str
    created_at: str | None


class RunnerShape(RunnerSummaryShape):
    online: bool
    status: str
    contacted_at: str | None
    tag_list: list[str]
    run_untagged: bool
    locked: bool
    access_level: str
    maximum_timeout: int | None
    maintenance_note: str | None
    priority: int
    poll_hold_seconds: int | None
    version: str | None
    revision: str | None
    platform: str | None
    architecture: str | None
    projects: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    token_expires_at: str | None
    organization_id: int


class ManagerShape(TypedDict):
    system_id: str
    version: str | None
    revision: str | None
    platform: str | None
    architecture: str | None
    executor: str | None
    contacted_at: str | None
    ip_address: str | None
    capacity: int | None
    load: dict[str, Any] | None
    running_jobs: int
    status: str


class JobShape(TypedDict):
    id: int
    name: str
    stage: str
    status: str
    ref: str
    tag: bool
    coverage: float | None
    allow_failure: bool
    created_at: str | None
    started_at: str | None
    finished_at: str | None
    erased_at: str | None
    duration: float | None
    queued_duration: float | None
    user: UserShape
    commit: CommitShape | None
    pipeline: PipelineSummaryShape
    web_url: str
    project: dict[str, Any]
    artifacts: list[JobFileShape]
    artifacts_expire_at: str | None
    runner: RunnerSummaryShape | None
    runner_manager: dict[str, Any] | None
    archived: bool
    tag_list: list[str]
    exit_code: int | None
    artifacts_file: NotRequired[dict[str, Any]]
    failure_reason: NotRequired[str]
    failure_message: NotRequired[str | None]
    downstream_pipeline: NotRequired[PipelineSummaryShape | None]


class TimedJobShape(JobShape):
    """A job with what only Remuda tells of it."""

    state: str
    epoch: int
    tries: int
    lost_tries: int
    priority: int
    times: dict[str, Any]
    held_until: str | None
    """Until when the environment of a failed job stays; null: it does not."""


class VariableShape(TypedDict):
    variable_type: Literal["env_var", "file"]
    key: str
    value: str | None
    hidden: bool
    protected: bool
    masked: bool
    raw: bool
    environment_scope: str
    description: str | None


class GivenVariableShape(TypedDict):
    """A variable of one pipeline or schedule."""

    key: str
    value: str
    variable_type: Literal["env_var", "file"]
    raw: bool


class PersonalTokenShape(TypedDict):
    id: int
    name: str
    description: str
    revoked: bool
    created_at: str
    scopes: list[str]
    user_id: int
    last_used_at: str | None
    active: bool
    expires_at: str | None
    token: NotRequired[str]


class TriggerShape(TypedDict):
    id: int
    token: str
    description: str
    created_at: str
    updated_at: str
    last_used: str | None
    deleted_at: None
    expires_at: None
    owner: UserShape | None


class ScheduleShape(TypedDict):
    id: int
    description: str
    ref: str
    cron: str
    cron_timezone: str
    next_run_at: str | None
    active: bool
    created_at: str
    updated_at: str
    owner: UserShape | None
    last_error: str | None
    last_pipeline: NotRequired[dict[str, Any] | None]
    variables: NotRequired[list[GivenVariableShape]]
    inputs: NotRequired[list[dict[str, Any]]]


class ReleaseShape(TypedDict):
    tag_name: str
    name: str
    description: str
    created_at: str
    released_at: str
    upcoming_release: bool
    author: UserShape
    commit: CommitShape | None
    milestones: list[dict[str, Any]]
    commit_path: str
    tag_path: str
    assets: dict[str, Any]
    evidences: list[Any]
    _links: dict[str, str]


class LintShape(TypedDict):
    valid: bool
    errors: list[str]
    warnings: list[str]
    mistakes: list[dict[str, Any]]
    merged_yaml: NotRequired[str | None]
    left_out: NotRequired[list[dict[str, str]]]
    includes: NotRequired[list[dict[str, Any]]]
    jobs: NotRequired[list[dict[str, Any]]]


class TokenShape(TypedDict):
    """A registration token."""

    token: str
    token_expires_at: str | None


class VersionShape(TypedDict):
    version: str
    revision: str
    kas: NotRequired[dict[str, Any]]
    enterprise: NotRequired[bool]


class StepsShape(TypedDict):
    version: int
    job_id: int
    results: list[Any]
    next_after: int | None


class PolicyShape(TypedDict):
    scope: str
    id: int
    version: int
    document: dict[str, Any]
    updated_at: float | None


class MessageShape(TypedDict):
    """An answer that says only that it is done, or why not."""

    message: str


class AuditEventShape(TypedDict):
    """An action that is remembered; the details depend on it."""

    id: int
    author_id: int
    entity_id: int
    entity_type: str
    event_name: str
    created_at: str
    details: dict[str, Any]
