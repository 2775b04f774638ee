"""Webhooks of projects and groups in GitLab's form. The cell sends events of pushes, tags, pipelines and jobs. An event
of another kind that a request turns on is listed in `X-Remuda-Ignored`, and the answer shows it as off.

Tokens, headers and URL variables are written, never shown, and stored encrypted."""

from collections.abc import Callable
from secrets import token_hex
from typing import Annotated

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.core.pipelines.webhook_delivery import drop_old_secrets
from remuda.cell.core.pipelines.webhook_payloads import JOB, NOT_SENT, PIPELINE, PUSH, SENT
from remuda.cell.http.edge.access import in_group, in_project
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import ApiError, bad_field, bad_parameter, bad_request, not_found
from remuda.cell.http.edge.lookup import number_in_path, text_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.members import Place, place_in_path
from remuda.cell.http.gitlab.views import MessageShape
from remuda.cell.http.hooks.hook_fields import (
    MAX_ENTRIES,
    HookEventShape,
    HookFields,
    HookShape,
    apply_fields,
    check_pair,
    delivery_view,
    hook_view,
)
from remuda.cell.projects.refs import default_branch
from remuda.cell.values import JobFilter, Page, Project
from remuda.cell.values.hooks import Hook, HookDelivery
from remuda.cell.values.people import Level, ProjectFilter
from remuda.model.job import ProjectId
from remuda.pipeline.facts import NO_SHA

MAX_HOOKS = 100
"""How many webhooks a project, or a group, can have."""
MAX_EVENTS = 200
_OF_PROJECT, _OF_GROUP = "/api/v4/projects/{id}/hooks", "/api/v4/groups/{id}/hooks"
_MAINTAINER, _OWNER = in_project(Level.MAINTAINER), in_group(Level.OWNER)
routes = Routes()


class SecretValue(msgspec.Struct, kw_only=True):
    value: str


class ResentShape(Shape, kw_only=True):
    response_status: str


def _tell_ignored(request: Request, params: HookFields) -> None:
    request.state.ignored = sorted(
        [*request.state.ignored, *(event for event in NOT_SENT if getattr(params, event, None))]
    )


async def _find(edge: Edge, request: Request) -> Hook:
    place = await place_in_path(edge, request)
    hook = await edge.store.hooks.load_hook(number_in_path(request, "hook_id"))
    if hook is None or hook.owner != place.owner:
        raise not_found("Hook")
    return hook


async def _change(edge: Edge, hook: Hook, decide: Callable[[Hook], Hook]) -> Hook:
    changed = await edge.store.hooks.change_hook(hook.id, decide)
    if changed is None:
        raise not_found("Hook")
    edge.webhooks.look_again()
    return changed


@routes.get(_OF_GROUP, _OWNER)
@routes.get(_OF_PROJECT, _MAINTAINER)
async def list_all(edge: Edge, place: Annotated[Place, place_in_path]) -> list[HookShape]:
    """List the webhooks of a project or group."""
    return [hook_view(hook, edge.clock.now()) for hook in await edge.store.hooks.list_hooks(place.owner)]


@routes.get(f"{_OF_GROUP}/{{hook_id}}", _OWNER)
@routes.get(f"{_OF_PROJECT}/{{hook_id}}", _MAINTAINER)
async def show(edge: Edge, hook: Annotated[Hook, _find]) -> HookShape:
    """Show a webhook."""
    return hook_view(hook, edge.clock.now())


@routes.post(_OF_GROUP, _OWNER)
@routes.post(_OF_PROJECT, _MAINTAINER)
async def create(edge: Edge, request: Request, place: Annotated[Place, place_in_path], params: HookFields) -> HookShape:
    """Create a webhook. Without other events it gets push events."""
    if not params.url:
        raise bad_parameter("url is missing")
    if len(await edge.store.hooks.list_hooks(place.owner)) >= MAX_HOOKS:
        raise bad_request(f"there are {MAX_HOOKS} webhooks already")
    now = edge.clock.now()
    new = Hook(id=0, owner=place.owner, url=params.url, created_at=now, events=frozenset({PUSH}))
    added = await edge.store.hooks.add_hook(apply_fields(new, params))
    edge.webhooks.look_again()
    _tell_ignored(request, params)
    return hook_view(added, now)


@routes.put(f"{_OF_GROUP}/{{hook_id}}", _OWNER)
@routes.put(f"{_OF_PROJECT}/{{hook_id}}", _MAINTAINER)
async def update(edge: Edge, request: Request, hook: Annotated[Hook, _find], params: HookFields) -> HookShape:
    """Change a webhook. A change ends its pause after failures."""
    changed = await _change(edge, hook, lambda row: replace(apply_fields(row, params), failures=0, disabled_until=None))
    _tell_ignored(request, params)
    return hook_view(changed, edge.clock.now())


@routes.delete(f"{_OF_GROUP}/{{hook_id}}", _OWNER)
@routes.delete(f"{_OF_PROJECT}/{{hook_id}}", _MAINTAINER)
async def remove(edge: Edge, hook: Annotated[Hook, _find]) -> None:
    """Remove a webhook and what it has not delivered yet."""
    await edge.store.hooks.remove_hook(hook.id)
    edge.webhooks.look_again()


async def _put_secret(edge: Edge, request: Request, hook: Hook, value: str | None) -> None:
    name = "headers" if "/custom_headers/" in request.scope["path"] else "variables"
    key = text_in_path(request, "key")

    def change(row: Hook) -> Hook:
        pairs = {other: old for other, old in row.secrets.get(name, {}).items() if other != key}
        if value is None and key not in row.secrets.get(name, {}):
            raise not_found("Key")
        if value is not None:
            pairs[key] = check_pair(name, key, value)
        if len(pairs) > MAX_ENTRIES:
            raise bad_field(name, f"has more than {MAX_ENTRIES} entries")
        return drop_old_secrets(row, replace(row, secrets={**row.secrets, name: pairs}), (name,))

    await _change(edge, hook, change)


