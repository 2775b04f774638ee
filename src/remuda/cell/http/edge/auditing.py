"""Writes the audit log: the table `ACTIONS` says which calls are recorded.

An action is in the log before its caller gets the answer; if the entry cannot be written, the caller gets 503 and must
repeat the call, although the action was done. Refused attempts (401, 403) are recorded too, also at endpoints for
administrators that are not in `ACTIONS`, but only a few a minute for each address, so that nobody can fill the log.
Invariant: an entry contains only the path and the field names of the request, the fields in `_ANSWER_FIELDS` of the
response, and what a handler adds with `add_audit_details`. So the log has no values of variables, tokens or policies.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from remuda.cell.core.access.rate_limits import Rate
from remuda.cell.errors import StoreError
from remuda.cell.http.edge.access import Kind
from remuda.cell.http.edge.admission import Caller, admit
from remuda.cell.http.edge.bodies import decode
from remuda.cell.http.edge.endpoints import Edge, Endpoint
from remuda.cell.http.edge.errors import ApiError
from remuda.cell.http.edge.lookup import (
    any_job_in_path,
    group_in_path,
    number_or_text,
    project_in_path,
    runner_in_path,
    text_in_path,
)
from remuda.cell.http.edge.rate_limits import Buckets
from remuda.cell.values import Job
from remuda.cell.values.audit_events import AuditEvent, Detail
from remuda.telemetry.logs import logger

_P, _G = "/api/v4/projects/{id}", "/api/v4/groups/{id}"
_CI = "/api/v4/admin/ci/variables"
_S = f"{_P}/pipeline_schedules/{{schedule_id}}"
_T = f"{_P}/job_token_scope"
ACTIONS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("POST", "/api/v4/runners"): ("runner_registered", "Runner"),
    ("POST", "/api/v4/user/runners"): ("runner_created", "Runner"),
    ("PUT", "/api/v4/runners/{runner_id}"): ("runner_changed", "Runner"),
    ("DELETE", "/api/v4/runners/{runner_id}"): ("runner_deleted", "Runner"),
    ("DELETE", "/api/v4/runners"): ("runner_unregistered", "Runner"),
    ("DELETE", "/api/v4/runners/managers"): ("runner_manager_unregistered", "Runner"),
    ("POST", "/api/v4/runners/reset_authentication_token"): ("runner_token_reset", "Runner"),
    ("POST", "/api/v4/runners/{runner_id}/reset_authentication_token"): ("runner_token_reset", "Runner"),
    ("POST", "/api/v4/runners/reset_registration_token"): ("registration_token_reset", "Instance"),
    ("POST", f"{_G}/runners/reset_registration_token"): ("registration_token_reset", "Group"),
    ("POST", f"{_P}/runners/reset_registration_token"): ("registration_token_reset", "Project"),
    ("POST", f"{_P}/runners"): ("runner_linked", "Project"),
    ("DELETE", f"{_P}/runners/{{runner_id}}"): ("runner_unlinked", "Project"),
    ("PUT", "/api/v4/application/settings"): ("settings_changed", "Instance"),
    ("PUT", "/api/remuda/v1/policies/{scope}/{id}"): ("policy_changed", "Instance"),
    ("POST", "/api/v4/organizations"): ("organization_created", "Instance"),
    ("POST", "/api/v4/projects"): ("project_created", "Project"),
    ("PUT", _P): ("project_changed", "Project"),
    ("DELETE", _P): ("project_deleted", "Project"),
    ("POST", f"{_P}/archive"): ("project_archived", "Project"),
    ("POST", f"{_P}/unarchive"): ("project_unarchived", "Project"),
    ("POST", f"{_P}/protected_branches"): ("protected_branch_created", "Project"),
    ("PATCH", f"{_P}/protected_branches/{{name}}"): ("protected_branch_changed", "Project"),
    ("DELETE", f"{_P}/protected_branches/{{name}}"): ("protected_branch_deleted", "Project"),
    ("POST", f"{_P}/protected_tags"): ("protected_tag_created", "Project"),
    ("DELETE", f"{_P}/protected_tags/{{name}}"): ("protected_tag_deleted", "Project"),
    ("PATCH", _T): ("job_token_scope_changed", "Project"),
    ("POST", f"{_T}/allowlist"): ("job_token_scope_project_added", "Project"),
    ("DELETE", f"{_T}/allowlist/{{target_project_id}}"): ("job_token_scope_project_removed", "Project"),
    ("POST", f"{_T}/groups_allowlist"): ("job_token_scope_group_added", "Project"),
    ("DELETE", f"{_T}/groups_allowlist/{{target_group_id}}"): ("job_token_scope_group_removed", "Project"),
    ("POST", "/api/v4/groups"): ("group_created", "Group"),
    ("PUT", _G): ("group_changed", "Group"),
    ("DELETE", _G): ("group_deleted", "Group"),
    ("POST", f"{_G}/members"): ("member_added", "Group"),
    ("PUT", f"{_G}/members/{{user_id}}"): ("member_changed", "Group"),
    ("DELETE", f"{_G}/members/{{user_id}}"): ("member_removed", "Group"),
    ("POST", f"{_P}/members"): ("member_added", "Project"),
    ("PUT", f"{_P}/members/{{user_id}}"): ("member_changed", "Project"),
    ("DELETE", f"{_P}/members/{{user_id}}"): ("member_removed", "Project"),
    ("POST", "/api/v4/users"): ("user_created", "User"),
    ("PUT", "/api/v4/users/{id}"): ("user_changed", "User"),
    ("DELETE", "/api/v4/users/{id}"): ("user_deleted", "User"),
    ("POST", "/api/v4/users/{id}/block"): ("user_blocked", "User"),
    ("POST", "/api/v4/users/{id}/unblock"): ("user_unblocked", "User"),
    ("POST", "/api/v4/user/personal_access_tokens"): ("personal_access_token_created", "User"),
    ("POST", "/api/v4/users/{id}/personal_access_tokens"): ("personal_access_token_created", "User"),
    ("POST", "/api/v4/personal_access_tokens/{token_id}/rotate"): ("personal_access_token_rotated", "User"),
    ("DELETE", "/api/v4/personal_access_tokens/{token_id}"): ("personal_access_token_revoked", "User"),
    ("POST", "/api/remuda/v1/sign_in_links"): ("sign_in_link_created", "User"),
    ("DELETE", "/api/remuda/v1/sessions"): ("sessions_ended", "User"),
    ("DELETE", "/api/remuda/v1/sessions/{session_id}"): ("session_ended", "User"),
    **{
        (method, f"{root}/access_tokens{path}"): (f"{kind.lower()}_access_token_{done}", kind)
        for root, kind in ((_P, "Project"), (_G, "Group"))
        for method, path, done in (
            ("POST", "", "created"),
            ("POST", "/self/rotate", "rotated"),
            ("POST", "/{token_id}/rotate", "rotated"),
            ("DELETE", "/{token_id}", "revoked"),
        )
    },
    **{
        (method, f"{root}/hooks{path}"): (f"webhook_{done}", kind)
        for root, kind in ((_P, "Project"), (_G, "Group"))
        for method, path, done in (
            ("POST", "", "created"),
            ("PUT", "/{hook_id}", "changed"),
            ("DELETE", "/{hook_id}", "deleted"),
            ("PUT", "/{hook_id}/custom_headers/{key}", "changed"),
            ("DELETE", "/{hook_id}/custom_headers/{key}", "changed"),
            ("PUT", "/{hook_id}/url_variables/{key}", "changed"),
            ("DELETE", "/{hook_id}/url_variables/{key}", "changed"),
            ("POST", "/{hook_id}/events/{event_id}/resend", "resent"),
            ("POST", "/{hook_id}/test/{trigger}", "tested"),
        )
    },
    **{
        (method, f"{root}/deploy_tokens{path}"): (f"deploy_token_{done}", kind)
        for root, kind in ((_P, "Project"), (_G, "Group"))
        for method, path, done in (("POST", "", "created"), ("DELETE", "/{token_id}", "revoked"))
    },
    ("POST", f"{_P}/triggers"): ("trigger_token_created", "Project"),
    ("PUT", f"{_P}/triggers/{{trigger_id}}"): ("trigger_token_changed", "Project"),
    ("DELETE", f"{_P}/triggers/{{trigger_id}}"): ("trigger_token_deleted", "Project"),
    ("POST", f"{_P}/variables"): ("variable_created", "Project"),
    ("PUT", f"{_P}/variables/{{key}}"): ("variable_changed", "Project"),
    ("DELETE", f"{_P}/variables/{{key}}"): ("variable_deleted", "Project"),
    ("POST", f"{_G}/variables"): ("variable_created", "Group"),
    ("PUT", f"{_G}/variables/{{key}}"): ("variable_changed", "Group"),
    ("DELETE", f"{_G}/variables/{{key}}"): ("variable_deleted", "Group"),
    ("POST", _CI): ("variable_created", "Instance"),
    ("PUT", f"{_CI}/{{key}}"): ("variable_changed", "Instance"),
    ("DELETE", f"{_CI}/{{key}}"): ("variable_deleted", "Instance"),
    ("POST", f"{_P}/pipeline_schedules"): ("schedule_created", "Project"),
    ("PUT", _S): ("schedule_changed", "Project"),
    ("DELETE", _S): ("schedule_deleted", "Project"),
    ("POST", f"{_S}/take_ownership"): ("schedule_taken", "Project"),
    ("POST", f"{_S}/variables"): ("schedule_variable_created", "Project"),
    ("PUT", f"{_S}/variables/{{key}}"): ("schedule_variable_changed", "Project"),
    ("DELETE", f"{_S}/variables/{{key}}"): ("schedule_variable_deleted", "Project"),
    ("DELETE", f"{_P}/pipelines/{{pipeline_id}}"): ("pipeline_deleted", "Project"),
    ("POST", f"{_P}/environments"): ("environment_created", "Project"),
    ("PUT", f"{_P}/environments/{{environment_id}}"): ("environment_changed", "Project"),
    ("DELETE", f"{_P}/environments/{{environment_id}}"): ("environment_deleted", "Project"),
    ("DELETE", f"{_P}/environments/review_apps"): ("environments_deleted", "Project"),
    ("POST", f"{_P}/environments/{{environment_id}}/stop"): ("environment_stopped", "Project"),
    ("POST", f"{_P}/environments/stop_stale"): ("environments_stopped", "Project"),
    ("POST", f"{_P}/deployments"): ("deployment_created", "Project"),
    ("PUT", f"{_P}/deployments/{{deployment_id}}"): ("deployment_changed", "Project"),
    ("DELETE", f"{_P}/deployments/{{deployment_id}}"): ("deployment_deleted", "Project"),
    ("PUT", f"{_P}/resource_groups/{{key}}"): ("resource_group_changed", "Project"),
    ("POST", f"{_P}/jobs/{{job_id}}/erase"): ("job_erased", "Project"),
    ("DELETE", f"{_P}/jobs/{{job_id}}/artifacts"): ("artifacts_deleted", "Project"),
    ("DELETE", f"{_P}/artifacts"): ("artifacts_deleted", "Project"),
    ("POST", "/api/remuda/v1/jobs/{job_id}/shells"): ("job_shell_opened", "Project"),
    ("POST", "/api/remuda/v1/jobs/{job_id}/release"): ("job_hold_released", "Project"),
}
"""Method and path of a call: the name of the action, and the kind of entity that it is about."""

DENIED = "access_denied"
_ANSWER_FIELDS = (
    "id", "key", "name", "username", "user_id", "path", "full_path", "path_with_namespace", "visibility", "state",
    "is_admin", "access_level", "expires_at", "scopes", "environment_scope", "variable_type", "masked", "hidden",
    "protected", "raw", "runner_type", "paused", "locked", "run_untagged", "tag_list", "token_expires_at", "version",
    "allow_runner_registration_token", "allow_force_push", "target_project_id", "target_group_id", "active", "ref",
    "cron",
)  # fmt: skip
_NOT_NAMES = frozenset({"token", "private_token", "job_token"})
_MAX_BYTES = 1024 * 1024
_MAX_TEXT = 255
_MAX_ENTRIES = 50
_DENIALS = Rate(calls=10)
_ALL_DENIALS = Rate(calls=300)

_log = logger("cell")


def add_audit_details(request: Request, **details: Detail) -> None:
    """Add details, such as `enabled=True`, to those from the response in the audit log entry of this request."""
    request.state.audit_details = details


class Auditor:
    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._denials = Buckets(_DENIALS, most=10_000)
        self._all_denials = Buckets(_ALL_DENIALS)

    def is_recorded(self, endpoint: Endpoint) -> bool:
        return (endpoint.method, endpoint.path) in ACTIONS or endpoint.access.kind is Kind.ADMINISTRATOR

    async def answer(self, endpoint: Endpoint, request: Request) -> Response:
        """Check access, run the handler, and audit the call if it is refused, or is in `ACTIONS` and succeeds."""
        body = _BodyRecorder(request)
        request = Request(request.scope, body.receive)
        try:
            await admit(self._edge, endpoint.access, request)
            action, entity = ACTIONS.get((endpoint.method, endpoint.path), ("", ""))
            subject = await self._subject(endpoint, request) if action else (0, "")
            answer = await endpoint.handler(self._edge, request)
        except ApiError as error:
            if error.status in (401, 403):
                await self._deny(endpoint, request, error.status)
            raise
        if action and answer.status_code < 400:
            event = msgspec.structs.replace(self._event(request, action), entity_type=entity)
            await self._edge.store.settings.add_audit_event(
                _with_answer(event, request, answer, subject, body.field_names())
            )
        return answer

    async def _subject(self, endpoint: Endpoint, request: Request) -> tuple[int, str]:
        """Id and name (path, runner description or user name) of the object in the path, for a job of its project; 0
        and empty if there is none. Call it before the handler, which can delete the object."""
        if endpoint.path.startswith(_P):
            project = await project_in_path(self._edge, request)
            return project.id, project.path
        if endpoint.path.startswith(_G):
            group = await group_in_path(self._edge, request)
            return group.id, group.path
        if endpoint.path.startswith("/api/remuda/v1/jobs/{job_id}"):
            owner = await self._edge.store.projects.load_project(
                (await any_job_in_path(self._edge, request)).project_id
            )
            return (owner.id, owner.path) if owner else (0, "")
        if "runner_id" in request.path_params:
            runner = await runner_in_path(self._edge, request)
            return runner.id, runner.description
        if endpoint.path.startswith("/api/v4/users/{id}"):
            number, _ = number_or_text(request)
            user = await self._edge.store.people.load_user(number) if number is not None else None
            return (user.id, user.username) if user else (0, "")
        return 0, ""

    def _event(self, request: Request, action: str) -> AuditEvent:
        caller: Caller | None = getattr(request.state, "caller", None)
        runner_id: int | None = getattr(request.state, "runner_id", None)
        job: Job | None = getattr(request.state, "job", None)
        other = f"runner {runner_id}" if runner_id else f"job {job.id}" if job else ""
        return AuditEvent(
            created_at=self._edge.clock.now(),
            action=action,
            author_id=caller.user.id if caller else 0,
            author_name=caller.user.username if caller else other,
            token_id=(caller.token.id or None) if caller else None,
            ip_address=request.client.host if request.client else "",
            request_id=request.scope.get("request_id", ""),
        )

    async def _deny(self, endpoint: Endpoint, request: Request, status: int) -> None:
        """Write a refused call to the audit log, unless too many calls were refused recently, from the same address or
        in total. If the store cannot write the entry, that is only logged, and the caller still gets the 401 or 403."""
        now = self._edge.clock.monotonic()
        address = request.client.host if request.client else ""
        for buckets, key in ((self._denials, address), (self._all_denials, "")):
            verdict = buckets.spend(key, now)
            if verdict is not None and not verdict.allowed:
                return
        event = msgspec.structs.replace(
            self._event(request, DENIED),
            target=_short(f"{request.method} {request.scope['path']}"),
            details={"status": status, "route": endpoint.path},
        )
        try:
            await self._edge.store.settings.add_audit_event(event)
        except StoreError as error:
            _log.warning(
                "cannot write a refused call to the audit log; the entry is lost",
                method=endpoint.method,
                route=endpoint.path,
                address=address,
                error=str(error),
            )


def _with_answer(
    event: AuditEvent, request: Request, answer: Response, subject: tuple[int, str], field_names: list[str]
) -> AuditEvent:
    details = _answer_details(answer) | getattr(request.state, "audit_details", {})
    entity_id, entity_path = subject
    if not entity_id and event.entity_type in ("Project", "Group", "User", "Runner"):
        is_token = "token" in event.action and event.entity_type == "User"
        number = details.get("user_id") if is_token else details.get("id") or getattr(request.state, "runner_id", 0)
        entity_id = number if isinstance(number, int) else event.author_id
        paths = (details.get(name) for name in ("path_with_namespace", "full_path", "username"))
        entity_path = str(next(filter(None, paths), ""))
    names_in_path = [text_in_path(request, name) for name in request.path_params if name != "id" or not subject[0]]
    names = (details.get(name) for name in ("key", "name", "username", "id"))
    target = "/".join(names_in_path) or str(next(filter(None, names), ""))
    return msgspec.structs.replace(
        event,
        entity_id=entity_id,
        entity_path=entity_path,
        target=_short(target),
        details=details | ({"sent": field_names} if field_names else {}),
    )


def _answer_details(answer: Response) -> dict[str, Detail]:
    try:
        fields = msgspec.json.decode(answer.body) if len(answer.body) <= _MAX_BYTES else None
    except (msgspec.DecodeError, AttributeError):
        fields = None
    if not isinstance(fields, dict):
        return {}
    details = {name: _detail(fields[name]) for name in _ANSWER_FIELDS if name in fields}
    return {name: value for name, value in details.items() if value is not None}


def _detail(value: Any) -> Detail:
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, list):
        return [_short(str(entry)) for entry in value[:_MAX_ENTRIES]]
    return value if isinstance(value, (bool, int, float)) else None


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


class _BodyRecorder:
    """Copies a request's body while the handler reads it, because the audit log contains the names of its fields."""

    def __init__(self, request: Request) -> None:
        self._receive = request.receive
        self._type = request.headers.get("content-type", "")
        self._query: bytes = request.scope["query_string"]
        self._raw = bytearray()

    async def receive(self) -> Message:
        message = await self._receive()
        if len(self._raw) <= _MAX_BYTES:
            self._raw += message.get("body", b"")
        return message

    def field_names(self) -> list[str]:
        """Sorted parameter names of query and body, except tokens; empty if the body is too long or not valid."""
        if len(self._raw) > _MAX_BYTES:
            return []
        try:
            fields = decode(bytes(self._raw), self._type, self._query, dict[str, Any])
        except ApiError:
            return []
        return [_short(name) for name in sorted(fields) if name not in _NOT_NAMES][:_MAX_ENTRIES]
