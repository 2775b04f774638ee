"""Pipeline schedules in GitLab's form: create, change, run now, with their variables and pipelines. Remuda adds
`last_error`: why the last run that was due created no pipeline."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.core.pipelines.schedules import CronError, TimezoneError, with_next_time
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import Caller, caller_of, check_protected
from remuda.cell.http.edge.bodies import choice_in_query, with_given
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import bad_field, bad_parameter, forbidden, not_found
from remuda.cell.http.edge.lookup import number_in_path, project_in_path, text_in_path
from remuda.cell.http.edge.paging import Paged
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.variables import GivenVariable, GivenVariableShape, given_view, read_given
from remuda.cell.http.gitlab.views import PipelineSummaryShape, UserShape, pipeline_summary, time_text, user_view
from remuda.cell.projects.refs import candidates
from remuda.cell.values import Page, PipelineFilter, Project, Schedule
from remuda.cell.values.people import Level
from remuda.lib.clock import rfc3339

_MAX_DESCRIPTION = 255


_ROOT = "/api/v4/projects/{id}/pipeline_schedules"
_ONE = f"{_ROOT}/{{schedule_id}}"
_VARIABLE = f"{_ONE}/variables/{{key}}"
routes = Routes()


class GivenInput(msgspec.Struct, kw_only=True):
    """An input (`spec:inputs`) for the pipelines that a schedule starts."""

    name: str
    value: Any


class Given(msgspec.Struct, kw_only=True):
    description: str | None = None
    ref: str | None = None
    cron: str | None = None
    cron_timezone: str | None = None
    active: bool | None = None
    inputs: list[GivenInput] | None = None


class GivenValue(msgspec.Struct, kw_only=True):
    value: str | None = None
    variable_type: str | None = None


class ScheduleShape(Shape, kw_only=True):
    message: str | UnsetType = UNSET
    """Only in the response to `play`."""
    id: int
    description: str
    ref: str
    cron: str
    cron_timezone: str
    next_run_at: str | None
    active: bool
    created_at: str
    updated_at: str
    owner: UserShape | None
    last_error: str | None
    last_pipeline: dict[str, Any] | UnsetType | None = UNSET
    variables: list[GivenVariableShape] | UnsetType = UNSET
    inputs: list[dict[str, Any]] | UnsetType = UNSET


def apply_change(old: Schedule, params: Given, now: float) -> Schedule:
    """Return the schedule changed by `params`, with a new next run if needed. ApiError 400 if it is not valid."""
    new = with_given(
        old,
        description=params.description,
        ref=params.ref,
        cron=params.cron,
        timezone=params.cron_timezone,
        active=params.active,
        inputs=None if params.inputs is None else {entry.name: entry.value for entry in params.inputs},
        updated_at=now,
    )
    if not new.description.strip() or len(new.description) > _MAX_DESCRIPTION:
        raise bad_field("description", f"must have 1 to {_MAX_DESCRIPTION} characters")
    if not candidates(new.ref):
        raise bad_field("ref", "is not the name of a branch or tag")
    if (new.cron, new.timezone, new.active) == (old.cron, old.timezone, old.active) and old.next_run_at is not None:
        return new
    try:
        return with_next_time(new, now)
    except TimezoneError as error:
        raise bad_field("cron_timezone", str(error)) from None
    except CronError as error:
        raise bad_field("cron", str(error)) from None


async def _view(edge: Edge, schedule: Schedule) -> ScheduleShape:
    owner = await edge.store.people.load_user(schedule.user_id)
    return ScheduleShape.of(
        schedule,
        cron_timezone=schedule.timezone,
        next_run_at=time_text(schedule.next_run_at),
        created_at=rfc3339(schedule.created_at),
        updated_at=rfc3339(schedule.updated_at),
        owner=user_view(edge.settings.url, owner) if owner else None,
    )


def _variable(schedule: Schedule, key: str) -> GivenVariableShape:
    return given_view(key, schedule.variables[key], schedule.file_variables)


async def _details(edge: Edge, schedule: Schedule, *, with_values: bool = True) -> ScheduleShape:
    last = (
        await edge.store.pipelines.load_pipeline(schedule.last_pipeline_id)
        if schedule.last_pipeline_id is not None
        else None
    )
    view = await _view(edge, schedule)
    view.last_pipeline = {"id": last.id, "sha": last.sha, "ref": last.ref, "status": last.status} if last else None
    view.variables = [_variable(schedule, key) for key in schedule.variables] if with_values else []
    view.inputs = [{"name": name, "value": value} for name, value in schedule.inputs.items()] if with_values else []
    return view


async def _find(edge: Edge, request: Request) -> Schedule:
    project = await project_in_path(edge, request)
    schedule = await edge.store.schedules.load_schedule(number_in_path(request, "schedule_id"))
    if schedule is None or schedule.project_id != project.id:
        raise not_found("Pipeline Schedule")
    return schedule


def _is_own(caller: Caller, schedule: Schedule, project: Project) -> bool:
    """True if the caller owns the schedule or is a maintainer of its project, and so may see its variables."""
    return schedule.user_id == caller.user.id or (caller.level_in(project) or 0) >= Level.MAINTAINER


async def _find_own(edge: Edge, request: Request) -> Schedule:
    """The schedule in the path. Raises ApiError 403 unless the caller owns it or is a maintainer of the project."""
    schedule = await _find(edge, request)
    if not _is_own(caller_of(request), schedule, await project_in_path(edge, request)):
        raise forbidden("only the owner of a schedule and maintainers may do this")
    return schedule


async def _find_to_change(edge: Edge, request: Request) -> Schedule:
    """The schedule in the path. Raises ApiError 403 unless the caller owns it or is an administrator. A maintainer must
    take ownership first, because the pipelines of a schedule run in the name of its owner."""
    schedule, user = await _find(edge, request), caller_of(request).user
    if schedule.user_id != user.id and not user.is_admin:
        raise forbidden("only its owner may change a schedule; a maintainer can take ownership first")
    return schedule


async def _check_ref(edge: Edge, caller: Caller, project: Project, ref: str | None) -> None:
    if ref is not None:
        full_ref = ref if ref.startswith("refs/") else f"refs/heads/{ref}"
        await check_protected(edge, caller, project, full_ref)


async def _change(edge: Edge, schedule: Schedule, decide: Callable[[Schedule], Schedule]) -> Schedule:
    changed = await edge.store.schedules.change_schedule(schedule.id, decide)
    if changed is None:
        raise not_found("Pipeline Schedule")
    edge.schedules.look_again()
    return changed


@routes.post(_ROOT, in_project(Level.DEVELOPER))
async def create(edge: Edge, caller: Caller, project: Project, params: Given) -> ScheduleShape:
    """Create a schedule."""
    missing = [name for name in ("description", "ref", "cron") if getattr(params, name) is None]
    if missing:
        raise bad_parameter(", ".join(f"{name} is missing" for name in missing))
    await _check_ref(edge, caller, project, params.ref)
    now = edge.clock.wall()
    new = Schedule(
        id=0,
        project_id=project.id,
        description="",
        ref="",
        cron="",
        created_at=now,
        updated_at=now,
        user_id=caller.user.id,
    )
    added = await edge.store.schedules.add_schedule(apply_change(new, params, now))
    edge.schedules.look_again()
    return await _details(edge, added)


@routes.get(_ROOT, in_project(Level.DEVELOPER), query={"scope": Literal["active", "inactive"]})
async def list_all(edge: Edge, request: Request, project: Project) -> list[ScheduleShape]:
    """List the schedules of a project."""
    scope = choice_in_query(request, "scope", ("active", "inactive"))
    schedules = await edge.store.schedules.list_schedules(project.id)
    return [
        await _view(edge, schedule) for schedule in schedules if not scope or schedule.active == (scope == "active")
    ]


@routes.get(_ONE, in_project(Level.DEVELOPER))
async def show(edge: Edge, caller: Caller, project: Project, schedule: Annotated[Schedule, _find]) -> ScheduleShape:
    """Show a schedule. Owner and maintainers see its variables."""
    return await _details(edge, schedule, with_values=_is_own(caller, schedule, project))


@routes.put(_ONE, in_project(Level.DEVELOPER))
async def update(
    edge: Edge, caller: Caller, project: Project, schedule: Annotated[Schedule, _find_to_change], params: Given
) -> ScheduleShape:
    """Change a schedule."""
    await _check_ref(edge, caller, project, params.ref)
    now = edge.clock.wall()
    return await _details(edge, await _change(edge, schedule, lambda row: apply_change(row, params, now)))


@routes.delete(_ONE, in_project(Level.DEVELOPER))
async def remove(edge: Edge, schedule: Annotated[Schedule, _find_own]) -> None:
    """Remove a schedule."""
    await edge.store.schedules.remove_schedule(schedule.id)


@routes.post(f"{_ONE}/play", in_project(Level.DEVELOPER))
async def play(edge: Edge, request: Request, caller: Caller, project: Project) -> ScheduleShape:
    """Run a schedule now, in the caller's name."""
    await edge.schedules.run(replace(await _find(edge, request), user_id=caller.user.id))
    schedule = await _find(edge, request)
    # GitLab answers with the message alone; python-gitlab reads the answer as a schedule.
    details = await _details(edge, schedule, with_values=_is_own(caller, schedule, project))
    return replace(details, message="201 Created")


