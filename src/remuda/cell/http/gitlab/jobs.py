"""Jobs in GitLab's form, and Remuda's own view of where a job's time went. Trigger jobs are listed as bridges, as in
GitLab; every endpoint with a job id in its path also accepts the id of a trigger job."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import Request

from remuda.cell.core.access.pipeline_variables import can_set_variables, explain_refusal
from remuda.cell.core.jobs import job_times
from remuda.cell.dispatch.step_results import read_results
from remuda.cell.errors import InvalidError
from remuda.cell.git.port import Commit
from remuda.cell.http.edge import auth
from remuda.cell.http.edge.access import JOB, USER, in_project, of_job
from remuda.cell.http.edge.admission import Caller, caller_of, check_acts_on
from remuda.cell.http.edge.bodies import flag_in_query, number_in_query
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import bad_parameter, bad_request, forbidden, not_found
from remuda.cell.http.edge.paging import KEYSET, Paged, page_by_id, page_of
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.variables import GivenVariable, read_given
from remuda.cell.http.gitlab.views import (
    JobShape,
    PipelineSummaryShape,
    job_view,
    pipeline_summary,
    seconds_running,
    seconds_waiting,
)
from remuda.cell.http.runner.results import StepTimes, step_times
from remuda.cell.projects.namespaces import list_all_projects
from remuda.cell.values import Job, JobFilter, Page, Pipeline, Project, Runner
from remuda.cell.values.people import Level, ProjectFilter
from remuda.lib.clock import rfc3339
from remuda.model.job import FINAL, JobId, JobState, PipelineId, ProjectId, RunnerId
from remuda.pipeline import PipelineError
from remuda.pipeline.keywords.job_inputs import check_given
from remuda.wire.explanations import TimeSplit

RESULTS = 5000
"""How many step results are read at most to split a job's time."""
LOG_BYTES = 1024 * 1024
"""How much of a log's beginning, and of its end, is searched for sections."""

_STATES = frozenset(state.value for state in JobState)


_ROOT = "/api/v4/projects/{id}"
SCOPE = {"scope": str, "scope[]": list[str], "state": str}
_FILTERS = SCOPE | {"name": str, "ref": str, "runner_id": int}
"""What selects jobs of a list. Name, ref and runner are Remuda's own."""
routes = Routes()


class Play(msgspec.Struct, kw_only=True):
    job_variables_attributes: list[GivenVariable] = []
    job_inputs: dict[str, Any] = {}


class RetryJob(msgspec.Struct, kw_only=True):
    job_inputs: dict[str, Any] = {}


class TimedJobShape(JobShape, kw_only=True):
    """A job with the fields that only Remuda has, such as its priority and where its time went."""

    state: str
    epoch: int
    tries: int
    lost_tries: int
    priority: int
    times: dict[str, Any]


async def describe(edge: Edge, jobs: Sequence[Job], caller: Caller | None = None) -> list[JobShape]:
    """Build the API responses for jobs, without jobs of deleted projects or pipelines. A trigger job's downstream
    pipeline is included if it is in the same project or in one that `caller` may read."""
    projects: dict[ProjectId, Project | None] = {}
    pipelines: dict[PipelineId, Pipeline | None] = {}
    commits: dict[PipelineId, Commit | None] = {}
    runners: dict[RunnerId | None, Runner | None] = {None: None}
    missing_runners = await edge.dispatch.explanations.find_missing_runners(jobs)
    views = []
    for job in jobs:
        if job.project_id not in projects:
            projects[job.project_id] = await edge.store.projects.load_project(job.project_id)
        project = projects[job.project_id]
        if job.pipeline_id not in pipelines:
            pipelines[job.pipeline_id] = await edge.store.pipelines.load_pipeline(job.pipeline_id)
        pipeline = pipelines[job.pipeline_id]
        if project is None or pipeline is None or project.removed_at is not None:
            continue
        if job.pipeline_id not in commits:
            commits[job.pipeline_id] = await edge.projects.repos.commit(project.repo_path, pipeline.sha)
        if job.runner_id is not None and job.runner_id not in runners:
            runners[job.runner_id] = await edge.store.runners.load_runner(job.runner_id)
        view = job_view(
            job,
            project=project,
            pipeline=pipeline,
            commit=commits[job.pipeline_id],
            runner=runners[job.runner_id],
            artifacts=await edge.store.jobs.list_artifacts(job.id),
            url=edge.settings.url,
            now=edge.clock.now(),
        )
        view.no_runner_reason = missing_runners.get(job.id, msgspec.UNSET)
        if job.is_trigger:
            view.downstream_pipeline = await _downstream(edge, job, caller)
        views.append(view)
    return views


