"""Finds the artifacts and dotenv variables that a job gets: from jobs of its own pipeline, from the newest successful
job on a ref of another project, or from a job of a parent or child pipeline. If two dotenv reports set the same
variable, the job that comes later in the pipeline wins, and a job of the own pipeline wins over a job of another one. A
job cannot start if artifacts that it needs are missing."""

from collections.abc import Callable, Sequence

import msgspec

from remuda.cell.core.access.job_token_scope import admits, explain_refusal
from remuda.cell.core.payload.payload import Source
from remuda.cell.core.payload.variables import JobContext, cell_variables, expansion, user_variables
from remuda.cell.errors import MissingDependencyError
from remuda.cell.pipelines.cross_project_access import find_reachable_project
from remuda.cell.projects.refs import split_name
from remuda.cell.store.ports import Store
from remuda.cell.values import Artifact, Family, Job, Pipeline
from remuda.cell.values.people import Level
from remuda.model.job import JobId, JobState, PipelineId
from remuda.pipeline import ExpansionError, OutsideNeed


class Dependencies(msgspec.Struct, frozen=True, kw_only=True):
    sources: tuple[Source, ...] = ()
    """Archives to download."""
    variables: dict[str, str] = {}
    outside: tuple[JobId, ...] = ()
    """Source jobs of other pipelines."""


async def find_dependencies(store: Store, context: JobContext, *, now: float) -> Dependencies:
    """Return the artifacts and dotenv variables that a job gets from other jobs. Raises MissingDependencyError if
    required artifacts do not exist; if they belong to another project whose job token settings do not admit the project
    of this job; or if the user who started the pipeline has no access to that project at `now` (wall clock)."""
    outside = await _list_outside(store, context, now)
    artifacts = [*outside, *await _list_in_pipeline(store, context.job)]
    return Dependencies(
        sources=tuple(Source(job, file) for job, files in artifacts for file in files if file.type == "archive"),
        variables=_merge_dotenv(artifacts),
        outside=tuple(job.id for job, _ in outside),
    )


async def dotenv_variables(store: Store, job: Job, family: Family | None = None) -> dict[str, str]:
    """Return the variables that a job gets from dotenv reports of its pipeline (`family`, if already read). Raises
    MissingDependencyError if artifacts that the job gets were erased, deleted or have expired."""
    return _merge_dotenv(await _list_in_pipeline(store, job, family))


JobFiles = tuple[Job, Sequence[Artifact]]


def _merge_dotenv(artifacts: Sequence[JobFiles]) -> dict[str, str]:
    reports = [file.variables for _, files in artifacts for file in files if file.type == "dotenv"]
    return {name: value for report in reports for name, value in report.items()}


async def _list_in_pipeline(store: Store, job: Job, family: Family | None = None) -> list[JobFiles]:
    """Return the jobs of its pipeline (`family`, if already read) whose artifacts `job` gets, each with its artifacts.
    Raises MissingDependencyError if those were erased, deleted or have expired."""
    if not job.artifacts_from:
        return []
    family = family or await store.pipelines.load_family(job.pipeline_id)
    names = frozenset(job.artifacts_from)
    sources = [source for source in family.jobs if source.name in names] if family else []
    for source in sources:
        if source.erased or source.artifacts_gone:
            what = "were erased" if source.erased else "have expired or were deleted"
            raise MissingDependencyError(f'the artifacts of job "{source.name}" {what}; run that job again')
    return [(source, await store.jobs.list_artifacts(source.id)) for source in sources]


async def _list_outside(store: Store, context: JobContext, now: float) -> list[JobFiles]:
    needs = [need for need in context.spec.outside_needs if need.job and need.artifacts]
    if not needs:
        return []
    expand = expansion([*cell_variables(context), *user_variables(context)]).expand
    artifacts: list[JobFiles] = []
    for need in needs:
        try:
            artifacts.append(await _load_outside(store, context, need, expand, now))
        except MissingDependencyError:
            if not need.optional:
                raise
    return artifacts


async def _load_outside(
    store: Store, context: JobContext, need: OutsideNeed, expand: Callable[[str], str], now: float
) -> JobFiles:
    """Return the job of another pipeline or project that a need names, with its artifacts. Raises
    MissingDependencyError if there are none."""
    try:
        expanded = OutsideNeed(
            job=expand(need.job), project=expand(need.project), ref=expand(need.ref), pipeline=expand(need.pipeline)
        )
    except ExpansionError as error:
        raise MissingDependencyError(f'"{need.job}" in `needs` of this job {error}; use shorter variables') from None
    if need.pipeline:
        job = await _find_in_related_pipeline(store, context, expanded)
    else:
        job = await _find_in_project(store, context, expanded, now)
    files = await store.jobs.list_artifacts(job.id)
    if not files or job.erased or job.artifacts_gone:
        raise MissingDependencyError(
            f"{_describe(expanded)} has no artifacts, and this job needs them; run that job again"
        )
    return job, files


async def _find_in_project(store: Store, context: JobContext, need: OutsideNeed, now: float) -> Job:
    project = await find_reachable_project(
        store, context.pipeline.user_id, context.project, need.project, Level.REPORTER, now
    )
    if project is None:
        raise MissingDependencyError(
            f'this job needs artifacts of project "{need.project}", which does not exist; check the path, and that '
            "whoever starts the pipeline is a member of it"
        )
    if not admits(project, context.project, is_reading=True):
        raise MissingDependencyError(f"this job needs artifacts, and {explain_refusal(project, context.project)}")
    ref, is_tag = await split_name(store.projects, project.id, need.ref)
    job = await store.jobs.find_newest_success(project.id, ref, need.job, tag=is_tag)
    if job is None:
        raise MissingDependencyError(
            f"{_describe(need)} has never succeeded, and this job needs its artifacts; run that job first"
        )
    return job


async def _find_in_related_pipeline(store: Store, context: JobContext, need: OutsideNeed) -> Job:
    number = need.pipeline if need.pipeline.isascii() and need.pipeline.isdigit() and len(need.pipeline) <= 18 else ""
    other = await store.pipelines.load_family(PipelineId(int(number))) if number else None
    if other is None or await _root(store, other.pipeline) != await _root(store, context.pipeline):
        raise MissingDependencyError(
            f'this job needs artifacts of pipeline "{need.pipeline}", which is neither a parent nor a child of its own '
            "pipeline; pass the number of one, such as PARENT_PIPELINE_ID: $CI_PIPELINE_ID"
        )
    job = next((job for job in other.jobs if job.name == need.job and job.state is JobState.SUCCESS), None)
    if job is None:
        raise MissingDependencyError(
            f"{_describe(need)} has not succeeded, and this job needs its artifacts; run that job first"
        )
    return job


async def _root(store: Store, pipeline: Pipeline) -> PipelineId:
    """Return the id of the topmost parent of a child pipeline; for other pipelines their own id."""
    while pipeline.is_child and pipeline.upstream_pipeline_id is not None:
        upstream = await store.pipelines.load_pipeline(pipeline.upstream_pipeline_id)
        if upstream is None:
            break
        pipeline = upstream
    return pipeline.id


def _describe(need: OutsideNeed) -> str:
    where = f"pipeline {need.pipeline}" if need.pipeline else f'project "{need.project}" on "{need.ref}"'
    return f'job "{need.job}" of {where}'
