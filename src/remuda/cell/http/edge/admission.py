"""Checks, before the handler runs, that the caller may make the call; the handler gets the person with `caller_of`.

The checks in order: is the token valid (401), has it a scope for the call (403), may the person know that the project,
group, job, pipeline or runner in the path exists (404), is their level high enough (403). `access` declares what an
endpoint needs; `core.access.rights` says what a level allows. Invariant: if a person may not know that something
exists, every answer is the same as if it did not exist."""

from collections.abc import Collection, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.core.access import rights
from remuda.cell.core.access.protected_refs import HEADS, TAGS, Pusher, can_push, can_run, is_protected, rules_of
from remuda.cell.errors import StoreError
from remuda.cell.git.port import FIRST_REFUSED
from remuda.cell.http.edge import auth, sessions
from remuda.cell.http.edge.access import Access, Kind
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import ApiError, forbidden, not_found, unauthorized
from remuda.cell.http.edge.lookup import (
    any_job_in_path,
    group_in_path,
    number_in_path,
    project_in_path,
    runner_in_path,
)
from remuda.cell.http.edge.public_reads import PUBLIC_READS
from remuda.cell.projects.refs import default_branch
from remuda.cell.values import Job, Pipeline, Project, Runner, UserToken
from remuda.cell.values.people import Level, Member, Namespace, Sight, User
from remuda.cell.values.sessions import WebSession
from remuda.model.job import PipelineId
from remuda.model.runner import RunnerType

READING = ("GET", "HEAD")
PAGE_CALLER = "remuda.page_caller"
"""Key in the ASGI scope of a call that a web page makes inside the process, with the `Caller` of that page. No HTTP
client can set it."""
_REVOKED = ("access_tokens", "deploy_tokens", "hooks", "members", "triggers")
"""Parts of a project through which others have access to it, or hear of it."""
USED_EVERY_SECONDS = 600
"""`last_used_at` of a token is written at most this often."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A person who calls with a personal token: the user, the token and the memberships that are valid now."""

    user: User
    token: UserToken
    members: Sequence[Member]
    """Memberships that are valid now."""
    session_id: int = 0
    """The session of the browser that calls; 0: the call has a token of its own."""

    @property
    def sight(self) -> Sight | None:
        """Filter for lists of projects and groups: only those that the person may see. None if they may see all."""
        return rights.sight(self.user, self.members)

    def level_in(self, project: Project) -> int | None:
        """The person's access level in a project; None if they may not know that the project exists."""
        return rights.project_level(self.user, self.members, project)

    def level_in_group(self, namespace: Namespace) -> int | None:
        """The person's access level in a group or other namespace; None if they may not know that it exists."""
        return rights.group_level(self.user, self.members, namespace)


ANONYMOUS = Caller(
    user=User(id=0, username="", name="", email="", created_at=0, organization_id=0),
    token=UserToken(token_hash="", name="", user_id=0, scopes=()),
    members=(),
)
"""Somebody who is not signed in. They see public projects, and only by the calls in `PUBLIC_READS`."""


