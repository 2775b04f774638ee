"""Badges of a project as SVG images: the status of the newest pipeline of a ref, and its test coverage."""

import hashlib
from typing import Any
from urllib.parse import unquote

from starlette.responses import Response

from remuda.cell.http.edge.admission import person_in
from remuda.cell.http.edge.errors import not_found
from remuda.cell.web.page_api import PageApi
from remuda.cell.web.pipelines.badge import choose_colour, draw_badge
from remuda.cell.web.places import project_api, segment
from remuda.cell.web.visit import Pages, Visit

_LOOKED_AT = 20
"""How many of the newest pipelines of a ref are looked at for one that was not skipped."""
_MARK = "/badges/"
_MOST_SPLITS = 20
"""How often the mark may stand in an address: each is a look for a project."""
_HEADERS = {
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": "default-src 'none'; style-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
}
pages = Pages()


@pages.get("/{path:path}/badges/pipeline.svg", open_to_all=True)
@pages.get("/{path:path}/badges/{ref:path}/pipeline.svg", open_to_all=True)
async def show_status(visit: Visit) -> Response:
    api, project, ref = await _find_place(visit, "pipeline.svg")
    pipelines = await api.get(f"{project_api(project)}/pipelines", ref=ref, per_page=_LOOKED_AT)
    if visit.query("ignore_skipped").lower() in ("true", "1"):
        pipelines = [pipeline for pipeline in pipelines if pipeline["status"] != "skipped"]
    status = pipelines[0]["status"] if pipelines else "unknown"
    return _answer(visit, "pipeline", status.replace("_", " "), choose_colour(status))


@pages.get("/{path:path}/badges/coverage.svg", open_to_all=True)
@pages.get("/{path:path}/badges/{ref:path}/coverage.svg", open_to_all=True)
async def show_coverage(visit: Visit) -> Response:
    api, project, ref = await _find_place(visit, "coverage.svg")
    coverage = await _find_coverage(api, project_api(project), ref, visit.query("job"))
    text = "unknown" if coverage is None else f"{coverage:.2f}%"
    return _answer(visit, "coverage", text, choose_colour(coverage))


async def _find_coverage(api: PageApi, root: str, ref: str, job: str) -> float | None:
    """The coverage of the newest successful pipeline of a ref, or of its newest job with this name."""
    pipelines = await api.get(f"{root}/pipelines", ref=ref, status="success", per_page=1)
    if not pipelines:
        return None
    address = f"{root}/pipelines/{pipelines[0]['id']}"
    if not job:
        text = (await api.get(address))["coverage"]
        return None if text is None else float(text)
    jobs = await api.get_all(f"{address}/jobs")
    return next((entry["coverage"] for entry in jobs if entry["name"] == job), None)


async def _find_place(visit: Visit, file: str) -> tuple[PageApi, dict[str, Any], str]:
    """The API with the rights of who asks (a token in a header, or a session), the project, and the ref: `badges` may
    also be the name of a group, or part of the name of a ref, so the first split that names a project counts."""
    scope = visit.request.scope
    api = PageApi(scope["app"].call_api, scope, await person_in(visit.edge, visit.request))
    whole = unquote(visit.request.url.path).removeprefix("/").removesuffix(f"/{file}")
    at = 0
    for _ in range(_MOST_SPLITS):
        if (at := f"{whole}/".find(_MARK, at)) < 0:
            break
        path, ref = whole[:at], whole[at + len(_MARK) :]
        at += 1
        project = await api.find(f"/api/v4/projects/{segment(path)}") if "/" in path else None
        if project is not None:
            return api, project, ref or project["default_branch"] or ""
    raise not_found("Project")


def _answer(visit: Visit, key: str, value: str, colour: str) -> Response:
    """The badge, or 304 if the browser has it. Query parameters: `key_text` and `style`, as in GitLab."""
    is_flat_square = visit.query("style") == "flat-square"
    image = draw_badge(visit.query("key_text") or key, value, colour, is_flat_square=is_flat_square)
    headers = {**_HEADERS, "ETag": f'"{hashlib.sha256(image.encode()).hexdigest()[:20]}"'}
    if headers["ETag"] in visit.request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(image, headers=headers, media_type="image/svg+xml")
