"""git over smart HTTP at `/<project path>.git`; as with GitLab people may leave out the `.git`.

Decided here: who may fetch and push. A job's token fetches its own project, which is also a sign of life of the job; a
user's token, whatever the user name, fetches and pushes, and a push to a project that is not there makes it. Everyone
else learns nothing, not even whether the project exists. `git http-backend` does the rest.

Invariant: when a push is answered, what it started is stored; when its client goes away, that is not forgotten.
"""

import re
from urllib.parse import parse_qs, unquote

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from remuda.cell.adapters.git_http import GitCall, serve
from remuda.cell.errors import ConflictError, ForbiddenError, InvalidError
from remuda.cell.http import auth
from remuda.cell.http.bodies import Body
from remuda.cell.http.edge import Edge
from remuda.cell.http.errors import ApiError
from remuda.cell.values import Project
from remuda.lib.killpoints import reach
from remuda.telemetry.logs import logger

PATH = re.compile(r"/(?!api/)([^?]+?)(?:\.git)?/(info/refs|git-upload-pack|git-receive-pack)")
ROUTE = "/{path}.git"
FETCH, PUSH = "git-upload-pack", "git-receive-pack"
JOB_USER = "gitlab-ci-token"

_log = logger("cell")


class _RefusedError(Exception):
    """An answer that git shows to its user."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.answer = PlainTextResponse(
            text + "\n", status, {name.replace("_", "-"): value for name, value in headers.items()}
        )


async def serve_git(edge: Edge, path: str, service: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request of a git client."""
    try:
        await _serve(edge, unquote(path), service, scope, receive, send)
    except _RefusedError as refused:
        await refused.answer(scope, receive, send)


async def _serve(edge: Edge, path: str, service: str, scope: Scope, receive: Receive, send: Send) -> None:
    headers = Headers(scope=scope)
    wanted = service
    if service == "info/refs":
        wanted = parse_qs(scope["query_string"].decode("latin-1")).get("service", [""])[0]
    if scope["method"] != ("GET" if service == "info/refs" else "POST"):
        raise _RefusedError(405, "Method Not Allowed")
    project = await _permitted(edge, path, wanted, headers)
    if wanted not in (FETCH, PUSH):
        raise _RefusedError(403, "Only git's smart HTTP protocol is served; use git 1.6.6 or newer")
    is_push = service == PUSH
    body = Body(receive)
    call = GitCall(
        method=scope["method"],
        service=service,
        query=scope["query_string"].decode("latin-1"),
        content_type=headers.get("content-type", ""),
        content_encoding=headers.get("content-encoding", ""),
        content_length=headers.get("content-length", ""),
        protocol=headers.get("git-protocol", ""),
        user="remuda" if wanted == PUSH else "",
    )

    async def start(status: int, found: list[tuple[bytes, bytes]]) -> None:
        await send({"type": "http.response.start", "status": status, "headers": found})

    async def send_piece(piece: bytes) -> None:
        await send({"type": "http.response.body", "body": piece, "more_body": True})

    try:
        said = await serve(
            edge.projects.repos,
            project.repo_path,
            call,
            body.pieces(),
            start=start,
            send=send_piece,
            abandoned=None if is_push else body.gone,
        )
        if said:
            _log.info("git said", project=project.path, service=service, said=said[-500:])
    finally:
        if is_push:
            reach("cell.ref_updated")
            await edge.projects.refs_changed(project)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _permitted(edge: Edge, path: str, wanted: str, headers: Headers) -> Project:
    """The project, if the caller may do this with it."""
    basic = auth.basic_in(headers)
    if basic and basic[0] == JOB_USER:
        try:
            job = await auth.job_of(edge, basic[1])
        except (ForbiddenError, ApiError):
            raise _denied() from None
        project = await edge.store.project_by_path(path)
        if project is None or job.project_id != project.id:
            raise _RefusedError(404, "There is no such project, or not for this job's token")
        if wanted == PUSH:
            raise _RefusedError(403, "A job's token may fetch, not push")
        return project
    try:
        await auth.user_of(edge, basic[1] if basic else auth.user_token_in(headers))
    except ApiError:
        raise _denied() from None
    project = await edge.store.project_by_path(path)
    if project is None and wanted == PUSH:
        project = await _made_by_push(edge, path)
    if project is None:
        raise _RefusedError(404, f"There is no project {path}")
    return project


async def _made_by_push(edge: Edge, path: str) -> Project | None:
    """A push to a project that does not exist makes it; two at once make one."""
    try:
        project = await edge.projects.create(path, name=path.rsplit("/", 1)[-1])
    except ConflictError:
        return await edge.store.project_by_path(path)
    except InvalidError as error:
        raise _RefusedError(403, f"The push cannot make the project {path}: {error}") from None
    _log.info("project made by a push", project=project.path)
    return project


def _denied() -> _RefusedError:
    return _RefusedError(
        401,
        "HTTP Basic: Access denied. Use a valid token as the password, with any user name",
        WWW_Authenticate='Basic realm="Remuda"',
    )
