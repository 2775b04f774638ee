"""Groups, namespaces and organizations in GitLab's form.

Everybody may create a group at the top level; maintainers of a group may create one inside it.
`remuda.cell.projects.namespaces` checks what may be inside what.
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.errors import ConflictError, InvalidError
from remuda.cell.http.edge.access import ADMINISTRATOR, USER, in_group
from remuda.cell.http.edge.admission import caller_of, check_level
from remuda.cell.http.edge.bodies import parameters
from remuda.cell.http.edge.endpoints import Edge, Endpoint, Shape
from remuda.cell.http.edge.errors import bad_field, json_answer, not_found
from remuda.cell.http.edge.lookup import group_in_path, number_in_path, number_or_text, text_in_path
from remuda.cell.http.edge.paging import KEYSET, page_answer, page_of, slice_answer
from remuda.cell.http.gitlab.projects import LISTED, check_texts, page_of_projects, remove_project
from remuda.cell.http.gitlab.views import MessageShape, NamespaceShape, ProjectShape, time_text
from remuda.cell.projects.namespaces import list_all_projects
from remuda.cell.projects.paths import check_path
from remuda.cell.values import Page
from remuda.cell.values.people import Level, Namespace, NamespaceFilter, Organization, ProjectFilter, RunnerFilter


class NewGroup(msgspec.Struct, kw_only=True):
    name: str
    path: str
    parent_id: int | None = None
    description: str = ""
    visibility: str | None = None
    organization_id: int | None = None


class GroupChange(msgspec.Struct, kw_only=True):
    name: str | None = None
    description: str | None = None
    visibility: str | None = None


class NewOrganization(msgspec.Struct, kw_only=True):
    name: str
    path: str
    description: str = ""


class GroupShape(Shape, kw_only=True):
    id: int
    organization_id: int
    name: str
    path: str
    full_path: str
    full_name: str
    description: str
    visibility: str
    parent_id: int | None
    created_at: str | None
    avatar_url: None = None
    web_url: str
    shared_runners_setting: str = "enabled"


def group_view(group: Namespace, url: str) -> GroupShape:
    return GroupShape(
        id=group.id,
        organization_id=group.organization_id,
        name=group.name,
        path=group.path.rpartition("/")[2],
        full_path=group.path,
        full_name=group.path.replace("/", " / "),
        description=group.description,
        visibility=group.visibility,
        parent_id=group.parent_id,
        created_at=time_text(group.created_at),
        web_url=f"{url}/groups/{group.path}",
    )


def _namespace_view(namespace: Namespace, url: str) -> NamespaceShape:
    return NamespaceShape(
        id=namespace.id,
        name=namespace.name,
        path=namespace.path.rpartition("/")[2],
        kind="group" if namespace.is_group else "user",
        full_path=namespace.path,
        parent_id=namespace.parent_id,
        avatar_url=None,
        web_url=f"{url}/groups/{namespace.path}" if namespace.is_group else f"{url}/{namespace.path}",
    )


class ExistsShape(Shape, kw_only=True):
    exists: bool
    suggests: list[str] = msgspec.field(default_factory=list)


class OrganizationShape(Shape, kw_only=True):
    id: int
    name: str
    path: str
    description: str
    created_at: str | None
    updated_at: str | None
    web_url: str
    avatar_url: None = None


def _organization_view(organization: Organization, url: str) -> OrganizationShape:
    created_at = time_text(organization.created_at)
    return OrganizationShape(
        id=organization.id,
        name=organization.name,
        path=organization.path,
        description=organization.description,
        created_at=created_at,
        updated_at=created_at,
        web_url=f"{url}/o/{organization.path}",
    )


async def create(edge: Edge, request: Request) -> Response:
    """POST /groups: create a group. The caller becomes its owner."""
    params = await parameters(request, NewGroup, limit_bytes=edge.settings.body_limit_bytes)
    check_texts(name=params.name, description=params.description, visibility=params.visibility)
    user, parent = caller_of(request).user, None
    if params.parent_id is not None:
        parent = await edge.store.people.load_namespace(params.parent_id)
        if parent is None or not parent.is_group:
            raise not_found("Group")
        check_level(caller_of(request).level_in_group(parent), Level.MAINTAINER, "Group")
    organization_id = user.organization_id if params.organization_id is None else params.organization_id
    if organization_id != user.organization_id and not user.is_admin:
        raise not_found("Organization")
    if await edge.store.people.load_organization(organization_id) is None:
        raise not_found("Organization")
    try:
        group = await edge.projects.namespaces.create(
            params.path,
            name=params.name,
            parent=parent,
            organization_id=organization_id,
            description=params.description,
            visibility=params.visibility or "private",
            owner_id=user.id,
        )
    except ConflictError:
        raise bad_field("path", "has already been taken") from None
    except InvalidError as error:
        raise bad_field("path", str(error)) from None
    return json_answer(group_view(group, edge.settings.url), 201)


async def show(edge: Edge, request: Request) -> Response:
    """GET /groups/:id: show a group."""
    return json_answer(group_view(await group_in_path(edge, request), edge.settings.url))


async def update(edge: Edge, request: Request) -> Response:
    """PUT /groups/:id: change a group."""
    group = await group_in_path(edge, request)
    params = await parameters(request, GroupChange, limit_bytes=edge.settings.body_limit_bytes)
    check_texts(name=params.name, description=params.description, visibility=params.visibility)
    changes = {name: value for name, value in msgspec.structs.asdict(params).items() if value is not None}
    changed = msgspec.structs.replace(group, **changes)
    await edge.store.people.put_namespace(changed)
    return json_answer(group_view(changed, edge.settings.url))


async def remove(edge: Edge, request: Request) -> Response:
    """DELETE /groups/:id: delete a group with everything in it."""
    group = await group_in_path(edge, request)
    for project in await list_all_projects(edge.store, ProjectFilter(group_id=group.id)):
        await remove_project(edge, project)
    for namespace in [*await edge.projects.namespaces.inside(group), group]:
        while runners := (
            await edge.store.runners.list_runners(Page(size=100), RunnerFilter(pools=(("group", namespace.id),)))
        )[0]:
            for runner in runners:
                await edge.store.runners.remove_runner(runner.id)
        await edge.store.people.remove_namespace(namespace.id)
    return json_answer(MessageShape(message="202 Accepted"), 202)


async def _groups(edge: Edge, request: Request, group_filter: NamespaceFilter) -> Response:
    page = page_of(request)
    group_filter = msgspec.structs.replace(
        group_filter, is_group=True, search=request.query_params.get("search", ""), sight=caller_of(request).sight
    )
    groups, total = await edge.store.people.list_namespaces(page, group_filter)
    return page_answer(request, [group_view(group, edge.settings.url) for group in groups], total, page)


async def list_all(edge: Edge, request: Request) -> Response:
    """GET /groups: list the groups that the caller may see."""
    top_level = request.query_params.get("top_level_only", "").lower() in ("true", "1")
    return await _groups(edge, request, NamespaceFilter(top_level=top_level))


async def subgroups(edge: Edge, request: Request) -> Response:
    """GET /groups/:id/subgroups: list the groups directly in a group."""
    return await _groups(edge, request, NamespaceFilter(parent_id=(await group_in_path(edge, request)).id))


async def descendants(edge: Edge, request: Request) -> Response:
    """GET /groups/:id/descendant_groups: list all groups below a group."""
    return await _groups(edge, request, NamespaceFilter(inside=(await group_in_path(edge, request)).id))


async def projects(edge: Edge, request: Request) -> Response:
    """GET /groups/:id/projects: list the projects of a group."""
    group = await group_in_path(edge, request)
    is_deep = request.query_params.get("include_subgroups", "").lower() in ("true", "1")
    project_filter = ProjectFilter(group_id=group.id) if is_deep else ProjectFilter(namespace_id=group.id)
    return await page_of_projects(edge, request, project_filter)


async def list_namespaces(edge: Edge, request: Request) -> Response:
    """GET /namespaces: list groups, and the caller's own namespace."""
    page = page_of(request)
    namespace_filter = NamespaceFilter(search=request.query_params.get("search", ""), sight=caller_of(request).sight)
    namespaces, total = await edge.store.people.list_namespaces(page, namespace_filter)
    return page_answer(
        request, [_namespace_view(namespace, edge.settings.url) for namespace in namespaces], total, page
    )


