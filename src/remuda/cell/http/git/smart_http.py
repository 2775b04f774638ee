"""git over smart HTTP at `/<project path>.git`; as with GitLab, the `.git` may be left out.

A job's token may fetch its own project. So that submodules work, it may also fetch other projects of its organization
whose job token allow list admits it and whose code the pipeline's user may read. A fetch shows that the job is alive. A
user's token, with any user name, lets reporters fetch and developers push; the protected branch and the first branch
need a maintainer. A maintainer's push to a missing project creates it. For a project that the user may not see, the
answer is the same 404 as for a missing one.

Invariant: when a push is answered, the pipelines that it starts are stored, even if its client disconnects."""

import re
from contextlib import nullcontext
from urllib.parse import parse_qs, unquote

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from remuda.cell.core.access.job_token_scope import admits, explain_refusal
from remuda.cell.errors import ConflictError, ForbiddenError, InvalidError
from remuda.cell.git.port import GitClient, GitRequest, PushRules
from remuda.cell.http.edge import auth
from remuda.cell.http.edge.admission import Caller, person
from remuda.cell.http.edge.bodies import Body
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import ApiError
from remuda.cell.http.gitlab.projects import check_namespace
from remuda.cell.pipelines.cross_project_access import level_of
from remuda.cell.projects.refs import tag_with_name_of
from remuda.cell.values import Job, Project
from remuda.cell.values.people import Level
from remuda.telemetry.logs import logger

PATH = re.compile(r"/(?!api/)([^?]+?)(?:\.git)?/(info/refs|git-upload-pack|git-receive-pack)")
ROUTE = "/{path}.git"
FETCH, PUSH = "git-upload-pack", "git-receive-pack"
JOB_USER = "gitlab-ci-token"
_PUSH_SCOPES = frozenset({"api", "write_repository"})
_FETCH_SCOPES = _PUSH_SCOPES | {"read_repository"}

_log = logger("cell")


class _RefusedError(Exception):
    """An error response in plain text, which git prints for its user."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.answer = PlainTextResponse(
            text + "\n", status, {name.replace("_", "-"): value for name, value in headers.items()}
        )


async def serve_git(edge: Edge, path: str, service: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Fetch from a repository or push to it, with git's smart HTTP protocol."""
    try:
        await _serve(edge, unquote(path), service, scope, receive, send)
    except _RefusedError as refused:
        await refused.answer(scope, receive, send)


async def _serve(edge: Edge, path: str, service: str, scope: Scope, receive: Receive, send: Send) -> None:
    headers = Headers(scope=scope)
    wanted_service = service
    if service == "info/refs":
        wanted_service = parse_qs(scope["query_string"].decode("latin-1")).get("service", [""])[0]
    if scope["method"] != ("GET" if service == "info/refs" else "POST"):
        raise _RefusedError(405, "Method Not Allowed")
    project, rules = await _authorize(edge, path, wanted_service, headers)
    if wanted_service not in (FETCH, PUSH):
        raise _RefusedError(403, "Only git's smart HTTP protocol is served; use git 1.6.6 or newer")
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
    async with edge.projects.track_push(project) if is_push else nullcontext():
        stderr = await edge.projects.repos.serve(project.repo_path, git_request, client)
        if stderr:
            _log.info(
                "git wrote to stderr while it served a fetch or push; its answer was sent unchanged",
                project=project.path,
                service=service,
                stderr=stderr[-500:],
            )
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _authorize(edge: Edge, path: str, wanted_service: str, headers: Headers) -> tuple[Project, PushRules | None]:
    """The project with this path (a push may create it), and the push rules that git's hook enforces (None for a
    fetch). `wanted_service`: PUSH, or anything else for a fetch. Raises _RefusedError if the caller may not do that."""
    basic = auth.basic_in(headers)
    if basic and basic[0] == JOB_USER:
        try:
            job = await auth.job_of(edge, basic[1], scope="repository")
        except (ForbiddenError, ApiError):
            raise _access_denied() from None
        project = await _project_for_job(edge, job, path)
        if project is None:
            raise _RefusedError(404, "There is no such project, or this job's token may not read it")
        if wanted_service == PUSH:
            raise _RefusedError(403, "A job's token may fetch, not push")
        return project, None
    try:
        caller = await person(edge, basic[1] if basic else auth.user_token_in(headers))
    except ApiError:
        raise _access_denied() from None
    scopes = _PUSH_SCOPES if wanted_service == PUSH else _FETCH_SCOPES
    if scopes.isdisjoint(caller.token.scopes):
        raise _RefusedError(403, f"The token has none of the scopes {', '.join(sorted(scopes))}")
    project = await edge.store.projects.find_project(path)
    if project is None and wanted_service == PUSH:
        project = await _create_by_push(edge, caller, path)
    level = caller.level_in(project) if project and project.removed_at is None else None
    if project is None or level is None:
        raise _RefusedError(404, f"There is no project {path}, or you may not see it")
    if level < (Level.DEVELOPER if wanted_service == PUSH else Level.REPORTER):
        raise _RefusedError(403, f"Your level in {path} is too low: fetching is for reporters, pushing for developers")
    return project, await _push_rules(edge, project, caller.user.id, level) if wanted_service == PUSH else None


async def _project_for_job(edge: Edge, job: Job, path: str) -> Project | None:
    """The project with this path, which a job wants to fetch; None if there is no such project or the job may not read
    its code. Raises _RefusedError 403 if it is only the project's job token allow list that forbids the fetch."""
    project = await edge.store.projects.find_project(path)
    if project is None or project.removed_at is not None or project.organization_id != job.organization_id:
        return None
    if project.id == job.project_id:
        return project
    pipeline, source = (
        await edge.store.pipelines.load_pipeline(job.pipeline_id),
        await edge.store.projects.load_project(job.project_id),
    )
    level = await level_of(edge.store, pipeline.user_id, project, edge.clock.wall()) if pipeline else None
    if source is None or (level or 0) < Level.REPORTER:
        return None
    if not admits(project, source, is_reading=True):
        raise _RefusedError(403, f"This job's token may not read the project: {explain_refusal(project, source)}")
    return project


async def _push_rules(edge: Edge, project: Project, user_id: int, level: int) -> PushRules:
    """The rules that git's hook enforces for a push of a user with this level in the project: which refs are refused,
    and which must not be force-pushed."""
    protected = await edge.projects.find_protected_ref(project)
    is_refused = level < Level.MAINTAINER
    return PushRules(
        user_id=user_id if is_refused or user_id != project.creator_id else None,
        refused_ref=protected if protected is not None and is_refused else "",
        refuses_first=protected is None and is_refused,
        namesake_ref=tag_with_name_of(protected) if protected is not None else "",
        forward_ref=protected if protected is not None and not project.allow_force_push else "",
    )


async def _create_by_push(edge: Edge, caller: Caller, path: str) -> Project | None:
    """Create the project of a push; if another push has just created it, return that. None if the caller may not create
    it. Raises _RefusedError 403 for a bad path or a developer, who may not push the first branch."""
    try:
        namespace = await check_namespace(edge, caller, path.rpartition("/")[0])
        if namespace is not None and (caller.level_in_group(namespace) or 0) < Level.MAINTAINER:
            raise _RefusedError(
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
        raise _RefusedError(403, f"The push cannot create the project {path}: {error}") from None
    _log.info("project created by a push", project=project.path)
    return project


def _access_denied() -> _RefusedError:
    return _RefusedError(
        401,
        "HTTP Basic: Access denied. Use a valid token as the password, with any user name",
        WWW_Authenticate='Basic realm="Remuda"',
    )