async def describe_job(edge: Edge, job: Job, caller: Caller | None = None) -> JobShape:
    """API response to `caller` for a job. Raises ApiError 404 if its project or pipeline was deleted."""
    if not (views := await describe(edge, [job], caller)):
        raise not_found("Job")
    return views[0]


def scope_of(request: Request) -> list[str]:
    """Job states in the query (none: all); ApiError 400 if unknown. `running` includes jobs handed out (leased)."""
    query = request.query_params
    values = [*query.getlist("scope[]"), *query.getlist("scope"), *query.getlist("state")]
    states = [state for text in values for state in text.split(",") if state]
    unknown = [state for state in states if state not in _STATES]
    if unknown:
        raise bad_parameter(f"scope does not have a valid value: {unknown[0]}")
    return [*states, JobState.LEASED.value] if JobState.RUNNING.value in states else states


async def _page(
    edge: Edge,
    request: Request,
    *,
    project: Project | None = None,
    pipeline: Pipeline | None = None,
    is_trigger: bool | None = None,
    project_ids: list[ProjectId] | None = None,
) -> Paged[JobShape]:
    page: Page = page_by_id(request) if pipeline is None else page_of(request)
    runner_id = number_in_query(request, "runner_id")
    selection = JobFilter(
        project_id=project.id if project else None,
        pipeline_id=pipeline.id if pipeline else None,
        states=scope_of(request),
        # As in GitLab, the list of a pipeline leaves out retried jobs, and the list of a project has them.
        with_retried=pipeline is None or flag_in_query(request, "include_retried"),
        is_trigger=is_trigger,
        project_ids=project_ids,
        name=request.query_params.get("name", ""),
        ref=request.query_params.get("ref", ""),
        runner_id=None if runner_id is None else RunnerId(runner_id),
    )
    jobs, total = await edge.store.jobs.list_jobs(page, selection)
    return Paged(await describe(edge, jobs, caller_of(request)), total, page)


async def _downstream(edge: Edge, job: Job, caller: Caller | None) -> PipelineSummaryShape | None:
    """The pipeline that a trigger job started; None if none, or if it is in a project that `caller` may not read."""
    pipeline = await edge.store.pipelines.load_pipeline(job.downstream_id) if job.downstream_id is not None else None
    project = await edge.store.projects.load_project(pipeline.project_id) if pipeline else None
    if project is not None and project.id != job.project_id:
        level = caller.level_in(project) if caller else None
        project = project if (level or 0) >= Level.REPORTER else None
    return pipeline_summary(pipeline, project, edge.settings.url) if pipeline and project else None


@routes.get(f"{_ROOT}/jobs", in_project(Level.REPORTER), query=_FILTERS | KEYSET)
async def list_of_project(edge: Edge, request: Request, project: Project) -> Paged[JobShape]:
    """List the jobs of a project."""
    return await _page(edge, request, project=project, is_trigger=False)


@routes.get(
    f"{_ROOT}/pipelines/{{pipeline_id}}/jobs", in_project(Level.REPORTER), query=_FILTERS | {"include_retried": bool}
)
async def list_of_pipeline(edge: Edge, request: Request, pipeline: Pipeline, project: Project) -> Paged[JobShape]:
    """List the jobs of a pipeline."""
    return await _page(edge, request, project=project, pipeline=pipeline, is_trigger=False)


