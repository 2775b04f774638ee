"""Releases in GitLab's form, for users and for jobs of the project (`glab` and `release-cli` call it inside a job).
`remuda.cell.pipelines.releases` creates and checks them."""

from typing import Annotated, Any

import msgspec
from starlette.requests import Request

from remuda.cell.errors import ConflictError, InvalidError
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import user_of_call
from remuda.cell.http.edge.bodies import with_given
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import ApiError, bad_parameter, not_found
from remuda.cell.http.edge.lookup import project_in_path, text_in_path
from remuda.cell.http.edge.paging import Paged
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.views import CommitShape, UserShape, commit_view, user_view
from remuda.cell.pipelines.releases import NewRelease, parse_time
from remuda.cell.values import Page, Project, Release
from remuda.cell.values.people import Level
from remuda.lib.clock import rfc3339

_ROOT = "/api/v4/projects/{id}/releases"
_READ = in_project(Level.GUEST, or_job="releases")
_WRITE = in_project(Level.DEVELOPER, or_job="releases")
routes = Routes()


class Link(msgspec.Struct, kw_only=True):
    name: str
    url: str
    link_type: str | None = None


class Assets(msgspec.Struct, kw_only=True):
    links: list[Link] = []


class ReleaseChange(msgspec.Struct, kw_only=True):
    """Parameters to change a release. A parameter that is not in the request is None."""

    name: str | None = None
    description: str | None = None
    milestones: list[str] | None = None
    released_at: str | None = None


class Asked(ReleaseChange, kw_only=True):
    """Parameters to create a release."""

    tag_name: str | None = None
    tag_message: str | None = None
    ref: str | None = None
    assets: Assets | None = None


class ReleaseShape(Shape, kw_only=True):
    tag_name: str
    name: str
    description: str
    created_at: str
    released_at: str
    upcoming_release: bool
    author: UserShape | None
    commit: CommitShape | None
    milestones: list[dict[str, Any]]
    commit_path: str
    tag_path: str
    assets: dict[str, Any]
    evidences: list[Any] = msgspec.field(default_factory=list)
    links: dict[str, str] = msgspec.field(name="_links")


async def _find(edge: Edge, request: Request) -> Release:
    release = await edge.releases.find(await project_in_path(edge, request), text_in_path(request, "tag"))
    if release is None:
        raise not_found("Release")
    return release


@routes.post(_ROOT, _WRITE, also=(409, 422))
async def create(edge: Edge, request: Request, project: Project, params: Asked) -> ReleaseShape:
    """Create a release."""
    if not params.tag_name:
        raise bad_parameter("tag_name is missing")
    new = NewRelease(
        tag=params.tag_name,
        name=params.name or "",
        description=params.description or "",
        ref=params.ref or "",
        tag_message=params.tag_message or "",
        milestones=tuple(params.milestones or ()),
        released_at=parse_time(params.released_at) if params.released_at else None,
        links=tuple(_link(link) for link in params.assets.links) if params.assets else (),
        user_id=await user_of_call(edge, request),
    )
    try:
        release = await edge.releases.create(project, new)
    except ConflictError:
        raise ApiError(409, {"message": "Release already exists"}) from None
    except InvalidError as error:
        raise ApiError(422, {"message": str(error)}) from None
    return await _view(edge, project, release)


@routes.get(_ROOT, _READ)
async def list_all(edge: Edge, request: Request, project: Project, page: Page) -> Paged[ReleaseShape]:
    """List the releases of a project."""
    releases = await edge.store.schedules.list_releases(project.id)
    releases_of_page = releases[(page.number - 1) * page.size : page.number * page.size]
    return Paged([await _view(edge, project, release) for release in releases_of_page], len(releases), page)


@routes.get(f"{_ROOT}/{{tag}}", _READ)
async def show(edge: Edge, project: Project, release: Annotated[Release, _find]) -> ReleaseShape:
    """Show the release of a tag."""
    return await _view(edge, project, release)


@routes.get(f"{_ROOT}/permalink/latest", _READ)
async def show_latest(edge: Edge, project: Project) -> ReleaseShape:
    """Show the newest release that is published."""
    now = edge.clock.now()
    published = (
        release for release in await edge.store.schedules.list_releases(project.id) if release.released_at <= now
    )
    if (newest := next(published, None)) is None:
        raise not_found("Release")
    return await _view(edge, project, newest)


@routes.put(f"{_ROOT}/{{tag}}", _WRITE)
async def change(
    edge: Edge, request: Request, project: Project, release: Annotated[Release, _find], params: ReleaseChange
) -> ReleaseShape:
    """Change a release."""
    await edge.releases.check_tag(project, release.tag, await user_of_call(edge, request))
    changed = with_given(
        release,
        name=params.name,
        description=params.description,
        milestones=None if params.milestones is None else tuple(params.milestones),
        released_at=parse_time(params.released_at) if params.released_at else None,
    )
    if not await edge.store.schedules.put_release(changed, replace=True):
        raise not_found("Release")
    return await _view(edge, project, changed)


@routes.delete(f"{_ROOT}/{{tag}}", _WRITE, status=200)
async def remove(edge: Edge, request: Request, project: Project, release: Annotated[Release, _find]) -> ReleaseShape:
    """Delete a release. The tag stays."""
    await edge.releases.check_tag(project, release.tag, await user_of_call(edge, request))
    await edge.store.schedules.remove_release(project.id, release.tag)
    return await _view(edge, project, release)


def _link(link: Link) -> dict[str, str]:
    return {key: text for key, text in msgspec.structs.asdict(link).items() if text}


async def _view(edge: Edge, project: Project, release: Release) -> ReleaseShape:
    url = edge.settings.url
    release_url = f"{url}/{project.path}/-/releases/{release.tag}"
    commit = await edge.projects.repos.commit(project.repo_path, release.sha) if release.sha else None
    author = await edge.store.people.load_user(release.user_id)
    links = [
        {
            "id": number,
            "name": link["name"],
            "url": link["url"],
            "direct_asset_url": link["url"],
            "link_type": link.get("link_type", "other"),
        }
        for number, link in enumerate(release.links, 1)
    ]
    return ReleaseShape(
        tag_name=release.tag,
        name=release.name,
        description=release.description,
        created_at=rfc3339(release.created_at),
        released_at=rfc3339(release.released_at),
        upcoming_release=release.released_at > edge.clock.now(),
        author=user_view(url, author) if author else None,
        commit=commit_view(commit, project, url) if commit else None,
        milestones=[{"title": title} for title in release.milestones],
        commit_path=f"/{project.path}/-/commit/{release.sha}",
        tag_path=f"/{project.path}/-/tags/{release.tag}",
        assets={"count": len(links), "sources": [], "links": links},
        links={"self": release_url},
    )
