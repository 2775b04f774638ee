"""Runner tokens: register a runner with a registration token, create one as a user, reset tokens.

Administrators create runners for the cell, owners for a group, maintainers for a project. Registration tokens
are stored in plain text, because people look them up; a runner's own token is stored only as a hash. Invariant: when a
token is reset, the old one is invalid before the new one is returned."""

import hmac
import secrets
from collections.abc import Collection
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.core.access.tokens import RANDOM_BYTES, runner_token
from remuda.cell.errors import InvalidError
from remuda.cell.http.edge import auth
from remuda.cell.http.edge.access import ADMINISTRATOR, MANAGES_RUNNER, RUNNER, USER, in_group, in_project
from remuda.cell.http.edge.admission import Caller, check_level
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import ApiError, bad_field, bad_parameter, forbidden, not_found
from remuda.cell.http.edge.lookup import existing_group, existing_project
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.runner.job_state import check_runner, credentials, is_protected
from remuda.cell.pipelines.releases import parse_time
from remuda.cell.settings import CellSettings
from remuda.cell.store.ports import Store
from remuda.cell.values import ORGANIZATION_ID, USER_ID, Project, Runner
from remuda.cell.values.people import Level, Namespace
from remuda.model.job import ProjectId, RunnerId
from remuda.model.runner import Pool, RunnerType
from remuda.wire.routable_token import token_hash
from remuda.wire.runner_api import CreateRunner, RegisterRunner, RunnerCredentials, tags_of

REGISTRATION_PREFIX = "GR1348941"
_REGISTRATION = "registration_token"
"""Name of the stored setting; for a group or project followed by its kind and id."""
_OWNER_OF = "registration_token_of"
"""Name of the setting with the owner of a registration token; the hash of the token follows."""
_SETTINGS = "application_settings"
MAX_ORGANIZATIONS = 1000
"""To how many organizations an instance runner can be restricted."""
ONLY_INSTANCE_RUNNERS = "organization_ids is invalid: only instance runners can be restricted to organizations"
_INSTANCE: Pool = ("instance", 0)


_RESET = "runners/reset_registration_token"
routes = Routes()


class ApplicationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the whole cell that administrators change, with GitLab's names."""

    allow_runner_registration_token: bool = True
    runner_token_expiration_interval: int | None = None
    """Lifetime of an instance runner's token in seconds; None: no expiry."""
    group_runner_token_expiration_interval: int | None = None
    project_runner_token_expiration_interval: int | None = None

    def life_seconds(self, runner_type: RunnerType) -> int | None:
        """Lifetime in seconds of the token of a runner of this type; None if the token does not expire."""
        match runner_type:
            case RunnerType.INSTANCE:
                return self.runner_token_expiration_interval
            case RunnerType.GROUP:
                return self.group_runner_token_expiration_interval
            case RunnerType.PROJECT:
                return self.project_runner_token_expiration_interval


class SettingsChange(msgspec.Struct, kw_only=True):
    allow_runner_registration_token: bool | None = None
    runner_token_expiration_interval: int | None = None
    group_runner_token_expiration_interval: int | None = None
    project_runner_token_expiration_interval: int | None = None


class OldToken(msgspec.Struct, kw_only=True):
    token: str = ""


class TokenShape(Shape, kw_only=True):
    """A registration token, which never expires."""

    token: str
    token_expires_at: str | None = None


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """The cell, organizations, group or project that a runner serves, and the user who created it."""

    type: RunnerType
    organization_id: int
    organization_ids: tuple[int, ...] = ()
    """For an instance runner: the organizations that it serves; empty: all."""
    group_id: int | None = None
    project_id: ProjectId | None = None
    user_id: int = USER_ID


async def application_settings(store: Store) -> ApplicationSettings:
    """The stored settings of the whole cell; the defaults if none are stored."""
    stored = await store.settings.load_setting(_SETTINGS)
    return msgspec.json.decode(stored, type=ApplicationSettings) if stored else ApplicationSettings()


