"""Responses that several endpoints share, in GitLab's form: each struct with the function that fills it from an object.

A response that only one module gives is defined in that module. Field names are GitLab's, times are RFC 3339."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, UnsetType, field
from msgspec.structs import asdict

from remuda.cell.git.port import Commit
from remuda.cell.http.edge.endpoints import Shape
from remuda.cell.values import Artifact, Job, Pipeline, Project, Runner
from remuda.cell.values.people import FIRST_USER, User
from remuda.lib.clock import rfc3339
from remuda.model.runner import RunnerType

View = dict[str, Any]


def time_text(seconds: float | None) -> str | None:
    return None if seconds is None else rfc3339(seconds)


class MessageShape(Shape, kw_only=True):
    """A message that the request was accepted, for calls that have nothing else to return."""

    message: str


class UserShape(Shape, kw_only=True):
    """A user. The optional fields are shown to administrators and to the user themselves."""

    id: int
    username: str
    name: str
    state: str
    locked: bool = False
    avatar_url: None = None
    web_url: str
    email: str | UnsetType = UNSET
    is_admin: bool | UnsetType = UNSET
    created_at: str | UnsetType | None = UNSET
    """null: of the first user of a cell that an older version created."""
    organization_id: int | UnsetType = UNSET
    namespace_id: int | UnsetType = UNSET
    bot: bool | UnsetType = UNSET


def user_view(url: str, user: User) -> UserShape:
    """The API response for a user, with the fields that everybody may see."""
    return UserShape.of(user, web_url=f"{url}/{user.username}")


def pipeline_user_view(pipeline: Pipeline, url: str) -> UserShape:
    """The user who started a pipeline, with the names in its variables GITLAB_USER_LOGIN and GITLAB_USER_NAME."""
    username = pipeline.predefined.get("GITLAB_USER_LOGIN", FIRST_USER.username)
    return UserShape(
        id=pipeline.user_id,
        username=username,
        name=pipeline.predefined.get("GITLAB_USER_NAME", FIRST_USER.name),
        state=FIRST_USER.state,
        web_url=f"{url}/{username}",
    )


class NamespaceShape(Shape, kw_only=True):
    id: int
    name: str
    path: str
    kind: str
    full_path: str
    parent_id: int | None
    avatar_url: UnsetType | None = UNSET
    web_url: str


class ProjectSummaryShape(Shape, kw_only=True):
    """A project with the fields that are shown inside other objects."""

    id: int
    description: str | None
    name: str
    name_with_namespace: str
    path: str
    path_with_namespace: str
    created_at: str | None


class ProjectShape(ProjectSummaryShape, kw_only=True):
    default_branch: str | None
    http_url_to_repo: str
    ssh_url_to_repo: None = None
    web_url: str
    namespace: NamespaceShape
    visibility: str
    organization_id: int
    creator_id: int
    priority: int
    archived: bool
    last_activity_at: str | None
    jobs_enabled: bool = True
    builds_access_level: str = "enabled"
    repository_access_level: str = "enabled"
    shared_runners_enabled: bool
    group_runners_enabled: bool
    public_jobs: bool = True
    issues_enabled: bool = False
    merge_requests_enabled: bool = False
    wiki_enabled: bool = False
    snippets_enabled: bool = False
    merge_method: str = "merge"
    squash_option: str = "default_off"
    approvals_before_merge: int = 0
    only_allow_merge_if_pipeline_succeeds: bool = False
    only_allow_merge_if_all_discussions_are_resolved: bool = False
    import_status: str = "none"
    build_timeout: int
    ci_config_path: str
    auto_cancel_pending_pipelines: str
    build_git_strategy: str
    ci_default_git_depth: int
    ci_separated_caches: bool
    ci_job_token_scope_enabled: bool
    keep_latest_artifact: bool
    lfs_enabled: bool
    ci_pipeline_variables_minimum_override_role: str
    restrict_user_defined_variables: bool
    topics: list[str]
    tag_list: list[str]
    empty_repo: bool | UnsetType = UNSET


def summary_fields(project: Project) -> dict[str, Any]:
    """Return those fields of `ProjectSummaryShape` that are not fields of the project itself."""
    namespace, _, path = project.path.rpartition("/")
    return {
        "description": project.description or None,
        "name_with_namespace": f"{namespace} / {project.name}",
        "path": path,
        "path_with_namespace": project.path,
        "created_at": time_text(project.created_at),
    }


def project_view(
    project: Project, url: str, default_branch: str | None, *, is_empty: bool | None = None
) -> ProjectShape:
    namespace = project.path.rpartition("/")[0]
    return ProjectShape.of(
        project,
        **summary_fields(project),
        last_activity_at=time_text(max(project.created_at, project.last_activity_at)),
        default_branch=default_branch,
        http_url_to_repo=f"{url}/{project.path}.git",
        web_url=f"{url}/{project.path}",
        namespace=NamespaceShape(
            id=project.namespace_id,
            name=namespace,
            path=namespace.rpartition("/")[2],
            kind="group" if project.group_ids else "user",
            full_path=namespace,
            parent_id=project.group_ids[1] if len(project.group_ids) > 1 else None,
            web_url=f"{url}/{namespace}",
        ),
        build_timeout=project.timeout_seconds,
        ci_job_token_scope_enabled=project.job_token_scope_enabled,
        topics=list(project.topics),
        tag_list=list(project.topics),
        empty_repo=UNSET if is_empty is None else is_empty,
    )


class CommitShape(Shape, kw_only=True):
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
    trailers: dict[str, str] = field(default_factory=dict)
    web_url: str


def commit_view(commit: Commit, project: Project, url: str) -> CommitShape:
    committed_at = time_text(commit.committed_at)
    return CommitShape.of(
        commit,
        id=commit.sha,
        short_id=commit.sha[:8],
        parent_ids=list(commit.parents),
        authored_date=time_text(commit.authored_at),
        committed_date=committed_at,
        created_at=committed_at,
        web_url=f"{url}/{project.path}/-/commit/{commit.sha}",
    )


class PipelineSummaryShape(Shape, kw_only=True):
    """A pipeline with the few fields that are shown in lists and inside a job."""

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


def pipeline_summary(pipeline: Pipeline, project: Project, url: str) -> PipelineSummaryShape:
    return PipelineSummaryShape.of(
        pipeline,
        created_at=time_text(pipeline.created_at),
        updated_at=time_text(pipeline.updated_at),
        web_url=f"{url}/{project.path}/-/pipelines/{pipeline.id}",
        name=pipeline.name or None,
    )


class PipelineShape(PipelineSummaryShape, kw_only=True):
    before_sha: str
    tag: bool
    yaml_errors: str | None
    yaml_warnings: str | None
    user: UserShape
    started_at: str | None
    finished_at: str | None
    committed_at: None = None
    duration: int | None
    queued_duration: int | None
    coverage: str | None
    detailed_status: dict[str, Any]


def pipeline_view(
    pipeline: Pipeline, project: Project, url: str, now: float, *, coverage: float | None = None
) -> PipelineShape:
    started, finished = pipeline.started_at, pipeline.finished_at
    return PipelineShape.of(
        pipeline,
        **asdict(pipeline_summary(pipeline, project, url)),
        user=pipeline_user_view(pipeline, url),
        started_at=time_text(started),
        finished_at=time_text(finished),
        duration=None if started is None else int((finished or now) - started),
        queued_duration=None if started is None else int(started - pipeline.created_at),
        coverage=None if coverage is None else f"{coverage:.2f}",
        detailed_status=_status_details(pipeline, project),
    )


_STATUS_WORDS = {
    "success": ("Passed", "passed"),
    "manual": ("Blocked", "waiting for manual action"),
    "scheduled": ("Scheduled", "waiting for delayed job"),
    "waiting_for_resource": ("Waiting", "waiting for resource"),
}


def _status_details(pipeline: Pipeline, project: Project) -> View:
    """The status of a pipeline with icon, text and link, as GitLab's web pages show it."""
    status = pipeline.status
    text, label = _STATUS_WORDS.get(status, (status.capitalize(), status))
    return {
        "icon": f"status_{status}",
        "text": text,
        "label": label,
        "group": status.replace("_", "-"),
        "tooltip": label,
        "has_details": True,
        "details_path": f"/{project.path}/-/pipelines/{pipeline.id}",
        "illustration": None,
        "favicon": None,
    }


