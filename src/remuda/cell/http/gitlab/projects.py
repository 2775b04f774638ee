"""Projects in GitLab's form: create, show, list, change, delete. Administrators may create a project anywhere, others
in their own namespace or in a group in which they are developers."""

import re
from collections.abc import Mapping
from itertools import count
from typing import Any, ClassVar, Literal

import msgspec
from starlette.requests import Request

from remuda.cell.errors import InvalidError
from remuda.cell.git.commits import FileAction, is_branch_name
from remuda.cell.http.edge.access import USER, in_project
from remuda.cell.http.edge.admission import Caller, caller_of, check_level
from remuda.cell.http.edge.bodies import flag_in_query, with_given
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import bad_field, bad_parameter, blame_field, forbidden, not_found
from remuda.cell.http.edge.paging import KEYSET, Paged, page_by_id
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.edge.unsupported_fields import Unsupported
from remuda.cell.http.gitlab.project_fields import UNSUPPORTED_OF_PROJECT, ProjectFields, read_fields
from remuda.cell.http.gitlab.views import MessageShape, ProjectShape, ProjectSummaryShape, project_view, summary_fields
from remuda.cell.projects.bots import remove_bots
from remuda.cell.projects.paths import check_path
from remuda.cell.projects.projects import CommitRequest
from remuda.cell.projects.refs import tag_with_name_of
from remuda.cell.values import MAX_PRIORITY, JobFilter, Page, Project, Runner
from remuda.cell.values.people import Level, Namespace, ProjectFilter, RunnerFilter
from remuda.model.job import FINAL, JobState, PipelineId

VISIBILITIES = ("private", "internal", "public")
_MAX_NAME = 255
_MAX_DESCRIPTION = 2000
_UNFINISHED = tuple(state.value for state in JobState if state not in FINAL)

LISTED = {
    "search": str,
    "visibility": Literal[VISIBILITIES],
    "membership": bool,
    "owned": bool,
    "archived": bool,
    "topic": str,
}


routes = Routes()


class NewProject(ProjectFields, kw_only=True):
    """Parameters of a new project. `path` may contain the namespace, as in `acme/shop`; missing groups in it are
    created if an administrator calls."""

    unsupported: ClassVar[Unsupported] = UNSUPPORTED_OF_PROJECT
    name: str | None = None
    path: str | None = None
    namespace_id: int | None = None
    description: str | None = None
    default_branch: str | None = None
    visibility: str | None = None
    initialize_with_readme: bool = False


class ProjectChange(ProjectFields, kw_only=True):
    unsupported: ClassVar[Unsupported] = UNSUPPORTED_OF_PROJECT
    name: str | None = None
    path: str | None = None
    description: str | None = None
    default_branch: str | None = None
    visibility: str | None = None
    priority: int | None = None


class ImportShape(ProjectSummaryShape, kw_only=True):
    import_status: str = "none"
    import_type: None = None
    correlation_id: None = None
    failed_relations: list[str] = msgspec.field(default_factory=list)
    import_error: None = None


@routes.post("/api/v4/projects", USER)
async def create(edge: Edge, caller: Caller, params: NewProject) -> ProjectShape:
    """Create a project."""
    if not params.name and not params.path:
        raise bad_parameter("name, path are missing, at least one parameter must be provided")
    path = params.path or _slug(params.name or "")
    name = params.name or path.rpartition("/")[2]
    check_texts(name=name, description=params.description, visibility=params.visibility)
    settings = read_fields(params)
    if params.namespace_id is not None and "/" in path:
        raise bad_field("path", "contains a namespace, and namespace_id is given too; give one of them")
    with blame_field("path"):
        project = await edge.projects.create(
            await _full_path(edge, caller, path, params.namespace_id),
            name=name,
            description=params.description or "",
            default_branch=params.default_branch or "main",
            visibility=params.visibility or "private",
            organization_id=caller.user.organization_id,
            creator_id=caller.user.id,
            settings=settings,
        )
    if params.initialize_with_readme:
        await _add_readme(edge, caller, project)
    return describe_project(edge, project, is_empty=not params.initialize_with_readme)


async def _add_readme(edge: Edge, caller: Caller, project: Project) -> None:
    """Make the first commit of a new project. If the cell dies before it, the project stays empty."""
    text = f"# {project.name}\n" + (f"\n{project.description}\n" if project.description else "")
    request = CommitRequest(
        branch=project.default_branch,
        commit_message="Initial commit",
        actions=[FileAction(action="create", file_path="README.md", content=text)],
    )
    await edge.projects.commit(project, request, caller.user)


