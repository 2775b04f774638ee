"""`GET /jwt/auth`: creates tokens for clients of a Docker registry, which sends them here (the URL is its `realm`).

The caller authenticates by HTTP Basic: a job (`gitlab-ci-token` and its token), a person (any name and a personal
token), or a deploy token with its user name. A bad token gets 401. Others get a registry token that lists what they
may do, perhaps nothing."""

from collections.abc import Collection
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.core.access import registry_images
from remuda.cell.core.access.deploy_tokens import PREFIX as DEPLOY_PREFIX
from remuda.cell.core.access.deploy_tokens import registry_actions
from remuda.cell.errors import ForbiddenError
from remuda.cell.http.edge import auth
from remuda.cell.http.edge.access import GIT, OPEN
from remuda.cell.http.edge.admission import person
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import ApiError
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.git.git_access import JOB_USER
from remuda.cell.projects.registry import Allows, Registry
from remuda.cell.values import Project
from remuda.lib.clock import rfc3339
from remuda.wire.registry_token import LIFE_SECONDS

routes = Routes()


@routes.get("/jwt/auth", GIT, query={"service": str, "scope": list[str], "account": str})
async def give_token(edge: Edge, request: Request) -> dict[str, Any]:
    """Create a token for the Docker registry."""
    basic = auth.basic_in(request.headers)
    if basic is None:
        raise _unauthorized()
    name, password = basic
    try:
        if password.startswith(DEPLOY_PREFIX):
            allows = await _by_deploy_token(edge, name, password)
        else:
            allows = await (_by_job(edge, password) if name == JOB_USER else _by_person(edge, password))
    except (ApiError, ForbiddenError):
        raise _unauthorized() from None
    registry, query = _registry(edge), request.query_params
    if query.get("service") != edge.settings.registry_service:
        raise _registry_error(
            404, "UNSUPPORTED", f"unknown service; that of this cell is {edge.settings.registry_service}"
        )
    token = await registry.token(query.getlist("scope"), allows, subject=name)
    now = rfc3339(edge.clock.wall())
    return {"token": token, "access_token": token, "expires_in": LIFE_SECONDS, "issued_at": now}


async def _by_job(edge: Edge, token: str) -> Allows:
    job = await auth.job_of(edge, token, scope="registry")

    def allows(project: Project) -> Collection[str]:
        return registry_images.BY_JOB if project.id == job.project_id else ()

    return allows


async def _by_deploy_token(edge: Edge, name: str, token: str) -> Allows:
    deploy_token = await auth.deploy_token_of(edge, name, token)
    if deploy_token is None:
        raise _unauthorized()

    def allows(project: Project) -> Collection[str]:
        return registry_actions(deploy_token, project, edge.clock.wall())

    return allows


async def _by_person(edge: Edge, token: str) -> Allows:
    caller = await person(edge, token)

    def allows(project: Project) -> Collection[str]:
        return registry_images.actions_of(caller.level_in(project) or 0, caller.token.scopes)

    return allows


@routes.get("/jwt/certificate", OPEN, gives=bytes, also=(404,))
async def show_certificate(edge: Edge) -> Response:
    """Show the certificate that the registry must trust, as PEM."""
    return Response(_registry(edge).key.certificate_pem(), media_type="application/x-pem-file")


def _registry(edge: Edge) -> Registry:
    if edge.registry is None:
        raise _registry_error(
            404, "UNAVAILABLE", "this cell has no registry; set `registry` in the settings of the cell"
        )
    return edge.registry


def _unauthorized() -> ApiError:
    message = (
        "use gitlab-ci-token and the token of a job that runs, any name and a personal token, or a deploy token and "
        "its user name"
    )
    return _registry_error(401, "UNAUTHORIZED", message, WWW_Authenticate='Basic realm="Remuda"')


def _registry_error(status: int, code: str, message: str, **headers: str) -> ApiError:
    return ApiError(status, {"errors": [{"code": code, "message": message}]}, **headers)
