"""`remuda job list`, `show` and `why`. `--output json` prints the cell's response unchanged."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress, in_project
from remuda.cli.options import Limit, Output, Project, check_limit, check_status
from remuda.cli.render.listing import Columns, at, duration_text, local_time, print_json, print_list, project_of
from remuda.lib.clock import SystemClock
from remuda.lib.exits import BadInputError
from remuda.localrun.render.words import on_one_line

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

JobNumber = Annotated[int, Parameter(help="Number of the job.")]


def list_jobs(
    *,
    project: Project = None,
    all_projects: Annotated[
        bool, Parameter(name=("--all", "-a"), negative=(), help="List the jobs of all your projects.")
    ] = False,
    status: Annotated[
        str | None, Parameter(name=("--status", "-s"), help="List only jobs with this status, for example running.")
    ] = None,
    held: Annotated[
        bool, Parameter(negative=(), help="List only failed jobs that are on hold: their environment still exists.")
    ] = False,
    limit: Limit = 20,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """List jobs, newest first.

    In a clone of a project of the cell: the jobs of this project. Elsewhere, or with --all: those of all projects that
    you may see.

    Try:

        remuda job list
        remuda job list -p root/shop --status failed
        remuda job list --held
        remuda job list --all -n 50 --output json
    """
    check_limit(limit)
    check_status(status)
    if held and (project or status):
        raise BadInputError("--held lists the held jobs of all your projects; leave --project and --status out")
    if project and all_projects:
        raise BadInputError("--project and --all contradict each other; leave one of them out")
    if not (project or all_projects or held):
        project = cell.folder_project()
    path = in_project(project, "jobs") if project else "/api/remuda/v1/jobs"
    query: dict[str, str | int] = {"scope": status} if status else {"held": "true"} if held else {}
    jobs = cell.ask(lambda client: client.pages(path, limit=limit, **query))
    columns: Columns = {
        "job": "id",
        "status": "status",
        "name": "name",
        "stage": "stage",
        "ref": "ref",
        "project": project_of(cell.find().url),
        "pipeline": lambda job: job["pipeline"]["id"],
        "waited": lambda job: duration_text(job.get("queued_duration")),
        "ran": lambda job: duration_text(job.get("duration")),
        "created": at("created_at"),
        "held until": at("held_until"),
        "problem": lambda job: str(job.get("no_runner_reason") or "").partition(":")[0] or job.get("warnings"),
    }
    where = f"in the project {project}" if project else "in your projects"
    which = f" with the status {status}" if status else " on hold" if held else ""
    print_list(jobs, columns, output, nothing=f"there are no jobs{which} {where}")


def show(
    job: JobNumber,
    /,
    *,
    steps: Annotated[bool, Parameter(negative=(), help="Show the tree of steps with all details.")] = False,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Show a job: its status, how its time was used, and its steps.

    With --steps, prints for each step: what ran, from where, and its digest; exit code, attempts and environment;
    resource usage and outputs; the decision of a policy. With --output json, `steps` has the events as the cell stores
    them. With --steps and --output json, `steps` is a tree: each step has its inner steps in its own `steps`.

    Try:

        remuda job show 7
        remuda job show 7 --steps
        remuda job show 7 --steps --output json
    """
    from remuda.model.step_tree import tree_of

    async def ask(client: "UserClient") -> dict[str, Any]:
        return {**await client.job(job), "steps": list(await client.steps(job))}

    answer = cell.ask(ask)
    if output == "json":
        print_json({**answer, "steps": tree_of(answer["steps"])} if steps else answer)
        return
    for line in describe(answer, steps=steps):
        print(on_one_line(line))


def why(job: JobNumber, /, *, cell: CellAddress = USUAL_CELL, output: Output = "text") -> None:
    """Explain why a job waits, or why it ended with its status, and what can be done.

    Try:

        remuda job why 7
        remuda job why 7 --output json
    """
    from remuda.cli.render.job_reasons import reasons

    answer = cell.ask(lambda client: client.why(job))
    if output == "json":
        print_json(answer)
        return
    for line in reasons(answer, SystemClock().now()):
        print(on_one_line(line))


def describe(job: Mapping[str, Any], *, steps: bool = False) -> list[str]:
    from remuda.localrun.render.step_lines import step_lines, used_in_words
    from remuda.localrun.render.words import duration
    from remuda.model.step_tree import tree_of

    facts = {
        "status": job["status"],
        "stage": job["stage"],
        "ref": job["ref"],
        "pipeline": job["pipeline"]["id"],
        "waited": duration_text(job.get("queued_duration")),
        "ran": duration_text(job.get("duration")),
        "created": local_time(job.get("created_at")),
        "started": local_time(job.get("started_at")),
        "finished": local_time(job.get("finished_at")),
        "failure": job.get("failure_reason"),
        "message": job.get("failure_message"),
        "exit code": job.get("exit_code"),
        "warning": ", ".join(job.get("warnings") or ()),
        "lost": _lost_tries_text(job.get("lost_tries") or 0),
        "runner": (job.get("runner") or {}).get("description"),
        "tags": ", ".join(job.get("tag_list") or ()),
        "artifacts": (job.get("artifacts_file") or {}).get("filename"),
        "held": _hold_text(job),
        "used": used_in_words(job.get("steps") or ()),
    }
    lines = [f"job {job['id']}: {job['name']}"]
    lines.extend(f"  {name:<10} {value}" for name, value in facts.items() if value not in (None, ""))
    split = (job.get("times") or {}).get("split") or {}
    parts = {name: seconds for name, seconds in (split.get("parts") or {}).items() if seconds >= 0.05}
    if parts:
        lines.append(f"  time       {duration(split['total_seconds'])}")
        lines.extend(f"    {name:<9}  {duration(seconds)}" for name, seconds in parts.items())
    tree = tree_of(job.get("steps") or ())
    if tree:
        lines.append("  steps")
        lines.extend(f"    {line}" for line in (step_lines(tree) if steps else _short_steps(tree)))
    if note := (job.get("times") or {}).get("note"):
        lines.append(f"  note       {note}")
    return lines


def _short_steps(tree: Sequence[dict[str, Any]]) -> list[str]:
    """Return one line for each top-level step, and for each inner step that failed or still runs."""
    from remuda.localrun.render.step_events import StepView, views
    from remuda.localrun.render.words import duration

    steps: list[StepView] = [view for view in views(tree) if view.depth == 0 or view.status in ("failure", "running")]
    width = max(2 * step.depth + len(step.name) for step in steps)
    lines = []
    for step in steps:
        seconds = step.seconds(step.finished_at) if step.finished_at is not None else None
        name = f"{'  ' * step.depth}{step.name}"
        lines.append(f"{name:<{width}}  {step.status}{'' if seconds is None else f'  {duration(seconds)}'}")
    return lines


def _hold_text(job: Mapping[str, Any]) -> str:
    until = local_time(job.get("held_until"))
    return f"until {until}; look into it with `remuda job shell {job['id']}`" if until else ""


def _lost_tries_text(tries: int) -> str:
    times = {0: "", 1: "once", 2: "twice"}.get(tries, f"{tries} times")
    return f"{times}: the platform lost the job before its script began" if times else ""