async def _full_path(edge: Edge, caller: Caller, path: str, namespace_id: int | None) -> str:
    """The full path of a new project: `path` itself if it contains a namespace, else `path` in the namespace with this
    id (None: the caller's own). Raises ApiError if the caller may not create a project in it."""
    if "/" in path:
        await check_namespace(edge, caller, path.rpartition("/")[0])
        return path
    namespace = await edge.store.people.load_namespace(
        caller.user.namespace_id if namespace_id is None else namespace_id
    )
    if namespace is None or (level := caller.level_in_group(namespace)) is None:
        raise bad_field("namespace", "is not valid")
    if level < Level.DEVELOPER:
        raise forbidden()
    return f"{namespace.path}/{path}"


async def check_namespace(edge: Edge, caller: Caller, path: str) -> Namespace | None:
    """The namespace with this path, in which the caller wants to create a project. If it does not exist, administrators
    get None, because they may create it. Raises ApiError 404 if it does not exist for others or is hidden from the
    caller, 403 if the caller is not at least a developer in it."""
    namespace = await edge.store.people.find_namespace(path)
    if namespace is None:
        if not caller.user.is_admin:
            raise not_found("Namespace")
        return None
    check_level(caller.level_in_group(namespace), Level.DEVELOPER, "Namespace")
    return namespace


def check_texts(*, name: str | None, description: str | None, visibility: str | None) -> None:
    """Raise ApiError 400 if a name, description or visibility is not valid for a project, group or user."""
    if name is not None and (not name.strip() or len(name) > _MAX_NAME or not name.isprintable()):
        raise bad_field("name", f"must have 1 to {_MAX_NAME} characters, and no control characters")
    if len(description or "") > _MAX_DESCRIPTION:
        raise bad_field("description", f"is too long (maximum is {_MAX_DESCRIPTION} characters)")
    if visibility not in (None, *VISIBILITIES):
        raise bad_parameter("visibility does not have a valid value")


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "project"


def describe_project(edge: Edge, project: Project, *, is_empty: bool | None = None) -> ProjectShape:
    return project_view(project, edge.settings.url, edge.projects.repos.head(project.repo_path), is_empty=is_empty)


@routes.get("/api/v4/projects/{id}", in_project(Level.GUEST))
async def show(edge: Edge, project: Project) -> ProjectShape:
    """Show a project."""
    is_empty = await edge.projects.repos.is_empty(project.repo_path)
    return describe_project(edge, project, is_empty=is_empty)


@routes.get("/api/v4/projects", USER, query=LISTED | KEYSET)
async def list_all(edge: Edge, request: Request) -> Paged[ProjectShape]:
    """List the projects that the caller may see."""
    return await page_of_projects(edge, request, ProjectFilter())


async def page_of_projects(edge: Edge, request: Request, project_filter: ProjectFilter) -> Paged[ProjectShape]:
    """A page of the projects that match `project_filter` and the query, and that the caller may see."""
    page, query, caller = page_by_id(request), request.query_params, caller_of(request)
    project_filter = msgspec.structs.replace(
        project_filter,
        search=query.get("search", ""),
        visibility=query.get("visibility", ""),
        sight=caller.sight,
        membership=flag_in_query(request, "membership") or flag_in_query(request, "owned"),
        archived=flag_in_query(request, "archived") if query.get("archived") else None,
        topics=tuple(filter(None, query.get("topic", "").split(","))),
    )
    projects, total = await edge.store.projects.list_projects(page, project_filter)
    return Paged([describe_project(edge, project) for project in projects], total, page)


@routes.put("/api/v4/projects/{id}", in_project(Level.MAINTAINER))
async def update(edge: Edge, caller: Caller, project: Project, params: ProjectChange) -> ProjectShape:
    """Change a project."""
    check_texts(name=params.name, description=params.description, visibility=params.visibility)
    if params.visibility not in (None, project.visibility):
        check_level(caller.level_in(project), Level.OWNER, "Project")
    settings = read_fields(params)
    if params.priority is not None:
        if not caller.user.is_admin:
            raise forbidden("only administrators may change the priority of a project")
        if abs(params.priority) > MAX_PRIORITY:
            raise bad_field("priority", f"must be a number from {-MAX_PRIORITY} to {MAX_PRIORITY}")
    if params.default_branch is not None:
        await _put_default_branch(edge, project, params.default_branch)
    with blame_field("path"):
        changed = await edge.store.projects.change_project(project.id, lambda row: _apply_change(row, params, settings))
    return describe_project(edge, changed or project)


