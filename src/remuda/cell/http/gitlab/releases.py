"""Releases in GitLab's form, for users and for jobs of the project (`glab` and `release-cli` call it inside a job).

`remuda.cell.pipelines.releases` has the rules, and creates the release of a job with the keyword `release`.
"""

from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.errors import ConflictError, InvalidError
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import user_of_call
from remuda.cell.http.edge.bodies import parameters
from remuda.cell.http.edge.endpoints import Edge, Endpoint, Shape
from remuda.cell.http.edge.errors import ApiError, bad_parameter, json_answer, not_found
from remuda.cell.http.edge.lookup import project_in_path, text_in_path
from remuda.cell.http.edge.paging import page_answer, page_of
from remuda.cell.http.gitlab.views import CommitShape, UserShape, commit_view, user_view
from remuda.cell.pipelines.releases import NewRelease, parse_time
from remuda.cell.values import Project, Release
from remuda.cell.values.people import Level
from remuda.lib.clock import rfc3339


class Assets(msgspec.Struct, kw_only=True):
    links: list[dict[str, Any]] = []


class Asked(msgspec.Struct, kw_only=True):
    """Fields that are not given are None."""

    tag_name: str | None = None
    tag_message: str | None = None
    name: str | None = None
    description: str | None = None
    ref: str | None = None
    milestones: list[str] | None = None
    released_at: str | None = None
    assets: Assets | None = None


class ReleaseShape(Shape, kw_only=True):
    tag_name: str
    name: str
    description: str
    created_at: str
    released_at: str
    upcoming_release: bool
    author: UserShape
    commit: CommitShape | None
    milestones: list[dict[str, Any]]
    commit_path: str
    tag_path: str
    assets: dict[str, Any]
    evidences: list[Any] = msgspec.field(default_factory=list)
    links: dict[str, str] = msgspec.field(name="_links")


async def create(edge: Edge, request: Request) -> Response:
    """POST /projects/:id/releases: create a release."""
    project = await project_in_path(edge, request)
    params = await parameters(request, Asked, limit_bytes=edge.settings.body_limit_bytes)
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
    return json_answer(await _view(edge, project, release), 201)


async def list_all(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/releases: list the releases of a project."""
    project = await project_in_path(edge, request)
    page, releases = page_of(request), await edge.store.schedules.list_releases(project.id)
    shown = releases[(page.number - 1) * page.size : page.number * page.size]
    return page_answer(request, [await _view(edge, project, release) for release in shown], len(releases), page)


async def show(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/releases/:tag: show the release of a tag."""
    project, release = await _release(edge, request)
    return json_answer(await _view(edge, project, release))


async def show_latest(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/releases/permalink/latest: show the newest release that is published."""
    project = await project_in_path(edge, request)
    now = edge.clock.now()
    out = (release for release in await edge.store.schedules.list_releases(project.id) if release.released_at <= now)
    if (newest := next(out, None)) is None:
        raise not_found("Release")
    return json_answer(await _view(edge, project, newest))


async def change(edge: Edge, request: Request) -> Response:
    """PUT /projects/:id/releases/:tag: change a release."""
    project, release = await _release(edge, request)
    params = await parameters(request, Asked, limit_bytes=edge.settings.body_limit_bytes)
    changed = replace(
        release,
        name=params.name if params.name is not None else release.name,
        description=params.description if params.description is not None else release.description,
        milestones=tuple(params.milestones) if params.milestones is not None else release.milestones,
        released_at=parse_time(params.released_at) if params.released_at else release.released_at,
    )
    if not await edge.store.schedules.put_release(changed, replace=True):
        raise not_found("Release")
    return json_answer(await _view(edge, project, changed))


async def remove(edge: Edge, request: Request) -> Response:
    """DELETE /projects/:id/releases/:tag: delete a release. The tag stays."""
    project, release = await _release(edge, request)
    await edge.store.schedules.remove_release(project.id, release.tag)
    return json_answer(await _view(edge, project, release))


async def _release(edge: Edge, request: Request) -> tuple[Project, Release]:
    project = await project_in_path(edge, request)
    release = await edge.releases.find(project, text_in_path(request, "tag"))
    if release is None:
        raise not_found("Release")
    return project, release


def _link(fields: dict[str, Any]) -> dict[str, str]:
    return {key: str(fields[key]) for key in ("name", "url", "link_type") if fields.get(key)}


async def _view(edge: Edge, project: Project, release: Release) -> ReleaseShape:
    url = edge.settings.url
    own = f"{url}/{project.path}/-/releases/{release.tag}"
    commit = await edge.projects.repos.commit(project.repo_path, release.sha) if release.sha else None
    links = [
        {
            "id": number,
            "name": link["name"],
            "url": link["url"],
            "direct_asset_url": own + "/downloads/" + link["filepath"].lstrip("/")
            if "filepath" in link
            else link["url"],
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
        author=user_view(url),
        commit=commit_view(commit, project, url) if commit else None,
        milestones=[{"title": title} for title in release.milestones],
        commit_path=f"/{project.path}/-/commit/{release.sha}",
        tag_path=f"/{project.path}/-/tags/{release.tag}",
        assets={"count": len(links), "sources": [], "links": links},
        links={"self": own},
    )


_ROOT = "/api/v4/projects/{id}/releases"

ENDPOINTS = (
    Endpoint(
        "POST",
        _ROOT,
        create,
        in_project(Level.DEVELOPER, or_job="releases"),
        takes=Asked,
        gives=ReleaseShape,
        also=(409, 422),
    ),
    Endpoint("GET", _ROOT, list_all, in_project(Level.GUEST, or_job="releases"), gives=list[ReleaseShape]),
    Endpoint(
        "GET", f"{_ROOT}/permalink/latest", show_latest, in_project(Level.GUEST, or_job="releases"), gives=ReleaseShape
    ),
    Endpoint("GET", f"{_ROOT}/{{tag}}", show, in_project(Level.GUEST, or_job="releases"), gives=ReleaseShape),
    Endpoint(
        "PUT",
        f"{_ROOT}/{{tag}}",
        change,
        in_project(Level.DEVELOPER, or_job="releases"),
        takes=Asked,
        gives=ReleaseShape,
    ),
    Endpoint(
        "DELETE",
        f"{_ROOT}/{{tag}}",
        remove,
        in_project(Level.DEVELOPER, or_job="releases"),
        gives=ReleaseShape,
        status=200,
    ),
)