@routes.post(f"{_ONE}/take_ownership", in_project(Level.MAINTAINER))
async def take_ownership(edge: Edge, caller: Caller, schedule: Annotated[Schedule, _find]) -> ScheduleShape:
    """Make the caller the owner of a schedule."""
    now, user_id = edge.clock.wall(), caller.user.id
    changed = await _change(edge, schedule, lambda row: replace(row, user_id=user_id, updated_at=now))
    return await _details(edge, changed)


@routes.get(f"{_ONE}/pipelines", in_project(Level.DEVELOPER))
async def pipelines(
    edge: Edge, project: Project, schedule: Annotated[Schedule, _find], page: Page
) -> Paged[PipelineSummaryShape]:
    """List the pipelines that a schedule started, oldest first."""
    pipeline_filter = PipelineFilter(schedule_id=schedule.id, ascending=True)
    rows, total = await edge.store.pipelines.list_pipelines(project.id, page, pipeline_filter)
    return Paged([pipeline_summary(pipeline, project, edge.settings.url) for pipeline in rows], total, page)


def _key_in_path(request: Request, schedule: Schedule) -> str:
    """The name of the variable in the path. Raises ApiError 404 if the schedule has no such variable."""
    key = text_in_path(request, "key")
    if key not in schedule.variables:
        raise not_found("Variable")
    return key


