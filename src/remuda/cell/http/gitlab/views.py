"""What the cell keeps, as GitLab's API shows it: the field names are GitLab's, and a client may rely on them.

Pure functions of values. What a field needs from elsewhere (a commit's message, a runner) comes in as an argument.
"""

from collections.abc import Sequence
from typing import Any

from remuda.cell.git.port import Commit
from remuda.cell.http.gitlab.shapes import (
    BranchShape,
    CommitShape,
    GroupShape,
    JobFileShape,
    JobShape,
    ManagerShape,
    NamespaceShape,
    OrganizationShape,
    PipelineShape,
    PipelineSummaryShape,
    ProjectShape,
    RunnerShape,
    RunnerSummaryShape,
    UserShape,
    VariableShape,
)
from remuda.cell.values import (
    Artifact,
    Job,
    Pipeline,
    Project,
    ProjectVariable,
    Runner,
    RunnerManager,
)
from remuda.cell.values.people import FIRST_USER, Namespace, Organization, User, status_of
from remuda.lib.clock import rfc3339
from remuda.model.runner import RunnerType

View = dict[str, Any]


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else rfc3339(seconds)


def user_view(url: str, user: User = FIRST_USER) -> UserShape:
    """A user as everybody may see them."""
    return {
        "id": user.id,
        "username": user.username,
        "name": user.name,
        "state": user.state,
        "locked": False,
        "avatar_url": None,
        "web_url": f"{url}/{user.username}",
    }


def pipeline_user_view(pipeline: Pipeline, url: str) -> UserShape:
    """Who started a pipeline, as its jobs are told."""
    username = pipeline.predefined.get("GITLAB_USER_LOGIN", FIRST_USER.username)
    name = pipeline.predefined.get("GITLAB_USER_NAME", FIRST_USER.name)
    web_url = f"{url}/{username}"
    return {**user_view(url), "id": pipeline.user_id, "username": username, "name": name, "web_url": web_url}


def namespace_view(namespace: Namespace, url: str) -> NamespaceShape:
    kind = "group" if namespace.is_group else "user"
    return {
        "id": namespace.id,
        "name": namespace.name,
        "path": namespace.path.rpartition("/")[2],
        "kind": kind,
        "full_path": namespace.path,
        "parent_id": namespace.parent_id,
        "avatar_url": None,
        "web_url": f"{url}/groups/{namespace.path}" if namespace.is_group else f"{url}/{namespace.path}",
    }


def organization_view(organization: Organization, url: str) -> OrganizationShape:
    return {
        "id": organization.id,
        "name": organization.name,
        "path": organization.path,
        "description": organization.description,
        "created_at": _time(organization.created_at),
        "updated_at": _time(organization.created_at),
        "web_url": f"{url}/o/{organization.path}",
        "avatar_url": None,
    }


def group_view(group: Namespace, url: str) -> GroupShape:
    return {
        "id": group.id,
        "organization_id": group.organization_id,
        "name": group.name,
        "path": group.path.rpartition("/")[2],
        "full_path": group.path,
        "full_name": group.path.replace("/", " / "),
        "description": group.description,
        "visibility": group.visibility,
        "parent_id": group.parent_id,
        "created_at": _time(group.created_at),
        "avatar_url": None,
        "web_url": f"{url}/groups/{group.path}",
        "shared_runners_setting": "enabled",
    }


def project_view(
    project: Project, url: str, default_branch: str | None, *, is_empty: bool | None = None
) -> ProjectShape:
    namespace, _, path = project.path.rpartition("/")
    view: ProjectShape = {
        "id": project.id,
        "description": project.description or None,
        "name": project.name,
        "name_with_namespace": f"{namespace} / {project.name}",
        "path": path,
        "path_with_namespace": project.path,
        "created_at": _time(project.created_at),
        "default_branch": default_branch,
        "http_url_to_repo": f"{url}/{project.path}.git",
        "ssh_url_to_repo": None,
        "web_url": f"{url}/{project.path}",
        "namespace": {
            "id": project.namespace_id,
            "name": namespace,
            "path": namespace.rpartition("/")[2],
            "kind": "group" if project.group_ids else "user",
            "full_path": namespace,
            "parent_id": project.group_ids[1] if len(project.group_ids) > 1 else None,
            "web_url": f"{url}/{namespace}",
        },
        "visibility": project.visibility,
        "organization_id": project.organization_id,
        "creator_id": project.creator_id,
        "priority": project.priority,
        "archived": False,
        "jobs_enabled": True,
        "builds_access_level": "enabled",
        "shared_runners_enabled": True,
        "build_timeout": project.timeout_seconds,
        "ci_config_path": "",
    }
    return view if is_empty is None else {**view, "empty_repo": is_empty}


