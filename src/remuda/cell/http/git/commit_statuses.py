"""Statuses of a commit in GitLab's form: those of the jobs of its pipelines, and those that other systems report. A
report goes to the newest pipeline of the commit; if there is none, a pipeline with the source `external` is created."""

from collections.abc import Callable, Sequence
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.core.jobs import external_statuses
from remuda.cell.core.jobs.external_statuses import STAGE, STATES, StatusReport, TooManyStatusesError
from remuda.cell.core.pipelines.creation import new_pipeline
from remuda.cell.dispatch.job_changes import load_pipeline
from remuda.cell.errors import InvalidError
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import Caller, check_acts_on
from remuda.cell.http.edge.bodies import choice_in_query, flag_in_query, number_in_query
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import ApiError, bad_field, bad_parameter, not_found
from remuda.cell.http.edge.lookup import text_in_path
from remuda.cell.http.edge.paging import Paged
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.git.repository import resolve_commit
from remuda.cell.http.gitlab.views import UserShape, pipeline_user_view, time_text, user_view
from remuda.cell.projects.refs import default_branch, find_ref
from remuda.cell.values import Family, Job, JobFilter, Page, Pipeline, PipelineFilter, Project
from remuda.cell.values.changes import Changes
from remuda.cell.values.jobs import ExternalStatus
from remuda.cell.values.people import FIRST_USER, Level, User
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.model.job import JobState, PipelineId

_COMMIT = "/api/v4/projects/{id}/repository/commits/{sha}/statuses"
_REPORT = "/api/v4/projects/{id}/statuses/{sha}"
_PIPELINES = Page(size=100, counted=False)
"""Statuses of this many pipelines of a commit are listed, the newest ones."""
_MAX_TEXT = 255
routes = Routes()


class Report(msgspec.Struct, kw_only=True):
    state: str
    ref: str | None = None
    name: str | None = None
    context: str | None = None
    target_url: str | None = None
    description: str | None = None
    coverage: float | None = None
    pipeline_id: int | None = None


class StatusShape(Shape, kw_only=True):
    id: int
    sha: str
    ref: str
    status: str
    name: str
    target_url: str | None
    description: str | None
    created_at: str | None
    started_at: str | None
    finished_at: str | None
    allow_failure: bool
    coverage: float | None
    pipeline_id: int
    author: UserShape


def _job_view(job: Job, pipeline: Pipeline, project: Project, url: str) -> StatusShape:
    return StatusShape.of(
        job,
        sha=pipeline.sha,
        status=job.status(),
        target_url=f"{url}/{project.path}/-/jobs/{job.id}",
        description=None,
        created_at=time_text(job.created_at),
        started_at=time_text(job.start_time()),
        finished_at=time_text(job.finished_at),
        author=pipeline_user_view(pipeline, url),
    )


def _external_view(status: ExternalStatus, pipeline: Pipeline, author: User | None, url: str) -> StatusShape:
    return StatusShape.of(
        status,
        sha=pipeline.sha,
        ref=pipeline.ref,
        status=status.state.value,
        target_url=status.target_url or None,
        description=status.description or None,
        created_at=time_text(status.created_at),
        started_at=time_text(status.started_at),
        finished_at=time_text(status.finished_at),
        pipeline_id=pipeline.id,
        author=user_view(url, author or FIRST_USER),
    )


@routes.get(
    _COMMIT,
    in_project(Level.REPORTER),
    query={
        "ref": str,
        "stage": str,
        "name": str,
        "pipeline_id": int,
        "all": bool,
        "order_by": Literal["id", "pipeline_id"],
        "sort": Literal["asc", "desc"],
    },
)
async def list_all(edge: Edge, request: Request, project: Project, page: Page) -> Paged[StatusShape]:
    """List the statuses of a commit: those of the jobs of its pipelines, and those that other systems reported."""
    query = request.query_params
    sha = await resolve_commit(edge, project, text_in_path(request, "sha"))
    choice_in_query(request, "order_by", ("id", "pipeline_id"))
    is_ascending = choice_in_query(request, "sort", ("asc", "desc"), "asc") == "asc"
    pipeline_id = number_in_query(request, "pipeline_id")
    pipelines = await _list_pipelines(edge, project, sha, query.get("ref", ""), pipeline_id)
    by_id = {pipeline.id: pipeline for pipeline in pipelines}
    selection = JobFilter(
        project_id=project.id,
        pipeline_ids=list(by_id),
        with_retried=flag_in_query(request, "all"),
        name=query.get("name", ""),
        stage=query.get("stage", ""),
    )
    external = _select_external(pipelines, selection)
    url = edge.settings.url
    if not external:
        jobs, total = await edge.store.jobs.list_jobs(replace(page, ascending=is_ascending), selection)
        return Paged([_job_view(job, by_id[job.pipeline_id], project, url) for job in jobs], total, page)
    # A page of both kinds together: among the first jobs are all that can be on it.
    end = page.number * page.size
    jobs, total = await edge.store.jobs.list_jobs(Page(size=end, ascending=is_ascending), selection)
    merged: list[tuple[Job | ExternalStatus, Pipeline]] = [(job, by_id[job.pipeline_id]) for job in jobs]
    merged = sorted([*merged, *external], key=lambda entry: entry[0].id, reverse=not is_ascending)
    views = []
    for status, pipeline in merged[end - page.size : end]:
        if isinstance(status, Job):
            views.append(_job_view(status, pipeline, project, url))
        else:
            author = await edge.store.people.load_user(status.user_id)
            views.append(_external_view(status, pipeline, author, url))
    return Paged(views, total + len(external), page)


