"""git over smart HTTP at `/<project path>.git`; as with GitLab, the `.git` may be left out.

`git_access` says who may fetch and push, `core.access.protected_refs` who may push to protected branches and tags. A
fetch of a job shows that the job is alive. A maintainer's push to a missing project creates it.

Invariant: the pipelines that a push starts are stored, even if its client disconnects: before its answer ends or, if
that takes long (`push_answer`), after it."""

import re
from functools import partial
from urllib.parse import parse_qs, unquote

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from remuda.cell.core.access.protected_refs import Pusher, push_patterns
from remuda.cell.errors import ConflictError, InvalidError
from remuda.cell.git.port import GitClient, GitRequest, PushRules
from remuda.cell.http.edge.admission import Caller, may_push_first
from remuda.cell.http.edge.bodies import Body
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import ApiError
from remuda.cell.http.git.git_access import GitRefusedError, authorize
from remuda.cell.http.git.push_answer import serve_push
from remuda.cell.http.gitlab.projects import check_namespace
from remuda.cell.projects.file_locks import list_locked_paths
from remuda.cell.projects.refs import tag_with_name_of
from remuda.cell.values import Project
from remuda.cell.values.people import Level
from remuda.telemetry.logs import logger

PATH = re.compile(r"/(?!api/)([^?]+?)(?:\.git)?/(info/refs|git-upload-pack|git-receive-pack)")
ROUTE = "/{path}.git"
FETCH, PUSH = "git-upload-pack", "git-receive-pack"

_log = logger("cell")


async def serve_git(edge: Edge, path: str, service: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Fetch from a repository or push to it, with git's smart HTTP protocol."""
    try:
        await _serve(edge, unquote(path), service, scope, receive, send)
    except GitRefusedError as refused:
        # As plain text, which git prints for its user.
        await PlainTextResponse(f"{refused}\n", refused.status, refused.headers)(scope, receive, send)


async def _serve(edge: Edge, path: str, service: str, scope: Scope, receive: Receive, send: Send) -> None:
    headers = Headers(scope=scope)
    wanted_service = service
    if service == "info/refs":
        wanted_service = parse_qs(scope["query_string"].decode("latin-1")).get("service", [""])[0]
    if scope["method"] != ("GET" if service == "info/refs" else "POST"):
        raise GitRefusedError(405, "Method Not Allowed")
    project, rules = await _authorize(edge, path, wanted_service, headers)
    if wanted_service not in (FETCH, PUSH):
        raise GitRefusedError(403, "Only git's smart HTTP protocol is served; use git 1.6.6 or newer")
    expected = f"application/x-{service}-request"
    if service != "info/refs" and headers.get("content-type") != expected:
        raise GitRefusedError(415, f"The Content-Type must be {expected}")
    is_push = service == PUSH
    body = Body(receive)
    git_request = GitRequest(
        method=scope["method"],
        service=service,
        # Written anew, because git might read another one of a repeated parameter than this code.
        query=f"service={wanted_service}" if service == "info/refs" else "",
        content_type=headers.get("content-type", ""),
        content_encoding=headers.get("content-encoding", ""),
        protocol=headers.get("git-protocol", ""),
        user="remuda" if wanted_service == PUSH else "",
        rules=rules,
    )

    async def start(status: int, answer_headers: list[tuple[bytes, bytes]]) -> None:
        await send({"type": "http.response.start", "status": status, "headers": answer_headers})

    async def send_piece(piece: bytes) -> None:
        await send({"type": "http.response.body", "body": piece, "more_body": True})

    wait_hang_up = None if is_push else body.hang_up.wait
    client = GitClient(body=body.pieces(), start=start, send=send_piece, wait_hang_up=wait_hang_up)

    async def end() -> None:
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    if is_push:
        stderr = await serve_push(edge, project, git_request, client, end)
    else:
        stderr = await edge.projects.repos.serve(project.repo_path, git_request, client)
        await end()
    if stderr:
        _log.info(
            "git wrote to stderr while it served a fetch or push; its answer was sent unchanged",
            project=project.path,
            service=service,
            stderr=stderr[-500:],
        )


async def _authorize(edge: Edge, path: str, wanted_service: str, headers: Headers) -> tuple[Project, PushRules | None]:
    """The project with this path (a push may create it), and the push rules that git's hook enforces (None for a
    fetch). `wanted_service`: PUSH, or anything else for a fetch. Raises GitRefusedError if the caller may not."""
    is_push = wanted_service == PUSH
    create = partial(_create_by_push, edge) if is_push else None
    access = await authorize(edge, path, headers, is_push=is_push, create=create)
    if not is_push or access.caller is None:
        return access.project, None
    return access.project, await _push_rules(edge, access.project, access.caller.user.id, access.level)


async def _push_rules(edge: Edge, project: Project, user_id: int, level: int) -> PushRules:
    """The rules that git's hook enforces for a push of a user with this level in the project: which refs are refused,
    and which must not be force-pushed."""
    default_ref = await edge.projects.find_default_ref(project)
    who = Pusher(user_id, level)
    patterns = push_patterns(edge.projects.ref_rules(project), who)
    is_limited = any(pattern not in patterns.allowed for pattern in patterns.protected)
    return PushRules(
        user_id=user_id if is_limited or user_id != project.creator_id else None,
        protected_refs=patterns.protected,
        allowed_refs=patterns.allowed,
        forced_refs=patterns.forced,
        refuses_first=default_ref is None and not may_push_first(edge, project, who),
        namesake_ref=tag_with_name_of(default_ref) if default_ref is not None else "",
        locked_paths=await list_locked_paths(edge.store, project, user_id),
    )


async def _create_by_push(edge: Edge, caller: Caller, path: str) -> Project | None:
    """Create the project of a push; if another push has just created it, return that. None if the caller may not create
    it. Raises GitRefusedError 403 for a bad path or a developer, who may not push the first branch."""
    try:
        namespace = await check_namespace(edge, caller, path.rpartition("/")[0])
        if namespace is not None and (caller.level_in_group(namespace) or 0) < Level.MAINTAINER:
            raise GitRefusedError(
                403,
                f"There is no project {path}. Only maintainers may push the first branch of a project: ask a "
                f"maintainer of {namespace.path} to create it and push its first branch",
            )
        project = await edge.projects.create(
            path,
            name=path.rsplit("/", 1)[-1],
            organization_id=caller.user.organization_id,
            creator_id=caller.user.id,
        )
    except ApiError:
        return None
    except ConflictError:
        return await edge.store.projects.find_project(path)
    except InvalidError as error:
        raise GitRefusedError(403, f"The push cannot create the project {path}: {error}") from None
    _log.info("project created by a push", project=project.path)
    return project
