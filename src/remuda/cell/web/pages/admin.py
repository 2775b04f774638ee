"""The pages of administrators: health, settings, audit log, users, organizations, variables. The API refuses
everybody else."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from remuda.cell.http.edge.errors import ApiError
from remuda.cell.web.visit import Pages, Visit

pages = Pages()

_AUDIT = ("action", "entity_type", "entity_id", "created_after", "created_before")
_USERS = ("search", "active", "blocked")
_AUDIT_COLUMNS = (
    "id",
    "created_at",
    "action",
    "author_id",
    "author",
    "entity_type",
    "entity_id",
    "entity",
    "target",
    "ip_address",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@pages.get("/admin")
@pages.get("/admin/health")
async def show_health(visit: Visit) -> Response:
    return visit.render(
        "admin_health.html",
        tab="Health",
        health=await visit.api.get("/api/remuda/v1/health"),
        usage=await visit.api.get("/api/remuda/v1/usage", hours=1),
    )


@pages.get("/admin/settings")
async def show_settings(visit: Visit) -> Response:
    settings = await visit.api.get_all("/api/remuda/v1/settings")
    return visit.render(
        "admin_settings.html",
        tab="Settings",
        application=await visit.api.get("/api/v4/application/settings"),
        # Those that were given stand first.
        settings=sorted(settings, key=lambda setting: (setting["source"] == "default", setting["name"])),
    )


@pages.get("/admin/variables")
async def show_variables(visit: Visit) -> Response:
    return visit.render(
        "admin_variables.html", tab="Variables", variables=await visit.api.get_all("/api/v4/admin/ci/variables")
    )


@pages.get("/admin/users")
async def list_users(visit: Visit) -> Response:
    query: dict[str, Any] = {name: visit.query(name) for name in _USERS}
    users = await visit.api.call("GET", "/api/v4/users", {**query, "page": visit.page_number, "per_page": 30})
    # Everybody may list users of their organization; this page is for administrators.
    await visit.api.get("/api/v4/application/settings")
    organizations = await visit.api.get_all("/api/v4/organizations")
    return visit.render(
        "admin_users.html",
        tab="Users",
        users=users,
        page=visit.page_number,
        organizations=organizations,
        organization_paths={organization["id"]: organization["path"] for organization in organizations},
    )


@pages.get("/admin/organizations")
async def list_organizations(visit: Visit) -> Response:
    await visit.api.get("/api/v4/application/settings")
    return visit.render(
        "admin_organizations.html",
        tab="Organizations",
        organizations=await visit.api.get_all("/api/v4/organizations"),
    )


@pages.get("/admin/audit")
async def list_audit_events(visit: Visit) -> Response:
    query, problem = await _read_audit_query(visit)
    events = None
    if not problem:
        try:
            events = await visit.api.call(
                "GET", "/api/v4/audit_events", {**query, "page": visit.page_number, "per_page": 50}
            )
        except ApiError as error:
            if error.status != 400:
                raise
            problem = "A filter has no valid value. Times are like 2030-01-31T08:00, ids are numbers."
    return visit.render(
        "admin_audit.html",
        tab="Audit",
        events=events,
        page=visit.page_number,
        problem=problem,
        status=400 if problem else 200,
    )


async def _read_audit_query(visit: Visit) -> tuple[dict[str, Any], str]:
    """Return the filters for the API, and what is wrong with them; empty if nothing is. `author` in the query is a user
    name or an id."""
    query: dict[str, Any] = {name: visit.query(name) for name in _AUDIT}
    author = visit.query("author")
    if not author or author.isdigit():
        return {**query, "author_id": author}, ""
    users = await visit.api.get("/api/v4/users", username=author)
    if not users:
        return query, f"There is no user {author}."
    return {**query, "author_id": users[0]["id"]}, ""


@pages.get("/admin/audit/download")
async def download_audit_events(visit: Visit) -> Response:
    """The events that the filters select, as a file: the newest 10,000."""
    query, problem = await _read_audit_query(visit)
    events = [] if problem else await visit.api.get_all("/api/v4/audit_events", **query)
    kind = "csv" if visit.query("format") == "csv" else "json"
    content = write_csv(events) if kind == "csv" else msgspec.json.format(msgspec.json.encode(events)).decode()
    headers = {
        "Content-Disposition": f'attachment; filename="audit.{kind}"',
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return Response(content, media_type="text/csv" if kind == "csv" else "application/json", headers=headers)


def write_csv(events: Sequence[Mapping[str, Any]]) -> str:
    """Write audit events as CSV. A cell that a spreadsheet would take for a formula begins with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_AUDIT_COLUMNS)
    for event in events:
        details = event["details"]
        row = {
            **event,
            "action": event["event_name"],
            "author": details["author_name"],
            "entity": details["entity_path"],
            "target": details["target_details"],
            "ip_address": details["ip_address"],
        }
        writer.writerow([_plain(row[name]) for name in _AUDIT_COLUMNS])
    return text.getvalue()


def _plain(value: object) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) and not isinstance(value, int) else text
