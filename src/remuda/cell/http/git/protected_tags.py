"""The protected tags of a project in GitLab's form: who may create, move and delete them. Pipelines of a protected tag
get protected variables and protected runners."""

from typing import Annotated

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.core.access.protected_refs import MAX_RULES
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import ApiError, bad_request, not_found
from remuda.cell.http.edge.lookup import project_in_path, text_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.git.protected_branches import (
    AccessLevelShape,
    GrantChange,
    change_rules,
    check_grants,
    check_levels,
    check_rule_name,
    first_grants,
    levels_view,
    next_id,
)
from remuda.cell.values import Project
from remuda.cell.values.people import Level
from remuda.cell.values.projects import ProtectedRef

_ROOT = "/api/v4/projects/{id}/protected_tags"
_ACCESS = in_project(Level.MAINTAINER)
routes = Routes()


class NewProtectedTag(msgspec.Struct, kw_only=True):
    name: str
    create_access_level: int | None = None
    allowed_to_create: list[GrantChange] = []


class ProtectedTagShape(Shape, kw_only=True):
    name: str
    create_access_levels: list[AccessLevelShape]


def _view(row: ProtectedRef) -> ProtectedTagShape:
    return ProtectedTagShape(name=row.name, create_access_levels=levels_view(row.push))


async def _find(edge: Edge, request: Request) -> ProtectedRef:
    project = await project_in_path(edge, request)
    for row in project.protected_tags:
        if row.name == text_in_path(request, "name"):
            return row
    raise not_found("Protected tag")


@routes.get(_ROOT, _ACCESS)
async def list_all(edge: Edge, project: Project) -> list[ProtectedTagShape]:
    """List the rules for protected tags."""
    return [_view(row) for row in project.protected_tags]


@routes.get(f"{_ROOT}/{{name}}", _ACCESS)
async def show(edge: Edge, row: Annotated[ProtectedRef, _find]) -> ProtectedTagShape:
    """Show the rule with this name, which may contain wildcards."""
    return _view(row)


@routes.post(_ROOT, _ACCESS, also=(409,))
async def create(edge: Edge, project: Project, params: NewProtectedTag) -> ProtectedTagShape:
    """Protect a tag, or all tags that a name with wildcards matches."""
    check_rule_name(params.name)
    check_levels(params.create_access_level)
    await check_grants(edge, project, params.allowed_to_create)

    def add(row: Project) -> Project:
        if any(rule.name == params.name for rule in row.protected_tags):
            raise ApiError(409, {"message": f"Protected tag '{params.name}' already exists"})
        if len(row.protected_tags) >= MAX_RULES:
            raise bad_request(f"there are {MAX_RULES} protected tags already; use wildcards")
        number = next_id(row)
        push = first_grants(params.create_access_level, params.allowed_to_create, number + 1)
        return replace(row, protected_tags=(*row.protected_tags, ProtectedRef(id=number, name=params.name, push=push)))

    return _view((await change_rules(edge, project, add)).protected_tags[-1])


@routes.delete(f"{_ROOT}/{{name}}", _ACCESS)
async def remove(edge: Edge, project: Project, found: Annotated[ProtectedRef, _find]) -> None:
    """Remove the protection of a tag."""

    def change(row: Project) -> Project:
        return replace(row, protected_tags=tuple(other for other in row.protected_tags if other.name != found.name))

    await change_rules(edge, project, change)
