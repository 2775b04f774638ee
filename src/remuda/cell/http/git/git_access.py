"""Who may fetch from a project or push to it with git, and with Git LFS: finds the project and checks the token.

A job's token may fetch its own project. So that submodules work, it may also fetch other projects of its organization
whose job token allow list admits it and whose code the pipeline's user may read. A user's token, with any user name,
lets reporters fetch and developers push. A deploy token, with its user name, may fetch. For a project that the user may
not see, the answer is the same 404 as for a missing one."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.datastructures import Headers

from remuda.cell.core.access.deploy_tokens import PREFIX as DEPLOY_PREFIX
from remuda.cell.core.access.deploy_tokens import can_fetch
from remuda.cell.core.access.job_token_scope import admits, explain_refusal
from remuda.cell.errors import ForbiddenError
from remuda.cell.http.edge import auth
from remuda.cell.http.edge.admission import Caller, person
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import ApiError
from remuda.cell.pipelines.cross_project_access import level_of
from remuda.cell.values import Job, Project
from remuda.cell.values.people import Level

JOB_USER = "gitlab-ci-token"
_PUSH_SCOPES = frozenset({"api", "write_repository"})
_FETCH_SCOPES = _PUSH_SCOPES | {"read_repository"}


class GitRefusedError(Exception):
    """The caller may not do this. The message is for the person who runs git."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(frozen=True, kw_only=True)
class GitAccess:
    """A caller who may fetch from a project, or push to it."""

    project: Project
    caller: Caller | None = None
    """None: a job or a deploy token."""
    level: int = 0
    """The caller's access level in the project; 0 for a job or a deploy token."""


CreateProject = Callable[[Caller, str], Awaitable[Project | None]]


async def authorize(
    edge: Edge, path: str, headers: Headers, *, is_push: bool, create: CreateProject | None = None
) -> GitAccess:
    """Find the project with this path and check that the caller may fetch from it, or push to it. `create` is called
    if the project of a push does not exist. Raises GitRefusedError if the caller may not do that."""
    basic = auth.basic_in(headers)
    if basic and basic[0] == JOB_USER:
        return await _authorize_job(edge, path, basic[1], is_push=is_push)
    if basic and basic[1].startswith(DEPLOY_PREFIX):
        return await _authorize_deploy_token(edge, path, *basic, is_push=is_push)
    try:
        caller = await person(edge, basic[1] if basic else auth.user_token_in(headers))
    except ApiError:
        raise _access_denied() from None
    scopes = _PUSH_SCOPES if is_push else _FETCH_SCOPES
    if scopes.isdisjoint(caller.token.scopes):
        raise GitRefusedError(403, f"The token has none of the scopes {', '.join(sorted(scopes))}")
    project = await edge.store.projects.find_project(path)
    if project is None and create is not None:
        project = await create(caller, path)
    level = caller.level_in(project) if project and project.removed_at is None else None
    if project is None or level is None:
        raise GitRefusedError(404, f"There is no project {path}, or you may not see it")
    if level < (Level.DEVELOPER if is_push else Level.REPORTER):
        raise GitRefusedError(
            403, f"Your level in {path} is too low: fetching is for reporters, pushing for developers"
        )
    if is_push and project.archived:
        raise GitRefusedError(403, f"The project {path} is archived, so it can only be read; unarchive it first")
    return GitAccess(project=project, caller=caller, level=level)


async def _authorize_job(edge: Edge, path: str, token: str, *, is_push: bool) -> GitAccess:
    try:
        job = await auth.job_of(edge, token, scope="repository")
    except (ForbiddenError, ApiError):
        raise _access_denied() from None
    project = await _project_for_job(edge, job, path)
    if project is None:
        raise GitRefusedError(404, "There is no such project, or this job's token may not read it")
    if is_push:
        raise GitRefusedError(403, "A job's token may fetch, not push")
    return GitAccess(project=project)


async def _authorize_deploy_token(edge: Edge, path: str, username: str, token: str, *, is_push: bool) -> GitAccess:
    deploy_token = await auth.deploy_token_of(edge, username, token)
    if deploy_token is None:
        raise _access_denied()
    project = await edge.store.projects.find_project(path)
    if project is None or project.removed_at is not None or not can_fetch(deploy_token, project, edge.clock.wall()):
        raise GitRefusedError(404, "There is no such project, or this deploy token may not read it")
    if is_push:
        raise GitRefusedError(403, "A deploy token may fetch, not push")
    return GitAccess(project=project)


async def _project_for_job(edge: Edge, job: Job, path: str) -> Project | None:
    """The project with this path, which a job wants to fetch; None if there is no such project or the job may not read
    its code. Raises GitRefusedError 403 if it is only the project's job token allow list that forbids the fetch."""
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
        raise GitRefusedError(403, f"This job's token may not read the project: {explain_refusal(project, source)}")
    return project


def _access_denied() -> GitRefusedError:
    return GitRefusedError(
        401,
        "HTTP Basic: Access denied. Use a valid token as the password, with any user name",
        WWW_Authenticate='Basic realm="Remuda"',
    )
