"""Step policies (which steps may run, and within which limits) of organizations, groups and projects: read and change.
`remuda.steps.policy` validates them."""

from typing import Annotated, Any

import msgspec
from starlette.requests import Request

from remuda.cell.core.payload.step_policies import SCOPES, StepPolicy, change_policy, policy_setting, read_policy
from remuda.cell.http.edge.access import ADMINISTRATOR
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import bad_parameter, not_found
from remuda.cell.http.edge.lookup import existing_group, existing_project, number_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.model.runner import Pool
from remuda.steps.errors import PolicyError

routes = Routes()


class PolicyChange(msgspec.Struct, kw_only=True):
    document: dict[str, Any]
    version: int | None = None
    """The version that the caller has read; 409 if the policy has changed since."""


class PolicyShape(Shape, kw_only=True):
    scope: str
    id: int
    version: int
    document: dict[str, Any]
    updated_at: float | None


async def _scope(edge: Edge, request: Request) -> Pool:
    """Kind and id of the organization, group or project in the path. ApiError 404 if missing, 400: unknown kind."""
    kind, number = request.path_params["scope"], number_in_path(request, "id")
    match kind:
        case "organization":
            if await edge.store.people.load_organization(number) is None:
                raise not_found("Organization")
        case "group":
            await existing_group(edge, number)
        case "project":
            await existing_project(edge, number)
        case _:
            raise bad_parameter(f"scope does not have a valid value; expected one of {', '.join(SCOPES)}")
    return kind, number


@routes.get("/api/remuda/v1/policies/{scope}/{id}", ADMINISTRATOR)
async def show(edge: Edge, scope: Annotated[Pool, _scope]) -> PolicyShape:
    """Show the step policy of an organization, group or project."""
    return _view(scope, read_policy(await edge.store.settings.load_setting(policy_setting(scope))))


@routes.put("/api/remuda/v1/policies/{scope}/{id}", ADMINISTRATOR, also=(409,))
async def change(edge: Edge, scope: Annotated[Pool, _scope], params: PolicyChange) -> PolicyShape:
    """Change the step policy of an organization, group or project."""
    _check(params.document, scope)
    now = edge.clock.now()
    stored = await edge.store.settings.change_setting(
        policy_setting(scope), lambda old: change_policy(old, params.document, params.version, now)
    )
    return _view(scope, read_policy(stored))


def _check(document: dict[str, Any], scope: Pool) -> None:
    """Raise ApiError 400 if the policy `document` is not valid. If it were stored, jobs would fail because of it."""
    from remuda.steps.policy.document import (
        parse_layer,
    )  # only here: a cell rarely needs it, and it takes time to import

    try:
        parse_layer(document, author=f"{scope[0]} {scope[1]}")
    except PolicyError as error:
        raise bad_parameter(f"document: {error}") from None


def _view(scope: Pool, policy: StepPolicy) -> PolicyShape:
    return PolicyShape(scope=scope[0], id=scope[1], **msgspec.structs.asdict(policy))