def commit_view(commit: Commit, project: Project, url: str) -> CommitShape:
    return {
        "id": commit.sha,
        "short_id": commit.sha[:8],
        "title": commit.title,
        "message": commit.message,
        "parent_ids": list(commit.parents),
        "author_name": commit.author_name,
        "author_email": commit.author_email,
        "authored_date": _time(commit.authored_at),
        "committer_name": commit.committer_name,
        "committer_email": commit.committer_email,
        "committed_date": _time(commit.committed_at),
        "created_at": _time(commit.committed_at),
        "trailers": {},
        "web_url": f"{url}/{project.path}/-/commit/{commit.sha}",
    }


def branch_view(name: str, commit: CommitShape, default_branch: str | None, project: Project, url: str) -> BranchShape:
    is_default = name == default_branch
    return {
        "name": name,
        "commit": commit,
        "merged": False,
        "protected": is_default,
        "default": is_default,
        "developers_can_push": not is_default,
        "developers_can_merge": not is_default,
        "can_push": True,
        "web_url": f"{url}/{project.path}/-/tree/{name}",
    }


def pipeline_summary(pipeline: Pipeline, project: Project, url: str) -> PipelineSummaryShape:
    """A pipeline in a list or inside a job."""
    return {
        "id": pipeline.id,
        "iid": pipeline.iid,
        "project_id": pipeline.project_id,
        "sha": pipeline.sha,
        "ref": pipeline.ref,
        "status": pipeline.status,
        "source": pipeline.source,
        "created_at": _time(pipeline.created_at),
        "updated_at": _time(pipeline.updated_at),
        "web_url": f"{url}/{project.path}/-/pipelines/{pipeline.id}",
        "name": pipeline.name or None,
    }


def pipeline_view(
    pipeline: Pipeline, project: Project, url: str, now: float, *, coverage: float | None = None
) -> PipelineShape:
    started, finished = pipeline.started_at, pipeline.finished_at
    return {
        **pipeline_summary(pipeline, project, url),
        "before_sha": pipeline.before_sha,
        "tag": pipeline.tag,
        "yaml_errors": pipeline.yaml_errors,
        "user": pipeline_user_view(pipeline, url),
        "started_at": _time(started),
        "finished_at": _time(finished),
        "committed_at": None,
        "duration": None if started is None else int((finished or now) - started),
        "queued_duration": None if started is None else int(started - pipeline.created_at),
        "coverage": None if coverage is None else f"{coverage:.2f}",
        "detailed_status": _detailed_status(pipeline, project),
    }


_STATUS_WORDS = {
    "success": ("Passed", "passed"),
    "manual": ("Blocked", "waiting for manual action"),
    "scheduled": ("Scheduled", "waiting for delayed job"),
    "waiting_for_resource": ("Waiting", "waiting for resource"),
}


def _detailed_status(pipeline: Pipeline, project: Project) -> View:
    """A status as GitLab's pages show it."""
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
    files: list[JobFileShape] = [
        {"file_type": one.type, "size": one.size, "filename": one.filename, "file_format": one.format}
        for one in artifacts
    ]
    if job.trace_bytes:
        files.append({"file_type": "trace", "size": job.trace_bytes, "filename": "job.log", "file_format": None})
    view: JobShape = {
        "id": job.id,
        "name": job.name,
        "stage": job.stage,
        "status": job.status(),
        "ref": job.ref,
        "tag": job.tag,
        "coverage": job.coverage,
        "allow_failure": job.allow_failure,
        "created_at": _time(job.created_at),
        "started_at": _time(job.start_time()),
        "finished_at": _time(job.finished_at),
        "erased_at": _time(job.erased_at),
        "duration": running_seconds(job, now),
        "queued_duration": waiting_seconds(job, now),
        "user": pipeline_user_view(pipeline, url),
        "commit": commit_view(commit, project, url) if commit else None,
        "pipeline": pipeline_summary(pipeline, project, url),
        "web_url": f"{url}/{project.path}/-/jobs/{job.id}",
        "project": {"ci_job_token_scope_enabled": True},
        "artifacts": files,
        "artifacts_expire_at": _time(next((one.expires_at for one in (archive, *artifacts) if one), None)),
        "runner": runner_summary(runner) if runner else None,
        "runner_manager": {"system_id": job.system_id} if job.system_id else None,
        "archived": False,
        "tag_list": list(job.tags),
        "exit_code": job.exit_code,
    }
    if archive:
        view["artifacts_file"] = {"filename": archive.filename, "size": archive.size}
    if job.failure_reason:
        view["failure_reason"] = job.failure_reason
        view["failure_message"] = job.failure_message
    return view


