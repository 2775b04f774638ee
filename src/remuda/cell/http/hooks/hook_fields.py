"""The fields of a webhook in requests and responses, in GitLab's form; and the checks of what a request gives."""

import re
from typing import Any

import msgspec
from msgspec.structs import replace

from remuda.cell.core.access.protected_refs import MAX_STARS
from remuda.cell.core.pipelines.webhook_delivery import address_of, drop_old_secrets, headers_of
from remuda.cell.core.pipelines.webhook_payloads import SENT
from remuda.cell.http.edge.endpoints import Shape
from remuda.cell.http.edge.errors import bad_field, bad_parameter
from remuda.cell.http.gitlab.views import time_text
from remuda.cell.pipelines.remote_files import parse_address
from remuda.cell.values.hooks import Hook, HookDelivery

MAX_URL = 2048
MAX_SECRET = 4096
MAX_ENTRIES = 20
"""How many own headers, and how many URL variables, a hook can have."""
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,255}", re.ASCII)


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


def hook_view(hook: Hook, now: float) -> HookShape:
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


def delivery_view(hook: Hook, row: HookDelivery, url: str) -> HookEventShape:
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


def apply_fields(hook: Hook, params: HookFields) -> Hook:
    """Return the hook with the given fields. Raises ApiError 400 for the first one that is not valid."""
    events = {event for event in SENT if (given := getattr(params, event)) or (given is None and event in hook.events)}
    secrets = dict(hook.secrets)
    if params.token is not None:
        secrets["token"] = _check_text("token", params.token, MAX_SECRET)
    for field, name in (("custom_headers", "headers"), ("url_variables", "variables")):
        pairs: list[Pair] | None = getattr(params, field)
        if pairs is not None:
            secrets[name] = {pair.key: check_pair(field, pair.key, pair.value) for pair in pairs}
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
    fields = {"token": params.token, "headers": params.custom_headers, "variables": params.url_variables}
    changed = drop_old_secrets(hook, changed, [name for name, given in fields.items() if given is not None])
    if len(changed.template) > MAX_SECRET:
        raise bad_field("custom_webhook_template", f"is too long (maximum is {MAX_SECRET} characters)")
    if len(changed.url) > MAX_URL or parse_address(address_of(changed)) is None:
        raise bad_field("url", "must be an http or https address without a user name")
    return changed


def _check_text(name: str, text: str, limit: int) -> str:
    if len(text) > limit or "\n" in text or "\r" in text or "\0" in text:
        raise bad_field(name, f"must be one line of at most {limit} characters")
    return text


def check_pair(field: str, key: str, value: str) -> str:
    """Return the value of a header or URL variable. Raises ApiError 400 if `key` or `value` is not valid."""
    if not _KEY.fullmatch(key):
        raise bad_field(field, "a key has letters, digits, '_', '-' and '.', at most 255")
    return _check_text(field, value, MAX_SECRET)
