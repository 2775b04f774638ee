"""Groups, namespaces and organizations in GitLab's form. Everybody may create a group at the top level; maintainers of
a group may create one inside it."""

from typing import ClassVar

import msgspec
from starlette.requests import Request

from remuda.cell.errors import InvalidError
from remuda.cell.http.edge.access import ADMINISTRATOR, USER, in_group
from remuda.cell.http.edge.admission import Caller, caller_of, check_level
from remuda.cell.http.edge.bodies import flag_in_query, with_given
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import blame_field, forbidden, not_found
from remuda.cell.http.edge.lookup import existing_group, number_in_path, number_or_text, text_in_path
from remuda.cell.http.edge.paging import KEYSET, Paged, page_of
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.edge.unsupported_fields import Unsupported
from remuda.cell.http.gitlab.project_fields import UNSUPPORTED_OF_GROUP
from remuda.cell.http.gitlab.projects import LISTED, check_texts, page_of_projects, remove_project
from remuda.cell.http.gitlab.views import MessageShape, NamespaceShape, ProjectShape, time_text
from remuda.cell.projects.bots import remove_bots
from remuda.cell.projects.namespaces import list_all_projects
from remuda.cell.projects.paths import check_path
from remuda.cell.values import Page
from remuda.cell.values.people import Level, Namespace, NamespaceFilter, Organization, ProjectFilter, RunnerFilter

_ROOT = "/api/v4/groups"
_ONE = f"{_ROOT}/{{id}}"
routes = Routes()


class NewGroup(msgspec.Struct, kw_only=True):
    unsupported: ClassVar[Unsupported] = UNSUPPORTED_OF_GROUP
    name: str
    path: str
    parent_id: int | None = None
    description: str = ""
    visibility: str | None = None
    organization_id: int | None = None


class GroupChange(msgspec.Struct, kw_only=True):
    unsupported: ClassVar[Unsupported] = UNSUPPORTED_OF_GROUP
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
    lfs_enabled: bool = True
    request_access_enabled: bool = False
    project_creation_level: str = "developer"
    subgroup_creation_level: str = "maintainer"


def group_view(group: Namespace, url: str) -> GroupShape:
    return GroupShape.of(
        group,
        path=group.path.rpartition("/")[2],
        full_path=group.path,
        full_name=group.path.replace("/", " / "),
        created_at=time_text(group.created_at),
        web_url=f"{url}/groups/{group.path}",
    )


