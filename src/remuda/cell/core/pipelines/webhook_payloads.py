"""The bodies of webhook requests, in GitLab's form, for pushes, tags, pipelines and jobs; and which hooks want them."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from remuda.cell.core.access.protected_refs import HEADS, TAGS, matches
from remuda.cell.core.payload.predefined_variables import of_project
from remuda.cell.values import Job, Pipeline, Project
from remuda.cell.values.hooks import Hook
from remuda.cell.values.people import User
from remuda.lib.clock import rfc3339
from remuda.model.job import JobState
from remuda.pipeline.facts import NO_SHA

PUSH, TAG_PUSH, PIPELINE, JOB = "push_events", "tag_push_events", "pipeline_events", "job_events"
SENT = {PUSH: "Push Hook", TAG_PUSH: "Tag Push Hook", PIPELINE: "Pipeline Hook", JOB: "Job Hook"}
"""The kinds of events that the cell sends, with their names in the header X-Gitlab-Event."""
NOT_SENT = (
    "issues_events", "confidential_issues_events", "merge_requests_events", "note_events", "confidential_note_events",
    "wiki_page_events", "deployment_events", "releases_events", "milestone_events", "subgroup_events", "member_events",
    "emoji_events", "feature_flag_events", "resource_access_token_events", "resource_deploy_token_events",
    "project_events", "vulnerability_events", "repository_update_events",
)  # fmt: skip
"""GitLab's other kinds of events, which the cell never sends."""
MAX_COMMITS = 20
_VISIBILITY_LEVELS = {"private": 0, "internal": 10, "public": 20}
_SPACE = uuid.UUID("5d3a1c1e-8f0b-4c59-9f1e-6b7d1a6a3b52")
_encode = msgspec.json.Encoder().encode


