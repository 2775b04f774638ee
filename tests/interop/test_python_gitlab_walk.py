"""python-gitlab walks through the API of a cell: creates, reads, changes and removes each kind of object."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import gitlab
import pytest
from gitlab.base import RESTObject
from gitlab.v4.objects import Group, Project
from tests.support.api_walks import find_dropped_fields
from tests.support.cells.served_cell import ServedCell
from tests.support.git_client import Clone
from tests.support.git_lfs_program import require_git_lfs
from tests.support.runners.job_worker import ARTIFACT_CONTENT, ARTIFACT_NAME, JobWorker

PIPELINE = """
build:
  script: [echo built]
  artifacts: {paths: [out]}
deploy:
  stage: deploy
  script: [echo deployed]
  environment: {name: production, url: https://example.com}
  resource_group: production
"""
HOOK_URL = "https://hooks.example.com/ci"


@pytest.fixture
def client(cell: ServedCell) -> Iterator[gitlab.Gitlab]:
    with JobWorker(cell):
        yield gitlab.Gitlab(cell.url, private_token=cell.token)


@pytest.fixture
def group(client: gitlab.Gitlab) -> Group:
    created = client.groups.create({"name": "Python", "path": "python", "visibility": "private"})
    assert isinstance(created, Group)
    return created


@pytest.fixture
def project(client: gitlab.Gitlab, group: Group) -> Project:
    created = client.projects.create({"name": "Walk", "namespace_id": group.id})
    assert isinstance(created, Project)
    actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": PIPELINE}]
    created.commits.create({"branch": "main", "commit_message": "add a pipeline", "actions": actions})
    return created


def check_answer(sent: dict[str, Any], answer: RESTObject) -> None:
    call = {"call": type(answer).__name__, "sent": sent, "got": answer.attributes}
    assert list(find_dropped_fields(call)) == []


def walk(manager: Any, sent: dict[str, Any], change: dict[str, Any], *, key: str = "id", hidden: str = "") -> None:
    """Create an object, read it, change it, read it again, find it in the list, remove it. `hidden`: a field that is
    sent and never returned."""
    created = manager.create(sent)
    visible = {name: value for name, value in sent.items() if name != hidden}
    check_answer(visible, created)
    number = created.attributes[key]
    check_answer(visible, manager.get(number))
    if change:
        manager.update(number, change)
        check_answer(visible | change, manager.get(number))
    assert number in [found.attributes[key] for found in manager.list(get_all=True)]
    manager.delete(number)
    with pytest.raises(gitlab.GitlabGetError) as caught:
        manager.get(number)
    assert caught.value.response_code == 404


def run_pipeline(project: Project, **more: Any) -> Any:
    pipeline = project.pipelines.create({"ref": "main", **more})
    deadline = time.monotonic() + 60
    while pipeline.status != "success":
        assert time.monotonic() < deadline, pipeline.status
        time.sleep(0.2)
        pipeline.refresh()
    return pipeline


def test_projects_and_groups(client: gitlab.Gitlab, group: Group) -> None:
    sent = {"name": "Inner", "path": "inner", "description": "by python", "visibility": "private"}
    inner = client.groups.create({**sent, "parent_id": group.id})
    check_answer(sent | {"parent_id": group.id}, inner)
    settings = {
        "name": "Full",
        "path": "full",
        "description": "by python",
        "visibility": "internal",
        "build_timeout": 1800,
        "ci_config_path": "ci/main.yml",
        "topics": ["walk"],
        "build_git_strategy": "clone",
        "auto_cancel_pending_pipelines": "disabled",
        "ci_default_git_depth": 5,
        "ci_separated_caches": False,
        "keep_latest_artifact": False,
        "public_jobs": True,
        "shared_runners_enabled": False,
        "group_runners_enabled": False,
        "lfs_enabled": False,
        "default_branch": "trunk",
    }
    full = client.projects.create({**settings, "namespace_id": group.id, "initialize_with_readme": True})
    check_answer(settings, full)
    check_answer(settings, client.projects.get("python/full"))
    assert full.files.get("README.md", "trunk").decode().startswith(b"# ")
    change = {"build_timeout": 7200, "ci_config_path": "", "lfs_enabled": True, "shared_runners_enabled": True}
    client.projects.update(full.id, change)
    check_answer(change, client.projects.get(full.id))
    assert [found["id"] for found in client.search("projects", "full")] == [full.id]
    assert client.projects.get(full.id).imports.get().import_status == "none"


def test_variables(project: Project, group: Group, client: gitlab.Gitlab) -> None:
    sent = {"key": "KEY", "value": "a-long-secret", "masked": True, "protected": True, "raw": True, "description": "d"}
    walk(project.variables, sent, {"value": "another-long", "protected": False}, key="key")
    walk(group.variables, sent, {"value": "another-long", "variable_type": "file"}, key="key")
    walk(client.variables, sent, {"value": "another-long"}, key="key")


def test_schedules_and_triggers(project: Project) -> None:
    sent = {"description": "nightly", "ref": "refs/heads/main", "cron": "0 3 * * *", "cron_timezone": "Europe/Berlin"}
    walk(project.pipelineschedules, sent | {"active": False}, {"description": "weekly", "cron": "0 4 * * 1"})
    schedule = project.pipelineschedules.create(sent)
    schedule.variables.create({"key": "MODE", "value": "night"})
    schedule = project.pipelineschedules.get(schedule.id)
    assert [(row["key"], row["value"]) for row in schedule.attributes["variables"]] == [("MODE", "night")]
    walk(project.triggers, {"description": "by another system"}, {"description": "changed"})
    trigger = project.triggers.create({"description": "kept"})
    started = project.trigger_pipeline("main", trigger.token, variables={"FROM": "trigger"})
    assert ("FROM", "trigger") in [(row.key, row.value) for row in started.variables.list()]


def test_runners(client: gitlab.Gitlab, project: Project) -> None:
    sent = {
        "description": "by python",
        "paused": True,
        "locked": True,
        "run_untagged": False,
        "tag_list": ["arm", "linux"],
        "access_level": "ref_protected",
        "maximum_timeout": 7200,
        "maintenance_note": "in the cellar",
    }
    client.auth()
    assert client.user is not None
    created = client.user.runners.create({"runner_type": "project_type", "project_id": project.id, **sent})
    check_answer(sent, client.runners.get(created.id))
    change = {"description": "changed", "paused": False, "tag_list": ["x86"]}
    client.runners.update(created.id, change)
    check_answer(change, client.runners.get(created.id))
    assert created.id in [runner.id for runner in project.runners.list(get_all=True)]
    client.runners.delete(created.id)


def test_jobs_and_artifacts(project: Project) -> None:
    pipeline = run_pipeline(project, variables=[{"key": "WHO", "value": "python"}])
    build = next(job for job in pipeline.jobs.list(get_all=True) if job.name == "build")
    job = project.jobs.get(build.id)
    assert b"log of build" in job.trace()
    assert job.artifacts()[:2] == b"PK"
    assert job.artifact(ARTIFACT_NAME).decode() == ARTIFACT_CONTENT
    assert project.commits.get("main").last_pipeline["id"] == pipeline.id
    assert project.pipelines.latest(ref="main").id == pipeline.id
    [found] = project.resource_groups.list()
    project.resource_groups.update(found.key, {"process_mode": "oldest_first"})
    assert project.resource_groups.get(found.key).process_mode == "oldest_first"
    assert list(found.upcoming_jobs.list()) == []


def test_environments_and_deployments(project: Project) -> None:
    run_pipeline(project)
    [production] = project.environments.list(name="production")
    check_answer({"name": "production", "state": "available", "external_url": "https://example.com"}, production)
    deployment = project.deployments.list(environment="production", get_all=True)[-1]
    assert (deployment.status, deployment.ref, deployment.deployable["name"]) == ("success", "main", "deploy")
    sent = {"name": "review/x", "external_url": "https://x.example.com", "tier": "testing", "description": "for x"}
    environment = project.environments.create(sent)
    check_answer(sent, environment)
    project.environments.update(environment.id, {"tier": "staging"})
    environment = project.environments.get(environment.id)
    assert environment.tier == "staging"
    environment.stop()
    assert project.environments.get(environment.id).state == "stopped"
    environment.delete()
    sha = project.commits.get("main").id
    own = {"environment": "elsewhere", "sha": sha, "ref": "main", "tag": False, "status": "running"}
    outside = project.deployments.create(own)
    check_answer({"sha": sha, "ref": "main", "status": "running"}, outside)
    outside.status = "success"
    outside.save()
    assert project.deployments.get(outside.id).status == "success"


def test_statuses(project: Project) -> None:
    commit = project.commits.get("main")
    sent = {"name": "scan", "target_url": "https://scan.example.com/1", "description": "a scan", "coverage": 81.5}
    status = commit.statuses.create({"state": "success", **sent})
    check_answer(sent | {"status": "success"}, status)
    assert "scan" in [row.name for row in commit.statuses.list(get_all=True)]
    assert project.mergerequests.list() == []
    assert commit.merge_requests() == []


def test_protected_branches_and_tags(project: Project) -> None:
    branch = project.protectedbranches.create(
        {"name": "release/*", "push_access_level": 40, "merge_access_level": 30, "allow_force_push": True}
    )
    levels = branch.push_access_levels[0]["access_level"], branch.merge_access_levels[0]["access_level"]
    assert (levels, branch.allow_force_push) == ((40, 30), True)
    project.protectedbranches.update("release/*", {"allow_force_push": False})
    assert project.protectedbranches.get("release/*").allow_force_push is False
    project.protectedbranches.delete("release/*")
    assert [row.name for row in project.protectedbranches.list()] == ["main"]
    tag = project.protectedtags.create({"name": "v*", "create_access_level": 40})
    assert tag.create_access_levels[0]["access_level"] == 40
    project.protectedtags.delete("v*")
    assert project.protectedtags.list() == []


def test_tokens(client: gitlab.Gitlab, cell: ServedCell, project: Project, group: Group) -> None:
    expires_at = (datetime.now(UTC) + timedelta(days=30)).date().isoformat()
    for owner, level in ((project, 30), (group, 20)):
        sent = {"name": "robot", "scopes": ["api"], "access_level": level, "expires_at": expires_at, "description": "d"}
        token = owner.access_tokens.create(sent)
        check_answer(sent, token)
        robot = gitlab.Gitlab(cell.url, private_token=token.token)
        assert robot.projects.get(project.id).id == project.id
        owner.access_tokens.get(token.id).rotate()
        with pytest.raises(gitlab.GitlabAuthenticationError):
            robot.projects.get(project.id)
        deploy = {"name": "mirror", "username": "mirror-user", "scopes": ["read_repository"]}
        check_answer(deploy, created := owner.deploytokens.create(deploy))
        owner.deploytokens.delete(created.id)
    assert client.deploytokens.list() == []


def test_lfs(cell: ServedCell, project: Project, tmp_path: Path) -> None:
    """The real git-lfs pushes, pulls and locks a file with a token of the project."""
    program = require_git_lfs()
    expires_at = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    scopes = ["read_repository", "write_repository"]
    sent = {"name": "large files", "scopes": scopes, "access_level": 40, "expires_at": expires_at}
    token = project.access_tokens.create(sent)
    address = f"{cell.url.replace('://', f'://robot:{token.token}@')}/{project.path_with_namespace}.git"
    path = f"{program.parent}:{os.environ['PATH']}"
    content = "a large file\n" * 10_000
    source = Clone(tmp_path / "source", {"PATH": path})
    source.git("clone", "--quiet", address, ".")
    source.git("lfs", "install", "--local")
    source.git("lfs", "track", "*.bin")
    source.commit(**{"large.bin": content})
    source.git("push", "--quiet", "origin", "main")
    assert project.files.get("large.bin", "main").decode().startswith(b"version https://git-lfs.github.com/spec/v1\n")
    source.git("lfs", "lock", "large.bin")
    other = Clone(tmp_path / "other", {"PATH": path, "GIT_LFS_SKIP_SMUDGE": "1"})
    other.git("clone", "--quiet", address, ".")
    assert (other.folder / "large.bin").read_text().startswith("version ")
    other.git("lfs", "install", "--local")
    other.git("lfs", "pull")
    assert (other.folder / "large.bin").read_text() == content
    assert other.git("lfs", "locks").startswith("large.bin")
    token.delete()
    other.run("lfs", "locks", ok=False)


def test_hooks(project: Project, group: Group) -> None:
    events = {"pipeline_events": True, "job_events": True, "push_events": False, "enable_ssl_verification": True}
    sent = {"url": HOOK_URL, "token": "secret", "name": "chat", "description": "tells the chat", **events}
    walk(project.hooks, sent, {"url": f"{HOOK_URL}/2", "job_events": False}, hidden="token")
    walk(group.hooks, sent, {"url": f"{HOOK_URL}/2", "job_events": False}, hidden="token")


def test_job_token_scope(client: gitlab.Gitlab, project: Project, group: Group) -> None:
    other = client.projects.create({"name": "Other"})
    scope = project.job_token_scope.get()
    assert scope.inbound_enabled is True
    scope.allowlist.create({"target_project_id": other.id})
    assert other.id in [row.id for row in scope.allowlist.list()]
    scope.groups_allowlist.create({"target_group_id": group.id})
    assert [row.id for row in scope.groups_allowlist.list()] == [group.id]


def test_users(client: gitlab.Gitlab) -> None:
    sent = {"username": "ann", "name": "Ann", "email": "ann@example.com"}
    user = client.users.create({**sent, "reset_password": True})
    check_answer(sent, user)
    assert [found.id for found in client.users.list(username="ann")] == [user.id]
    client.users.delete(user.id)
    with pytest.raises(gitlab.GitlabGetError):
        client.users.get(user.id)
