"""Branches and tags in GitLab's form: create and delete them, list and show tags. The default branch cannot be deleted;
the release of a tag is deleted with it. `remuda.cell.projects.projects` starts pipelines for new branches and tags."""

from collections.abc import Sequence

import msgspec
from starlette.requests import Request

from remuda.cell.core.access.protected_refs import is_protected
from remuda.cell.errors import ConflictError, InvalidError
from remuda.cell.git.commits import is_branch_name
from remuda.cell.git.port import Tag
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import Caller, check_level, check_push
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import forbidden, not_found
from remuda.cell.http.edge.lookup import text_in_path
from remuda.cell.http.edge.paging import Paged
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.git.repository import BranchShape, branch_at, matches_search
from remuda.cell.http.gitlab.views import CommitShape, commit_view
from remuda.cell.values import Page, Project
from remuda.cell.values.people import Level

_ROOT = "/api/v4/projects/{id}/repository"
_TAGS = f"{_ROOT}/tags"
_LISTED = {"search": str, "sort": str}
_READ, _WRITE = in_project(Level.REPORTER), in_project(Level.DEVELOPER)
routes = Routes()


class NewBranch(msgspec.Struct, kw_only=True):
    branch: str
    ref: str


class NewTag(msgspec.Struct, kw_only=True):
    tag_name: str
    ref: str
    message: str = ""


class TagShape(Shape, kw_only=True):
    name: str
    message: str | None
    target: str
    commit: CommitShape
    release: dict[str, str] | None
    protected: bool


async def _resolve_start(edge: Edge, project: Project, name: str, what: str, ref: str) -> str:
    """Check the name of a new branch or tag, and return the hash of the commit that `ref` names. `what`, "Branch" or
    "Tag", is for messages. Raises InvalidError if the name is not valid or there is no such commit."""
    if not is_branch_name(name):
        raise InvalidError(f"{what} name is invalid")
    sha = await edge.projects.repos.resolve(project.repo_path, ref.removeprefix("refs/heads/"))
    if sha is None:
        raise InvalidError(f"Invalid reference name: {ref}" if what == "Branch" else f"Target {ref} is invalid")
    return sha


@routes.post(f"{_ROOT}/branches", _WRITE)
async def create_branch(edge: Edge, caller: Caller, project: Project, params: NewBranch) -> BranchShape:
    """Create a branch at a commit, a tag or another branch."""
    ref = f"refs/heads/{params.branch}"
    await check_push(edge, caller, project, [ref])
    sha = await _resolve_start(edge, project, params.branch, "Branch", params.ref)
    async with edge.projects.track_push(project):
        try:
            await edge.projects.repos.add_branch(
                project.repo_path,
                params.branch,
                sha,
                before_move=lambda new_sha: edge.projects.note_push(project, {ref: new_sha}, caller.user.id),
            )
        except ConflictError as error:
            raise InvalidError(str(error)) from None
    return await branch_at(edge, project, params.branch, sha)


@routes.delete(f"{_ROOT}/branches/{{branch}}", _WRITE)
async def remove_branch(edge: Edge, request: Request, caller: Caller, project: Project) -> None:
    """Delete a branch other than the default one; a protected one only as a maintainer."""
    repos, name = edge.projects.repos, text_in_path(request, "branch")
    ref = f"refs/heads/{name}"
    if not is_branch_name(name) or await repos.commit_of(project.repo_path, ref) is None:
        raise not_found("Branch")
    if ref == await edge.projects.find_default_ref(project):
        raise forbidden("the default branch cannot be deleted; make another one the default first")
    await check_push(edge, caller, project, [ref])
    if is_protected(edge.projects.ref_rules(project), ref):
        check_level(caller.level_in(project), Level.MAINTAINER, "Project")
    async with edge.projects.track_push(project):
        await repos.remove_ref(project.repo_path, ref)


async def _views(edge: Edge, project: Project, tags: Sequence[Tag]) -> list[TagShape]:
    repo, url = project.repo_path, edge.settings.url
    releases = {release.tag: release for release in await edge.store.schedules.list_releases(project.id)}
    views: list[TagShape] = []
    rules = edge.projects.ref_rules(project)
    for tag in tags:
        commit, release = await edge.projects.repos.commit(repo, tag.sha), releases.get(tag.name)
        if commit is not None:
            views.append(
                TagShape(
                    name=tag.name,
                    message=tag.message or None,
                    target=tag.target,
                    commit=commit_view(commit, project, url),
                    protected=is_protected(rules, f"refs/tags/{tag.name}"),
                    release={"tag_name": tag.name, "description": release.description} if release else None,
                )
            )
    return views


@routes.get(_TAGS, _READ, query=_LISTED)
async def list_tags(edge: Edge, request: Request, project: Project, page: Page) -> Paged[TagShape]:
    """List tags in descending order of name."""
    search, sort = request.query_params.get("search", ""), request.query_params.get("sort", "desc")
    matches = [tag for tag in await edge.projects.repos.tags(project.repo_path) if matches_search(tag.name, search)]
    ordered = matches if sort == "asc" else matches[::-1]
    tags = ordered[(page.number - 1) * page.size : page.number * page.size]
    return Paged(await _views(edge, project, tags), len(matches), page)


async def _tag(edge: Edge, project: Project, name: str) -> Tag:
    tags = await edge.projects.repos.tags(project.repo_path)
    match = next((tag for tag in tags if tag.name == name), None)
    if match is None:
        raise not_found("Tag")
    return match


@routes.get(f"{_TAGS}/{{tag}}", _READ)
async def show_tag(edge: Edge, request: Request, project: Project) -> TagShape:
    """Show a tag."""
    tag = await _tag(edge, project, text_in_path(request, "tag"))
    return (await _views(edge, project, [tag]))[0]


@routes.post(_TAGS, _WRITE)
async def create_tag(edge: Edge, caller: Caller, project: Project, params: NewTag) -> TagShape:
    """Create a tag, with a message if one is given."""
    ref = f"refs/tags/{params.tag_name}"
    if "\0" in params.message:
        raise InvalidError("message must not contain a NUL character")
    await check_push(edge, caller, project, [ref])
    sha = await _resolve_start(edge, project, params.tag_name, "Tag", params.ref)
    await edge.projects.check_namesake(project, ref)
    async with edge.projects.track_push(project):
        try:
            await edge.projects.repos.add_tag(
                project.repo_path,
                params.tag_name,
                sha,
                message=params.message,
                at=int(edge.clock.now()),
                before_move=lambda new_sha: edge.projects.note_push(project, {ref: new_sha}, caller.user.id),
            )
        except ConflictError:
            raise InvalidError(f"Tag {params.tag_name} already exists") from None
    tag = await _tag(edge, project, params.tag_name)
    return (await _views(edge, project, [tag]))[0]


@routes.delete(f"{_TAGS}/{{tag}}", _WRITE)
async def remove_tag(edge: Edge, request: Request, caller: Caller, project: Project) -> None:
    """Delete a tag and its release. Only a maintainer can delete a protected tag."""
    tag = await _tag(edge, project, text_in_path(request, "tag"))
    if is_protected(edge.projects.ref_rules(project), f"refs/tags/{tag.name}"):
        check_level(caller.level_in(project), Level.MAINTAINER, "Project")
    async with edge.projects.track_push(project):
        await edge.projects.repos.remove_ref(project.repo_path, f"refs/tags/{tag.name}")
    await edge.store.schedules.remove_release(project.id, tag.name)
