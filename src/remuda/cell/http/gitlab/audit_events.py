"""The audit log in GitLab's form: administrators see all events, owners of a group and maintainers of a project those
of the group or project. `remuda.cell.http.edge.auditing` writes the events."""

from typing import Any

from starlette.requests import Request

from remuda.cell.http.edge.access import ADMINISTRATOR, in_group, in_project
from remuda.cell.http.edge.bodies import choice_in_query, number_in_query, time_in_query
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import not_found
from remuda.cell.http.edge.lookup import number_in_path
from remuda.cell.http.edge.paging import KEYSET, Paged, page_by_id
from remuda.cell.http.edge.routes import Routes
from remuda.cell.values import Project
from remuda.cell.values.audit_events import AuditEvent, AuditFilter
from remuda.cell.values.people import Level, Namespace
from remuda.lib.clock import rfc3339

_TYPES = ("Project", "Group", "User", "Runner", "Instance")
_QUERY = KEYSET | {"created_after": str, "created_before": str, "action": str, "author_id": int}


_ALL = _QUERY | {"entity_type": str, "entity_id": int}
routes = Routes()


class AuditEventShape(Shape, kw_only=True):
    """One entry of the audit log. Which fields `details` has depends on the action."""

    id: int
    author_id: int
    entity_id: int
    entity_type: str
    event_name: str
    created_at: str
    details: dict[str, Any]


def event_view(event: AuditEvent) -> AuditEventShape:
    return AuditEventShape.of(
        event,
        event_name=event.action,
        created_at=rfc3339(event.created_at),
        details={
            "custom_message": event.action.replace("_", " "),
            "author_name": event.author_name,
            "author_class": "User" if event.author_id else "",
            "target_details": event.target,
            "entity_path": event.entity_path,
            "ip_address": event.ip_address,
            "token_id": event.token_id,
            "request_id": event.request_id,
            **event.details,
        },
    )


@routes.get("/api/v4/audit_events", ADMINISTRATOR, query=_ALL)
@routes.get("/api/remuda/v1/audit_events", ADMINISTRATOR, query=_ALL)
async def list_all(edge: Edge, request: Request) -> Paged[AuditEventShape]:
    """List all audit events, newest first."""
    kind = choice_in_query(request, "entity_type", _TYPES)
    return await _list(edge, request, kind, number_in_query(request, "entity_id"))


@routes.get("/api/v4/projects/{id}/audit_events", in_project(Level.MAINTAINER), query=_QUERY)
async def list_of_project(edge: Edge, request: Request, project: Project) -> Paged[AuditEventShape]:
    """List the audit events of a project, newest first."""
    return await _list(edge, request, "Project", project.id)


@routes.get("/api/v4/groups/{id}/audit_events", in_group(Level.OWNER), query=_QUERY)
async def list_of_group(edge: Edge, request: Request, group: Namespace) -> Paged[AuditEventShape]:
    """List the audit events of a group, newest first."""
    return await _list(edge, request, "Group", group.id)


@routes.get("/api/v4/audit_events/{event_id}", ADMINISTRATOR)
async def show(edge: Edge, request: Request) -> AuditEventShape:
    """Show one audit event."""
    event = await edge.store.settings.load_audit_event(number_in_path(request, "event_id"))
    if event is None:
        raise not_found("Audit event")
    return event_view(event)


async def _list(edge: Edge, request: Request, entity_type: str, entity_id: int | None) -> Paged[AuditEventShape]:
    event_filter = AuditFilter(
        action=request.query_params.get("action", ""),
        author_id=number_in_query(request, "author_id"),
        entity_type=entity_type,
        entity_id=entity_id,
        created_after=time_in_query(request, "created_after"),
        created_before=time_in_query(request, "created_before"),
    )
    page = page_by_id(request)
    events, total = await edge.store.settings.list_audit_events(page, event_filter)
    return Paged([event_view(event) for event in events], total, page)