class PushedCommit(Protocol):
    """What a push event says about a commit; implemented by `Commit` of the repositories."""

    @property
    def sha(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def author_name(self) -> str: ...
    @property
    def author_email(self) -> str: ...
    @property
    def committed_at(self) -> float: ...


def event_id(hook_id: int, *parts: object) -> str:
    """Return the id of an event for a hook. The same event has the same id in every process and after a restart."""
    return str(uuid.uuid5(_SPACE, "\n".join(str(part) for part in (hook_id, *parts))))


def wants(hook: Hook, event: str, ref: str = "") -> bool:
    """Return whether a hook gets events of a kind; `ref`: the full ref of a push, for the filter of branches."""
    if event not in hook.events:
        return False
    if event != PUSH or not hook.branch_filter or hook.branch_filter_strategy == "all_branches":
        return True
    return matches(hook.branch_filter, ref.removeprefix(HEADS))


def _project(project: Project, url: str) -> dict[str, Any]:
    names = of_project(project, url)
    return {
        "id": project.id,
        "name": project.name,
        "description": project.description or None,
        "web_url": f"{url}/{project.path}",
        "avatar_url": None,
        "git_ssh_url": None,
        "git_http_url": f"{url}/{project.path}.git",
        "namespace": names["CI_PROJECT_NAMESPACE"],
        "visibility_level": _VISIBILITY_LEVELS[project.visibility],
        "path_with_namespace": project.path,
        "default_branch": project.default_branch,
        "ci_config_path": project.ci_config_path or None,
    }


def _user(user: User | None, user_id: int) -> dict[str, Any]:
    if user is None:
        return {"id": user_id, "name": "", "username": "", "avatar_url": None, "email": "[REDACTED]"}
    return {
        "id": user.id, "name": user.name, "username": user.username, "avatar_url": None, "email": "[REDACTED]",
    }  # fmt: skip


def push_body(
    project: Project,
    user: User | None,
    *,
    user_id: int,
    ref: str,
    before: str,
    after: str,
    commits: Sequence[PushedCommit],
    url: str,
) -> bytes:
    """Return the body for a moved, new or deleted branch or tag. `commits`: the newest ones, the newest first."""
    is_tag = ref.startswith(TAGS)
    kind = "tag_push" if is_tag else "push"
    who = _user(user, user_id)
    return _encode(
        {
            "object_kind": kind,
            "event_name": kind,
            "before": before,
            "after": after,
            "ref": ref,
            "ref_protected": None,
            "checkout_sha": None if after == NO_SHA else after,
            "message": None,
            "user_id": who["id"],
            "user_name": who["name"],
            "user_username": who["username"],
            "user_email": "",
            "user_avatar": None,
            "project_id": project.id,
            "project": _project(project, url),
            "commits": [_describe_commit(commit, project, url) for commit in commits[:MAX_COMMITS]][::-1],
            "total_commits_count": len(commits),
            "push_options": {},
            "repository": {
                "name": project.name,
                "url": f"{url}/{project.path}.git",
                "description": project.description,
                "homepage": f"{url}/{project.path}",
                "git_http_url": f"{url}/{project.path}.git",
                "git_ssh_url": None,
                "visibility_level": _VISIBILITY_LEVELS[project.visibility],
            },
        }
    )


def _describe_commit(commit: PushedCommit, project: Project, url: str) -> dict[str, Any]:
    return {
        "id": commit.sha,
        "message": commit.message,
        "title": commit.title,
        "timestamp": rfc3339(commit.committed_at),
        "url": f"{url}/{project.path}/-/commit/{commit.sha}",
        "author": {"name": commit.author_name, "email": commit.author_email},
    }


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else rfc3339(seconds)


def _duration(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else round(max(end - start, 0.0), 3)


def _commit(pipeline: Pipeline, project: Project, url: str) -> dict[str, Any]:
    values = pipeline.predefined
    name, _, mail = values.get("CI_COMMIT_AUTHOR", "").partition(" <")
    return {
        "id": pipeline.sha,
        "message": values.get("CI_COMMIT_MESSAGE", ""),
        "title": values.get("CI_COMMIT_TITLE", ""),
        "timestamp": values.get("CI_COMMIT_TIMESTAMP"),
        "url": f"{url}/{project.path}/-/commit/{pipeline.sha}",
        "author": {"name": name, "email": mail.removesuffix(">")},
    }


def _build(job: Job, user: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": job.id,
        "stage": job.stage,
        "name": job.name,
        "status": job.status(),
        "created_at": _time(job.created_at),
        "started_at": _time(job.start_time()),
        "finished_at": _time(job.finished_at),
        "duration": _duration(job.start_time(), job.finished_at),
        "queued_duration": _duration(job.pending_at, job.start_time()),
        "failure_reason": job.failure_reason or None,
        "when": job.when.value,
        "manual": job.when.value == "manual",
        "allow_failure": job.allow_failure,
        "user": user,
        "runner": None if job.runner_id is None else {"id": job.runner_id},
        "artifacts_file": {"filename": None, "size": None},
        "environment": {"name": job.environment} if job.environment else None,
    }


def pipeline_body(project: Project, pipeline: Pipeline, jobs: Sequence[Job], user: User | None, *, url: str) -> bytes:
    """Return the body for a pipeline whose status has changed."""
    who = _user(user, pipeline.user_id)
    stages = list(dict.fromkeys(job.stage for job in sorted(jobs, key=lambda job: job.stage_index)))
    return _encode(
        {
            "object_kind": "pipeline",
            "object_attributes": {
                "id": pipeline.id,
                "iid": pipeline.iid,
                "name": pipeline.name or None,
                "ref": pipeline.ref,
                "tag": pipeline.tag,
                "sha": pipeline.sha,
                "before_sha": pipeline.before_sha,
                "source": pipeline.source,
                "status": pipeline.status,
                "detailed_status": "passed" if pipeline.status == "success" else pipeline.status,
                "stages": stages,
                "created_at": _time(pipeline.created_at),
                "finished_at": _time(pipeline.finished_at),
                "duration": _duration(pipeline.started_at, pipeline.finished_at),
                "queued_duration": _duration(pipeline.created_at, pipeline.started_at),
                "protected_ref": pipeline.protected,
                "variables": [],
                "url": f"{url}/{project.path}/-/pipelines/{pipeline.id}",
            },
            "merge_request": None,
            "user": who,
            "project": _project(project, url),
            "commit": _commit(pipeline, project, url),
            "builds": [_build(job, who) for job in jobs if not job.is_trigger],
        }
    )


def job_body(project: Project, pipeline: Pipeline, job: Job, user: User | None, *, url: str) -> bytes:
    """Return the body for a job whose status has changed."""
    return _encode(
        {
            "object_kind": "build",
            "ref": pipeline.ref,
            "tag": pipeline.tag,
            "before_sha": pipeline.before_sha,
            "sha": pipeline.sha,
            "retries_count": 0,
            "build_id": job.id,
            "build_name": job.name,
            "build_stage": job.stage,
            "build_status": job.status(),
            "build_created_at": _time(job.created_at),
            "build_started_at": _time(job.start_time()),
            "build_finished_at": _time(job.finished_at),
            "build_duration": _duration(job.start_time(), job.finished_at),
            "build_queued_duration": _duration(job.pending_at, job.start_time()),
            "build_allow_failure": job.allow_failure,
            "build_failure_reason": job.failure_reason or "unknown_failure",
            "pipeline_id": pipeline.id,
            "runner": None if job.runner_id is None else {"id": job.runner_id},
            "project_id": project.id,
            "project_name": f"{project.path.rpartition('/')[0]} / {project.name}",
            "user": _user(user, pipeline.user_id),
            "commit": {**_commit(pipeline, project, url), "id": pipeline.id, "sha": pipeline.sha},
            "repository": {"name": project.name, "homepage": f"{url}/{project.path}"},
            "project": _project(project, url),
            "environment": {"name": job.environment} if job.environment else None,
        }
    )


def is_sent_state(job: Job) -> bool:
    """Return whether a state of a job has an event: all but `leased`, which is no state in GitLab."""
    return job.state is not JobState.LEASED
