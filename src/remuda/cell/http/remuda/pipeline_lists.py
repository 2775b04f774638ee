"""Remuda's own calls about the pipelines of a project: a list with duration, user and commit, the artifacts of all jobs
of a pipeline, and what a user may set when starting one."""

from msgspec.structs import asdict
from starlette.requests import Request

from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import Caller
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.paging import KEYSET, Paged
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.pipeline_create import describe_pipeline, ref_of
from remuda.cell.http.gitlab.pipelines import LISTED, find_page
from remuda.cell.http.gitlab.views import PipelineShape, time_text
from remuda.cell.values import Pipeline, Project
from remuda.cell.values.people import Level
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.pipeline import StartForm

_ROOT = "/api/remuda/v1/projects/{id}"
routes = Routes()


class PipelineEntryShape(PipelineShape, kw_only=True):
    """A pipeline with the title of its commit."""

    commit_title: str


class PipelineFileShape(Shape, kw_only=True):
    """An artifact or report of a job of the pipeline."""

    job_id: int
    job: str
    type: str
    filename: str
    format: str
    size: int
    expires_at: str | None


@routes.get(f"{_ROOT}/pipelines", in_project(Level.REPORTER), query=LISTED | KEYSET)
async def list_with_details(edge: Edge, request: Request, project: Project) -> Paged[PipelineEntryShape]:
    """List the pipelines of a project with duration, user and commit title."""
    pipelines, total, page = await find_page(edge, request, project)
    return Paged([_describe(edge, pipeline, project) for pipeline in pipelines], total, page)


def _describe(edge: Edge, pipeline: Pipeline, project: Project) -> PipelineEntryShape:
    title = pipeline.predefined.get("CI_COMMIT_TITLE", "")
    return PipelineEntryShape(**asdict(describe_pipeline(edge, pipeline, project)), commit_title=title)


@routes.get(f"{_ROOT}/pipelines/{{pipeline_id}}/artifacts", in_project(Level.REPORTER))
async def list_artifacts(edge: Edge, pipeline: Pipeline) -> list[PipelineFileShape]:
    """List the artifacts and reports of the newest attempts of a pipeline's jobs."""
    family = await edge.store.pipelines.load_family(pipeline.id)
    names = {job.id: job.name for job in family.jobs} if family else {}
    return [
        PipelineFileShape.of(artifact, job=names[artifact.job_id], expires_at=time_text(artifact.expires_at))
        for artifact in await edge.store.jobs.list_artifacts_of(names)
    ]


@routes.get(f"{_ROOT}/pipeline_form", in_project(Level.DEVELOPER), query={"ref": str})
async def show_form(edge: Edge, request: Request, caller: Caller, project: Project) -> StartForm:
    """Show the inputs and described variables of the pipeline file of a branch or tag."""
    ref, sha = await ref_of(edge, project, request.query_params.get("ref", ""))
    user_id = caller.user.id
    return await edge.pipelines.read_form(
        PipelineRequest(project=project, source="web", ref=ref, sha=sha, user_id=user_id)
    )