class RunnerSummaryShape(Shape, kw_only=True):
    id: int
    description: str
    ip_address: str | None = None
    active: bool
    paused: bool
    is_shared: bool
    runner_type: str
    name: str = "gitlab-runner"
    created_at: str | None


def runner_summary(runner: Runner) -> RunnerSummaryShape:
    return RunnerSummaryShape.of(
        runner,
        active=not runner.paused,
        is_shared=runner.type is RunnerType.INSTANCE,
        runner_type=runner.type.value,
        created_at=time_text(runner.created_at),
    )


class JobFileShape(Shape, kw_only=True):
    file_type: str
    size: int
    filename: str
    file_format: str | None


class JobShape(Shape, kw_only=True):
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
    archived: bool = False
    tag_list: list[str]
    exit_code: int | None
    artifacts_file: dict[str, Any] | UnsetType = UNSET
    failure_reason: str | UnsetType = UNSET
    failure_message: str | UnsetType | None = UNSET
    downstream_pipeline: PipelineSummaryShape | UnsetType | None = UNSET
    held_until: str | UnsetType | None = UNSET
    """Remuda's own: until when the environment of a failed job is on hold; null: it is not."""
    no_runner_reason: str | UnsetType = UNSET
    """Remuda's own: why no runner could take a waiting job now; left out if one could."""
    warnings: list[str] | UnsetType = UNSET
    """Remuda's own: what the job asks for and does not get, such as its image; left out if it gets all."""


