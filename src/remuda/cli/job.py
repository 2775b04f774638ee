"""`remuda job`: shows and cancels the jobs of a cell. `--output json` prints the cell's response unchanged."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from cyclopts import Parameter

from remuda.cli.cell_access import USUAL_CELL, CellAddress
from remuda.cli.options import Output
from remuda.cli.render.listing import local_time, print_json, print_table
from remuda.lib.clock import SystemClock
from remuda.lib.exits import BadInputError
from remuda.localrun.render.words import on_one_line

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

FOLLOW_SECONDS = 0.5
RETRY_SECONDS = 2.0

JobNumber = Annotated[int, Parameter(help="Number of the job.")]


def list_jobs(
    *,
    project: Annotated[str | None, Parameter(help="List only jobs of this project (path or number).")] = None,
    status: Annotated[str | None, Parameter(help="List only jobs with this status, for example running.")] = None,
    held: Annotated[
        bool, Parameter(negative=(), help="List only failed jobs that are on hold: their environment still exists.")
    ] = False,
    limit: Annotated[int, Parameter(help="Maximum number of jobs.")] = 20,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """List jobs, newest first.

    Try:

        remuda job list
        remuda job list --project root/shop --status failed
        remuda job list --held
        REMUDA_TOKEN=... remuda job list --url https://ci.example.org --output json
    """
    if limit < 1:
        raise BadInputError(f"--limit {limit}: must be at least 1")
    if held and (project or status):
        raise BadInputError("--held lists the held jobs of all your projects; leave --project and --status out")
    path = f"/api/v4/projects/{quote(project, safe='')}/jobs" if project else "/api/remuda/v1/jobs"
    query: dict[str, str | int] = {"scope": status} if status else {"held": "true"} if held else {}
    jobs = cell.ask(lambda client: client.pages(path, limit=limit, **query))
    if output == "json":
        print_json(jobs)
        return
    rows: list[tuple[str, ...]] = [("job", "status", "name", "stage", "ref", "pipeline", "waited", "ran", "created")]
    rows.extend(_list_row(job) for job in jobs)
    if held:
        untils = ["held until", *(local_time(job.get("held_until")) for job in jobs)]
        rows = [(*row, until) for row, until in zip(rows, untils, strict=True)]
    print_table(rows)


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


def cancel(
    job: JobNumber,
    /,
    *,
    force: Annotated[
        bool,
        Parameter(negative=(), help="Do not wait for the runner and the job's after_script. Only for maintainers."),
    ] = False,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Cancel a job. A running job is canceling until its runner has stopped it and its after_script has run.

    A job that has ended does not change. Jobs of protected refs can be canceled by maintainers only.

    Try:

        remuda job cancel 7
        remuda job cancel 7 --force
    """

    async def ask(client: "UserClient") -> dict[str, Any]:
        project = (await client.job(job))["pipeline"]["project_id"]
        path = f"/api/v4/projects/{project}/jobs/{job}/cancel"
        changed: dict[str, Any] = await client.call("POST", path, {"force": True} if force else None)
        return changed

    changed = cell.ask(ask)
    if output == "json":
        print_json(changed)
    else:
        print(f"job {job} is {changed['status']}")


def payload(job: JobNumber, /, *, cell: CellAddress = USUAL_CELL) -> None:
    """Print the payload that a runner gets with a job, as JSON, without secrets.

    Try:

        remuda job payload 7 > payload.json
    """
    print_json(cell.ask(lambda client: client.payload(job)))


def log(
    job: JobNumber,
    /,
    *,
    follow: Annotated[
        bool, Parameter(name=("--follow", "-f"), negative=(), help="Continue until the job has ended.")
    ] = False,
    raw: Annotated[
        bool, Parameter(negative=(), help="Print the stored bytes, with line headers and section markers.")
    ] = False,
    cell: CellAddress = USUAL_CELL,
) -> None:
    """Print a job's log.

    With --follow, the log continues at the same byte after a broken connection or a restart of the cell.

    Try:

        remuda job log 7
        remuda job log 7 --follow
        remuda job log 7 --raw > job.log
    """
    cell.ask(lambda client: _copy_log(client, job, follow=follow, raw=raw))


async def _copy_log(client: "UserClient", job: int, *, follow: bool, raw: bool) -> None:
    from remuda.localrun.render.log_text import LogText
    from remuda.model.job import FINAL
    from remuda.wire.user_client import RefusedError, UserApiError

    text = LogText()
    offset = 0
    was_connected = lost = False
    while True:
        try:
            part = await client.trace(job, offset)
        except RefusedError:
            raise
        except UserApiError as error:
            if not follow or not was_connected:
                raise
            if not lost:
                print(f"remuda: {error}; trying again", file=sys.stderr)
            lost = True
            await asyncio.sleep(RETRY_SECONDS)
            continue
        was_connected, lost = True, False
        offset += len(part.data)
        _write(part.data if raw else text.feed(part.data).encode())
        if not follow or part.state in FINAL:
            break
        if not part.data:
            await asyncio.sleep(FOLLOW_SECONDS)
    _write(b"" if raw else text.finish().encode())


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def describe(job: Mapping[str, Any], *, steps: bool = False) -> list[str]:
    from remuda.localrun.render.step_lines import step_lines, used_in_words
    from remuda.localrun.render.words import duration
    from remuda.model.step_tree import tree_of

    facts = {
        "status": job["status"],
        "stage": job["stage"],
        "ref": job["ref"],
        "pipeline": job["pipeline"]["id"],
        "waited": _seconds(job.get("queued_duration")),
        "ran": _seconds(job.get("duration")),
        "created": local_time(job.get("created_at")),
        "started": local_time(job.get("started_at")),
        "finished": local_time(job.get("finished_at")),
        "failure": job.get("failure_reason"),
        "message": job.get("failure_message"),
        "exit code": job.get("exit_code"),
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


def _list_row(job: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(job["id"]),
        job["status"],
        job["name"],
        job["stage"],
        job["ref"],
        str(job["pipeline"]["id"]),
        _seconds(job.get("queued_duration")),
        _seconds(job.get("duration")),
        local_time(job.get("created_at")),
    )


def _seconds(value: float | None) -> str:
    from remuda.localrun.render.words import duration

    return "" if value is None else duration(value)
