"""`remuda runner`: lists the runners of a cell with their managers, and changes settings that only Remuda has."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress
from remuda.cli.options import Output
from remuda.cli.render.listing import local_time, print_json, print_table
from remuda.lib.exits import BadInputError

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

_HEADINGS = ("runner", "description", "type", "tags", "manager", "version", "jobs", "load", "status", "seen", "problem")


def list_runners(*, cell: CellAddress = USUAL_CELL, output: Output = "text") -> None:
    """List runners with their managers: how many jobs each manager has, and how many it can run (2/4).

    Load is the share of a manager's slots that are in use, including jobs of its other servers, as of a minute ago. A
    manager that does not report its capacity, such as gitlab-runner, has only the number of jobs. A manager is blocked
    if it takes no jobs, because they could not run; the problem says why.

    Administrators see all runners of the cell, other users those that they manage.

    Try:

        remuda runner list
        REMUDA_TOKEN=... remuda runner list --url https://ci.example.org --output json
    """

    async def ask(client: "UserClient") -> list[dict[str, Any]]:
        is_admin = (await client.call("GET", "/api/v4/user")).get("is_admin")
        runners = await client.pages("/api/v4/runners/all" if is_admin else "/api/v4/runners")
        answers = []
        for runner in runners:
            path = f"/api/v4/runners/{runner['id']}"
            answers.append({**await client.call("GET", path), "managers": await client.pages(f"{path}/managers")})
        return answers

    runners = cell.ask(ask)
    if output == "json":
        print_json(runners)
        return
    table = [_HEADINGS, *(row for runner in runners for row in rows_of(runner))]
    has_problem = any(problem for *_, problem in table[1:])
    print_table(table if has_problem else [row[:-1] for row in table])


DEFAULT = "default"


def set_runner(
    runner: Annotated[int, Parameter(help="Number of the runner.")],
    /,
    *,
    poll_hold: Annotated[
        str | None,
        Parameter(
            help="How many seconds the cell holds a job request of this runner while there is no job. 0: it is "
            'answered at once. "default": the setting of the cell.'
        ),
    ] = None,
    priority: Annotated[
        int | None, Parameter(help="Of the runners that wait for a job, those with a higher priority get it first.")
    ] = None,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Change the settings of a runner that GitLab does not have.

    The cell can hold a job request: if there is no job, it delays the answer until there is one. So a new job starts at
    once, but the request occupies one of gitlab-runner's `concurrent` workers while it waits. Therefore requests of
    gitlab-runner are answered at once by default. Hold them if `concurrent` is larger than the number of runners in its
    configuration. Remuda's own manager says with each request whether it may be held.

    Try:

        remuda runner set 3 --poll-hold 30
        remuda runner set 3 --poll-hold default --priority 10
    """
    change: dict[str, Any] = {}
    if poll_hold is not None:
        if poll_hold != DEFAULT and not (poll_hold.isascii() and poll_hold.isdigit()):
            raise BadInputError(f'--poll-hold {poll_hold}: a number of seconds, or "{DEFAULT}"')
        change["poll_hold_seconds"] = None if poll_hold == DEFAULT else int(poll_hold)
    if priority is not None:
        change["priority"] = priority
    if not change:
        raise BadInputError("nothing to change: give --poll-hold or --priority")
    changed = cell.ask(lambda client: client.call("PUT", f"/api/v4/runners/{runner}", change))
    if output == "json":
        print_json(changed)
        return
    hold = changed["poll_hold_seconds"]
    print(f"runner {runner}: poll hold {DEFAULT if hold is None else f'{hold} s'}, priority {changed['priority']}")


def rows_of(runner: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    about = (
        str(runner["id"]),
        runner["description"] or "",
        runner["runner_type"].removesuffix("_type"),
        ", ".join(runner["tag_list"]),
    )
    if not runner["managers"]:
        yield (*about, "", "", "", "", _status(runner, runner["status"]), local_time(runner["contacted_at"]), "")
    for manager in runner["managers"]:
        problem = manager.get("problem") or ""
        yield (
            *about,
            manager["system_id"],
            manager["version"] or "",
            f"{manager['running_jobs']}" + (f"/{manager['capacity']}" if manager["capacity"] is not None else ""),
            f"{load['saturation']:.0%}" if (load := manager.get("load")) else "",
            _status(runner, manager["status"], is_blocked=bool(problem)),
            local_time(manager["contacted_at"]),
            problem,
        )


def _status(runner: Mapping[str, Any], status: str, *, is_blocked: bool = False) -> str:
    return ", ".join([status, *(["paused"] if runner["paused"] else []), *(["blocked"] if is_blocked else [])])
