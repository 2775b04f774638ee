"""Builds the pipeline and jobs to store from a request and a compiled CI file. Decides by the ref whether the pipeline
is for a tag and is protected, and limits the length of a chain of pipelines in which each one starts the next."""

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from remuda.cell.core.access.protected_refs import is_protected, rules_of
from remuda.cell.core.jobs.environments import plan_environment
from remuda.cell.core.payload.predefined_variables import is_literal, of_pipeline, of_spec
from remuda.cell.errors import InvalidError, MistakesError, TooDeepError
from remuda.cell.values import NewJob, Pipeline, Project, ProjectVariable
from remuda.cell.values.jobs import EnvironmentPlan
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.model.job import PipelineId
from remuda.model.progress import waits_for_names
from remuda.model.runner import RunnerType
from remuda.pipeline import ExpansionError, JobSpec, Mistake, artifact_sources, expand, prerequisites
from remuda.pipeline import Pipeline as Compiled
from remuda.pipeline.errors import quote
from remuda.pipeline.facts import NO_SHA
from remuda.pipeline.syntax.variable_expansion import Expansion

PARENT = "parent_pipeline"
MAX_CHILD_DEPTH = 2
MAX_DEPTH = 10

_TAGS, _HEADS = "refs/tags/", "refs/heads/"
_MERGE_REQUEST = re.compile(r"refs/merge-requests/([1-9][0-9]{0,17})/head", re.ASCII)
_MAX_NAME = 255


def merge_request_iid(ref: str) -> int | None:
    """Return the number of the merge request if the ref is the head ref of one, else None."""
    match = _MERGE_REQUEST.fullmatch(ref)
    return int(match[1]) if match else None


def _depth(request: PipelineRequest) -> int:
    return request.upstream.pipeline.depth + 1 if request.upstream else request.depth


def check_depth(request: PipelineRequest, ancestors: Sequence[Pipeline]) -> None:
    """Raise TooDeepError if the chain of pipelines that started each other is too long, or child pipelines are nested
    too deeply. `ancestors` are the pipelines above the one that makes the request, nearest first."""
    if _depth(request) > MAX_DEPTH:
        raise TooDeepError(
            f"more than {MAX_DEPTH} pipelines would have started each other; check whether their trigger jobs, or jobs "
            "that call with their tokens, run in a circle"
        )
    upstream = request.upstream
    if upstream is None or request.source != PARENT:
        return
    children = 1
    for pipeline in (upstream.pipeline, *ancestors):
        if not pipeline.is_child:
            break
        children += 1
    if children > MAX_CHILD_DEPTH:
        raise TooDeepError(
            f"child pipelines may nest {MAX_CHILD_DEPTH} deep; start this one from a pipeline further up, or include "
            "its jobs"
        )


def new_pipeline(
    request: PipelineRequest, *, default_branch: str | None, predefined: Mapping[str, str], now: float
) -> Pipeline:
    """Create the pipeline of a request, before its CI file is compiled. Its ids are 0 until the store sets them."""
    iid = merge_request_iid(request.ref)
    is_tag = request.ref.startswith(_TAGS)
    name = request.ref if iid is not None else request.ref.removeprefix(_TAGS if is_tag else _HEADS)
    upstream, before_sha = request.upstream, request.before_sha
    if upstream is not None and request.source == PARENT and before_sha == NO_SHA:
        before_sha = upstream.pipeline.before_sha
    return Pipeline(
        id=PipelineId(0),
        iid=0,
        project_id=request.project.id,
        ref=name,
        tag=is_tag,
        sha=request.sha,
        # A merge request is compared with its target branch, not with its previous commit.
        before_sha=before_sha if iid is None else NO_SHA,
        source=request.source,
        origin=request.origin,
        is_text_given=request.text is not None and request.source != PARENT,
        status="created",
        created_at=now,
        updated_at=now,
        variables=dict(request.variables),
        file_variables=tuple(sorted(request.file_variables)),
        protected=iid is None and is_protected(rules_of(request.project, default_branch), request.ref),
        predefined=dict(predefined),
        file=request.file,
        merge_request_iid=iid,
        upstream_job_id=upstream.job.id if upstream else None,
        upstream_pipeline_id=upstream.pipeline.id if upstream else None,
        is_child=request.source == PARENT,
        depth=_depth(request),
        schedule_id=request.schedule.id if request.schedule else None,
        user_id=request.user_id,
        organization_id=request.project.organization_id,
        group_ids=request.project.group_ids,
        closed_to=_unused_runners(request.project),
    )