def _with_variable(schedule: Schedule, params: GivenVariable, now: float) -> Schedule:
    variables, files = read_given([params])
    file_variables = (set(schedule.file_variables) - variables.keys()) | files
    return replace(
        schedule,
        variables={**schedule.variables, **variables},
        file_variables=tuple(sorted(file_variables)),
        updated_at=now,
    )


@routes.post(f"{_ONE}/variables", in_project(Level.DEVELOPER))
async def create_variable(
    edge: Edge, schedule: Annotated[Schedule, _find_to_change], params: GivenVariable
) -> GivenVariableShape:
    """Add a variable to a schedule."""
    now = edge.clock.wall()

    def add(row: Schedule) -> Schedule:
        if params.key in row.variables:
            raise bad_field("key", f"({params.key}) has already been taken")
        return _with_variable(row, params, now)

    return _variable(await _change(edge, schedule, add), params.key)


@routes.get(_VARIABLE, in_project(Level.DEVELOPER))
async def show_variable(edge: Edge, request: Request, schedule: Annotated[Schedule, _find_own]) -> GivenVariableShape:
    """Show a variable of a schedule."""
    return _variable(schedule, _key_in_path(request, schedule))


@routes.put(_VARIABLE, in_project(Level.DEVELOPER))
async def update_variable(
    edge: Edge, request: Request, schedule: Annotated[Schedule, _find_to_change], params: GivenValue
) -> GivenVariableShape:
    """Change a variable of a schedule."""
    key, now = _key_in_path(request, schedule), edge.clock.wall()

    def put(row: Schedule) -> Schedule:
        if key not in row.variables:
            raise not_found("Variable")
        old = _variable(row, key)
        variable = GivenVariable(
            key=key,
            value=old.value if params.value is None else params.value,
            variable_type=params.variable_type or old.variable_type,
        )
        return _with_variable(row, variable, now)

    return _variable(await _change(edge, schedule, put), key)


@routes.delete(_VARIABLE, in_project(Level.DEVELOPER), status=202)
async def remove_variable(edge: Edge, request: Request, schedule: Annotated[Schedule, _find_own]) -> GivenVariableShape:
    """Remove a variable of a schedule, and return it."""
    key, now = _key_in_path(request, schedule), edge.clock.wall()

    def drop(row: Schedule) -> Schedule:
        return replace(
            row,
            variables={name: value for name, value in row.variables.items() if name != key},
            file_variables=tuple(name for name in row.file_variables if name != key),
            updated_at=now,
        )

    await _change(edge, schedule, drop)
    return _variable(schedule, key)
