"""Environments in GitLab's form: list, create, change, stop and delete. `cell.pipelines.environments` stops them."""

import re
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.core.jobs.environments import is_valid_url
from remuda.cell.core.payload.predefined_variables import environment_slug, tier
from remuda.cell.errors import ConflictError
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import check_acts_on, optional_caller
from remuda.cell.http.edge.bodies import choice_in_query, number_in_query, read_time, time_in_query
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import bad_field, bad_parameter, bad_request, forbidden, not_found
from remuda.cell.http.edge.lookup import number_in_path, project_in_path
from remuda.cell.http.edge.paging import Paged
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.deploy.views import (
    EnvironmentShape,
    EnvironmentSummaryShape,
    describe_deployments,
    environment_in_list,
    environment_summary,
    environment_view,
)
from remuda.cell.http.gitlab.views import MessageShape
from remuda.cell.values import Page, Project
from remuda.cell.values.deployments import (
    AVAILABLE,
    ENVIRONMENT_STATES,
    STOPPED,
    Environment,
    EnvironmentFilter,
)
from remuda.cell.values.people import Level
from remuda.pipeline.keywords.environment import MAX_NAME, TIERS

_ROOT = "/api/v4/projects/{id}/environments"
_NAME = re.compile(r"[A-Za-z0-9_.\- ][A-Za-z0-9_/.\- ]*(?<!/)", re.ASCII)
_DAY = 86_400.0
_MIN_SEARCH = 3
_MAX_REMOVED = 1000
_AUTO_STOP = ("always", "with_action")
_MAX_DESCRIPTION = 10_000
_READ = in_project(Level.REPORTER, or_job="deployments")
_WRITE = in_project(Level.DEVELOPER, or_job="deployments")
routes = Routes()


class NewEnvironment(msgspec.Struct, kw_only=True):
    name: str
    external_url: str | None = None
    tier: str | None = None
    description: str | None = None
    auto_stop_setting: str | None = None


class ChangedEnvironment(msgspec.Struct, kw_only=True):
    external_url: str | None = None
    tier: str | None = None
    description: str | None = None
    auto_stop_setting: str | None = None


class StopRequest(msgspec.Struct, kw_only=True):
    force: bool | None = None
    """Do not run the stop job."""


class StaleRequest(msgspec.Struct, kw_only=True):
    before: str


class RemovedShape(Shape, kw_only=True):
    scheduled_entries: list[EnvironmentSummaryShape]
    unprocessable_entries: list[EnvironmentSummaryShape]


async def _find(edge: Edge, request: Request) -> Environment:
    project = await project_in_path(edge, request)
    environment = await edge.store.deployments.load_environment(number_in_path(request, "environment_id"))
    if environment is None or environment.project_id != project.id:
        raise not_found("Environment")
    return environment


Found = Annotated[Environment, _find]


def _check(params: NewEnvironment | ChangedEnvironment) -> None:
    if params.external_url and not is_valid_url(params.external_url):
        raise bad_field("external_url", "is not a valid URL: expected http or https, and at most 255 characters")
    if params.tier is not None and params.tier not in TIERS:
        raise bad_parameter("tier does not have a valid value")
    if params.auto_stop_setting is not None and params.auto_stop_setting not in _AUTO_STOP:
        raise bad_parameter("auto_stop_setting does not have a valid value")
    if params.description is not None and len(params.description) > _MAX_DESCRIPTION:
        raise bad_field("description", f"is too long (maximum is {_MAX_DESCRIPTION} characters)")


@routes.get(
    _ROOT,
    _READ,
    query={"name": str, "search": str, "states": Literal["available", "stopping", "stopped"]},
)
async def list_all(edge: Edge, request: Request, project: Project, page: Page) -> Paged[EnvironmentShape]:
    """List the environments of a project."""
    name, search = (request.query_params.get(key, "") for key in ("name", "search"))
    if name and search:
        raise bad_parameter("name, search cannot be used together")
    if search and len(search) < _MIN_SEARCH:
        raise bad_request(f"Search query is less than {_MIN_SEARCH} characters")
    state = choice_in_query(request, "states", ENVIRONMENT_STATES)
    selection = EnvironmentFilter(project_id=project.id, name=name, search=search, states=(state,) if state else ())
    rows, total = await edge.store.deployments.list_environments(replace(page, ascending=True), selection)
    return Paged([environment_in_list(row, project) for row in rows], total, page)


@routes.post(_ROOT, in_project(Level.DEVELOPER))
async def create(edge: Edge, project: Project, params: NewEnvironment) -> EnvironmentShape:
    """Create an environment."""
    _check(params)
    if len(params.name) > MAX_NAME or not _NAME.fullmatch(params.name):
        raise bad_field(
            "name", f"can contain only letters, digits, '-', '_', '/', '.' and spaces, and at most {MAX_NAME} of them"
        )
    now = edge.clock.now()
    environment = Environment(
        id=0,
        project_id=project.id,
        name=params.name,
        slug=environment_slug(params.name),
        tier=params.tier or tier(params.name),
        external_url=params.external_url or "",
        description=params.description or "",
        auto_stop_setting=params.auto_stop_setting or "always",
        created_at=now,
        updated_at=now,
    )
    try:
        return environment_in_list(await edge.store.deployments.add_environment(environment), project)
    except ConflictError:
        raise bad_field("name", "has already been taken") from None


