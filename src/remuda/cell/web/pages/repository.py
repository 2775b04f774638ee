"""Pages of a repository: folders and files, the history of a ref, a commit, and a comparison of two commits."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from remuda.cell.http.edge.errors import ApiError, not_found
from remuda.cell.web.diffs import FileRows, read_files
from remuda.cell.web.errors import describe_error
from remuda.cell.web.places import load_project, page_number, project_api, segment
from remuda.cell.web.ref_paths import list_splits, split_range
from remuda.cell.web.visit import Pages, Visit

pages = Pages()
_ENTRIES = 100
_COMMITS = 40
_STATUSES = 100
_DIFF_PAGES = 3
"""Pages of 100 files of a difference: each page runs git anew."""
_REFS = 100
_NO_DIFF = (400, 413, 422)
"""Statuses of the API for a difference that is too large."""


@pages.get("/{project:path}/-/tree")
async def choose_ref(visit: Visit) -> Response:
    """Redirect to the folder of a ref that a form names, by default of the default branch."""
    project = await load_project(visit)
    ref = visit.query("ref") or project["default_branch"] or "main"
    return visit.redirect(f"/{project['path_with_namespace']}/-/tree/{segment(ref)}")


@pages.get("/{project:path}/-/tree/{place:path}")
async def show_tree(visit: Visit) -> Response:
    project = await load_project(visit)
    api, page = project_api(project), page_number(visit)
    if project.get("empty_repo"):
        return visit.redirect(f"/{project['path_with_namespace']}")
    ref, path, commit = await _find_place(visit, project)
    query = {"ref": commit["id"], "path": path, "page": page, "per_page": _ENTRIES}
    entries = await visit.api.call("GET", f"{api}/repository/tree", query)
    last = await visit.api.get(f"{api}/repository/commits", ref_name=commit["id"], path=path, per_page=1)
    return visit.render(
        "tree.html",
        project=project,
        tab="Project",
        ref=ref,
        path=path,
        entries=entries,
        page=page,
        commit=last[0] if last else commit,
        refs=await _list_refs(visit, api),
    )


@pages.get("/{project:path}/-/blob/{place:path}")
async def show_file(visit: Visit) -> Response:
    project = await load_project(visit)
    api = project_api(project)
    ref, path, commit = await _find_place(visit, project)
    if not path:
        raise not_found("File")
    file = await visit.api.get(
        api.replace("/api/v4/", "/api/remuda/v1/") + "/repository/text", ref=commit["id"], path=path
    )
    last = await visit.api.get(f"{api}/repository/commits/{file['last_commit_id']}", stats="false")
    text = (file["text"] or "").replace("\0", "\ufffd").replace("\r\n", "\n")
    return visit.render(
        "file.html",
        project=project,
        tab="Project",
        ref=ref,
        path=path,
        file=file,
        lines=text.removesuffix("\n").split("\n") if text else [],
        commit=last,
        raw=f"{api}/repository/files/{segment(path)}/raw?ref={commit['id']}",
    )


async def _find_place(visit: Visit, project: Mapping[str, Any]) -> tuple[str, str, Mapping[str, Any]]:
    """The ref and the path in the address, and the commit of the ref. Raises ApiError 404 if there is no such ref."""
    api = project_api(project)
    for ref, path in list_splits(visit.request.path_params["place"]):
        try:
            return ref, path, await visit.api.get(f"{api}/repository/commits/{segment(ref)}", stats="false")
        except ApiError as error:
            if error.status != 404:
                raise
    raise not_found("Branch, tag or commit")


async def _list_refs(visit: Visit, api: str) -> list[str]:
    """The names of the first branches and tags, as suggestions."""
    branches = await visit.api.get(f"{api}/repository/branches", per_page=_REFS)
    tags = await visit.api.get(f"{api}/repository/tags", per_page=_REFS)
    return [entry["name"] for entry in (*branches, *tags)]


@pages.get("/{project:path}/-/commits/{place:path}")
async def show_commits(visit: Visit) -> Response:
    project = await load_project(visit)
    if project.get("empty_repo"):
        return visit.redirect(f"/{project['path_with_namespace']}")
    ref, path, commit = await _find_place(visit, project)
    page = page_number(visit)
    query = {"ref_name": commit["id"], "path": path, "page": page, "per_page": _COMMITS}
    reply = await visit.api.call("GET", f"{project_api(project)}/repository/commits", query)
    return visit.render("commits.html", project=project, tab="Project", ref=ref, path=path, reply=reply, page=page)


@pages.get("/{project:path}/-/commit/{sha}")
async def show_commit(visit: Visit) -> Response:
    project = await load_project(visit)
    api = project_api(project)
    commit = await visit.api.get(f"{api}/repository/commits/{segment(visit.text('sha'))}")
    sha = commit["id"]
    files, problem = await _load_diff(visit, f"{api}/repository/commits/{sha}/diff")
    return visit.render(
        "commit.html",
        project=project,
        tab="Project",
        commit=commit,
        files=files,
        problem=problem,
        refs=await visit.api.get(f"{api}/repository/commits/{sha}/refs", per_page=20),
        statuses=await visit.api.get(f"{api}/repository/commits/{sha}/statuses", per_page=_STATUSES),
        pipelines=await visit.api.get(f"{api}/pipelines", sha=sha, per_page=20),
    )


async def _load_diff(visit: Visit, address: str) -> tuple[list[FileRows], str]:
    """The rows of a difference, or why there are none."""
    try:
        entries = await visit.api.get_all(address, most_pages=_DIFF_PAGES)
    except ApiError as error:
        if error.status not in _NO_DIFF:
            raise
        return [], describe_error(error)
    is_cut = len(entries) >= _DIFF_PAGES * 100
    return read_files(entries), f"only the first {len(entries)} files are shown" if is_cut else ""


@pages.get("/{project:path}/-/compare/{range:path}")
async def show_comparison(visit: Visit) -> Response:
    project = await load_project(visit)
    sides = split_range(visit.request.path_params["range"])
    if sides is None:
        raise not_found("Comparison")
    before, after = sides
    problem, comparison, files = "", None, []
    try:
        comparison = await visit.api.get(f"{project_api(project)}/repository/compare", **{"from": before, "to": after})
        files = read_files(comparison["diffs"])
    except ApiError as error:
        if error.status not in _NO_DIFF:
            raise
        problem = describe_error(error)
    return visit.render(
        "compare.html",
        project=project,
        tab="Project",
        before=before,
        after=after,
        comparison=comparison,
        files=files,
        problem=problem,
    )


@pages.get("/{project:path}/-/tags/{tag:path}")
async def show_tag(visit: Visit) -> Response:
    """Redirect to the files of a tag: the address is `tag_path` of a release."""
    project = await load_project(visit)
    return visit.redirect(f"/{project['path_with_namespace']}/-/tree/{segment(visit.text('tag'))}")
