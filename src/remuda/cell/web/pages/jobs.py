"""Pages about jobs: the list of a project, and one job with its log, steps, artifacts and the reasons of its state."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from remuda.cell.http.edge.bodies import is_number
from remuda.cell.http.edge.errors import not_found
from remuda.cell.values.people import Level
from remuda.cell.web.places import load_project, project_api, segment
from remuda.cell.web.step_rows import job_usage, step_rows
from remuda.cell.web.visit import Pages, Visit

pages = Pages()

STATUSES = ("created", "pending", "running", "success", "failed", "canceled", "skipped", "manual", "scheduled")
_MOST_STEP_PAGES = 5
_WAITING = frozenset({"created", "waiting_for_resource", "preparing", "pending", "scheduled", "manual"})
_FINAL = frozenset({"success", "failed", "canceled", "skipped"})
_ACTIVE = frozenset({"created", "waiting_for_resource", "preparing", "pending", "running", "scheduled"})


@pages.get("/{project:path}/-/jobs")
async def list_jobs(visit: Visit) -> Response:
    project = await load_project(visit)
    page = int(visit.query("page")) if is_number(visit.query("page")) else 1
    filters = {name: visit.query(name) for name in ("name", "ref", "runner_id")}
    status = visit.query("status")
    query = {**filters, "scope": status if status in STATUSES else "", "page": page, "per_page": 30}
    path = f"{project_api(project)}/jobs"
    reply = await visit.api.call("GET", path, {name: value for name, value in query.items() if value})
    return visit.render(
        "jobs.html",
        project=project,
        tab="Jobs",
        reply=reply,
        page=page,
        statuses=STATUSES,
        chosen=status,
        filters=filters,
        is_filtered=bool(status or any(filters.values())),
    )


@pages.get("/{project:path}/-/jobs/{number}")
async def show_job(visit: Visit) -> Response:
    project = await load_project(visit)
    job = await load_job(visit, project)
    root = f"/api/remuda/v1/jobs/{job['id']}"
    events, note = await _load_events(visit, root)
    level = await load_level(visit, project)
    now = visit.edge.clock.now()
    return visit.render(
        "job.html",
        project=project,
        tab="Jobs",
        job=job,
        why=await visit.api.get(f"{root}/why"),
        attempts=await _list_attempts(visit, project, job),
        manager=await _find_manager(visit, job),
        steps=step_rows(events, now),
        steps_note=note,
        usage=job_usage(events),
        split=_split(job),
        can=_actions(job, level),
        job_api=f"{project_api(project)}/jobs/{job['id']}",
        own_api=root,
        is_final=job["status"] in _FINAL,
        is_waiting=job["status"] in _WAITING,
        archive=next((file for file in job["artifacts"] if file["file_type"] == "archive"), None),
        reports=[file for file in job["artifacts"] if file["file_type"] not in ("archive", "trace")],
    )


@pages.get("/{project:path}/-/jobs/{number}/shell")
async def show_shell(visit: Visit) -> Response:
    """The terminal of a shell in the job, which a script opens."""
    project = await load_project(visit)
    job = await load_job(visit, project)
    can_open = "shell" in _actions(job, await load_level(visit, project))
    return visit.render("job_shell.html", project=project, tab="Jobs", job=job, can_open=can_open)


async def load_job(visit: Visit, project: Mapping[str, Any]) -> dict[str, Any]:
    """The job `{number}` in the path of the page. Raises ApiError 404 if the project has no such job."""
    number = visit.text("number")
    if not is_number(number):
        raise not_found("Job")
    job: dict[str, Any] = await visit.api.get(f"/api/remuda/v1/jobs/{number}")
    if job["pipeline"]["project_id"] != project["id"]:
        raise not_found("Job")
    return job


async def load_level(visit: Visit, project: Mapping[str, Any]) -> int:
    """The access level of the page's user in a project, as its list of members gives it; 0 if they are no member."""
    user = visit.caller.user
    if user.is_admin:
        return Level.OWNER
    member = await visit.api.find(f"{project_api(project)}/members/all/{user.id}")
    return int(member["access_level"]) if member else 0


async def _load_events(visit: Visit, root: str) -> tuple[list[Any], str]:
    """The step results of a job, and why some are missing (empty: all are there)."""
    events: list[Any] = []
    after: int | None = 0
    for _ in range(_MOST_STEP_PAGES):
        answer = await visit.api.get(f"{root}/steps", after=after or None)
        events += answer["results"]
        if (after := answer.get("next_after")) is None:
            note = next((event.get("note") for event in reversed(events[-2:]) if event.get("event") == "cut"), "")
            return events, str(note or "")
    return events, f"Only the first {len(events)} step events are shown; `remuda job show --steps` has all."


async def _list_attempts(visit: Visit, project: Mapping[str, Any], job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The jobs with the same name in the pipeline: this one and its retries, the newest first; empty if there is only
    this one."""
    path = f"{project_api(project)}/pipelines/{job['pipeline']['id']}/jobs"
    jobs: list[dict[str, Any]] = await visit.api.get(path, name=job["name"], include_retried=True, per_page=50)
    return sorted(jobs, key=lambda attempt: -int(attempt["id"])) if len(jobs) > 1 else []


async def _find_manager(visit: Visit, job: Mapping[str, Any]) -> dict[str, Any] | None:
    """The runner manager that ran the job, if the user may see the managers of its runner."""
    runner, manager = job.get("runner"), job.get("runner_manager")
    if not (runner and manager):
        return None
    managers = await visit.api.find(f"/api/v4/runners/{segment(runner['id'])}/managers") or []
    return next((entry for entry in managers if entry["system_id"] == manager["system_id"]), None)


def _split(job: Mapping[str, Any]) -> list[tuple[str, float, float, float]]:
    """Where the time of a job went: name, seconds, and begin and width of its bar in percent."""
    split = job["times"].get("split")
    if not split or not split["total_seconds"]:
        return []
    rows, begin = [], 0.0
    for name, seconds in split["parts"].items():
        if seconds > 0:
            width = seconds / split["total_seconds"] * 100
            rows.append((name, seconds, round(begin, 2), round(width, 2)))
            begin += width
    return rows


def _actions(job: Mapping[str, Any], level: int) -> frozenset[str]:
    """What the API would let the user do with the job now, as far as status and access level tell."""
    status = job["status"]
    developer, maintainer = level >= Level.DEVELOPER, level >= Level.MAINTAINER
    has_files = bool(job["artifacts"])
    is_on_hold = bool(job.get("held_until"))
    allowed = {
        "play": developer and status in ("manual", "scheduled"),
        "unschedule": developer and status == "scheduled",
        "retry": developer and status in ("success", "failed", "canceled"),
        "cancel": developer and status in _ACTIVE,
        "force": maintainer and status == "canceling",
        "erase": developer and status in _FINAL and has_files and not job["erased_at"],
        "keep": developer and bool(job["artifacts_expire_at"]),
        "delete_artifacts": maintainer
        and status in _FINAL
        and any(f["file_type"] != "trace" for f in job["artifacts"]),
        "release": developer and is_on_hold,
        "shell": maintainer and (status == "running" or is_on_hold),
    }
    return frozenset(name for name, is_allowed in allowed.items() if is_allowed)
