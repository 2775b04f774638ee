"""Trigger tokens in GitLab's form, and the call that starts a pipeline with one.

The call needs a trigger token of the project, or the token of a job that the job token allow list of the project
admits. A token is shown once, when it is created. Invariant: a wrong token and a missing project get the same answer;
tokens are looked up by hash, so the response time does not reveal how much of a guessed token is right."""

import secrets
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.core.access.job_token_scope import admits, explain_refusal
from remuda.cell.errors import ForbiddenError
from remuda.cell.http.edge import auth
from remuda.cell.http.edge.access import TRIGGER, in_project
from remuda.cell.http.edge.admission import Caller
from remuda.cell.http.edge.bodies import convert, parameters
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import (
    ApiError,
    bad_field,
    bad_parameter,
    forbidden,
    not_found,
)
from remuda.cell.http.edge.lookup import number_in_path, project_in_path, text_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.edge.unsupported_fields import Unsupported
from remuda.cell.http.gitlab.pipeline_create import describe_pipeline, ref_of, start_pipeline
from remuda.cell.http.gitlab.variables import check_variable
from remuda.cell.http.gitlab.views import PipelineShape, UserShape, time_text, user_view
from remuda.cell.pipelines.cross_project_access import level_of
from remuda.cell.values import Job, Project, TriggerToken
from remuda.cell.values.people import Level
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.lib.clock import rfc3339
from remuda.wire.job_token import PREFIX as JOB_PREFIX
from remuda.wire.routable_token import encode, token_hash

PREFIX = "glptt-"
CALL_LIMIT_BYTES = 128 * 1024
"""The parameters of the call become a variable of the pipeline, so they have their own limit."""
_RANDOM_BYTES = 16
_SHOWN = 4
_MAX_DESCRIPTION = 255


_PROJECT = "/api/v4/projects/{id}"
_ROOT = f"{_PROJECT}/triggers"
routes = Routes()


class Described(msgspec.Struct, kw_only=True):
    unsupported: ClassVar[Unsupported] = Unsupported(refused={"expires_at": ()})
    description: str


class Call(msgspec.Struct, kw_only=True):
    token: str
    ref: str
    variables: dict[str, Any] = {}
    inputs: dict[str, Any] = {}


class TriggerShape(Shape, kw_only=True):
    id: int
    token: str
    description: str
    created_at: str
    updated_at: str
    last_used: str | None
    deleted_at: None = None
    expires_at: None = None
    owner: UserShape | None


@routes.post(_ROOT, in_project(Level.MAINTAINER))
async def create(edge: Edge, caller: Caller, project: Project, params: Described) -> TriggerShape:
    """Create a trigger token."""
    _check_description(params.description)
    user = caller.user
    routing = {"c": edge.settings.cell_id, "o": project.organization_id, "p": project.id, "u": user.id}
    token = encode(prefix=PREFIX, routing=routing, random=secrets.token_bytes(_RANDOM_BYTES))
    now = edge.clock.now()
    added = await edge.store.schedules.add_trigger(
        TriggerToken(
            id=0,
            project_id=project.id,
            token_hash=token_hash(token),
            token_start=token.removeprefix(PREFIX)[:_SHOWN],
            description=params.description,
            created_at=now,
            updated_at=now,
            user_id=user.id,
        )
    )
    return replace(await _view(edge, added), token=token)


def _check_description(text: str) -> None:
    if not text.strip() or len(text) > _MAX_DESCRIPTION:
        raise bad_field("description", f"must have 1 to {_MAX_DESCRIPTION} characters")


async def _view(edge: Edge, trigger: TriggerToken) -> TriggerShape:
    owner = await edge.store.people.load_user(trigger.user_id)
    return TriggerShape(
        id=trigger.id,
        token=trigger.token_start,
        description=trigger.description,
        created_at=rfc3339(trigger.created_at),
        updated_at=rfc3339(trigger.updated_at),
        last_used=time_text(trigger.last_used_at),
        owner=user_view(edge.settings.url, owner) if owner else None,
    )


async def _find(edge: Edge, request: Request) -> TriggerToken:
    project = await project_in_path(edge, request)
    trigger_id = number_in_path(request, "trigger_id")
    for trigger in await edge.store.schedules.list_triggers(project.id):
        if trigger.id == trigger_id:
            return trigger
    raise not_found("Trigger")


@routes.get(_ROOT, in_project(Level.MAINTAINER))
async def list_all(edge: Edge, project: Project) -> list[TriggerShape]:
    """List the trigger tokens of a project."""
    return [await _view(edge, trigger) for trigger in await edge.store.schedules.list_triggers(project.id)]


@routes.get(f"{_ROOT}/{{trigger_id}}", in_project(Level.MAINTAINER))
async def show(edge: Edge, trigger: Annotated[TriggerToken, _find]) -> TriggerShape:
    """Show a trigger token."""
    return await _view(edge, trigger)