@routes.get("/api/v4/application/settings", ADMINISTRATOR, gives=ApplicationSettings)
async def show_settings(edge: Edge) -> dict[str, Any]:
    """Show the settings of the whole cell."""
    return {"id": 1, **msgspec.structs.asdict(await application_settings(edge.store))}


@routes.put("/api/v4/application/settings", ADMINISTRATOR, gives=ApplicationSettings)
async def change_settings(edge: Edge, params: SettingsChange) -> dict[str, Any]:
    """Change settings of the cell. A lifetime of tokens of 0 seconds means that they do not expire."""
    changes: dict[str, int | bool | None] = {}
    for name, value in msgspec.structs.asdict(params).items():
        if value is not None:
            if value < 0:
                raise bad_parameter(f"{name} is invalid")
            changes[name] = value if isinstance(value, bool) else value or None
    changed = replace(await application_settings(edge.store), **changes)
    await edge.store.settings.put_setting(_SETTINGS, msgspec.json.encode(changed).decode())
    return {"id": 1, **msgspec.structs.asdict(changed)}


async def ensure_registration_token(store: Store, settings: CellSettings, owner: Pool = _INSTANCE) -> str:
    """Runner registration token of `owner`: the stored one or, if missing, a new one; settings override the cell's."""
    if owner == _INSTANCE and settings.registration_token is not None:
        return settings.registration_token
    return await store.settings.load_setting(_name(owner)) or await reset_registration_token(store, owner)


async def reset_registration_token(store: Store, owner: Pool) -> str:
    """Create a new registration token for a group, a project or the cell (`owner`). The old one becomes invalid."""
    token = REGISTRATION_PREFIX + secrets.token_urlsafe(15)
    # The owner is stored first: a stored token without an owner would never work.
    await store.settings.put_setting(f"{_OWNER_OF} {token_hash(token)}", f"{owner[0]} {owner[1]}")
    await store.settings.put_setting(_name(owner), token)
    return token


def _name(owner: Pool) -> str:
    return _REGISTRATION if owner == _INSTANCE else f"{_REGISTRATION} {owner[0]} {owner[1]}"


async def _registration_owner(edge: Edge, token: str) -> Pool:
    """The group, project or cell of a registration token. Raises ApiError 403 if the token is not valid."""
    kind, _, number = (
        await edge.store.settings.load_setting(f"{_OWNER_OF} {token_hash(token)}") or "instance 0"
    ).partition(" ")
    owner = (kind, int(number))
    fixed = edge.settings.registration_token if owner == _INSTANCE else None
    expected = (await edge.store.settings.load_setting(_name(owner)) if fixed is None else fixed) or ""
    if not expected or not hmac.compare_digest(token_hash(token), token_hash(expected)):
        raise forbidden("invalid token supplied")
    return owner


@routes.post("/api/v4/runners", RUNNER, also=(410,))
async def register(edge: Edge, request: Request, params: RegisterRunner) -> RunnerCredentials:
    """Register a runner with a registration token."""
    token = params.token or auth.runner_token_in(request)
    if not token:
        raise bad_parameter("token is missing")
    if not (await application_settings(edge.store)).allow_runner_registration_token:
        raise ApiError(410, {"message": "410 Gone - runner registration disallowed"})
    kind, number = await _registration_owner(edge, token)
    if kind == "group":
        group = await edge.store.people.load_namespace(number)
        if group is None:
            raise forbidden("invalid token supplied")
        reach = Reach(type=RunnerType.GROUP, organization_id=group.organization_id, group_id=group.id)
    elif kind == "project":
        project = await edge.store.projects.load_project(ProjectId(number))
        if project is None or project.removed_at is not None:
            raise forbidden("invalid token supplied")
        reach = _of_project(project)
    else:
        reach = Reach(type=RunnerType.INSTANCE, organization_id=ORGANIZATION_ID)
    return await _make(edge, params, reach, registered=True, paused=params.active is False)


