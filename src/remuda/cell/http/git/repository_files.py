"""Files and folders of a repository in GitLab's form: list a folder; show a file; create, change or delete a file with
a commit (`remuda.cell.git.commits`)."""

import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import ClassVar
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.core.lfs_batch import read_pointer
from remuda.cell.git.commits import EXECUTABLE, FileAction
from remuda.cell.git.port import LIST_LIMIT_BYTES, Contents, LogFilter, TreeEntry
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import caller_of, check_push
from remuda.cell.http.edge.bodies import flag_in_query
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import bad_parameter, not_found
from remuda.cell.http.edge.large_bodies import large_answer, large_content, large_parameters
from remuda.cell.http.edge.lookup import project_in_path, text_in_path
from remuda.cell.http.edge.paging import Paged
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.git.lfs_objects import answer_object, find_object
from remuda.cell.projects.projects import CommitRequest
from remuda.cell.values import Page, Project
from remuda.cell.values.people import Level

FILE_LIMIT_BYTES = 100 * 1024 * 1024


_ROOT = "/api/v4/projects/{id}/repository"
_FILE = f"{_ROOT}/files/{{path}}"
_READ = in_project(Level.REPORTER).with_scopes("read_repository", "write_repository")
_WRITE = in_project(Level.DEVELOPER)
_HEADER_CHARACTERS = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
routes = Routes()


class FileChange(msgspec.Struct, kw_only=True):
    with_nul: ClassVar[tuple[str, ...]] = ("content",)

    branch: str
    commit_message: str
    content: str
    encoding: str = "text"
    start_branch: str | None = None
    author_name: str | None = None
    author_email: str | None = None
    execute_filemode: bool | None = None
    last_commit_id: str | None = None
    """The last commit of the file that the caller has seen: if there is a newer one, the change is refused."""


class FileRemoval(msgspec.Struct, kw_only=True):
    branch: str
    commit_message: str
    start_branch: str | None = None
    author_name: str | None = None
    author_email: str | None = None
    last_commit_id: str | None = None


class TreeEntryShape(Shape, kw_only=True):
    id: str
    name: str
    type: str
    path: str
    mode: str


class FileShape(Shape, kw_only=True):
    file_name: str
    file_path: str
    size: int
    encoding: str = "base64"
    content: str
    content_sha256: str
    ref: str
    blob_id: str
    commit_id: str
    last_commit_id: str
    execute_filemode: bool


class ChangedFileShape(Shape, kw_only=True):
    file_path: str
    branch: str


async def commit_at(edge: Edge, project: Project, ref: str | None) -> str:
    """The id of the commit that a ref names, 404 if there is none. An empty ref and HEAD name the default branch."""
    head = edge.projects.repos.head(project.repo_path) or project.default_branch
    sha = await edge.projects.repos.resolve(project.repo_path, head if ref in (None, "", "HEAD") else str(ref))
    if sha is None:
        raise not_found("Commit")
    return sha


@routes.get(f"{_ROOT}/tree", _READ, query={"path": str, "ref": str, "recursive": bool})
async def list_tree(edge: Edge, request: Request, project: Project, page: Page) -> Paged[TreeEntryShape]:
    """List the files and folders in a folder of the repository."""
    query = request.query_params
    if not query.get("ref") and await edge.projects.repos.is_empty(project.repo_path):
        return Paged([], 0, page)
    sha = await commit_at(edge, project, query.get("ref"))
    path = query.get("path", "").strip("/")
    if "\0" in path:
        raise bad_parameter("path is invalid")
    is_deep = flag_in_query(request, "recursive")
    first = (page.number - 1) * page.size

    def read(limit_bytes: int) -> Awaitable[list[TreeEntry]]:
        return edge.projects.repos.list_entries(project.repo_path, sha, path, is_deep=is_deep, limit_bytes=limit_bytes)

    async with large_content(edge.parsers, read, limit_bytes=LIST_LIMIT_BYTES) as tree:
        if path and not tree:
            raise not_found("Tree")
        total = len(tree)
        tree_entries = sorted(tree, key=lambda entry: entry.type != "tree")[first : first + page.size]
    entries = [TreeEntryShape.of(entry, id=entry.sha, name=entry.path.rpartition("/")[2]) for entry in tree_entries]
    return Paged(entries, total, page)


@routes.get(_FILE, _READ, query={"ref": str}, gives=FileShape)
async def show(edge: Edge, request: Request, project: Project) -> Response:
    """Show a file with its content in base64."""
    repos = edge.projects.repos
    path, ref = text_in_path(request, "path"), request.query_params.get("ref") or "HEAD"
    sha = await commit_at(edge, project, ref)
    async with _read_file(edge, project, sha, path) as content:
        entry = await _entry(repos, project, sha, path)
        last = await repos.log(project.repo_path, sha, skip=0, count=1, selection=LogFilter(path=path))
        file = FileShape(
            file_name=path.rpartition("/")[2],
            file_path=path,
            size=len(content),
            content=base64.b64encode(content).decode(),
            content_sha256=hashlib.sha256(content).hexdigest(),
            ref=ref,
            blob_id=entry.sha,
            commit_id=sha,
            last_commit_id=last[0].sha if last else sha,
            execute_filemode=entry.mode == EXECUTABLE,
        )
        return await large_answer(edge, msgspec.json.encode(file), "application/json", _metadata_headers(file))


