"""`remuda pipeline list`, `run`, `cancel`, `retry` and `watch`: the pipelines of a cell. `show_pipeline` shows one."""

import asyncio
import os
import sys
from collections.abc import Mapping
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress, in_project
from remuda.cli.options import Limit, Output, Project, check_limit, check_status, read_pairs, repeatable
from remuda.cli.render.listing import (
    Columns,
    at,
    duration_text,
    print_change,
    print_facts,
    print_list,
    print_table,
    project_of,
)
from remuda.lib.clock import SystemClock, parse_time
from remuda.lib.exits import BadInputError, Exit
from remuda.localrun.render.words import first_sentence, on_one_line

if TYPE_CHECKING:
    from remuda.localrun.render.screen import Screen
    from remuda.localrun.view import RunView
    from remuda.wire.user_client import UserClient

PipelineNumber = Annotated[int, Parameter(help="Number of the pipeline.")]
Watch = Annotated[bool, Parameter(name=("--watch", "-w"), negative=(), help="Show its progress until it has ended.")]
LOOK_SECONDS = 0.5
RETRY_SECONDS = 2.0
MOST_PROJECTS = 50
"""Of how many projects `pipeline list --all` asks for pipelines: those that changed last."""


def list_pipelines(
    *,
    project: Project = None,
    all_projects: Annotated[
        bool, Parameter(name=("--all", "-a"), negative=(), help="List the pipelines of all your projects.")
    ] = False,
    status: Annotated[
        str | None, Parameter(name=("--status", "-s"), help="List only pipelines with this status, such as failed.")
    ] = None,
    ref: Annotated[str | None, Parameter(name=("--ref", "-r"), help="List only those of this branch or tag.")] = None,
    source: Annotated[str | None, Parameter(help="List only those started by this event, such as schedule.")] = None,
    limit: Limit = 20,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """List pipelines, newest first.

    In a clone of a project of the cell: the pipelines of this project. Elsewhere, or with --all: those of the 50
    projects of yours that changed last.

    Try:

        remuda pipeline list
        remuda pipeline list -p root/shop --ref main --status failed
        remuda pipeline list --all -n 50 --output json
    """
    check_limit(limit)
    check_status(status)
    if project and all_projects:
        raise BadInputError("--project and --all contradict each other; leave one of them out")
    if not (project or all_projects):
        project = cell.folder_project()
    options = {"status": status, "ref": ref, "source": source}
    query = {name: value for name, value in options.items() if value}
    pipelines = cell.ask(lambda client: _list(client, project, limit, query))
    columns: Columns = {
        "pipeline": "id",
        "status": "status",
        "ref": "ref",
        "commit": lambda pipeline: pipeline["sha"][:8],
        "source": "source",
        "name": "name",
        "project": project_of(cell.find().url),
        "created": at("created_at"),
    }
    where = f"in the project {project}" if project else "in your projects"
    print_list(pipelines, columns, output, nothing=f"there are no {'such ' if query else ''}pipelines {where}")


async def _list(
    client: "UserClient", project: str | None, limit: int, query: Mapping[str, str]
) -> list[dict[str, Any]]:
    if project:
        return await client.pages(in_project(project, "pipelines"), limit=limit, **query)
    user = await client.call("GET", "/api/v4/user")
    mine: dict[str, str] = {} if user.get("is_admin") else {"membership": "true"}
    projects = await client.pages("/api/v4/projects", limit=None, **mine)
    projects.sort(key=lambda each: each.get("last_activity_at") or "", reverse=True)
    pipelines: list[dict[str, Any]] = []
    for each in projects[:MOST_PROJECTS]:
        pipelines += await client.pages(in_project(each["id"], "pipelines"), limit=limit, **query)
    return sorted(pipelines, key=lambda pipeline: -pipeline["id"])[:limit]


def show_pipeline(pipeline: int, cell: CellAddress, output: str) -> None:
    """Print a pipeline of a cell with its jobs."""

    async def ask(client: "UserClient") -> dict[str, Any]:
        project = (await client.progress(pipeline)).project_id
        found: dict[str, Any] = await client.call("GET", in_project(project, "pipelines", pipeline))
        path = in_project(project, "pipelines", pipeline)
        return {**found, "jobs": [*await client.pages(f"{path}/jobs"), *await client.pages(f"{path}/bridges")]}

    answer = cell.ask(ask)
    facts: Columns = {
        "status": "status",
        "ref": "ref",
        "commit": "sha",
        "source": "source",
        "name": "name",
        "started by": lambda found: found["user"]["username"],
        "mistakes": "yaml_errors",
        "created": at("created_at"),
        "ran": lambda found: duration_text(seconds_run(found)),
        "coverage": lambda found: f"{found['coverage']} %" if found["coverage"] else "",
    }
    print_facts(f"pipeline {pipeline} of {project_of(cell.find().url)(answer)}", answer, facts, output)
    if output == "json" or not answer["jobs"]:
        return
    print()
    rows = [
        (
            str(job["id"]),
            job["status"],
            job["stage"],
            job["name"],
            duration_text(job.get("queued_duration")),
            duration_text(job.get("duration")),
            _note(job),
        )
        for job in sorted(answer["jobs"], key=lambda job: job["id"])
    ]
    print_table([("job", "status", "stage", "name", "waited", "ran", ""), *rows])


def seconds_run(pipeline: Mapping[str, Any]) -> float | None:
    """Return how many seconds a pipeline ran: to the millisecond if it has ended, because `duration` has whole seconds,
    as in GitLab. None if it has not started."""
    started, finished = parse_time(pipeline["started_at"]), parse_time(pipeline["finished_at"])
    return pipeline["duration"] if started is None or finished is None else finished - started


def _note(job: Mapping[str, Any]) -> str:
    started = job.get("downstream_pipeline")
    allowed = "may fail" if job["status"] == "failed" and job["allow_failure"] else ""
    reason = job.get("failure_reason")
    message = job.get("failure_message") if reason != "script_failure" else None
    words = [reason, first_sentence(message or ""), allowed, f"started pipeline {started['id']}" if started else ""]
    return ", ".join(word for word in [*words, *(job.get("warnings") or ())] if word)


def run_pipeline(
    *,
    project: Project = None,
    ref: Annotated[str, Parameter(name=("--ref", "-r"), help="Branch or tag [default: the default branch].")] = "",
    variable: Annotated[tuple[str, ...], repeatable("--variable", "A variable for its jobs, NAME=VALUE.")] = (),
    inputs: Annotated[
        tuple[str, ...], repeatable("--input", "An input that the pipeline file declares (`spec:inputs`), NAME=VALUE.")
    ] = (),
    job: Annotated[tuple[str, ...], repeatable("--job", "Create only this job and the jobs that it needs.")] = (),
    watch: Watch = False,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> int:
    """Run a pipeline of a project for the newest commit of a branch or tag, as a push to it would.

    With --watch, the exit code is 1 if the pipeline fails or is canceled.

    Try:

        remuda pipeline run
        remuda pipeline run -p root/shop --ref main --variable DEPLOY=yes
        remuda pipeline run --job "unit tests" --watch
    """
    _check_watch(watch=watch, output=output)
    place = cell.project(project)
    variables, given = read_pairs("--variable", variable), read_pairs("--input", inputs)

    async def ask(client: "UserClient") -> dict[str, Any]:
        found = await client.call("GET", in_project(place))
        if not (ref or found["default_branch"]):
            raise BadInputError(f"the project {place} is empty; push a branch with a .gitlab-ci.yml to it first")
        body: dict[str, Any] = {"ref": ref or found["default_branch"], "variables": variables, "inputs": given}
        path = f"/api/remuda/v1/projects/{found['id']}/pipelines"
        return await start_pipeline(client, path, "no pipeline was created", {**body, "jobs": list(job)})

    created = cell.ask(ask)
    number = created["id"]
    hint = "" if watch else f"; its progress: remuda pipeline watch {number}"
    print_change(created, f"pipeline {number} of {place} is {created['status']}{hint}", output)
    return _watch(cell, number) if watch else Exit.SUCCESS


async def start_pipeline(client: "UserClient", path: str, refusal: str, body: object | None = None) -> dict[str, Any]:
    """Make a call that starts a pipeline. Raises BadInputError, which begins with `refusal`, if its request or file is
    not valid."""
    from remuda.wire.user_client import RefusedError

    try:
        answer: dict[str, Any] = await client.call("POST", path, body)
    except RefusedError as error:
        if error.status != 400:
            raise
        why = str(error)
        raise BadInputError(f"{refusal}:\n{indent(why, '  ')}" if "\n" in why else f"{refusal}: {why}") from None
    return answer


def cancel(pipeline: PipelineNumber, /, *, cell: CellAddress = USUAL_CELL, output: Output = "text") -> None:
    """Cancel the jobs of a pipeline that have not ended, and its child pipelines.

    Try:

        remuda pipeline cancel 7
    """
    changed = cell.ask(lambda client: _act(client, pipeline, "cancel"))
    had_ended = _has_ended(changed) and changed["status"] != "canceled"
    print_change(
        changed, _describe_end(changed) if had_ended else f"pipeline {pipeline} is {changed['status']}", output
    )


def retry(
    pipeline: PipelineNumber,
    /,
    *,
    watch: Watch = False,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> int:
    """Run the jobs of a pipeline again that failed or were canceled.

    Try:

        remuda pipeline retry 7
        remuda pipeline retry 7 --watch
    """
    _check_watch(watch=watch, output=output)
    changed = cell.ask(lambda client: _act(client, pipeline, "retry"))
    if changed["yaml_errors"]:
        raise BadInputError(
            f"pipeline {pipeline} has no jobs, because its file has mistakes: remuda pipeline show {pipeline}"
        )
    if _has_ended(changed):
        print_change(changed, f"{_describe_end(changed)}, and no job of it failed or was canceled", output)
        return Exit.SUCCESS
    hint = "" if watch else f"; its progress: remuda pipeline watch {pipeline}"
    print_change(changed, f"pipeline {pipeline} is {changed['status']}{hint}", output)
    return _watch(cell, pipeline) if watch else Exit.SUCCESS


def watch_pipeline(pipeline: PipelineNumber, /, *, cell: CellAddress = USUAL_CELL) -> int:
    """Show the progress of a pipeline until it has ended, or waits for a manual job. Ctrl-C ends only the watching.

    On a terminal, shows a live tree of stages, jobs and steps, elsewhere a line for each event.

    Exit codes: 0 it succeeded, 1 it failed or was canceled.

    Try:

        remuda pipeline watch 7
        remuda pipeline watch 7 && remuda job artifacts 12 --unpack dist
    """
    return _watch(cell, pipeline)


async def _act(client: "UserClient", pipeline: int, action: str) -> dict[str, Any]:
    project = (await client.progress(pipeline)).project_id
    changed: dict[str, Any] = await client.call("POST", in_project(project, "pipelines", pipeline, action))
    return changed


async def _mistakes(client: "UserClient", view: "RunView") -> str:
    found = await client.call("GET", in_project(view.project_id, "pipelines", view.pipeline_id))
    return found["yaml_errors"] or ""


def _has_ended(pipeline: Mapping[str, Any]) -> bool:
    from remuda.model.job import FINAL

    return pipeline["status"] in FINAL


def _describe_end(pipeline: Mapping[str, Any]) -> str:
    return f"pipeline {pipeline['id']} has ended already ({pipeline['status']})"


def _check_watch(*, watch: bool, output: str) -> None:
    if watch and output == "json":
        raise BadInputError("--watch shows the progress as text; leave it out with --output json")


def _watch(cell: CellAddress, pipeline: int) -> int:
    from remuda.localrun.view import note_of

    view = cell.ask(lambda client: _follow(client, pipeline))
    jobs = list(view.all_jobs())
    rows = [
        (str(job.id), job.status, name, duration_text(job.waiting_seconds), duration_text(job.seconds(view.now)), note)
        for name, _, job in jobs
        for note in [note_of(job, view.now)]
    ]
    if rows:
        print()
        print_table([("job", "status", "name", "waited", "ran", ""), *rows])
    elif mistakes := cell.ask(lambda client: _mistakes(client, view)):
        print("\nmistakes in its pipeline file:")
        for line in mistakes.splitlines():
            print(f"  {on_one_line(line)}")
    failed = next((job.id for _, _, job in jobs if job.status == "failed" and not job.allow_failure), None)
    print(f"\npipeline {pipeline}: {view.status}" + (f"; see remuda job log {failed}" if failed else ""))
    return Exit.FAILURE if view.status in ("failed", "canceled") else Exit.SUCCESS


def _screen() -> "Screen":
    from remuda.localrun.render.screen import PlainScreen

    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return PlainScreen(sys.stdout)
    from remuda.localrun.render.live_tree import LiveScreen

    return LiveScreen()


async def _follow(client: "UserClient", pipeline: int) -> "RunView":
    """Show each state of a pipeline until its end, and return the last one. While the cell cannot be reached, tries
    again, except at first."""
    from remuda.localrun.view import build
    from remuda.wire.user_client import RefusedError, UserApiError

    clock, was_connected, is_lost = SystemClock(), False, False
    with _screen() as screen:
        while True:
            try:
                answer = await client.progress(pipeline, "running" if screen.shows_steps else "none")
            except RefusedError:
                raise
            except UserApiError as error:
                if not was_connected:
                    raise
                if not is_lost:
                    print(f"remuda: {error}; trying again", file=sys.stderr)
                is_lost = True
                await asyncio.sleep(RETRY_SECONDS)
                continue
            was_connected, is_lost = True, False
            view = build(answer, clock.now())
            screen.show(view, {})
            if view.is_over():
                return build(await client.progress(pipeline, "all"), clock.now())
            await asyncio.sleep(LOOK_SECONDS)