@routes.get(
    f"{_ROOT}/pipelines/{{pipeline_id}}/bridges", in_project(Level.REPORTER), query=_FILTERS | {"include_retried": bool}
)
async def list_bridges(edge: Edge, request: Request, pipeline: Pipeline, project: Project) -> Paged[JobShape]:
    """List the trigger jobs of a pipeline."""
    return await _page(edge, request, project=project, pipeline=pipeline, is_trigger=True)


@routes.get("/api/remuda/v1/jobs", USER, query=_FILTERS | {"held": bool})
async def list_all(edge: Edge, request: Request, caller: Caller) -> Paged[JobShape]:
    """List the jobs of the caller's projects, or of all projects for administrators."""
    projects = await list_own_projects(edge, caller)
    if not flag_in_query(request, "held"):
        return await _page(edge, request, project_ids=projects)
    page = page_of(request)
    jobs_on_hold = await edge.store.jobs.load_jobs({JobId(hold.job_id) for hold in edge.shells.holds()})
    jobs = [job for job in reversed(jobs_on_hold) if projects is None or job.project_id in projects]
    views = await describe(edge, jobs[(page.number - 1) * page.size : page.number * page.size], caller)
    for view in views:
        view.held_until = _hold_end(edge, JobId(view.id))
    return Paged(views, len(jobs), page)


async def list_own_projects(edge: Edge, caller: Caller) -> list[ProjectId] | None:
    """Ids of the projects whose jobs a person may read as a member of the project; None if they may read all."""
    if caller.user.is_admin:
        return None
    projects = await list_all_projects(edge.store, ProjectFilter(sight=caller.sight, membership=True))
    return [project.id for project in projects if (caller.level_in(project) or 0) >= Level.REPORTER]


@routes.get(f"{_ROOT}/jobs/{{job_id}}", in_project(Level.REPORTER))
async def show(edge: Edge, caller: Caller, job: Job) -> JobShape:
    """Show a job."""
    return await describe_job(edge, job, caller)


@routes.get("/api/v4/job", JOB, query={"token": str})
async def show_own(edge: Edge, request: Request) -> JobShape:
    """Show the job that calls, which is found by its job token."""
    return await describe_job(edge, await auth.job_of(edge, auth.job_token_in(request)))


@routes.get("/api/remuda/v1/jobs/{job_id}", of_job(Level.REPORTER))
async def show_with_times(edge: Edge, caller: Caller, job: Job) -> TimedJobShape:
    """Show a job, with how long it waited, ran and spent in each step."""
    return await with_times(edge, job, caller)


async def with_times(edge: Edge, job: Job, caller: Caller) -> TimedJobShape:
    """The API response for a job, with Remuda's own fields, such as how long it waited, ran and spent in each step."""
    now = edge.clock.now()
    view = await describe_job(edge, job, caller)
    bodies, note = await _events(edge, job)
    times = {
        "waiting_seconds": seconds_waiting(job, now),
        "running_seconds": seconds_running(job, now),
        "steps": step_times(bodies),
        "split": await _split(edge, job, bodies, now),
        **({"note": note} if note else {}),
    }
    view.held_until = _hold_end(edge, job.id)
    return TimedJobShape.of(job, **msgspec.structs.asdict(view), state=job.state.value, times=times)


def _hold_end(edge: Edge, job_id: JobId) -> str | None:
    hold = edge.shells.hold_of(job_id)
    return None if hold is None else rfc3339(hold.until)


async def _events(edge: Edge, job: Job) -> tuple[list[StepTimes], str | None]:
    """A job's step results, with only the fields for times, and why some are missing (None if all are there)."""
    events: list[StepTimes] = []
    async with aclosing(read_results(edge.store.jobs, job.id)) as results:
        async for result in results:
            event = msgspec.json.decode(result.body, type=StepTimes)
            if result.is_note:
                return events, event.get("note")
            if len(events) == RESULTS:
                return events, f"only the first {RESULTS} step events are counted"
            events.append(event)
    return events, None


