"""The pipeline editor: the text of a project's pipeline file, for `static/editor.js`, which checks it while one types
and commits it."""

from typing import Any

from starlette.responses import Response

from remuda.cell.core.pipelines.config_path import DEFAULT
from remuda.cell.http.edge.errors import not_found
from remuda.cell.values.people import Level
from remuda.cell.web.places import find_project_level, load_project, project_api, segment
from remuda.cell.web.visit import Pages, Visit

pages = Pages()
_BRANCHES = 100
STARTER = """\
stages: [build, test]

build:
  stage: build
  script:
    - echo "Build here"

test:
  stage: test
  script:
    - echo "Test here"
"""
"""What the editor begins with if there is no pipeline file."""


@pages.get("/{project:path}/-/editor")
async def show_editor(visit: Visit) -> Response:
    project = await load_project(visit)
    api, is_empty = project_api(project), bool(project.get("empty_repo"))
    path = (project["ci_config_path"] or DEFAULT).lstrip("/")
    default = project["default_branch"] or "main"
    ref = visit.query("ref") or default
    level = await find_project_level(visit, project)
    branches: list[Any] = []
    branch = file = None
    if not is_empty:
        branches = await visit.api.get(f"{api}/repository/branches", per_page=_BRANCHES)
        branch = await visit.api.find(f"{api}/repository/branches/{segment(ref)}")
        if await visit.api.find(f"{api}/repository/commits/{segment(ref)}", stats="false") is None:
            raise not_found("Branch, tag or commit")
        address = api.replace("/api/v4/", "/api/remuda/v1/") + "/repository/text"
        file = await visit.api.find(address, ref=ref, path=path)
    is_elsewhere = "@" in path or path.startswith(("http://", "https://"))
    # A text with replaced bytes would be damaged by storing it.
    is_readable = file is None or (file["text"] is not None and "\ufffd" not in file["text"])
    return visit.render(
        "editor.html",
        project=project,
        tab="Editor",
        path=path,
        ref=ref,
        branches=branches,
        is_branch=branch is not None or is_empty,
        file=file,
        text=(file["text"] or "") if file else STARTER,
        is_elsewhere=is_elsewhere,
        is_shown=is_readable and not is_elsewhere,
        can_write=level >= Level.DEVELOPER and not project["archived"],
        setup={
            "api": api,
            "project": project["path_with_namespace"],
            "path": path,
            "canCheck": level >= Level.DEVELOPER,
            "ref": "" if is_empty else ref,
            "base": ref,
            "isBranch": branch is not None or is_empty,
            "isNew": file is None,
            "isEmpty": is_empty,
            "hasCrlf": "\r\n" in ((file["text"] or "") if file else ""),
            "lastCommit": file["last_commit_id"] if file else "",
        },
    )