async def show_namespace(edge: Edge, request: Request) -> Response:
    """GET /namespaces/:id: show a namespace."""
    number, text = number_or_text(request)
    namespace = await (
        edge.store.people.find_namespace(text) if number is None else edge.store.people.load_namespace(number)
    )
    if namespace is None or caller_of(request).level_in_group(namespace) is None:
        raise not_found("Namespace")
    return json_answer(_namespace_view(namespace, edge.settings.url))


async def namespace_exists(edge: Edge, request: Request) -> Response:
    """GET /namespaces/:id/exists: check whether a path is taken by a namespace that the caller may see."""
    namespace = await edge.store.people.find_namespace(text_in_path(request, "id"))
    is_visible = namespace is not None and caller_of(request).level_in_group(namespace) is not None
    return json_answer(ExistsShape(exists=is_visible))


async def create_organization(edge: Edge, request: Request) -> Response:
    """POST /organizations: create an organization."""
    params = await parameters(request, NewOrganization, limit_bytes=edge.settings.body_limit_bytes)
    check_texts(name=params.name, description=params.description, visibility=None)
    try:
        if "/" in params.path:
            raise InvalidError("path has no '/'")
        path = check_path(params.path, least_parts=1)
        new = Organization(
            id=0, path=path, name=params.name, description=params.description, created_at=edge.clock.now()
        )
        added = await edge.store.people.add_organization(new)
    except ConflictError:
        raise bad_field("path", "has already been taken") from None
    except InvalidError as error:
        raise bad_field("path", str(error)) from None
    return json_answer(_organization_view(added, edge.settings.url), 201)


