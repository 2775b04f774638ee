"""Create pipelines over HTTP: GitLab's calls for a ref and for a merge request, and Remuda's own, which has more
options. `triggers` uses `ref_of` and `start_pipeline` from here."""

import msgspec
from starlette.requests import Request

from remuda.cell.errors import InvalidError, MistakesError
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import Caller
from remuda.cell.http.edge.bodies import parameters
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import ApiError, bad_parameter, not_found
from remuda.cell.http.edge.lookup import number_in_path
from remuda.cell.http.edge.paging import Paged, page_of
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.variables import GivenVariable, check_variable, read_given
from remuda.cell.http.gitlab.views import PipelineShape, PipelineSummaryShape, View, pipeline_summary, pipeline_view
from remuda.cell.projects.refs import candidates, find_ref, merge_request_ref
from remuda.cell.values import Pipeline, PipelineFilter, Project
from remuda.cell.values.people import Level
from remuda.cell.values.pipeline_requests import Choice, PipelineRequest
from remuda.pipeline import Mistake
from remuda.wire.user_api import NewPipelineRequest

FILE_LIMIT_BYTES = 4 * 1024 * 1024
"""Size of a request with a pipeline file, which itself has at most a quarter of that."""
SOURCES = frozenset(
    (
        "push",
        "web",
        "webide",
        "api",
        "trigger",
        "schedule",
        "chat",
        "pipeline",
        "parent_pipeline",
        "external",
        "external_pull_request_event",
        "merge_request_event",
    )
)
"""GitLab's values of `CI_PIPELINE_SOURCE`."""


routes = Routes()


class NewPipeline(msgspec.Struct, kw_only=True):
    ref: str
    variables: list[GivenVariable] = []
    inputs: dict[str, object] = {}


def describe_pipeline(
    edge: Edge, pipeline: Pipeline, project: Project, *, coverage: float | None = None
) -> PipelineShape:
    return pipeline_view(pipeline, project, edge.settings.url, edge.clock.now(), coverage=coverage)


async def ref_of(edge: Edge, project: Project, name: str) -> tuple[str, str]:
    """The full name of a branch or tag, and its commit. Raises ApiError 400, worded as in GitLab, if there is none."""
    ref_and_commit = await find_ref(edge.projects.repos, project, name)
    if ref_and_commit is None:
        raise ApiError(400, {"message": {"base": ["Reference not found"]}})
    return ref_and_commit


async def start_pipeline(edge: Edge, request: PipelineRequest) -> Pipeline:
    """Create and start a pipeline. ApiError 400, in GitLab's form, if its file is not valid or it has no jobs."""
    try:
        return await edge.pipelines.start(request)
    except InvalidError as error:
        raise ApiError(400, {"message": {"base": [str(error)]}}) from None


@routes.post("/api/v4/projects/{id}/pipeline", in_project(Level.DEVELOPER))
async def create(edge: Edge, caller: Caller, project: Project, params: NewPipeline) -> PipelineShape:
    """Create a pipeline for a branch or tag."""
    variables, file_variables = read_given(params.variables)
    ref, sha = await ref_of(edge, project, params.ref)
    pipeline_request = PipelineRequest(
        project=project,
        source="api",
        ref=ref,
        sha=sha,
        variables=variables,
        file_variables=file_variables,
        inputs=params.inputs,
        user_id=caller.user.id,
    )
    return describe_pipeline(edge, await start_pipeline(edge, pipeline_request), project)


@routes.post("/api/v4/projects/{id}/merge_requests/{iid}/pipelines", in_project(Level.DEVELOPER))
async def create_for_merge_request(edge: Edge, request: Request, caller: Caller, project: Project) -> PipelineShape:
    """Create a merge request pipeline."""
    ref_and_commit = await find_ref(edge.projects.repos, project, merge_request_ref(number_in_path(request, "iid")))
    if ref_and_commit is None:
        raise not_found("Merge Request")
    pipeline_request = PipelineRequest(
        project=project,
        source="merge_request_event",
        ref=ref_and_commit[0],
        sha=ref_and_commit[1],
        user_id=caller.user.id,
    )
    return describe_pipeline(edge, await start_pipeline(edge, pipeline_request), project)


