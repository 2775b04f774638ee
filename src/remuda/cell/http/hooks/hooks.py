"""Webhooks of projects and groups in GitLab's form. The cell sends events of pushes, tags, pipelines and jobs. An event
of another kind that a request turns on is listed in `X-Remuda-Ignored`, and the answer shows it as off.

Tokens, headers and URL variables are written, never shown, and stored encrypted."""

import re
import secrets as random
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.core.access.protected_refs import MAX_STARS
from remuda.cell.core.pipelines.webhook_delivery import address_of, headers_of
from remuda.cell.core.pipelines.webhook_payloads import JOB, NOT_SENT, PIPELINE, PUSH, SENT
from remuda.cell.http.edge.access import in_group, in_project
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import ApiError, bad_field, bad_parameter, bad_request, not_found
from remuda.cell.http.edge.lookup import number_in_path, text_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.members import Place, place_in_path
from remuda.cell.http.gitlab.views import MessageShape, time_text
from remuda.cell.pipelines.remote_files import parse_address
from remuda.cell.projects.refs import default_branch
from remuda.cell.values import JobFilter, Page, Project
from remuda.cell.values.hooks import Hook, HookDelivery
from remuda.cell.values.people import Level, ProjectFilter
from remuda.model.job import ProjectId

MAX_HOOKS = 100
"""How many webhooks a project, or a group, can have."""
MAX_URL = 2048
MAX_SECRET = 4096
MAX_ENTRIES = 20
"""How many own headers, and how many URL variables, a hook can have."""
MAX_EVENTS = 200
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,255}", re.ASCII)
_OF_PROJECT, _OF_GROUP = "/api/v4/projects/{id}/hooks", "/api/v4/groups/{id}/hooks"
_MAINTAINER, _OWNER = in_project(Level.MAINTAINER), in_group(Level.OWNER)
routes = Routes()


class Pair(msgspec.Struct, kw_only=True):
    key: str
    value: str


class HookFields(msgspec.Struct, kw_only=True):
    """Parameters of a new or changed webhook. None: not given, so a change leaves it."""

    url: str | None = None
    name: str | None = None
    description: str | None = None
    token: str | None = None
    enable_ssl_verification: bool | None = None
    push_events: bool | None = None
    push_events_branch_filter: str | None = None
    branch_filter_strategy: str | None = None
    tag_push_events: bool | None = None
    pipeline_events: bool | None = None
    job_events: bool | None = None
    custom_webhook_template: str | None = None
    custom_headers: list[Pair] | None = None
    url_variables: list[Pair] | None = None
    issues_events: bool | None = None
    confidential_issues_events: bool | None = None
    merge_requests_events: bool | None = None
    note_events: bool | None = None
    confidential_note_events: bool | None = None
    wiki_page_events: bool | None = None
    deployment_events: bool | None = None
    releases_events: bool | None = None
    milestone_events: bool | None = None
    subgroup_events: bool | None = None
    member_events: bool | None = None
    emoji_events: bool | None = None
    feature_flag_events: bool | None = None
    resource_access_token_events: bool | None = None
    resource_deploy_token_events: bool | None = None
    project_events: bool | None = None
    vulnerability_events: bool | None = None


class Given(msgspec.Struct, kw_only=True):
    value: str


class HookShape(Shape, kw_only=True):
    id: int
    url: str
    name: str
    description: str
    created_at: str | None
    project_id: int | None
    group_id: int | None
    enable_ssl_verification: bool
    push_events: bool
    push_events_branch_filter: str
    branch_filter_strategy: str
    tag_push_events: bool
    pipeline_events: bool
    job_events: bool
    issues_events: bool = False
    confidential_issues_events: bool = False
    merge_requests_events: bool = False
    note_events: bool = False
    confidential_note_events: bool = False
    wiki_page_events: bool = False
    deployment_events: bool = False
    releases_events: bool = False
    milestone_events: bool = False
    subgroup_events: bool = False
    member_events: bool = False
    emoji_events: bool = False
    feature_flag_events: bool = False
    resource_access_token_events: bool = False
    repository_update_events: bool = False
    custom_webhook_template: str | None
    custom_headers: list[dict[str, str]]
    url_variables: list[dict[str, str]]
    alert_status: str
    disabled_until: str | None