async def _list_pipelines(
    edge: Edge, project: Project, sha: str, ref: str, pipeline_id: int | None
) -> Sequence[Pipeline]:
    """The pipelines of a commit, newest first: those of a ref, or only the one with this id."""
    if pipeline_id is None:
        return (await edge.store.pipelines.list_pipelines(project.id, _PIPELINES, PipelineFilter(sha=sha, ref=ref)))[0]
    pipeline = await edge.store.pipelines.load_pipeline(PipelineId(pipeline_id))
    is_match = pipeline is not None and (pipeline.project_id, pipeline.sha) == (project.id, sha)
    return [pipeline] if pipeline and is_match and ref in ("", pipeline.ref) else []


def _select_external(
    pipelines: Sequence[Pipeline], selection: JobFilter
) -> list[tuple[Job | ExternalStatus, Pipeline]]:
    if selection.stage not in ("", STAGE):
        return []
    return [
        (status, pipeline)
        for pipeline in pipelines
        for status in external_statuses.list_latest(pipeline.external, with_retried=selection.with_retried)
        if selection.name in ("", status.name)
    ]


@routes.post(_REPORT, in_project(Level.DEVELOPER), also=(422,))
async def report(edge: Edge, request: Request, caller: Caller, project: Project, params: Report) -> StatusShape:
    """Report the status of a check of a commit that another system runs."""
    new = _read(params, caller)
    sha = await resolve_commit(edge, project, text_in_path(request, "sha"))
    pipelines = await _list_pipelines(edge, project, sha, params.ref or "", params.pipeline_id)
    if params.pipeline_id is not None and not pipelines:
        raise not_found("Pipeline for pipeline_id, sha and ref")
    status_id, now = await edge.store.pipelines.draw_status_id(), edge.clock.now()

    def decide(family: Family) -> Changes:
        return external_statuses.report(family, new, status_id, now)

    if pipelines:
        pipeline = pipelines[0]
        check_acts_on(caller, project, pipeline)
    else:
        first = await _new_pipeline(edge, caller, project, sha, params.ref)
        changes = decide(Family(pipeline=first, jobs=()))
        pipeline = await edge.store.pipelines.add_external_pipeline(changes.pipeline or first)
    if any(status.id == status_id for status in pipeline.external):
        edge.dispatch.changes.announce_pipeline(Family(pipeline=pipeline, jobs=()))
    else:
        pipeline = await _change(edge, pipeline, decide)
    status = next(row for row in reversed(pipeline.external) if row.name == new.name)
    author = await edge.store.people.load_user(status.user_id)
    return _external_view(status, pipeline, author, edge.settings.url)


async def _change(edge: Edge, pipeline: Pipeline, decide: Callable[[Family], Changes]) -> Pipeline:
    try:
        applied = await edge.dispatch.changes.change(pipeline.id, decide)
    except TooManyStatusesError as error:
        raise ApiError(422, {"message": str(error)}) from None
    except InvalidError as error:
        raise ApiError(400, {"message": str(error)}) from None
    return applied.pipeline or await load_pipeline(edge.store.pipelines, pipeline.id)


def _read(params: Report, caller: Caller) -> StatusReport:
    state: JobState | None = STATES.get(params.state)
    if state is None:
        raise bad_parameter("state does not have a valid value")
    name = params.name or params.context or "default"
    for field, text in (("name", name), ("target_url", params.target_url), ("description", params.description)):
        if text is not None and (len(text) > _MAX_TEXT or not text.isprintable()):
            raise bad_field(field, f"is too long (maximum is {_MAX_TEXT} characters) or has control characters")
    if params.target_url and urlsplit(params.target_url).scheme not in ("http", "https"):
        raise bad_field("target_url", "is blocked: Only allowed schemes are http, https")
    return StatusReport(
        name=name,
        state=state,
        target_url=params.target_url,
        description=params.description,
        coverage=params.coverage,
        user_id=caller.user.id,
    )


async def _new_pipeline(edge: Edge, caller: Caller, project: Project, sha: str, ref: str | None) -> Pipeline:
    """A pipeline, not stored yet, of the source `external` for a commit: of the ref, or of a branch that contains the
    commit. ApiError 404 if there is no such ref."""
    full = await _find_branch(edge, project, sha) if ref is None else await _find_given(edge, project, ref)
    if full is None:
        raise not_found("References for commit")
    pipeline = new_pipeline(
        PipelineRequest(project=project, source="external", ref=full, sha=sha, user_id=caller.user.id),
        default_branch=default_branch(edge.projects.repos, project),
        predefined={"GITLAB_USER_LOGIN": caller.user.username, "GITLAB_USER_NAME": caller.user.name},
        now=edge.clock.now(),
    )
    check_acts_on(caller, project, pipeline)
    return pipeline


async def _find_given(edge: Edge, project: Project, ref: str) -> str | None:
    found = await find_ref(edge.projects.repos, project, ref)
    return found[0] if found else None


async def _find_branch(edge: Edge, project: Project, sha: str) -> str | None:
    """The full name of a branch that contains a commit: the default branch if it does, else the first by name."""
    repos = edge.projects.repos
    heads = {ref: head for ref, head in (await repos.refs(project.repo_path)).items() if ref.startswith("refs/heads/")}
    default = f"refs/heads/{default_branch(repos, project)}"
    for ref in sorted(heads, key=lambda ref: (heads[ref] != sha, ref != default, ref)):
        if heads[ref] == sha or await repos.is_ancestor(project.repo_path, sha, heads[ref]):
            return ref
    return None