@routes.get("/api/v4/projects/{id}/merge_requests/{iid}/pipelines", in_project(Level.REPORTER))
async def list_for_merge_request(edge: Edge, request: Request, project: Project) -> Paged[PipelineSummaryShape]:
    """List the pipelines of a merge request."""
    ref = merge_request_ref(number_in_path(request, "iid"))
    page = page_of(request)
    pipelines, total = await edge.store.pipelines.list_pipelines(project.id, page, PipelineFilter(ref=ref))
    return Paged([pipeline_summary(pipeline, project, edge.settings.url) for pipeline in pipelines], total, page)


@routes.post("/api/remuda/v1/projects/{id}/pipelines", in_project(Level.DEVELOPER), takes=NewPipelineRequest)
async def create_chosen(edge: Edge, request: Request, caller: Caller, project: Project) -> PipelineShape:
    """Create a pipeline, with options that GitLab lacks, such as a choice of jobs."""
    params = await parameters(request, NewPipelineRequest, limit_bytes=FILE_LIMIT_BYTES)
    if params.source not in SOURCES:
        raise bad_parameter(f"source does not have a valid value; expected one of {', '.join(sorted(SOURCES))}")
    for key, value in (*params.variables.items(), *params.predefined.items()):
        check_variable(key, value)
    try:
        ref, sha = await _ref_and_commit(edge, project, params)
        pipeline = await edge.pipelines.start(_pipeline_request(project, params, ref, sha, caller.user.id))
    except MistakesError as error:
        mistakes = [mistake_view(mistake) for mistake in error.mistakes]
        raise ApiError(400, {"message": str(error), "mistakes": mistakes}) from None
    except InvalidError as error:
        raise ApiError(400, {"message": str(error), "mistakes": []}) from None
    return describe_pipeline(edge, pipeline, project)


async def _ref_and_commit(edge: Edge, project: Project, params: NewPipelineRequest) -> tuple[str, str]:
    repos = edge.projects.repos
    if not params.sha:
        ref_and_commit = await find_ref(repos, project, params.ref)
        if ref_and_commit is None:
            raise InvalidError(f"there is no branch or tag {params.ref!r}; push it first")
        return ref_and_commit
    if candidates(params.ref) != (params.ref,):
        raise InvalidError(f"ref {params.ref!r}: with a sha it must be a full name, such as refs/heads/main")
    # `commit` caches the commit, which the next calls need, too.
    commit = await repos.commit(project.repo_path, params.sha)
    if commit is None or commit.sha != params.sha:
        raise InvalidError(f"there is no commit {params.sha!r}; push it first, and give its full id")
    return params.ref, params.sha


def _pipeline_request(
    project: Project, params: NewPipelineRequest, ref: str, sha: str, user_id: int
) -> PipelineRequest:
    pipeline_request = PipelineRequest(
        project=project,
        source=params.source,
        # Rules see the source that the caller gives; identity tokens contain the true origin.
        origin="api",
        ref=ref,
        sha=sha,
        variables=params.variables,
        file_variables=frozenset(params.file_variables),
        inputs=params.inputs,
        text=params.text,
        choice=(
            Choice(jobs=params.jobs, stages=params.stages, with_needs=params.with_needs)
            if params.jobs or params.stages
            else None
        ),
        changes_since=params.changes_since,
        predefined=params.predefined,
        user_id=user_id,
    )
    overrides = {name: getattr(params, name) for name in ("file", "before_sha") if getattr(params, name)}
    return msgspec.structs.replace(pipeline_request, **overrides)


def mistake_view(mistake: Mistake) -> View:
    return msgspec.structs.asdict(mistake)