def running_seconds(job: Job, now: float) -> float | None:
    """How long the job has run, or ran."""
    started_at = job.start_time()
    if started_at is None:
        return None
    return round(max((job.finished_at or now) - started_at, 0.0), 6)


def waiting_seconds(job: Job, now: float) -> float | None:
    """How long the job has waited for a runner, or waited."""
    if job.pending_at is None:
        return None
    return round(max((job.start_time() or job.finished_at or now) - job.pending_at, 0.0), 6)


def variable_view(variable: ProjectVariable) -> VariableShape:
    return {
        "variable_type": "file" if variable.file else "env_var",
        "key": variable.key,
        "value": None if variable.hidden else variable.value,
        "hidden": variable.hidden,
        "protected": variable.protected,
        "masked": variable.masked,
        "raw": variable.raw,
        "environment_scope": variable.environment_scope,
        "description": variable.description,
    }


def runner_summary(runner: Runner) -> RunnerSummaryShape:
    return {
        "id": runner.id,
        "description": runner.description,
        "ip_address": None,
        "active": not runner.paused,
        "paused": runner.paused,
        "is_shared": runner.type is RunnerType.INSTANCE,
        "runner_type": runner.type.value,
        "name": "gitlab-runner",
        "created_at": _time(runner.created_at),
    }


def runner_view(
    runner: Runner,
    managers: Sequence[RunnerManager],
    now: float,
    *,
    projects: Sequence[View] = (),
    groups: Sequence[View] = (),
) -> RunnerShape:
    contacted = max((manager.contacted_at for manager in managers), default=None)
    status = status_of(runner.created_at, contacted, now)
    newest = max(managers, key=lambda manager: manager.contacted_at, default=None)
    return {
        **runner_summary(runner),
        "ip_address": newest.ip_address if newest else None,
        "online": status == "online",
        "status": status,
        "contacted_at": _time(contacted),
        "tag_list": list(runner.tags),
        "run_untagged": runner.run_untagged,
        "locked": runner.locked,
        "access_level": "ref_protected" if runner.protected_only else "not_protected",
        "maximum_timeout": runner.maximum_timeout,
        "maintenance_note": runner.maintenance_note,
        "priority": runner.priority,
        "poll_hold_seconds": runner.poll_hold_seconds,
        "version": newest.runner_version if newest else None,
        "revision": newest.revision if newest else None,
        "platform": newest.platform if newest else None,
        "architecture": newest.architecture if newest else None,
        "projects": list(projects),
        "groups": list(groups),
        "token_expires_at": _time(runner.token_expires_at),
        "organization_id": runner.organization_id,
    }


def _load(manager: RunnerManager) -> dict[str, Any] | None:
    """What a manager says that it has to do for all its servers; None where it does not say."""
    running, free = manager.load_running, manager.load_free
    if running is None or free is None:
        return None
    slots = running + free
    return {"running": running, "free": free, "saturation": round(running / slots, 4) if slots else 1.0}


def manager_view(manager: RunnerManager, now: float, *, running_jobs: int) -> ManagerShape:
    return {
        "system_id": manager.system_id,
        "version": manager.runner_version,
        "revision": manager.revision,
        "platform": manager.platform,
        "architecture": manager.architecture,
        "executor": manager.executor,
        "contacted_at": _time(manager.contacted_at),
        "ip_address": manager.ip_address,
        "capacity": manager.capacity,
        "load": _load(manager),
        "running_jobs": running_jobs,
        "status": status_of(manager.contacted_at, manager.contacted_at, now),
    }