def _metadata_headers(file: FileShape) -> dict[str, str]:
    """GitLab's headers with everything about a file but its content. Clients read them with HEAD. Characters that a
    header cannot contain are percent-encoded."""
    values = {name: value for name, value in msgspec.structs.asdict(file).items() if name != "content"}
    return {
        f"X-Gitlab-{name.replace('_', '-').title()}": quote(
            str(value).lower() if isinstance(value, bool) else str(value), safe=_HEADER_CHARACTERS
        )
        for name, value in values.items()
    }


@routes.get(
    f"{_ROOT}/files/{{path:path}}/raw",
    _READ,
    query={"ref": str, "lfs": bool},
    gives=bytes,
    also=(206, 304, 416),
    headers=("Range", "If-Range", "If-None-Match"),
)
async def show_raw(edge: Edge, request: Request, project: Project) -> Response:
    """Return the content of a file. With `lfs`, the content of a file that is in Git LFS instead of its pointer."""
    sha = await commit_at(edge, project, request.query_params.get("ref"))
    # So that no browser runs the content as a page of this site.
    headers = {"X-Content-Type-Options": "nosniff", "Content-Disposition": "inline"}
    async with _read_file(edge, project, sha, text_in_path(request, "path")) as content:
        oid = read_pointer(content) if flag_in_query(request, "lfs") else None
        if oid is None:
            return await large_answer(edge, content, "text/plain", headers)
    stored = await find_object(edge, project, oid)
    if stored is None:
        raise not_found("LFS object")
    return answer_object(edge, request, stored)


@asynccontextmanager
async def _read_file(edge: Edge, project: Project, sha: str, path: str) -> AsyncIterator[bytes]:
    """Context manager: the content of a file at `sha`; ApiError 404 if missing. Reserves memory for a large one."""
    repos, repo = edge.projects.repos, project.repo_path

    def read(limit_bytes: int) -> Awaitable[bytes | None]:
        return repos.file(repo, sha, path, limit_bytes=limit_bytes)

    def measure() -> Awaitable[int]:
        return repos.file_size(repo, sha, path)

    async with large_content(edge.parsers, read, limit_bytes=FILE_LIMIT_BYTES, measure=measure) as content:
        if content is None:
            raise not_found("File")
        yield content


async def _entry(repos: Contents, project: Project, sha: str, path: str) -> TreeEntry:
    """The git tree entry (mode, type and hash) of a path; 404 if the commit has no such path."""
    entries = await repos.list_entries(project.repo_path, sha, path, is_deep=False, is_folder=False)
    if not entries:
        raise not_found("File")
    return entries[0]


@routes.post(_FILE, _WRITE, takes=FileChange)
async def create(edge: Edge, request: Request) -> ChangedFileShape:
    """Create a file with a commit."""
    return await _change(edge, request, "create")


@routes.put(_FILE, _WRITE, takes=FileChange)
async def update(edge: Edge, request: Request) -> ChangedFileShape:
    """Change a file with a commit."""
    return await _change(edge, request, "update")


async def _change(edge: Edge, request: Request, action: str) -> ChangedFileShape:
    path = text_in_path(request, "path")
    async with large_parameters(edge, request, FileChange, limit_bytes=edge.settings.commit_limit_bytes) as params:
        file_action = FileAction(
            action=action,
            file_path=path,
            content=params.content,
            encoding=params.encoding,
            execute_filemode=params.execute_filemode,
            last_commit_id=params.last_commit_id,
        )
        actions = [file_action]
        if action == "update" and params.execute_filemode is not None:
            actions.append(FileAction(action="chmod", file_path=path, execute_filemode=params.execute_filemode))
        await _commit(edge, request, params, actions)
    return ChangedFileShape(file_path=path, branch=params.branch)


@routes.delete(_FILE, _WRITE)
async def remove(edge: Edge, request: Request, params: FileRemoval) -> None:
    """Delete a file with a commit."""
    path = text_in_path(request, "path")
    action = FileAction(action="delete", file_path=path, last_commit_id=params.last_commit_id)
    await _commit(edge, request, params, [action])


async def _commit(edge: Edge, request: Request, params: FileChange | FileRemoval, actions: list[FileAction]) -> None:
    project, caller = await project_in_path(edge, request), caller_of(request)
    if not params.commit_message.strip():
        raise bad_parameter("commit_message is empty")
    await check_push(edge, caller, project, [f"refs/heads/{params.branch}"])
    commit = CommitRequest(
        branch=params.branch,
        commit_message=params.commit_message,
        actions=actions,
        start_branch=params.start_branch,
        author_name=params.author_name,
        author_email=params.author_email,
    )
    await edge.projects.commit(project, commit, caller.user)