@routes.put(f"{_ROOT}/{{trigger_id}}", in_project(Level.MAINTAINER))
async def update(edge: Edge, trigger: Annotated[TriggerToken, _find], params: Described) -> TriggerShape:
    """Change the description of a trigger token."""
    _check_description(params.description)
    changed = replace(trigger, description=params.description, updated_at=edge.clock.now())
    await edge.store.schedules.put_trigger(changed)
    return await _view(edge, changed)


@routes.delete(f"{_ROOT}/{{trigger_id}}", in_project(Level.MAINTAINER))
async def remove(edge: Edge, trigger: Annotated[TriggerToken, _find]) -> None:
    """Remove a trigger token."""
    await edge.store.schedules.remove_trigger(trigger.id)


@routes.post(f"{_PROJECT}/trigger/pipeline", TRIGGER, takes=Call)
@routes.post(f"{_PROJECT}/ref/{{ref:path}}/trigger/pipeline", TRIGGER, takes=Call)
async def call(edge: Edge, request: Request) -> PipelineShape:
    """Start a pipeline with a trigger token or a job token."""
    if request.headers.get("x-gitlab-event") == "Pipeline Hook":
        raise forbidden("a pipeline event cannot trigger a pipeline, because that would never end")
    values = await parameters(request, dict[str, Any], limit_bytes=CALL_LIMIT_BYTES)
    if "ref" in request.path_params:
        values["ref"] = text_in_path(request, "ref")
    params = convert(values, Call)
    variables = _check_variables(params.variables)
    project, request_by = await _authorize(edge, request, params.token)
    ref, sha = await ref_of(edge, project, params.ref)
    pipeline_request = replace(
        request_by,
        ref=ref,
        sha=sha,
        inputs=params.inputs,
        variables={**variables, "TRIGGER_PAYLOAD": _payload(values)},
        file_variables=frozenset({"TRIGGER_PAYLOAD"}),
    )
    return describe_pipeline(edge, await start_pipeline(edge, pipeline_request), project)


def _check_variables(variables: Mapping[str, Any]) -> dict[str, str]:
    for key, value in variables.items():
        if not isinstance(value, str):
            raise bad_parameter("variables needs to be a map of key-valued strings")
        check_variable(key, value)
    return dict(variables)


def _payload(values: Mapping[str, Any]) -> str:
    return msgspec.json.encode({key: value for key, value in values.items() if key != "token"}).decode()


async def _authorize(edge: Edge, request: Request, token: str) -> tuple[Project, PipelineRequest]:
    """Check a trigger or job token. Returns the project and a pipeline request for the token's user, still without ref
    and commit. Raises ApiError 404 (project, token or rights of the user) or 403 (job token allow list)."""
    try:
        project = await project_in_path(edge, request)
        job = await auth.job_of(edge, token, scope="pipelines") if token.startswith(JOB_PREFIX) else None
    except (ApiError, ForbiddenError):
        raise ApiError(404, {"message": "404 Not Found"}) from None
    if job is not None:
        return project, await _by_job(edge, project, job)
    trigger = await edge.store.schedules.find_trigger(token_hash(token)) if len(token) <= auth.MAX_TOKEN else None
    if trigger is None or trigger.project_id != project.id:
        raise ApiError(404, {"message": "404 Not Found"})
    if (await level_of(edge.store, trigger.user_id, project, edge.clock.wall()) or 0) < Level.DEVELOPER:
        raise ApiError(404, {"message": "404 Not Found"})
    await edge.store.schedules.put_trigger(replace(trigger, last_used_at=edge.clock.now()))
    predefined = {"CI_PIPELINE_TRIGGERED": "true", "CI_TRIGGER_SHORT_TOKEN": trigger.token_start}
    return project, PipelineRequest(
        project=project, source="trigger", ref="", sha="", predefined=predefined, user_id=trigger.user_id
    )


async def _by_job(edge: Edge, project: Project, job: Job) -> PipelineRequest:
    """Pipeline request for a call with this job's token, without ref and commit. Raises ApiError 404 if the user of the
    job's pipeline may not start pipelines in the project, 403 if its job token allow list refuses the job."""
    parent, source = (
        await edge.store.pipelines.load_pipeline(job.pipeline_id),
        await edge.store.projects.load_project(job.project_id),
    )
    user_id, depth = (parent.user_id, parent.depth + 1) if parent else (0, 1)
    level = await level_of(edge.store, user_id, project, edge.clock.wall()) or 0
    # Administrators may start pipelines everywhere, but jobs only in their organization.
    if source is None or level < Level.DEVELOPER or project.organization_id != job.organization_id:
        raise ApiError(404, {"message": "404 Not Found"})
    if not admits(project, source, is_reading=False):
        raise forbidden(explain_refusal(project, source))
    return PipelineRequest(project=project, source="pipeline", ref="", sha="", user_id=user_id, depth=depth)