async def _split(edge: Edge, job: Job, bodies: Sequence[Any], now: float) -> TimeSplit | None:
    """How the time of a job until its end or `now` divides into parts such as waiting, by its step results `bodies` or,
    if a finished job has none, the sections of its log. None if the job never waited for a runner (pending)."""
    spans = job_times.spans_of_steps(bodies, now)
    if spans or job.state not in FINAL or job.started_at is None or job.is_trigger:
        return job_times.split(job, spans, "steps", now)
    size = await edge.traces.size(job.id)
    log = await _read_log(edge, job, 0, LOG_BYTES)
    if size > LOG_BYTES:
        log += await _read_log(edge, job, max(size - LOG_BYTES, LOG_BYTES), LOG_BYTES)
    return job_times.split(job, job_times.spans_of_sections(log), "sections", now)


async def _read_log(edge: Edge, job: Job, start: int, count: int) -> bytes:
    data = bytearray()
    async with aclosing(edge.traces.read(job.id, start)) as pieces:
        async for piece in pieces:
            data += piece
            if len(data) >= count:
                break
    return bytes(data[:count])


class CancelJob(msgspec.Struct, kw_only=True):
    force: bool | None = None
    """Do not wait for the runner to stop the job; only maintainers may."""


@routes.post(f"{_ROOT}/jobs/{{job_id}}/cancel", in_project(Level.DEVELOPER))
async def cancel(edge: Edge, caller: Caller, job: Job, project: Project, params: CancelJob) -> JobShape:
    """Cancel a job."""
    check_acts_on(caller, project, job)
    if params.force and (caller.level_in(project) or 0) < Level.MAINTAINER:
        raise forbidden("only maintainers of the project may force a cancel")
    return await describe_job(edge, await edge.dispatch.user_commands.cancel_job(job.id, force=bool(params.force)))


@routes.post(f"{_ROOT}/jobs/{{job_id}}/retry", in_project(Level.DEVELOPER))
async def retry(edge: Edge, caller: Caller, job: Job, project: Project, params: RetryJob) -> JobShape:
    """Retry a job, with other values of its inputs if `job_inputs` are given. Returns the new job."""
    if job.retried:
        raise forbidden("Job is not retryable")
    check_acts_on(caller, project, job)
    inputs = await _read_inputs(edge, job, params.job_inputs)
    try:
        return await describe_job(edge, await edge.dispatch.user_commands.retry_job(job.id, inputs))
    except InvalidError:
        raise forbidden("Job is not retryable") from None


@routes.post(f"{_ROOT}/jobs/{{job_id}}/play", in_project(Level.DEVELOPER), status=200)
async def play(edge: Edge, caller: Caller, job: Job, project: Project, params: Play) -> JobShape:
    """Start a manual or delayed job."""
    check_acts_on(caller, project, job)
    variables, _ = read_given(params.job_variables_attributes)
    inputs = await _read_inputs(edge, job, params.job_inputs)
    if variables and not can_set_variables(project, caller.level_in(project) or 0):
        raise forbidden(explain_refusal(project))
    try:
        return await describe_job(edge, await edge.dispatch.user_commands.play_job(job.id, variables, inputs))
    except InvalidError:
        raise bad_request("Unplayable Job") from None


async def _read_inputs(edge: Edge, job: Job, given: dict[str, Any]) -> dict[str, Any]:
    """Return the values for the inputs of a job. Answers 400 if the job has no such input, or a value does not fit."""
    if not given:
        return {}
    spec = await edge.store.jobs.load_spec(job.id)
    try:
        return check_given(spec.inputs if spec else {}, given)
    except PipelineError as error:
        mistakes = [f"{m.key}: {m.message}" if m.key else m.message for m in error.errors]
        raise bad_request("; ".join(mistakes)[:1000]) from None


@routes.post(f"{_ROOT}/jobs/{{job_id}}/unschedule", in_project(Level.DEVELOPER), status=200)
async def unschedule(edge: Edge, caller: Caller, job: Job, project: Project) -> JobShape:
    """Cancel the start time of a delayed job, which becomes a manual job."""
    check_acts_on(caller, project, job)
    try:
        return await describe_job(edge, await edge.dispatch.user_commands.unschedule_job(job.id))
    except InvalidError:
        raise bad_request("Job is not scheduled") from None