def _namespace_view(namespace: Namespace, url: str) -> NamespaceShape:
    return NamespaceShape.of(
        namespace,
        path=namespace.path.rpartition("/")[2],
        kind="group" if namespace.is_group else "user",
        full_path=namespace.path,
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
    created_at = time_text(organization.created_at or None)
    return OrganizationShape.of(
        organization, created_at=created_at, updated_at=created_at, web_url=f"{url}/o/{organization.path}"
    )


@routes.post(_ROOT, USER)
async def create(edge: Edge, caller: Caller, params: NewGroup) -> GroupShape:
    """Create a group. The caller becomes its owner."""
    check_texts(name=params.name, description=params.description, visibility=params.visibility)
    user, parent = caller.user, None
    if params.parent_id is not None:
        parent = await existing_group(edge, params.parent_id)
        check_level(caller.level_in_group(parent), Level.MAINTAINER, "Group")
    elif user.bot_of is not None:
        raise forbidden("an access token cannot create a group at the top level")
    organization_id = user.organization_id if params.organization_id is None else params.organization_id
    if organization_id != user.organization_id and not user.is_admin:
        raise not_found("Organization")
    if await edge.store.people.load_organization(organization_id) is None:
        raise not_found("Organization")
    with blame_field("path", taken="has already been taken"):
        group = await edge.projects.namespaces.create(
            params.path,
            name=params.name,
            parent=parent,
            organization_id=organization_id,
            description=params.description,
            visibility=params.visibility or "private",
            owner_id=user.id,
        )
    return group_view(group, edge.settings.url)


@routes.get(_ONE, in_group(0))
async def show(edge: Edge, group: Namespace) -> GroupShape:
    """Show a group."""
    return group_view(group, edge.settings.url)


@routes.put(_ONE, in_group(Level.OWNER))
async def update(edge: Edge, group: Namespace, params: GroupChange) -> GroupShape:
    """Change a group."""
    check_texts(name=params.name, description=params.description, visibility=params.visibility)
    changed = with_given(group, **msgspec.structs.asdict(params))
    await edge.store.people.put_namespace(changed)
    return group_view(changed, edge.settings.url)


@routes.delete(_ONE, in_group(Level.OWNER), status=202)
async def remove(edge: Edge, group: Namespace) -> MessageShape:
    """Delete a group with its subgroups, projects and runners."""
    await remove_group(edge, group)
    return MessageShape(message="202 Accepted")


async def remove_group(edge: Edge, group: Namespace) -> None:
    """Delete a group with its subgroups, projects and runners. May be called again after a death in the middle."""
    for project in await list_all_projects(edge.store, ProjectFilter(group_id=group.id)):
        await remove_project(edge, project)
    for namespace in [*await edge.projects.namespaces.inside(group), group]:
        while runners := (
            await edge.store.runners.list_runners(Page(size=100), RunnerFilter(pools=(("group", namespace.id),)))
        )[0]:
            for runner in runners:
                await edge.store.runners.remove_runner(runner.id)
        await remove_bots(edge.store, ("group", namespace.id))
        await edge.store.hooks.remove_of_owner(("group", namespace.id))
        await edge.store.people.remove_namespace(namespace.id)


async def _groups(edge: Edge, request: Request, group_filter: NamespaceFilter) -> Paged[GroupShape]:
    page = page_of(request)
    group_filter = msgspec.structs.replace(
        group_filter, is_group=True, search=request.query_params.get("search", ""), sight=caller_of(request).sight
    )
    groups, total = await edge.store.people.list_namespaces(page, group_filter)
    return Paged([group_view(group, edge.settings.url) for group in groups], total, page)


@routes.get(_ROOT, USER, query={"search": str, "top_level_only": bool})
async def list_all(edge: Edge, request: Request) -> Paged[GroupShape]:
    """List the groups that the caller may see."""
    return await _groups(edge, request, NamespaceFilter(top_level=flag_in_query(request, "top_level_only")))


@routes.get(f"{_ONE}/subgroups", in_group(0), query={"search": str})
async def subgroups(edge: Edge, request: Request, group: Namespace) -> Paged[GroupShape]:
    """List the groups directly in a group."""
    return await _groups(edge, request, NamespaceFilter(parent_id=group.id))


@routes.get(f"{_ONE}/descendant_groups", in_group(0), query={"search": str})
async def descendants(edge: Edge, request: Request, group: Namespace) -> Paged[GroupShape]:
    """List all groups inside a group, at any depth."""
    return await _groups(edge, request, NamespaceFilter(inside=group.id))


@routes.get(f"{_ONE}/projects", in_group(0), query={"include_subgroups": bool} | LISTED | KEYSET)
async def projects(edge: Edge, request: Request, group: Namespace) -> Paged[ProjectShape]:
    """List the projects of a group."""
    is_deep = flag_in_query(request, "include_subgroups")
    project_filter = ProjectFilter(group_id=group.id) if is_deep else ProjectFilter(namespace_id=group.id)
    return await page_of_projects(edge, request, project_filter)


@routes.get("/api/v4/namespaces", USER, query={"search": str})
async def list_namespaces(edge: Edge, request: Request, caller: Caller, page: Page) -> Paged[NamespaceShape]:
    """List the groups that the caller may see, and the caller's own namespace."""
    namespace_filter = NamespaceFilter(search=request.query_params.get("search", ""), sight=caller.sight)
    namespaces, total = await edge.store.people.list_namespaces(page, namespace_filter)
    return Paged([_namespace_view(namespace, edge.settings.url) for namespace in namespaces], total, page)


@routes.get("/api/v4/namespaces/{id}", USER)
async def show_namespace(edge: Edge, request: Request, caller: Caller) -> NamespaceShape:
    """Show a namespace."""
    number, text = number_or_text(request)
    namespace = await (
        edge.store.people.find_namespace(text) if number is None else edge.store.people.load_namespace(number)
    )
    if namespace is None or caller.level_in_group(namespace) is None:
        raise not_found("Namespace")
    return _namespace_view(namespace, edge.settings.url)


@routes.get("/api/v4/namespaces/{id}/exists", USER)
async def namespace_exists(edge: Edge, request: Request, caller: Caller) -> ExistsShape:
    """Check whether a path is taken by a namespace that the caller may see."""
    namespace = await edge.store.people.find_namespace(text_in_path(request, "id"))
    is_visible = namespace is not None and caller.level_in_group(namespace) is not None
    return ExistsShape(exists=is_visible)


@routes.post("/api/v4/organizations", ADMINISTRATOR)
async def create_organization(edge: Edge, params: NewOrganization) -> OrganizationShape:
    """Create an organization."""
    check_texts(name=params.name, description=params.description, visibility=None)
    with blame_field("path", taken="has already been taken"):
        if "/" in params.path:
            raise InvalidError("must not contain '/'")
        path = check_path(params.path, least_parts=1)
        new = Organization(
            id=0, path=path, name=params.name, description=params.description, created_at=edge.clock.now()
        )
        added = await edge.store.people.add_organization(new)
    return _organization_view(added, edge.settings.url)


@routes.get("/api/v4/organizations", USER)
async def list_organizations(edge: Edge, caller: Caller) -> list[OrganizationShape]:
    """List the caller's organization, or all organizations for administrators."""
    user = caller.user
    return [
        _organization_view(organization, edge.settings.url)
        for organization in await edge.store.people.list_organizations()
        if user.is_admin or organization.id == user.organization_id
    ]


@routes.get("/api/v4/organizations/{id}", USER)
async def show_organization(edge: Edge, request: Request, caller: Caller) -> OrganizationShape:
    """Show an organization."""
    user, number = caller.user, number_in_path(request, "id")
    organization = await edge.store.people.load_organization(number)
    if organization is None or not (user.is_admin or user.organization_id == number):
        raise not_found("Organization")
    return _organization_view(organization, edge.settings.url)