def caller_of(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


def optional_caller(request: Request) -> Caller | None:
    """The person who calls; None if a job calls with its token."""
    caller: Caller | None = getattr(request.state, "caller", None)
    return caller


async def user_of_call(edge: Edge, request: Request) -> int:
    """Id of the user for whom a call acts: the person who calls, or who started the pipeline of the job that calls."""
    job: Job | None = getattr(request.state, "job", None)
    if job is None:
        return caller_of(request).user.id
    pipeline = await edge.store.pipelines.load_pipeline(job.pipeline_id)
    if pipeline is None:
        raise not_found("Pipeline")
    return pipeline.user_id


async def person(edge: Edge, token: str | None) -> Caller:
    """The user with this token, and their memberships. Raises ApiError: 401 for a bad token, 403 for a blocked user."""
    return await _load_caller(edge, await auth.user_of(edge, token))


async def person_of_session(edge: Edge, session: WebSession) -> Caller:
    """The user who is signed in with this session. Raises ApiError like `person`."""
    caller = await _load_caller(edge, await sessions.token_of_session(edge, session))
    return msgspec.structs.replace(caller, session_id=session.id)


async def person_in(edge: Edge, request: Request) -> Caller:
    """The user who makes a request: of its token, else of its session cookie. Raises ApiError like `person`, and 403 if
    a request with a cookie changes something and lacks its X-CSRF-Token."""
    caller: Caller | None = request.scope.get(PAGE_CALLER)
    if caller is not None:
        return caller
    token = auth.user_token_in(request.headers)
    secret = sessions.session_secret_in(edge, request.headers) if token is None else None
    if secret is None:
        return await person(edge, token)
    session = await sessions.session_of(edge, secret)
    if request.method not in READING:
        sessions.check_csrf(edge, request.headers, secret)
    return await person_of_session(edge, session)


async def _load_caller(edge: Edge, user_token: UserToken) -> Caller:
    user = await edge.store.people.load_user(user_token.user_id)
    if user is None:
        raise unauthorized()
    if user.state != "active":
        raise forbidden("Your account has been blocked.")
    now = edge.clock.wall()
    if user_token.id and now - (user_token.last_used_at or 0) >= USED_EVERY_SECONDS:
        with suppress(StoreError):  # a read-only store still answers
            await edge.store.people.change_user_token(user_token.id, lambda row: replace(row, last_used_at=now))
    members = rights.active_members(await edge.store.people.list_memberships(user.id), now)
    return Caller(user=user, token=user_token, members=members)


async def admit(edge: Edge, access: Access, request: Request) -> None:
    """Check that the caller may make this call; raises ApiError or ForbiddenError if not. Stores the person, or the job
    of the token, in `request.state`. Does nothing if the endpoint is open to all or its handler checks the token."""
    if access.kind in (Kind.OPEN, Kind.RUNNER, Kind.JOB, Kind.TRIGGER, Kind.GIT):
        return
    if access.or_job and await _is_job(edge, access, request):
        return
    if edge.settings.web.public_projects and is_anonymous(edge, request):
        await _admit_anonymous(edge, access, request)
        return
    caller = request.state.caller = await person_in(edge, request)
    if not rights.scopes_allow(caller.token.scopes, is_reading=request.method in READING, also=access.scopes):
        scopes = sorted({"api", *access.scopes, *(["read_api"] if request.method in READING else [])})
        raise _insufficient_scope(" ".join(scopes))
    level = await _level(edge, access, request, caller)
    if level is None or level < access.level:
        raise forbidden()


def is_anonymous(edge: Edge, request: Request) -> bool:
    """True if a call has neither a token nor a session."""
    caller: Caller | None = request.scope.get(PAGE_CALLER)
    if caller is not None:
        return caller is ANONYMOUS
    return auth.user_token_in(request.headers) is None and sessions.session_secret_in(edge, request.headers) is None


async def _admit_anonymous(edge: Edge, access: Access, request: Request) -> None:
    """Admit somebody who is not signed in to a call that reads a public project. Every other call gets the same 401,
    whether what it names exists or not."""
    is_public = request.method in READING and request.scope["route"].path in PUBLIC_READS
    try:
        level = await _level(edge, access, request, ANONYMOUS) if is_public else None
    except ApiError as error:
        if error.status != 404:
            raise
        level = None
    if level is None or level < access.level:
        raise unauthorized()
    request.state.caller = ANONYMOUS


async def _is_job(edge: Edge, access: Access, request: Request) -> bool:
    """True if the request has a job token. Raises ForbiddenError or ApiError if it is not valid or its job is of
    another project than in the path; for Kind.JOB_NUMBER (only a job id in the path) the handler must check that."""
    token = request.headers.get("job-token") or request.query_params.get("job_token")
    if access.kind is Kind.JOB_NUMBER:
        return bool(auth.job_token_in(request))
    if not token:
        return False
    caller = await auth.job_of(edge, token, scope=access.or_job)
    if (await project_in_path(edge, request)).id != caller.project_id:
        raise not_found("Project")
    request.state.job = caller
    return True


async def _level(edge: Edge, access: Access, request: Request, caller: Caller) -> int | None:
    """The caller's access level in the object in the path (for a job or pipeline: in its project). Raises ApiError 404
    if the caller may not know that it exists. None if only administrators are admitted and the caller is not one."""
    match access.kind:
        case Kind.ADMINISTRATOR:
            return rights.ADMINISTRATOR if caller.user.is_admin else None
        case Kind.PROJECT:
            project = await project_in_path(edge, request)
            level = require_visible(caller.level_in(project), "Project")
            if project.archived and request.method not in READING and not _is_allowed_in_archived(request):
                raise forbidden("the project is archived; unarchive it first")
            return level
        case Kind.GROUP:
            return require_visible(caller.level_in_group(await group_in_path(edge, request)), "Group")
        case Kind.JOB_NUMBER:
            job = await any_job_in_path(edge, request)
            owner = await edge.store.projects.load_project(job.project_id)
            return require_visible(caller.level_in(owner) if owner and owner.removed_at is None else None, "Job")
        case Kind.PIPELINE_NUMBER:
            pipeline = await edge.store.pipelines.load_pipeline(PipelineId(number_in_path(request, "pipeline_id")))
            owner = await edge.store.projects.load_project(pipeline.project_id) if pipeline else None
            return require_visible(caller.level_in(owner) if owner and owner.removed_at is None else None, "Pipeline")
        case Kind.RUNNER_NUMBER:
            return await runner_level(edge, caller, await runner_in_path(edge, request))
        case _:
            return Level.GUEST


def _is_allowed_in_archived(request: Request) -> bool:
    """True for a call that an archived project allows: one that changes or deletes the project as a whole, or that
    takes away access to it (`_REVOKED`), because a token that has leaked must not stay valid."""
    path: str = request.scope["path"]
    parts = path.removesuffix("/archive").removesuffix("/unarchive").split("/")
    return len(parts) == 5 or (request.method == "DELETE" and len(parts) == 7 and parts[5] in _REVOKED)


def require_visible(level: int | None, what: str) -> int:
    """Return `level`. If it is None (the object is hidden from the caller), raise ApiError 404 about `what`."""
    if level is None:
        raise not_found(what)
    return level


async def runner_level(edge: Edge, caller: Caller, runner: Runner) -> int:
    """The caller's access level for a runner. MAINTAINER or more: they may manage it (administrators, owners of its
    group, maintainers of one of its projects). 0: they may only see it (an instance runner: users of the
    organizations that it serves; a group runner: maintainers of its group). Raises ApiError 404 if neither."""
    if caller.user.is_admin:
        return rights.ADMINISTRATOR
    if not runner.may_serve(caller.user.organization_id):
        raise not_found("Runner")
    if runner.type is RunnerType.INSTANCE:
        return 0
    if runner.type is RunnerType.GROUP:
        group = await edge.store.people.load_namespace(runner.group_id or 0)
        level = (caller.level_in_group(group) if group else None) or 0
        if level < Level.MAINTAINER:
            raise not_found("Runner")
        return level if level >= Level.OWNER else 0
    projects = [await edge.store.projects.load_project(project_id) for project_id in runner.project_ids]
    if max((caller.level_in(project) or 0 for project in projects if project), default=0) < Level.MAINTAINER:
        raise not_found("Runner")
    return Level.MAINTAINER


async def check_push(edge: Edge, caller: Caller, project: Project, refs: Collection[str]) -> None:
    """Raise ApiError 403 if the caller may not push to one of the branches or tags in `refs`; other refs are not
    checked. While there is no default branch, only those who may push to it may push a branch, because the first one
    becomes the default branch."""
    rules, who = edge.projects.ref_rules(project), Pusher(caller.user.id, caller.level_in(project) or 0)
    branches = [ref for ref in refs if ref.startswith(HEADS)]
    if branches and not may_push_first(edge, project, who) and await edge.projects.find_default_ref(project) is None:
        raise forbidden(f"{branches[0]} {FIRST_REFUSED}")
    for ref in refs:
        if ref.startswith((HEADS, TAGS)) and not can_push(rules, ref, who):
            raise _refuse_protected(ref.removeprefix(HEADS).removeprefix(TAGS))


def may_push_first(edge: Edge, project: Project, who: Pusher) -> bool:
    """True if a user may push the first branch of a project, which becomes its default branch."""
    if who.level >= Level.MAINTAINER or not project.default_branch_protected:
        return True
    ref = HEADS + default_branch(edge.projects.repos, project)
    return can_push(edge.projects.ref_rules(project), ref, who)


async def check_protected(edge: Edge, caller: Caller, project: Project, ref: str) -> None:
    """Raise ApiError 403 if the ref is protected and the caller may not start its pipelines."""
    who = Pusher(caller.user.id, caller.level_in(project) or 0)
    if not can_run(edge.projects.ref_rules(project), ref, who):
        raise _refuse_protected(ref.removeprefix(HEADS).removeprefix(TAGS))


def check_acts_on(caller: Caller, project: Project, what: Job | Pipeline) -> None:
    """Raise ApiError 403 if the job or pipeline was created for a protected ref and the caller may not start pipelines
    of that ref. If it is not protected any more, only maintainers may: a retried job gets the protected variables."""
    who, ref = Pusher(caller.user.id, caller.level_in(project) or 0), f"{TAGS if what.tag else HEADS}{what.ref}"
    if not what.protected or who.level >= Level.MAINTAINER:
        return
    rules = rules_of(project, None)
    if not is_protected(rules, ref) or not can_run(rules, ref, who):
        raise _refuse_protected(what.ref)


def _refuse_protected(ref: str) -> ApiError:
    return forbidden(f"{ref} is protected; its rules do not let you do this: ask a maintainer")


def check_level(level: int | None, least: int, what: str) -> None:
    """Check that `level`, the access level of a caller in some object, is at least `least`. Raises ApiError 403 if it
    is lower, 404 about `what`, such as "Project", if it is None: the caller may not know that the object exists."""
    if require_visible(level, what) < least:
        raise forbidden()


def _insufficient_scope(scopes: str) -> ApiError:
    return ApiError(
        403,
        {
            "error": "insufficient_scope",
            "error_description": "The request requires higher privileges than provided by the access token.",
            "scope": scopes,
        },
    )
