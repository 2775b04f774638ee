"""The text of a file of a repository for pages and editors. GitLab's endpoints give any file whole and in base64; this
one gives texts up to a limit, and says of other files why it gives none.

It is its own module because it has the only limit on what a browser shows."""

from msgspec import UNSET, UnsetType
from starlette.requests import Request

from remuda.cell.git.port import LogFilter
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import bad_parameter, not_found
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.git.repository_files import commit_at
from remuda.cell.values import Project
from remuda.cell.values.people import Level

MAX_BYTES = 1024 * 1024
_SEARCHED_BYTES = 8000
"""Like git: a file is binary if there is a NUL byte in this many first bytes."""
routes = Routes()


class FileTextShape(Shape, kw_only=True):
    file_path: str
    size: int
    commit_id: str
    last_commit_id: str
    binary: bool | UnsetType = UNSET
    """Left out if the file is too large."""
    text: str | None
    """None if the file is binary or larger than a page shows (1 MiB)."""


@routes.get(
    "/api/remuda/v1/projects/{id}/repository/text",
    in_project(Level.REPORTER),
    query={"path": str, "ref": str},
)
async def show_text(edge: Edge, request: Request, project: Project) -> FileTextShape:
    """Show a file of up to 1 MiB as text. Bytes that are not UTF-8 are replaced."""
    repos, repo, path = edge.projects.repos, project.repo_path, request.query_params.get("path", "")
    if not path.strip("/") or "\0" in path:
        raise bad_parameter("path is missing or invalid")
    sha = await commit_at(edge, project, request.query_params.get("ref"))
    entries = await repos.list_entries(repo, sha, path, is_deep=False, is_folder=False)
    if not entries or entries[0].type != "blob":
        raise not_found("File")
    size = await repos.file_size(repo, sha, path)
    last = await repos.log(repo, sha, skip=0, count=1, selection=LogFilter(path=path))
    shape = FileTextShape(
        file_path=path, size=size, commit_id=sha, last_commit_id=last[0].sha if last else sha, text=None
    )
    content = await repos.file(repo, sha, path, limit_bytes=MAX_BYTES) if size <= MAX_BYTES else None
    if content is not None:
        shape.binary = b"\0" in content[:_SEARCHED_BYTES]
        shape.text = None if shape.binary else content.decode(errors="replace")
    return shape
