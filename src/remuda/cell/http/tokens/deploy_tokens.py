"""Deploy tokens of projects and groups in GitLab's form: a user name and a token that fetch with git and Git LFS, and
use the container registry, but not the API.

A token is shown once, when it is created; the store has its hash. The token `gitlab-deploy-token` of a project is also
stored encrypted, because jobs get it. GitLab's scopes for package registries are stored and shown, but have no effect.
"""

import secrets
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.core.access.deploy_tokens import CI_NAME, NO_EFFECT, PREFIX, SCOPES
from remuda.cell.core.access.tokens import RANDOM_BYTES
from remuda.cell.http.edge.access import ADMINISTRATOR, in_group, in_project
from remuda.cell.http.edge.admission import Caller
from remuda.cell.http.edge.bodies import choice_in_query, read_time
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import bad_field, bad_parameter, bad_request, not_found
from remuda.cell.http.edge.lookup import number_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.git.git_access import JOB_USER
from remuda.cell.http.gitlab.members import Place, place_in_path
from remuda.cell.http.gitlab.views import time_text
from remuda.cell.http.tokens.personal_tokens import MAX_NAME, check_future, check_name_and_scopes
from remuda.cell.values.hooks import DeployToken
from remuda.cell.values.people import Level
from remuda.model.job import ProjectId
from remuda.wire.routable_token import encode, token_hash

MAX_TOKENS = 500
"""How many active deploy tokens a project or group can have."""
_OF_PROJECT, _OF_GROUP = "/api/v4/projects/{id}/deploy_tokens", "/api/v4/groups/{id}/deploy_tokens"
_MAINTAINER = in_project(Level.MAINTAINER)
_LISTED = {"active": bool}
routes = Routes()


class NewDeployToken(msgspec.Struct, kw_only=True):
    name: str
    scopes: list[str]
    expires_at: str | None = None
    username: str | None = None


class DeployTokenShape(Shape, kw_only=True):
    id: int
    name: str
    username: str
    expires_at: str | None
    scopes: list[str]
    revoked: bool = False
    """Never true: a token that was removed is gone."""
    expired: bool
    token: str | UnsetType = UNSET


def _view(token: DeployToken, now: float) -> DeployTokenShape:
    return DeployTokenShape.of(
        token,
        expires_at=time_text(token.expires_at),
        scopes=list(token.scopes),
        expired=token.expires_at is not None and token.expires_at <= now,
    )


def _list_views(edge: Edge, request: Request, tokens: list[DeployToken]) -> list[DeployTokenShape]:
    now = edge.clock.wall()
    if active := choice_in_query(request, "active", ("true", "false")):
        tokens = [token for token in tokens if token.is_active(now) is (active == "true")]
    return [_view(token, now) for token in tokens]


@routes.get("/api/v4/deploy_tokens", ADMINISTRATOR, query=_LISTED)
async def list_everywhere(edge: Edge, request: Request) -> list[DeployTokenShape]:
    """List all deploy tokens of the cell."""
    return _list_views(edge, request, list(await edge.store.hooks.list_deploy_tokens(None)))


@routes.get(_OF_GROUP, in_group(Level.MAINTAINER), query=_LISTED)
@routes.get(_OF_PROJECT, _MAINTAINER, query=_LISTED)
async def list_all(edge: Edge, request: Request, place: Annotated[Place, place_in_path]) -> list[DeployTokenShape]:
    """List the deploy tokens of a project or group."""
    return _list_views(edge, request, list(await edge.store.hooks.list_deploy_tokens(place.owner)))


async def _find(edge: Edge, request: Request) -> DeployToken:
    place = await place_in_path(edge, request)
    token = await edge.store.hooks.load_deploy_token(number_in_path(request, "token_id"))
    if token is None or token.owner != place.owner:
        raise not_found("Deploy token")
    return token


@routes.get(f"{_OF_GROUP}/{{token_id}}", in_group(Level.MAINTAINER))
@routes.get(f"{_OF_PROJECT}/{{token_id}}", _MAINTAINER)
async def show(edge: Edge, token: Annotated[DeployToken, _find]) -> DeployTokenShape:
    """Show a deploy token, without its secret."""
    return _view(token, edge.clock.wall())


@routes.post(_OF_GROUP, in_group(Level.OWNER))
@routes.post(_OF_PROJECT, _MAINTAINER)
async def create(
    edge: Edge, request: Request, caller: Caller, place: Annotated[Place, place_in_path], params: NewDeployToken
) -> DeployTokenShape:
    """Create a deploy token. Its secret is shown only here."""
    _check_new(params)
    now = edge.clock.wall()
    expires_at = check_future(read_time("expires_at", params.expires_at) if params.expires_at else None, now)
    tokens = await edge.store.hooks.list_deploy_tokens(place.owner)
    if sum(token.is_active(now) for token in tokens) >= MAX_TOKENS:
        raise bad_request(f"there are {MAX_TOKENS} deploy tokens already; remove those that nobody uses")
    kind, number = place.owner
    is_for_jobs = kind == "project" and params.name == CI_NAME
    routing = {"c": edge.settings.cell_id, "o": place.organization_id, kind[0]: number}
    text = encode(prefix=PREFIX, routing=routing, random=secrets.token_bytes(RANDOM_BYTES))
    added = await edge.store.hooks.add_deploy_token(
        DeployToken(
            id=0,
            owner=place.owner,
            name=params.name,
            username=params.username or "",
            token_hash=token_hash(text),
            scopes=tuple(dict.fromkeys(params.scopes)),
            created_at=now,
            expires_at=expires_at,
            creator_id=caller.user.id,
            secrets={"token": text} if is_for_jobs else {},
        )
    )
    if not added.username:
        named = replace(added, username=f"gitlab+deploy-token-{added.id}")
        added = await edge.store.hooks.change_deploy_token(added.id, lambda _: named) or named
    if is_for_jobs:
        await edge.store.projects.change_project(
            ProjectId(number), lambda row: replace(row, ci_deploy_token_id=added.id)
        )
    request.state.ignored = [f"scopes.{scope}" for scope in added.scopes if scope in NO_EFFECT]
    return replace(_view(added, now), token=text)


def _check_new(params: NewDeployToken) -> None:
    unknown = [scope for scope in params.scopes if scope not in (*SCOPES, *NO_EFFECT)]
    check_name_and_scopes(params.name, params.scopes, unknown=unknown)
    username = params.username or ""
    if len(username) > MAX_NAME or ":" in username or not username.isprintable():
        raise bad_field("username", f"must have at most {MAX_NAME} characters, and no colon")
    if username == JOB_USER:
        raise bad_field("username", f"cannot be {username}, which is for the tokens of jobs")
    if set(params.scopes) <= set(NO_EFFECT):
        raise bad_parameter(
            f"scopes: a cell has no package registry, so this token could do nothing; give one of {', '.join(SCOPES)}"
        )


@routes.delete(f"{_OF_GROUP}/{{token_id}}", in_group(Level.OWNER))
@routes.delete(f"{_OF_PROJECT}/{{token_id}}", _MAINTAINER)
async def remove(edge: Edge, token: Annotated[DeployToken, _find]) -> None:
    """Remove a deploy token, which is not valid any more."""
    await edge.store.hooks.remove_deploy_token(token.id)