def job_view(
    job: Job,
    *,
    project: Project,
    pipeline: Pipeline,
    commit: Commit | None,
    runner: Runner | None,
    artifacts: Sequence[Artifact],
    url: str,
    now: float,
) -> JobShape:
    archive = next((artifact for artifact in artifacts if artifact.type == "archive"), None)
    files = [
        JobFileShape(file_type=file.type, size=file.size, filename=file.filename, file_format=file.format)
        for file in artifacts
    ]
    if job.trace_bytes:
        files.append(JobFileShape(file_type="trace", size=job.trace_bytes, filename="job.log", file_format=None))
    view = JobShape.of(
        job,
        status=job.status(),
        created_at=time_text(job.created_at),
        started_at=time_text(job.start_time()),
        finished_at=time_text(job.finished_at),
        erased_at=time_text(job.erased_at),
        duration=seconds_running(job, now),
        queued_duration=seconds_waiting(job, now),
        user=pipeline_user_view(pipeline, url),
        commit=commit_view(commit, project, url) if commit else None,
        pipeline=pipeline_summary(pipeline, project, url),
        web_url=f"{url}/{project.path}/-/jobs/{job.id}",
        project={"ci_job_token_scope_enabled": True},
        artifacts=files,
        artifacts_expire_at=time_text(next((file.expires_at for file in (archive, *artifacts) if file), None)),
        runner=runner_summary(runner) if runner else None,
        runner_manager={"system_id": job.system_id} if job.system_id else None,
        tag_list=list(job.tags),
        warnings=list(job.warnings) or UNSET,
    )
    if archive:
        view.artifacts_file = {"filename": archive.filename, "size": archive.size}
    if job.failure_reason:
        view.failure_reason, view.failure_message = job.failure_reason, job.failure_message
    return view


def seconds_running(job: Job, now: float) -> float | None:
    """Seconds from a job's start to its end, or to `now` if it has not ended; None before it starts."""
    started_at = job.start_time()
    if started_at is None:
        return None
    return round(max((job.finished_at or now) - started_at, 0.0), 6)


def seconds_waiting(job: Job, now: float) -> float | None:
    """Seconds a job waited for a runner (was pending): until its start, end or `now`. None if it was never pending."""
    if job.pending_at is None:
        return None
    return round(max((job.start_time() or job.finished_at or now) - job.pending_at, 0.0), 6)