class HookEventShape(Shape, kw_only=True):
    id: int
    url: str
    trigger: str
    request_headers: dict[str, str]
    request_data: Any
    response_headers: dict[str, str] = msgspec.field(default_factory=dict)
    response_body: str
    execution_duration: float
    response_status: str
    error: str
    """Remuda's own: why there was no answer."""
    tries: int
    """Remuda's own: how often it was sent."""
    next_try_at: str | None
    """Remuda's own: when it is sent (again); null: delivered, or given up."""


class ResentShape(Shape, kw_only=True):
    response_status: str


def _view(hook: Hook, now: float) -> HookShape:
    is_paused = hook.disabled_until is not None and hook.disabled_until > now
    kind, number = hook.owner
    return HookShape.of(
        hook,
        created_at=time_text(hook.created_at),
        project_id=number if kind == "project" else None,
        group_id=number if kind == "group" else None,
        enable_ssl_verification=hook.is_verifying,
        push_events_branch_filter=hook.branch_filter,
        custom_webhook_template=hook.template or None,
        custom_headers=[{"key": key} for key in hook.secrets.get("headers", {})],
        url_variables=[{"key": key} for key in hook.secrets.get("variables", {})],
        alert_status="temporarily_disabled" if is_paused else "executable",
        disabled_until=time_text(hook.disabled_until) if is_paused else None,
        **{event: event in hook.events for event in SENT},
    )


def _apply(hook: Hook, params: HookFields) -> Hook:
    """The hook with the given fields. Raises ApiError 400 for the first one that is not valid."""
    events = {event for event in SENT if (given := getattr(params, event)) or (given is None and event in hook.events)}
    secrets = dict(hook.secrets)
    if params.token is not None:
        secrets["token"] = _check_text("token", params.token, MAX_SECRET)
    for field, name in (("custom_headers", "headers"), ("url_variables", "variables")):
        pairs: list[Pair] | None = getattr(params, field)
        if pairs is not None:
            secrets[name] = {pair.key: _check_pair(field, pair.key, pair.value) for pair in pairs}
            if len(secrets[name]) > MAX_ENTRIES:
                raise bad_field(field, f"has more than {MAX_ENTRIES} entries")
    strategy = params.branch_filter_strategy or hook.branch_filter_strategy
    if strategy not in ("wildcard", "all_branches"):
        raise bad_parameter("branch_filter_strategy: a cell supports wildcard and all_branches")
    branch_filter = params.push_events_branch_filter
    if branch_filter and (len(branch_filter) > 255 or branch_filter.count("*") > MAX_STARS):
        raise bad_field("push_events_branch_filter", f"is too long or has more than {MAX_STARS} wildcards")
    changed = replace(
        hook,
        url=hook.url if params.url is None else params.url,
        name=_check_text("name", hook.name if params.name is None else params.name, 255),
        description=_check_text(
            "description", hook.description if params.description is None else params.description, 2000
        ),
        events=frozenset(events),
        branch_filter=hook.branch_filter if branch_filter is None else branch_filter,
        branch_filter_strategy=strategy,
        is_verifying=hook.is_verifying if params.enable_ssl_verification is None else params.enable_ssl_verification,
        template=hook.template if params.custom_webhook_template is None else params.custom_webhook_template,
        secrets={name: value for name, value in secrets.items() if value},
    )
    if len(changed.template) > MAX_SECRET:
        raise bad_field("custom_webhook_template", f"is too long (maximum is {MAX_SECRET} characters)")
    if len(changed.url) > MAX_URL or parse_address(address_of(changed)) is None:
        raise bad_field("url", "must be an http or https address without a user name")
    return changed