def _apply_change(project: Project, params: ProjectChange, settings: Mapping[str, Any]) -> Project:
    path = None
    if params.path is not None and params.path != project.path.rpartition("/")[2]:
        if "/" in params.path:
            raise InvalidError("a project cannot move to another namespace")
        path = check_path(f"{project.path.rpartition('/')[0]}/{params.path}")
    return with_given(
        project,
        name=params.name,
        path=path,
        description=params.description,
        default_branch=params.default_branch,
        visibility=params.visibility,
        priority=params.priority,
        **settings,
    )


async def _put_default_branch(edge: Edge, project: Project, branch: str) -> None:
    repos = edge.projects.repos
    ref = f"refs/heads/{branch}"
    if not is_branch_name(branch) or await repos.commit_of(project.repo_path, ref) is None:
        raise bad_field("default_branch", f"there is no branch {branch!r}; push it first")
    if await repos.object_of(project.repo_path, tag_with_name_of(ref)) is not None:
        raise bad_field(
            "default_branch",
            f"there is a tag {branch!r}, too, and a tag must not have the name of the protected branch; remove the tag "
            "first, or choose another branch",
        )
    await repos.put_head(project.repo_path, branch)


@routes.post("/api/v4/projects/{id}/archive", in_project(Level.OWNER))
async def archive(edge: Edge, project: Project) -> ProjectShape:
    """Archive a project: it can be read, but nothing in it changes and no pipeline starts."""
    return await _put_archived(edge, project, is_archived=True)


@routes.post("/api/v4/projects/{id}/unarchive", in_project(Level.OWNER))
async def unarchive(edge: Edge, project: Project) -> ProjectShape:
    """Unarchive a project."""
    return await _put_archived(edge, project, is_archived=False)


async def _put_archived(edge: Edge, project: Project, *, is_archived: bool) -> ProjectShape:
    changed = await edge.store.projects.change_project(
        project.id, lambda row: msgspec.structs.replace(row, archived=is_archived)
    )
    return describe_project(edge, changed or project)


@routes.get("/api/v4/projects/{id}/import", in_project(Level.GUEST))
async def show_import(edge: Edge, project: Project) -> ImportShape:
    """Show the state of the project's import: `none`, because the cell imports nothing."""
    return ImportShape.of(project, **{**summary_fields(project), "description": project.description})


@routes.delete("/api/v4/projects/{id}", in_project(Level.OWNER), status=202)
async def remove(edge: Edge, project: Project) -> MessageShape:
    """Delete a project and stop its pipelines."""
    await remove_project(edge, project)
    return MessageShape(message="202 Accepted")


async def remove_project(edge: Edge, project: Project) -> None:
    """Delete a project with its own runners and cancel its pipelines; jobs created meanwhile fail at the hand-out."""
    await edge.projects.remove(project)
    await remove_bots(edge.store, ("project", project.id))
    await edge.store.hooks.remove_of_owner(("project", project.id))
    await _leave_runners(edge, project)
    pipelines: set[PipelineId] = set()
    unfinished = JobFilter(project_id=project.id, states=_UNFINISHED, with_retried=True)
    for number in count(1):
        jobs, _ = await edge.store.jobs.list_jobs(Page(number=number, size=100), unfinished)
        if not jobs:
            break
        pipelines |= {job.pipeline_id for job in jobs}
    for pipeline_id in sorted(pipelines):
        await edge.dispatch.changes.cancel_pipeline(pipeline_id)


async def _leave_runners(edge: Edge, project: Project) -> None:
    """Unlink the project from the project runners that serve it. A runner that serves no other project is removed."""
    while runners := (
        await edge.store.runners.list_runners(Page(size=100), RunnerFilter(pools=(("project", project.id),)))
    )[0]:
        for runner in runners:
            if len(runner.project_ids) > 1:
                await edge.store.runners.change_runner(runner.id, lambda row: _without_project(row, project))
            else:
                await edge.store.runners.remove_runner(runner.id)


def _without_project(runner: Runner, project: Project) -> Runner:
    others = tuple(project_id for project_id in runner.project_ids if project_id != project.id)
    return msgspec.structs.replace(runner, project_ids=others)
