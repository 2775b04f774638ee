"""`remuda schedule`: pipelines of a project that start at set times."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress, in_project
from remuda.cli.access.confirmation import Yes, confirm
from remuda.cli.options import Output, Project, read_pairs, repeatable
from remuda.cli.pipeline.cell import start_pipeline
from remuda.cli.render.listing import Columns, at, local_time, print_change, print_facts, print_list
from remuda.lib.exits import BadInputError

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

ScheduleNumber = Annotated[int, Parameter(help="Number of the schedule.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Plan:
    """When a schedule starts which pipeline. Empty: unchanged, or the default for a new schedule."""

    description: Annotated[str, Parameter(name=("--description", "-d"), help="What it is for.", show_default=False)] = (
        ""
    )
    ref: Annotated[
        str, Parameter(name=("--ref", "-r"), help="Branch or tag [default: the default branch].", show_default=False)
    ] = ""
    timezone: Annotated[
        str, Parameter(help="Time zone of the times, such as Europe/Berlin [default: UTC].", show_default=False)
    ] = ""
    active: Annotated[bool | None, Parameter(help="Whether it starts pipelines.", show_default=False)] = None
    variable: Annotated[tuple[str, ...], repeatable("--variable", "A variable for its pipelines, NAME=VALUE.")] = ()
    inputs: Annotated[tuple[str, ...], repeatable("--input", "An input for its pipelines, NAME=VALUE.")] = ()

    def body(self) -> dict[str, Any]:
        inputs = [{"name": name, "value": value} for name, value in read_pairs("--input", self.inputs).items()]
        body = {
            "description": self.description or None,
            "ref": self.ref or None,
            "cron_timezone": self.timezone or None,
            "active": self.active,
            "inputs": inputs or None,
        }
        return {name: value for name, value in body.items() if value is not None}


_UNCHANGED = Plan()


def list_schedules(*, project: Project = None, cell: CellAddress = USUAL_CELL, output: Output = "text") -> None:
    """List the schedules of a project: when each runs next, and why its last run failed.

    Try:

        remuda schedule list
        remuda schedule list -p root/shop --output json
    """
    place = cell.project(project)
    schedules = cell.ask(lambda client: client.pages(_path(place)))
    columns: Columns = {
        "schedule": "id",
        "state": lambda schedule: "active" if schedule["active"] else "inactive",
        "description": "description",
        "ref": lambda schedule: schedule["ref"].removeprefix("refs/heads/"),
        "cron": "cron",
        "time zone": "cron_timezone",
        "next run": at("next_run_at"),
        "owner": lambda schedule: (schedule["owner"] or {}).get("username"),
        "problem": "last_error",
    }
    print_list(schedules, columns, output, nothing=f"the project {place} has no schedules")


def show(
    schedule: ScheduleNumber,
    /,
    *,
    project: Project = None,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Show a schedule with its variables and its last pipeline.

    Try:

        remuda schedule show 3
    """
    place = cell.project(project)
    found = cell.ask(lambda client: client.call("GET", _path(place, schedule)))
    facts: Columns = {
        "state": lambda found: "active" if found["active"] else "inactive",
        "ref": "ref",
        "cron": lambda found: f"{found['cron']} ({found['cron_timezone']})",
        "next run": at("next_run_at"),
        "owner": lambda found: (found["owner"] or {}).get("username"),
        "variables": lambda found: ", ".join(variable["key"] for variable in found.get("variables") or ()),
        "inputs": lambda found: ", ".join(f"{each['name']}={each['value']}" for each in found.get("inputs") or ()),
        "last": lambda found: "pipeline {id}, {status}".format(**last) if (last := found.get("last_pipeline")) else "",
        "problem": "last_error",
    }
    print_facts(f"schedule {schedule}: {found['description']}", found, facts, output)


