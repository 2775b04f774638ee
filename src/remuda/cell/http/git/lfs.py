"""Git LFS at `/<project path>.git/info/lfs`: passes a request to its handler, and answers errors as git-lfs expects.

The same callers as with git may download (fetch) and upload (push). Objects are in `lfs_objects`, locks in `lfs_locks`.
The addresses of objects, below `gitlab-lfs/objects`, are GitLab's."""

import errno
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from remuda.cell.core.lfs_batch import Wanted
from remuda.cell.errors import QuotaExceededError, StoreError
from remuda.cell.http.edge.access import GIT
from remuda.cell.http.edge.endpoints import Edge, Endpoint
from remuda.cell.http.edge.errors import ApiError, refusal
from remuda.cell.http.git import lfs_locks, lfs_objects
from remuda.cell.http.git.git_access import GitAccess, GitRefusedError, authorize
from remuda.cell.http.git.lfs_answers import MEDIA_TYPE, answer_lfs

PATH = re.compile(r"/(?!api/)([^?]+?)(?:\.git)?/((?:info/lfs|gitlab-lfs)/.+)")
ROUTE = "/{path}.git"
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_OID, _LOCK = r"([^/]+)", r"([0-9]{1,18})"

Handler = Callable[..., Awaitable[Response]]


class _Call:
    """A call of the protocol: method, path below the project, handler and whether it needs the right to push."""

    def __init__(self, method: str, path: str, handler: Handler, *, is_push: bool, **document: Any) -> None:
        self.method = method
        pattern = path.replace("{oid}", _OID).replace("{size}", "([0-9]{1,18})").replace("{lock_id}", _LOCK)
        self.path = re.compile(pattern)
        self.route = f"{ROUTE}/{path}"
        self.handler = handler
        self.is_push = is_push
        handle: Any = handler
        self.endpoint = Endpoint(method, self.route, handle, GIT, media_type=MEDIA_TYPE, **document)


_CALLS = (
    _Call(
        "POST",
        "info/lfs/objects/batch",
        lfs_objects.batch,
        is_push=False,
        takes=lfs_objects.Batch,
        gives=lfs_objects.BatchShape,
        status=200,
        also=(409, 413, 422),
    ),
    _Call(
        "POST",
        "info/lfs/objects/verify",
        lfs_objects.verify,
        is_push=True,
        takes=Wanted,
        gives=Wanted,
        status=200,
        also=(422,),
    ),
    _Call(
        "GET",
        "gitlab-lfs/objects/{oid}",
        lfs_objects.download,
        is_push=False,
        gives=bytes,
        also=(206, 304, 416, 422),
        headers=("Range", "If-Range", "If-None-Match"),
    ),
    _Call(
        "PUT",
        "gitlab-lfs/objects/{oid}/{size}",
        lfs_objects.upload,
        is_push=True,
        takes=bytes,
        gives=bytes,
        status=200,
        also=(413, 422, 507),
    ),
    _Call(
        "GET",
        "info/lfs/locks",
        lfs_locks.list_locks,
        is_push=False,
        query={"path": str, "id": str, "cursor": str, "limit": int, "refspec": str},
        gives=lfs_locks.LocksShape,
        also=(422,),
    ),
    _Call(
        "POST",
        "info/lfs/locks",
        lfs_locks.create,
        is_push=True,
        takes=lfs_locks.NewLock,
        gives=lfs_locks.OneLockShape,
        also=(409, 422),
    ),
    _Call(
        "POST",
        "info/lfs/locks/verify",
        lfs_locks.verify,
        is_push=True,
        takes=lfs_locks.LockPage,
        gives=lfs_locks.VerifiedShape,
        status=200,
        also=(422,),
    ),
    _Call(
        "POST",
        "info/lfs/locks/{lock_id}/unlock",
        lfs_locks.unlock,
        is_push=True,
        takes=lfs_locks.Unlock,
        gives=lfs_locks.OneLockShape,
        status=200,
        also=(422,),
    ),
)
ENDPOINTS = tuple(call.endpoint for call in _CALLS)


def find_route(method: str, rest: str) -> str:
    """The route of a request, for metrics; empty if there is no such call."""
    return next((call.route for call in _CALLS if call.method == method and call.path.fullmatch(rest)), "")


async def serve_lfs(edge: Edge, path: str, rest: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a request of git-lfs for the project `path`; `rest` is the path below the project."""
    request = Request(scope, receive)
    try:
        response = await _answer(edge, unquote(path), rest, request)
    except GitRefusedError as refused:
        headers = refused.headers
        if refused.status == 401:
            headers = {**headers, "LFS-Authenticate": headers["WWW-Authenticate"]}
        response = answer_lfs({"message": str(refused)}, refused.status, headers)
    except Exception as error:
        answer = _refuse(error)
        if answer is None:
            raise
        response = answer
    await response(scope, receive, send)


async def _answer(edge: Edge, path: str, rest: str, request: Request) -> Response:
    method = "GET" if request.method == "HEAD" else request.method
    matches = [(call, match) for call in _CALLS if (match := call.path.fullmatch(rest))]
    found = next(((call, match) for call, match in matches if call.method == method), None)
    if found is None:
        raise GitRefusedError(405, "Method Not Allowed") if matches else GitRefusedError(404, "Not Found")
    call, match = found

    async def check(*, is_push: bool) -> GitAccess:
        access = await authorize(edge, path, request.headers, is_push=is_push)
        if not access.project.lfs_enabled:
            raise GitRefusedError(
                403, f"Git LFS is disabled for {path}; a maintainer enables it with `lfs_enabled` of the project"
            )
        return access

    return await call.handler(edge, request, await check(is_push=call.is_push), check, *match.groups())


def _refuse(error: Exception) -> Response | None:
    """The response for an error, in the form of git-lfs; None for a bug of the cell and for a client that is gone."""
    if isinstance(error, QuotaExceededError):
        return answer_lfs({"message": str(error)}, 507)
    cause = error.__cause__ if isinstance(error, StoreError) else error
    if isinstance(cause, OSError) and cause.errno in _DISK_FULL:
        return answer_lfs({"message": f"the disk of the cell is full: {error}"}, 507)
    refused: ApiError | None = refusal(error)
    if refused is None:
        return None
    body: Any = refused.body
    message = (body.get("message") or body.get("error")) if isinstance(body, dict) else body
    # For git-lfs, 422 is the status of a request that cannot be understood.
    status = 422 if refused.status == 400 else refused.status
    return answer_lfs({"message": message}, status, refused.headers)