@routes.delete(
    f"{_ROOT}/review_apps",
    in_project(Level.DEVELOPER),
    query={"before": str, "limit": int, "dry_run": bool},
    gives=RemovedShape,
    status=200,
)
async def remove_review_apps(edge: Edge, request: Request, project: Project) -> RemovedShape:
    """Delete stopped environments in the folder `review` that are old.
    Nothing is deleted unless `dry_run` is false."""
    before = time_in_query(request, "before") or edge.clock.wall() - 30 * _DAY
    limit = number_in_query(request, "limit") or 100
    if limit > _MAX_REMOVED:
        raise bad_parameter("limit does not have a valid value")
    is_dry_run = request.query_params.get("dry_run", "true").lower() not in ("false", "0")
    old: list[Environment] = []
    page = Page(size=100, ascending=True, counted=False)
    selection = EnvironmentFilter(project_id=project.id, search="review/", states=(STOPPED,))
    while len(old) < limit and (rows := (await edge.store.deployments.list_environments(page, selection))[0]):
        old += [row for row in rows if row.name.startswith("review/") and row.created_at < before]
        page = replace(page, after=rows[-1].id)
    for environment in [] if is_dry_run else old[:limit]:
        await edge.store.deployments.remove_environment(environment.id)
    return RemovedShape(
        scheduled_entries=[environment_summary(environment) for environment in old[:limit]], unprocessable_entries=[]
    )


@routes.post(f"{_ROOT}/stop_stale", in_project(Level.DEVELOPER), status=200)
async def stop_stale(edge: Edge, project: Project, params: StaleRequest) -> MessageShape:
    """Stop the environments that were last changed or deployed to before a date, at least a week ago."""
    before, now = read_time("before", params.before), edge.clock.wall()
    if not now - 3650 * _DAY < before < now - 7 * _DAY:
        raise bad_request("Invalid Date")
    page = Page(size=100, ascending=True, counted=False)
    selection = EnvironmentFilter(project_id=project.id, states=(AVAILABLE,))
    while rows := (await edge.store.deployments.list_environments(page, selection))[0]:
        for environment in rows:
            if environment.updated_at < before:
                await edge.store.deployments.change_environment(
                    environment.id, lambda row: replace(row, auto_stop_at=now) if row.updated_at < before else None
                )
        page = replace(page, after=rows[-1].id)
    edge.environments.look_again()
    return MessageShape(message="Successfully scheduled stale environments to stop")


@routes.get(f"{_ROOT}/{{environment_id}}", _READ)
async def show(edge: Edge, request: Request, environment: Found) -> EnvironmentShape:
    """Show an environment, with its last successful deployment."""
    caller = optional_caller(request)
    last = await edge.store.deployments.find_last_deployment(environment)
    view = environment_view(environment)
    rows = [last] if last else []
    view.last_deployment = next(iter(await describe_deployments(edge, rows, caller, with_environment=False)), None)
    return view


@routes.put(f"{_ROOT}/{{environment_id}}", in_project(Level.DEVELOPER))
async def change(edge: Edge, project: Project, environment: Found, params: ChangedEnvironment) -> EnvironmentShape:
    """Change an environment. Its name cannot be changed."""
    _check(params)
    given = {
        name: value
        for name in ("external_url", "tier", "description", "auto_stop_setting")
        if (value := getattr(params, name)) is not None
    }
    now = edge.clock.now()
    changed = await edge.store.deployments.change_environment(
        environment.id, lambda row: replace(row, **given, updated_at=now)
    )
    if changed is None:
        raise not_found("Environment")
    return environment_in_list(changed, project)


@routes.delete(f"{_ROOT}/{{environment_id}}", in_project(Level.DEVELOPER))
async def remove(edge: Edge, environment: Found) -> None:
    """Delete a stopped environment with its deployments."""
    if environment.state != STOPPED:
        raise forbidden("the environment must be stopped before it is deleted")
    await edge.store.deployments.remove_environment(environment.id)


@routes.post(f"{_ROOT}/{{environment_id}}/stop", _WRITE, status=200)
async def stop(
    edge: Edge, request: Request, project: Project, environment: Found, params: StopRequest
) -> EnvironmentShape:
    """Stop an environment by running its stop job, with `force` without."""
    job = None if params.force else await edge.environments.find_stop_job(environment)
    caller = optional_caller(request)
    if job is not None and caller is not None:
        check_acts_on(caller, project, job)
    elif job is not None and job.protected and not request.state.job.protected:
        raise forbidden(f"{job.ref} is protected; only jobs of protected refs may do this")
    return environment_in_list(await edge.environments.stop(environment, force=bool(params.force)), project)
