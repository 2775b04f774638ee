"""`ci/lint` in GitLab's form: checks a pipeline file for this project.

If the rules exclude all jobs, the file is valid with a warning; with `dry_run` that is an error, because no pipeline
would start. Remuda adds `mistakes`, each with file, line and column, and `left_out`: the jobs that rules exclude, with
the reason."""

import asyncio
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request

from remuda.cell.errors import InvalidError
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import caller_of
from remuda.cell.http.edge.bodies import parameters
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import not_found
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.pipeline_create import FILE_LIMIT_BYTES, mistake_view
from remuda.cell.http.gitlab.views import View
from remuda.cell.pipelines.lint import Included, Linted, lint
from remuda.cell.projects.refs import default_branch, find_ref
from remuda.cell.values import Project
from remuda.cell.values.people import Level
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.pipeline import Facts, JobSpec, MemorySources
from remuda.pipeline.facts import NO_SHA

routes = Routes()


class Content(msgspec.Struct, kw_only=True):
    with_nul: ClassVar[tuple[str, ...]] = ("content",)
    """Its mistake has a line and a column."""

    content: str
    dry_run: bool = False
    include_jobs: bool = False
    ref: str = ""
    dry_run_ref: str = ""


class Stored(msgspec.Struct, kw_only=True):
    content_ref: str = ""
    sha: str = ""
    dry_run: bool = False
    include_jobs: bool = False
    ref: str = ""
    dry_run_ref: str = ""


class LintShape(Shape, kw_only=True):
    valid: bool
    errors: list[str]
    warnings: list[str] = msgspec.field(default_factory=list)
    mistakes: list[dict[str, Any]] = msgspec.field(default_factory=list)
    merged_yaml: str | UnsetType | None = UNSET
    left_out: list[dict[str, str]] | UnsetType = UNSET
    includes: list[dict[str, Any]] | UnsetType = UNSET
    jobs: list[dict[str, Any]] | UnsetType = UNSET


@routes.post("/api/v4/projects/{id}/ci/lint", in_project(Level.DEVELOPER), takes=Content, status=200)
async def lint_content(edge: Edge, request: Request, project: Project) -> LintShape:
    """Check the pipeline file in the request."""
    params = await parameters(request, Content, limit_bytes=FILE_LIMIT_BYTES)
    pipeline_request = await _request_for(edge, request, project, params)
    return await _answer(edge, msgspec.structs.replace(pipeline_request, text=params.content), params)


@routes.get("/api/v4/projects/{id}/ci/lint", in_project(Level.REPORTER))
async def lint_stored(edge: Edge, request: Request, project: Project, params: Stored) -> LintShape:
    """Check the pipeline file of a commit."""
    pipeline_request = await _request_for(edge, request, project, params)
    if content_ref := params.content_ref or params.sha:
        sha = await edge.projects.repos.resolve(project.repo_path, content_ref)
        if sha is None:
            raise not_found("Commit")
        pipeline_request = msgspec.structs.replace(pipeline_request, sha=sha)
    return await _answer(edge, pipeline_request, params)


async def _request_for(edge: Edge, request: Request, project: Project, params: Content | Stored) -> PipelineRequest:
    """Pipeline request to check: a push to the ref in `params` or default branch; ApiError 404 if it is missing."""
    name = params.dry_run_ref or params.ref or default_branch(edge.projects.repos, project)
    ref_and_commit = await find_ref(edge.projects.repos, project, name)
    if ref_and_commit is None and (params.dry_run_ref or params.ref):
        raise not_found("Reference")
    ref, sha = ref_and_commit or (f"refs/heads/{name}", NO_SHA)
    return PipelineRequest(project=project, source="push", ref=ref, sha=sha, user_id=caller_of(request).user.id)


async def _answer(edge: Edge, pipeline_request: PipelineRequest, params: Content | Stored) -> LintShape:
    try:
        linted = await _lint(edge, pipeline_request)
    except InvalidError as error:
        return LintShape(valid=False, errors=[str(error)])
    view = _view(linted, is_dry_run=params.dry_run)
    view.includes = [_include_view(edge, included, pipeline_request) for included in linted.included]
    if params.include_jobs:
        view.jobs = [_job_view(spec) for spec in linted.compiled.jobs] if linted.compiled else []
    return view


async def _lint(edge: Edge, pipeline_request: PipelineRequest) -> Linted:
    if pipeline_request.sha != NO_SHA or pipeline_request.text is None:
        return await edge.pipelines.lint(pipeline_request)
    # An empty repository has no file to include, and none for a rule to check.
    return await asyncio.to_thread(
        lint, pipeline_request.text, file=pipeline_request.file, facts=Facts(), sources=MemorySources(), inputs={}
    )


def _view(linted: Linted, *, is_dry_run: bool) -> LintShape:
    errors = [str(mistake) for mistake in linted.mistakes]
    warnings = [str(warning) for warning in linted.warnings]
    compiled = linted.compiled
    if compiled is not None and compiled.skipped is not None:
        (errors if is_dry_run else warnings).append(f"Pipeline will not run for the selected ref: {compiled.skipped}")
    return LintShape(
        valid=not errors,
        errors=errors,
        warnings=warnings,
        merged_yaml=linted.merged,
        mistakes=[mistake_view(mistake) for mistake in linted.mistakes],
        left_out=[{"name": job.name, "reason": job.reason} for job in compiled.left_out] if compiled else [],
    )


def _include_view(edge: Edge, included: Included, pipeline_request: PipelineRequest) -> View:
    raw = included.location if included.kind == "remote" else None
    if included.kind == "local":
        path = quote(included.location, safe="")
        files = f"{edge.settings.url}/api/v4/projects/{pipeline_request.project.id}/repository/files"
        raw = f"{files}/{path}/raw?ref={pipeline_request.sha}"
    return {
        "type": included.kind,
        "location": included.location,
        "blob": None,
        "raw": raw,
        "extra": {"project": included.project, "ref": included.ref} if included.kind == "file" else {},
        "context_project": pipeline_request.project.path,
        "context_sha": pipeline_request.sha,
    }


def _job_view(spec: JobSpec) -> View:
    """JSON values for a job in a lint response. `before_script` is empty: its commands are part of `script`."""
    return {
        "name": spec.name,
        "stage": spec.stage,
        "before_script": [],
        "script": list(spec.script),
        "after_script": list(spec.after_script),
        "tag_list": list(spec.tags),
        "environment": spec.environment.name if spec.environment else None,
        "when": spec.when,
        "allow_failure": spec.allow_failure,
        "needs": None
        if spec.needs is None
        else [{"name": need.job, "artifacts": need.artifacts} for need in spec.needs],
        "only": None,
        "except": None,
    }