def _check_text(name: str, text: str, limit: int) -> str:
    if len(text) > limit or "\n" in text or "\r" in text or "\0" in text:
        raise bad_field(name, f"must be one line of at most {limit} characters")
    return text


def _check_pair(field: str, key: str, value: str) -> str:
    if not _KEY.fullmatch(key):
        raise bad_field(field, "a key has letters, digits, '_', '-' and '.', at most 255")
    return _check_text(field, value, MAX_SECRET)


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


async def _change(edge: Edge, hook: Hook, decide: Any) -> Hook:
    changed = await edge.store.hooks.change_hook(hook.id, decide)
    if changed is None:
        raise not_found("Hook")
    edge.webhooks.look_again()
    return changed


@routes.get(_OF_GROUP, _OWNER)
@routes.get(_OF_PROJECT, _MAINTAINER)
async def list_all(edge: Edge, place: Annotated[Place, place_in_path]) -> list[HookShape]:
    """List the webhooks of a project or group."""
    return [_view(hook, edge.clock.now()) for hook in await edge.store.hooks.list_hooks(place.owner)]


@routes.get(f"{_OF_GROUP}/{{hook_id}}", _OWNER)
@routes.get(f"{_OF_PROJECT}/{{hook_id}}", _MAINTAINER)
async def show(edge: Edge, hook: Annotated[Hook, _find]) -> HookShape:
    """Show a webhook."""
    return _view(hook, edge.clock.now())


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
    added = await edge.store.hooks.add_hook(_apply(new, params))
    edge.webhooks.look_again()
    _tell_ignored(request, params)
    return _view(added, now)


@routes.put(f"{_OF_GROUP}/{{hook_id}}", _OWNER)
@routes.put(f"{_OF_PROJECT}/{{hook_id}}", _MAINTAINER)
async def update(edge: Edge, request: Request, hook: Annotated[Hook, _find], params: HookFields) -> HookShape:
    """Change a webhook. A change ends its pause after failures."""
    changed = await _change(edge, hook, lambda row: replace(_apply(row, params), failures=0, disabled_until=None))
    _tell_ignored(request, params)
    return _view(changed, edge.clock.now())


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
            pairs[key] = _check_pair(name, key, value)
        if len(pairs) > MAX_ENTRIES:
            raise bad_field(name, f"has more than {MAX_ENTRIES} entries")
        return replace(row, secrets={**row.secrets, name: pairs})

    await _change(edge, hook, change)


@routes.put(f"{_OF_GROUP}/{{hook_id}}/custom_headers/{{key}}", _OWNER)
@routes.put(f"{_OF_PROJECT}/{{hook_id}}/custom_headers/{{key}}", _MAINTAINER)
@routes.put(f"{_OF_GROUP}/{{hook_id}}/url_variables/{{key}}", _OWNER)
@routes.put(f"{_OF_PROJECT}/{{hook_id}}/url_variables/{{key}}", _MAINTAINER)
async def put_secret(edge: Edge, request: Request, hook: Annotated[Hook, _find], params: Given) -> None:
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
    return [_event_view(hook, row, edge.settings.url) for row in rows]


def _event_view(hook: Hook, row: HookDelivery, url: str) -> HookEventShape:
    shown = {"X-Gitlab-Token": "[REDACTED]", **dict.fromkeys(hook.secrets.get("headers", {}), "[REDACTED]")}
    headers = {name: shown.get(name, value) for name, value in headers_of(hook, row, url).items()}
    return HookEventShape.of(
        row,
        url=hook.url,
        trigger=row.event,
        request_headers=headers,
        request_data=msgspec.json.decode(row.body),
        response_body=row.answer,
        execution_duration=row.seconds,
        response_status=row.status,
        next_try_at=time_text(row.due_at),
    )


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
            uuid=random.token_hex(16),
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
    return await edge.webhooks.build_push(project, ref, "0" * 40, sha, project.creator_id)