def _of_project(project: Project, user_id: int = USER_ID) -> Reach:
    return Reach(
        type=RunnerType.PROJECT, organization_id=project.organization_id, project_id=project.id, user_id=user_id
    )


@routes.post("/api/v4/user/runners", USER.with_scopes("create_runner"))
async def create(edge: Edge, caller: Caller, params: CreateRunner) -> RunnerCredentials:
    """Create a runner as a user."""
    if not params.runner_type:
        raise bad_parameter("runner_type is missing")
    if params.runner_type not in tuple(RunnerType):
        raise bad_parameter("runner_type does not have a valid value")
    return await _make(edge, params, await _reach(edge, caller, params))


async def _reach(edge: Edge, caller: Caller, params: CreateRunner) -> Reach:
    """What a new runner serves: the cell, organizations, a group or a project. Raises ApiError: 400 if its id is
    missing or organizations do not apply, 403 or 404 if the caller may not create a runner in it."""
    user_id = caller.user.id
    if params.organization_ids and params.runner_type != RunnerType.INSTANCE:
        raise bad_parameter(ONLY_INSTANCE_RUNNERS)
    match RunnerType(params.runner_type):
        case RunnerType.INSTANCE:
            if not caller.user.is_admin:
                raise forbidden("only administrators may create instance runners")
            numbers = [params.organization_id] if params.organization_id else params.organization_ids or []
            return Reach(
                type=RunnerType.INSTANCE,
                organization_id=caller.user.organization_id,
                organization_ids=await check_organizations(edge, numbers),
                user_id=user_id,
            )
        case RunnerType.GROUP:
            if params.group_id is None:
                raise bad_parameter("group_id is missing")
            group = await existing_group(edge, params.group_id)
            check_level(caller.level_in_group(group), Level.OWNER, "Group")
            return Reach(
                type=RunnerType.GROUP, organization_id=group.organization_id, group_id=group.id, user_id=user_id
            )
        case RunnerType.PROJECT:
            if params.project_id is None:
                raise bad_parameter("project_id is missing")
            project = await existing_project(edge, params.project_id)
            check_level(caller.level_in(project), Level.MAINTAINER, "Project")
            return _of_project(project, user_id)


async def check_organizations(edge: Edge, numbers: Collection[int]) -> tuple[int, ...]:
    """The ids of organizations, sorted, without repetitions. Raises ApiError 404 if there is no such organization."""
    if len(numbers) > MAX_ORGANIZATIONS:
        raise bad_parameter(f"organization_ids is invalid: at most {MAX_ORGANIZATIONS} ids")
    known = {organization.id for organization in await edge.store.people.list_organizations()} if numbers else set()
    if not known.issuperset(numbers):
        raise not_found("Organization")
    return tuple(sorted(set(numbers)))


def _new_token(edge: Edge, reach: Reach, *, registered: bool) -> str:
    return runner_token(
        cell_id=edge.settings.cell_id,
        runner_type=reach.type,
        random=secrets.token_bytes(RANDOM_BYTES),
        organization_id=reach.organization_id,
        group_id=reach.group_id,
        project_id=reach.project_id,
        user_id=reach.user_id,
        registered=registered,
    )


async def _expiry(edge: Edge, runner_type: RunnerType, token_expires_at: str | None = None) -> float | None:
    """When a new runner token expires (None: never): by the settings, or sooner at `token_expires_at` (400 if past)."""
    now = edge.clock.wall()
    life = (await application_settings(edge.store)).life_seconds(runner_type)
    latest = None if life is None else now + life
    if not token_expires_at:
        return latest
    try:
        expires_at = parse_time(token_expires_at)
    except InvalidError:
        expires_at = now
    if expires_at <= now:
        raise bad_parameter("token_expires_at is invalid: expected a future time such as 2030-01-31T08:00:00Z")
    return expires_at if latest is None else min(expires_at, latest)