def _unused_runners(project: Project) -> tuple[str, ...]:
    """Return the types of runners that may not run jobs of the project."""
    enabled = {
        RunnerType.INSTANCE: project.shared_runners_enabled,
        RunnerType.GROUP: project.group_runners_enabled,
    }
    return tuple(kind.value for kind, is_enabled in enabled.items() if not is_enabled)


def variables_for_expansion(
    pipeline: Pipeline, variables: Iterable[ProjectVariable]
) -> tuple[dict[str, str], frozenset[str]]:
    """Return the variables that replace `$NAME` in the CI file (stored ones, overridden by those of the pipeline), and
    the names of raw variables, whose values are not expanded. Only a protected pipeline gets protected variables."""
    allowed = {row.key: row for row in variables if pipeline.protected or not row.protected}.values()
    values = {row.key: row.value for row in allowed} | pipeline.variables
    return values, frozenset(row.key for row in allowed if row.raw and row.key not in pipeline.variables)


def with_outcome(pipeline: Pipeline, compiled: Compiled) -> Pipeline:
    """Return the pipeline with the name and the `auto_cancel` settings from `workflow` of its compiled CI file, and
    the warnings about the file."""
    return replace(
        pipeline,
        name=compiled.name,
        cancel_on_new_commit=compiled.cancel_on_new_commit,
        cancel_on_job_failure=compiled.cancel_on_job_failure,
        yaml_warnings="\n".join(map(str, compiled.warnings)) or None,
    )


def new_jobs(
    specs: Sequence[JobSpec], pipeline: Pipeline, project: Project, variables: Iterable[ProjectVariable], url: str
) -> list[NewJob]:
    """Return the jobs to store for a new pipeline. `specs` are the compiled definitions, `variables` those of the
    project, its groups and the cell, `url` is the cell's. Raises MistakesError if an environment or resource group gets
    too long a name by its variables, or has too many."""
    waits, sources = prerequisites(specs), artifact_sources(specs)
    predefined = of_pipeline(pipeline, project, url)
    own, raw = variables_for_expansion(pipeline, variables)
    raw |= {key for key, value in predefined.items() if is_literal(key, value)}
    jobs: list[NewJob] = []
    mistakes: list[Mistake] = []
    followed = _prerequisite_names(specs, waits)
    for spec in specs:
        environment = resource_group = ""
        plan: EnvironmentPlan | None = None
        if spec.environment is not None or spec.resource_group:
            values = {**predefined, **of_spec(spec), **spec.variables, **own}
            raw_names = raw | set(spec.raw_variables)
            try:
                key = "environment:name"
                environment = _expand_name(spec.environment.name, values, raw_names) if spec.environment else ""
                values |= of_spec(spec, environment)
                if spec.environment and environment:
                    known = {name: value for name, value in values.items() if name != "CI_ENVIRONMENT_URL"}
                    plan = plan_environment(spec.environment, Expansion(known, raw=raw_names, keep_unknown=True))
                key = "resource_group"
                resource_group = _expand_name(spec.resource_group, values, raw_names)
            except InvalidError as error:
                file, key = spec.file or pipeline.file, f"{spec.name}:{key}"
                mistakes.append(Mistake(file=file, line=spec.line, column=1, key=key, message=str(error)))
        jobs.append(
            NewJob(
                spec=spec,
                waits_for=() if spec.needs is None else waits_for_names(waits, spec.name),
                artifacts_from=tuple(sources[spec.name]),
                resource_group=resource_group,
                environment=environment,
                environment_plan=plan,
                priority=project.priority,
                ends_alone=not (
                    spec.name in followed or resource_group or environment or spec.release or spec.coverage
                ),
            )
        )
    if mistakes:
        raise MistakesError(tuple(mistakes))
    return jobs


def _prerequisite_names(specs: Sequence[JobSpec], waits: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the names of jobs that others wait for; `waits` has for each job the names of those it waits for."""
    by_need = {name for spec in specs if spec.needs is not None for name in waits.get(spec.name, ())}
    last_stage = max((spec.stage_index for spec in specs if spec.needs is None), default=0)
    return by_need | {spec.name for spec in specs if spec.stage_index < last_stage}


def _expand_name(text: str, values: Mapping[str, str], raw: Iterable[str]) -> str:
    try:
        name = expand(text, values, raw=frozenset(raw)).strip()
    except ExpansionError as error:
        raise InvalidError(f"the name {quote(text)} {error}; use shorter variables") from None
    if len(name) > _MAX_NAME:
        raise InvalidError(f"{quote(name)} is longer than {_MAX_NAME} characters; use a shorter name")
    return name