async def list_organizations(edge: Edge, request: Request) -> Response:
    """GET /organizations: list the caller's organization; for administrators all."""
    user = caller_of(request).user
    views = [
        _organization_view(organization, edge.settings.url)
        for organization in await edge.store.people.list_organizations()
        if user.is_admin or organization.id == user.organization_id
    ]
    return slice_answer(request, views)


async def show_organization(edge: Edge, request: Request) -> Response:
    """GET /organizations/:id: show an organization."""
    user, number = caller_of(request).user, number_in_path(request, "id")
    organization = await edge.store.people.load_organization(number)
    if organization is None or not (user.is_admin or user.organization_id == number):
        raise not_found("Organization")
    return json_answer(_organization_view(organization, edge.settings.url))


_ROOT = "/api/v4/groups"
_ONE = f"{_ROOT}/{{id}}"

ENDPOINTS = (
    Endpoint("POST", _ROOT, create, USER, takes=NewGroup, gives=GroupShape),
    Endpoint("GET", _ROOT, list_all, USER, query={"search": str, "top_level_only": bool}, gives=list[GroupShape]),
    Endpoint("GET", _ONE, show, in_group(0), gives=GroupShape),
    Endpoint("PUT", _ONE, update, in_group(Level.OWNER), takes=GroupChange, gives=GroupShape),
    Endpoint("DELETE", _ONE, remove, in_group(Level.OWNER), gives=MessageShape, status=202),
    Endpoint("GET", f"{_ONE}/subgroups", subgroups, in_group(0), query={"search": str}, gives=list[GroupShape]),
    Endpoint(
        "GET", f"{_ONE}/descendant_groups", descendants, in_group(0), query={"search": str}, gives=list[GroupShape]
    ),
    Endpoint(
        "GET",
        f"{_ONE}/projects",
        projects,
        in_group(0),
        query={"include_subgroups": bool} | LISTED | KEYSET,
        gives=list[ProjectShape],
    ),
    Endpoint("GET", "/api/v4/namespaces", list_namespaces, USER, query={"search": str}, gives=list[NamespaceShape]),
    Endpoint("GET", "/api/v4/namespaces/{id}", show_namespace, USER, gives=NamespaceShape),
    Endpoint("GET", "/api/v4/namespaces/{id}/exists", namespace_exists, USER, gives=ExistsShape),
    Endpoint(
        "POST",
        "/api/v4/organizations",
        create_organization,
        ADMINISTRATOR,
        takes=NewOrganization,
        gives=OrganizationShape,
    ),
    Endpoint("GET", "/api/v4/organizations", list_organizations, USER, gives=list[OrganizationShape]),
    Endpoint("GET", "/api/v4/organizations/{id}", show_organization, USER, gives=OrganizationShape),
)