async def _make(
    edge: Edge,
    params: RegisterRunner | CreateRunner,
    reach: Reach,
    *,
    registered: bool = False,
    paused: bool = False,
) -> RunnerCredentials:
    token = _new_token(edge, reach, registered=registered)
    runner = check_runner(
        Runner(
            id=RunnerId(0),
            type=reach.type,
            token_hash=token_hash(token),
            created_at=edge.clock.now(),
            description=params.description or "",
            maintenance_note=params.maintenance_note or getattr(params, "maintainer_note", None),
            paused=bool(params.paused) or paused,
            locked=bool(params.locked),
            protected_only=is_protected(params.access_level),
            run_untagged=params.run_untagged is not False,
            tags=tags_of(params.tag_list),
            maximum_timeout=params.maximum_timeout or None,
            organization_id=reach.organization_id,
            organization_ids=reach.organization_ids,
            group_id=reach.group_id,
            project_ids=(reach.project_id,) if reach.project_id is not None else (),
            registered=registered,
            token_expires_at=await _expiry(edge, reach.type, getattr(params, "token_expires_at", None)),
            user_id=reach.user_id,
        )
    )
    stored = await edge.store.runners.add_runner(runner)
    return credentials(stored, token)


@routes.post("/api/v4/runners/reset_authentication_token", RUNNER)
async def reset_own(edge: Edge, request: Request, params: OldToken) -> RunnerCredentials:
    """Reset the token of the runner that calls."""
    runner = await auth.runner_of(edge, params.token or auth.runner_token_in(request))
    request.state.runner_id = runner.id
    # Runners renew their tokens by themselves. That must not remove an expiry that somebody set.
    return await _reset(edge, runner, ends_at=runner.token_expires_at)


@routes.post("/api/v4/runners/{runner_id}/reset_authentication_token", MANAGES_RUNNER)
async def reset(edge: Edge, runner: Runner) -> RunnerCredentials:
    """Reset the token of a runner."""
    return await _reset(edge, runner)


async def _reset(edge: Edge, runner: Runner, *, ends_at: float | None = None) -> RunnerCredentials:
    reach = Reach(
        type=runner.type,
        organization_id=runner.organization_id,
        group_id=runner.group_id,
        project_id=runner.project_ids[0] if runner.project_ids else None,
        user_id=runner.user_id,
    )
    token = _new_token(edge, reach, registered=runner.registered)
    by_settings = await _expiry(edge, runner.type)
    expires_at = ends_at if by_settings is None else by_settings

    def renew(row: Runner) -> Runner | None:
        """The runner with the new token; None, to change nothing, if another call has reset the token meanwhile."""
        if row.token_hash != runner.token_hash:
            return None
        return replace(row, token_hash=token_hash(token), token_expires_at=expires_at)

    changed = await edge.store.runners.change_runner(runner.id, renew)
    if changed is None:
        raise forbidden()
    return credentials(changed, token)


@routes.get("/api/remuda/v1/registration_token", ADMINISTRATOR)
async def show_registration_token(edge: Edge) -> TokenShape:
    """Show the registration token of the cell."""
    return TokenShape(token=await ensure_registration_token(edge.store, edge.settings))


@routes.post(f"/api/v4/{_RESET}", ADMINISTRATOR)
async def reset_for_cell(edge: Edge) -> TokenShape:
    """Reset the registration token of the cell."""
    if edge.settings.registration_token is not None:
        raise bad_field("token", "is set in the cell's settings; change it there")
    return TokenShape(token=await reset_registration_token(edge.store, _INSTANCE))


@routes.post(f"/api/v4/groups/{{id}}/{_RESET}", in_group(Level.OWNER))
async def reset_for_group(edge: Edge, group: Namespace) -> TokenShape:
    """Reset the registration token of a group."""
    return TokenShape(token=await reset_registration_token(edge.store, ("group", group.id)))


@routes.post(f"/api/v4/projects/{{id}}/{_RESET}", in_project(Level.MAINTAINER))
async def reset_for_project(edge: Edge, project: Project) -> TokenShape:
    """Reset the registration token of a project."""
    return TokenShape(token=await reset_registration_token(edge.store, ("project", project.id)))