@routes.put(f"{_OF_GROUP}/{{hook_id}}/custom_headers/{{key}}", _OWNER)
@routes.put(f"{_OF_PROJECT}/{{hook_id}}/custom_headers/{{key}}", _MAINTAINER)
@routes.put(f"{_OF_GROUP}/{{hook_id}}/url_variables/{{key}}", _OWNER)
@routes.put(f"{_OF_PROJECT}/{{hook_id}}/url_variables/{{key}}", _MAINTAINER)
async def put_secret(edge: Edge, request: Request, hook: Annotated[Hook, _find], params: SecretValue) -> None:
    """Set a header of its own, or a variable in the address, of a webhook."""
    await _put_secret(edge, request, hook, params.value)


@routes.delete(f"{_OF_GROUP}/{{hook_id}}/custom_headers/{{key}}", _OWNER)
@routes.delete(f"{_OF_PROJECT}/{{hook_id}}/custom_headers/{{key}}", _MAINTAINER)
@routes.delete(f"{_OF_GROUP}/{{hook_id}}/url_variables/{{key}}", _OWNER)
@routes.delete(f"{_OF_PROJECT}/{{hook_id}}/url_variables/{{key}}", _MAINTAINER)
async def remove_secret(edge: Edge, request: Request, hook: Annotated[Hook, _find]) -> None:
    """Remove a header of its own, or a variable in the address, of a webhook."""
    await _put_secret(edge, request, hook, None)


@routes.get(f"{_OF_GROUP}/{{hook_id}}/events", _OWNER)
@routes.get(f"{_OF_PROJECT}/{{hook_id}}/events", _MAINTAINER)
async def list_events(edge: Edge, hook: Annotated[Hook, _find]) -> list[HookEventShape]:
    """List the last deliveries of a webhook, newest first; they are kept for a week."""
    rows = await edge.store.hooks.list_deliveries(hook.id, limit=MAX_EVENTS)
    return [delivery_view(hook, row, edge.settings.url) for row in rows]


@routes.post(f"{_OF_GROUP}/{{hook_id}}/events/{{event_id}}/resend", _OWNER)
@routes.post(f"{_OF_PROJECT}/{{hook_id}}/events/{{event_id}}/resend", _MAINTAINER)
async def resend(edge: Edge, request: Request, hook: Annotated[Hook, _find]) -> ResentShape:
    """Send a delivery again, at once, and answer with the status that the server gave."""
    row = await edge.store.hooks.load_delivery(number_in_path(request, "event_id"))
    if row is None or row.hook_id != hook.id:
        raise not_found("Hook event")
    sent = await edge.webhooks.deliver(replace(row, is_test=True))
    return ResentShape(response_status=sent.status)


@routes.post(f"{_OF_GROUP}/{{hook_id}}/test/{{trigger}}", _OWNER, also=(422,))
@routes.post(f"{_OF_PROJECT}/{{hook_id}}/test/{{trigger}}", _MAINTAINER, also=(422,))
async def send_test(edge: Edge, request: Request, hook: Annotated[Hook, _find]) -> MessageShape:
    """Send a test event, made from the newest commit, pipeline or job; 422 if that fails."""
    trigger = text_in_path(request, "trigger")
    if trigger not in SENT:
        raise bad_parameter(f"trigger does not have a valid value: a cell sends {', '.join(SENT)}")
    body = await _build_test(edge, await _project_of(edge, hook), trigger)
    now = edge.clock.now()
    added = await edge.store.hooks.add_delivery(
        HookDelivery(
            id=0,
            hook_id=hook.id,
            uuid=token_hex(16),
            event=trigger,
            body=body,
            created_at=now,
            due_at=None,
            is_test=True,
        )
    )
    sent = await edge.webhooks.deliver(added) if added else None
    if sent is None or not sent.status.startswith("2"):
        raise ApiError(422, {"message": f"the test failed: {sent.error or sent.status if sent else 'not stored'}"})
    return MessageShape(message="201 Created")


async def _project_of(edge: Edge, hook: Hook) -> Project:
    kind, number = hook.owner
    project = await edge.store.projects.load_project(ProjectId(number)) if kind == "project" else None
    if kind == "group":
        rows, _ = await edge.store.projects.list_projects(Page(size=1), ProjectFilter(group_id=number))
        project = rows[0] if rows else None
    if project is None:
        raise ApiError(422, {"message": "the group has no project to test with"})
    return project


async def _build_test(edge: Edge, project: Project, trigger: str) -> bytes:
    """The body of a test event. Raises ApiError 422 if the project has nothing to make it from."""
    if trigger in (PIPELINE, JOB):
        jobs, _ = await edge.store.jobs.list_jobs(Page(size=1), JobFilter(project_id=project.id))
        pipeline = await edge.store.pipelines.load_pipeline(jobs[0].pipeline_id) if jobs else None
        if pipeline is None:
            raise ApiError(422, {"message": "the project has no pipeline to test with"})
        if trigger == PIPELINE:
            return await edge.webhooks.build_pipeline(project, pipeline)
        return await edge.webhooks.build_job(project, pipeline, jobs[0])
    branch = default_branch(edge.projects.repos, project)
    sha = await edge.projects.repos.commit_of(project.repo_path, f"refs/heads/{branch}")
    if sha is None:
        raise ApiError(422, {"message": "the project has no commits to test with"})
    ref = f"refs/heads/{branch}" if trigger == PUSH else "refs/tags/v1.0.0"
    return await edge.webhooks.build_push(project, ref, NO_SHA, sha, project.creator_id)
