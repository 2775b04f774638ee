"""Pages about the files in the artifacts of a job: folders, and a preview of one file.

A file is never part of a page: the browser reads it through the API, which sends it as a download, and a script shows
its beginning as plain text. So HTML from a job is not executed in the origin of the cell."""

from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from remuda.cell.http.edge.errors import not_found
from remuda.cell.web.pages.jobs import load_job
from remuda.cell.web.places import load_project, project_api
from remuda.cell.web.visit import Pages, Visit

pages = Pages()

_ROOT = "/{project:path}/-/jobs/{number}/artifacts"


@pages.get(_ROOT)
async def show_files(visit: Visit) -> Response:
    return await _show_folder(visit, "")


@pages.get(_ROOT + "/browse/{path:path}")
async def show_folder(visit: Visit) -> Response:
    return await _show_folder(visit, visit.text("path").rstrip("/"))


@pages.get(_ROOT + "/file/{path:path}")
async def show_file(visit: Visit) -> Response:
    """Show the beginning of a file as text."""
    project = await load_project(visit)
    job = await load_job(visit, project)
    path = visit.text("path")
    folder, _, name = path.rpartition("/")
    listed = await visit.api.get(f"/api/remuda/v1/jobs/{job['id']}/artifacts/folder", folder=folder)
    entry = next((entry for entry in listed["entries"] if entry["path"] == path), None)
    if entry is None and not listed["left_out"]:
        raise not_found("File")
    return visit.render(
        "artifact.html",
        project=project,
        tab="Jobs",
        job=job,
        name=name,
        steps=_way(folder),
        size=entry["size"] if entry else None,
        content=f"{project_api(project)}/jobs/{job['id']}/artifacts/{quote(path)}",
    )


async def _show_folder(visit: Visit, path: str) -> Response:
    project = await load_project(visit)
    job = await load_job(visit, project)
    has_archive = any(file["file_type"] == "archive" for file in job["artifacts"])
    folder: dict[str, Any] | None = None
    if has_archive or path:
        folder = await visit.api.get(f"/api/remuda/v1/jobs/{job['id']}/artifacts/folder", folder=path)
    return visit.render(
        "artifacts.html",
        project=project,
        tab="Jobs",
        job=job,
        folder=folder,
        begin=len(path) + 1 if path else 0,
        steps=_way(path),
        job_api=f"{project_api(project)}/jobs/{job['id']}",
    )


def _way(path: str) -> list[tuple[str, str]]:
    """The folders from the outermost one to `path`: their paths and names."""
    names = path.split("/") if path else []
    return [("/".join(names[:count]), name) for count, name in enumerate(names, 1)]
