"""Whose artifacts a job gets: of its own pipeline, and of jobs elsewhere that its needs name.

Decided here: which jobs elsewhere count (the newest success on another project's ref; a success in a pipeline of the
same family), that a job whose artifacts must be there and are not cannot start, and whose variable wins when several
dotenv reports have one of the same name: that of the job that came later, and one of the own pipeline over one from
elsewhere. `remuda.cell.dispatch.payload_inputs` calls it for every hand-out, trigger jobs ask for the variables alone.
"""

from collections.abc import Sequence

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
    """What a job gets of others."""

    sources: tuple[Source, ...] = ()
    """Archives to download."""
    variables: dict[str, str] = {}
    outside: tuple[JobId, ...] = ()
    """The jobs among them that are not of its own pipeline."""


async def find_dependencies(store: Store, context: JobContext, *, now: float) -> Dependencies:
    """All of them; MissingDependencyError when one is not there that must be.

    `now` is the wall clock: what the person behind the job may read is what memberships say at this moment.
    """
    outside = await _makers_elsewhere(store, context, now)
    made = [*outside, *await _makers_here(store, context.job)]
    return Dependencies(
        sources=tuple(Source(job, one) for job, left in made for one in left if one.type == "archive"),
        variables=_variables(made),
        outside=tuple(job.id for job, _ in outside),
    )


async def dotenv_variables(store: Store, job: Job, family: Family | None = None) -> dict[str, str]:
    """The variables that the jobs whose artifacts a job gets left for it in dotenv reports."""
    return _variables(await _makers_here(store, job, family))


Made = tuple[Job, Sequence[Artifact]]


def _variables(made: Sequence[Made]) -> dict[str, str]:
    reports = [one.variables for _, left in made for one in left if one.type == "dotenv"]
    return {name: value for report in reports for name, value in report.items()}


async def _makers_here(store: Store, job: Job, family: Family | None = None) -> list[Made]:
    """The newest tries of the jobs of its own pipeline, with what they left."""
    if not job.artifacts_from:
        return []
    family = family or await store.pipelines.load_family(job.pipeline_id)
    wanted = frozenset(job.artifacts_from)
    makers = [maker for maker in family.jobs if maker.name in wanted] if family else []
    for maker in makers:
        if maker.erased or maker.artifacts_gone:
            what = "were erased" if maker.erased else "have expired or were deleted"
            raise MissingDependencyError(f'the artifacts of job "{maker.name}" {what}; run that job again')
    return [(maker, await store.jobs.list_artifacts(maker.id)) for maker in makers]


async def _makers_elsewhere(store: Store, context: JobContext, now: float) -> list[Made]:
    needs = [need for need in context.spec.outside_needs if need.job and need.artifacts]
    if not needs:
        return []
    expand = expansion([*cell_variables(context), *user_variables(context)]).expand
    made: list[Made] = []
    for need in needs:
        try:
            named = OutsideNeed(
                job=expand(need.job), project=expand(need.project), ref=expand(need.ref), pipeline=expand(need.pipeline)
            )
        except ExpansionError as error:
            raise MissingDependencyError(f"a need of this job {error}") from None
        maker = await (
            _in_pipeline(store, context, named) if need.pipeline else _in_project(store, context, named, now)
        )
        left = await store.jobs.list_artifacts(maker.id)
        if not left or maker.erased or maker.artifacts_gone:
            raise MissingDependencyError(
                f"{_words(named)} left no artifacts, and this job needs them; run that job again"
            )
        made.append((maker, left))
    return made


async def _in_project(store: Store, context: JobContext, need: OutsideNeed, now: float) -> Job:
    project = await find_reachable_project(
        store, context.pipeline.user_id, context.project, need.project, Level.REPORTER, now
    )
    if project is None:
        raise MissingDependencyError(
            f'this job needs artifacts of project "{need.project}", which is not there; check the path, and that '
            "whoever starts the pipeline is a member of it"
        )
    if not admits(project, context.project, is_reading=True):
        raise MissingDependencyError(f"this job needs artifacts, and {explain_refusal(project, context.project)}")
    ref, is_tag = await split_name(store.projects, project.id, need.ref)
    job = await store.jobs.find_newest_success(project.id, ref, need.job, tag=is_tag)
    if job is None:
        raise MissingDependencyError(
            f"{_words(need)} has never succeeded, and this job needs its artifacts; run that job first"
        )
    return job


async def _in_pipeline(store: Store, context: JobContext, need: OutsideNeed) -> Job:
    number = need.pipeline if need.pipeline.isascii() and need.pipeline.isdigit() and len(need.pipeline) <= 18 else ""
    other = await store.pipelines.load_family(PipelineId(int(number))) if number else None
    if other is None or await _root(store, other.pipeline) != await _root(store, context.pipeline):
        raise MissingDependencyError(
            f'this job needs artifacts of pipeline "{need.pipeline}", which is no parent or child of its own; '
            "pass the number of one, such as PARENT_PIPELINE_ID: $CI_PIPELINE_ID"
        )
    job = next((job for job in other.jobs if job.name == need.job and job.state is JobState.SUCCESS), None)
    if job is None:
        raise MissingDependencyError(
            f"{_words(need)} has not succeeded, and this job needs its artifacts; run that job first"
        )
    return job


async def _root(store: Store, pipeline: Pipeline) -> PipelineId:
    """The pipeline at the top of a family of parents and children."""
    while pipeline.is_child and pipeline.upstream_pipeline_id is not None:
        upstream = await store.pipelines.load_pipeline(pipeline.upstream_pipeline_id)
        if upstream is None:
            break
        pipeline = upstream
    return pipeline.id


def _words(need: OutsideNeed) -> str:
    where = f"pipeline {need.pipeline}" if need.pipeline else f'project "{need.project}" on "{need.ref}"'
    return f'job "{need.job}" of {where}'