def create(
    cron: Annotated[str, Parameter(help='When it runs, in the form of cron: "minute hour day month weekday".')],
    /,
    *,
    plan: Plan = _UNCHANGED,
    project: Project = None,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Create a schedule, whose pipelines run in your name.

    Try:

        remuda schedule create "0 4 * * *" --description nightly
        remuda schedule create "30 7 * * 1-5" -d "working days" -r main --timezone Europe/Berlin --variable FULL=yes
    """
    place = cell.project(project)

    async def ask(client: "UserClient") -> dict[str, Any]:
        body = {"description": f"at {cron}", **plan.body(), "cron": cron}
        if "ref" not in body:
            body["ref"] = (await client.call("GET", in_project(place)))["default_branch"]
            if not body["ref"]:
                raise BadInputError(f"the project {place} is empty; push a branch first, or give --ref")
        created: dict[str, Any] = await client.call("POST", _path(place), body)
        return await _set_variables(client, place, created, plan)

    _print_change(cell.ask(ask), "is created", output)


def update(
    schedule: ScheduleNumber,
    /,
    *,
    cron: Annotated[str, Parameter(help="When it runs, in the form of cron.", show_default=False)] = "",
    plan: Plan = _UNCHANGED,
    project: Project = None,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Change a schedule. Only the given properties change; --input replaces all inputs.

    Try:

        remuda schedule update 3 --cron "0 5 * * *"
        remuda schedule update 3 --no-active
        remuda schedule update 3 --variable FULL=no
    """
    place = cell.project(project)
    body = plan.body() | ({"cron": cron} if cron else {})
    if not body and not plan.variable:
        raise BadInputError("nothing to change: give --cron, --ref, --active or another option")

    async def ask(client: "UserClient") -> dict[str, Any]:
        changed: dict[str, Any] = await client.call("PUT", _path(place, schedule), body)
        return await _set_variables(client, place, changed, plan)

    _print_change(cell.ask(ask), "is changed", output)


def run(
    schedule: ScheduleNumber,
    /,
    *,
    project: Project = None,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Start the pipeline of a schedule now, in your name.

    Try:

        remuda schedule run 3
    """
    place = cell.project(project)

    async def ask(client: "UserClient") -> dict[str, Any]:
        before = _last(await client.call("GET", _path(place, schedule)))
        refusal = f"schedule {schedule} started no pipeline"
        answer = await start_pipeline(client, f"{_path(place, schedule)}/play", refusal)
        if _last(answer) in (None, before):
            why = answer.get("last_error") or "the rules of the file add no job to it"
            raise BadInputError(f"{refusal}: {why}")
        return answer

    answer = cell.ask(ask)
    number = _last(answer)
    words = f"schedule {schedule} started pipeline {number}; its progress: remuda pipeline watch {number}"
    print_change(answer, words, output)


def delete(
    schedule: ScheduleNumber, /, *, yes: Yes = False, project: Project = None, cell: CellAddress = USUAL_CELL
) -> None:
    """Delete a schedule. The pipelines that it started stay.

    Try:

        remuda schedule delete 3
    """
    place = cell.project(project)
    found = cell.ask(lambda client: client.call("GET", _path(place, schedule)))
    name = f"schedule {schedule} ({found['description']}) of the project {place}"
    confirm(f"delete {name}", yes=yes)
    cell.ask(lambda client: client.call("DELETE", _path(place, schedule)))
    print(f"{name} is deleted")


def _path(project: str, *words: int | str) -> str:
    return in_project(project, "pipeline_schedules", *words)


def _last(schedule: Mapping[str, Any]) -> int | None:
    last = schedule.get("last_pipeline")
    return None if last is None else int(last["id"])


async def _set_variables(client: "UserClient", project: str, schedule: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """Set the variables of `plan`, and return the schedule with them."""
    from remuda.wire.user_client import RefusedError

    pairs = read_pairs("--variable", plan.variable)
    for name, value in pairs.items():
        try:
            await client.call("PUT", _path(project, schedule["id"], "variables", name), {"value": value})
        except RefusedError as error:
            if error.status != 404:
                raise
            await client.call("POST", _path(project, schedule["id"], "variables"), {"key": name, "value": value})
    return await client.call("GET", _path(project, schedule["id"])) if pairs else schedule


def _print_change(schedule: dict[str, Any], what: str, output: str) -> None:
    next_run = local_time(schedule["next_run_at"])
    when = f"it runs next at {next_run}" if schedule["active"] and next_run else "it is inactive"
    print_change(schedule, f"schedule {schedule['id']} {what}; {when}", output)
