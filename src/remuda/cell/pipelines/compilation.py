"""Compiles the pipeline file for one request to create a pipeline: reads the file, collects the variables and changed
files that its rules need, and runs the compiler.

Everything here blocks, so `remuda.cell.pipelines.creation` runs it in a thread.

Invariant: rules are evaluated with the same variables that jobs get later."""

from collections.abc import Mapping

import msgspec

from remuda.cell.core.payload.predefined_variables import REGISTRY, is_literal, of_pipeline, of_project
from remuda.cell.core.pipelines.creation import PARENT, merge_request_iid, new_pipeline, variables_for_expansion
from remuda.cell.errors import InvalidError, TooLargeError
from remuda.cell.git.port import Reader
from remuda.cell.pipelines.included_files import FILE_LIMIT_BYTES, CellSources, Outside, TreeFiles, changed_files
from remuda.cell.pipelines.lint import Linted, lint
from remuda.cell.values import Pipeline, ProjectVariable
from remuda.cell.values.pipeline_requests import ListChange, PipelineRequest, Upstream
from remuda.pipeline import Facts, StartForm, compile_pipeline, read_start_form
from remuda.pipeline import Pipeline as Compiled
from remuda.pipeline.facts import DEFAULT_NEEDS_LIMIT, NO_SHA
from remuda.pipeline.job_selection import ChoiceError, choose
from remuda.pipeline.predefined_variables import (
    ASSIGNEES,
    DESCRIPTION,
    DRAFT,
    IMAGE_PROXY,
    LABELS,
    MILESTONE,
    OPEN_MERGE_REQUESTS,
    PAGES_DOMAIN,
    SOURCE_BRANCH,
    TARGET_BRANCH,
    TITLE,
    mark_draft,
    of_image_proxy,
    of_merge_request,
    of_pages,
    of_tag,
)
from remuda.pipeline.rules.globs import normal_path

_HEADS, _MERGE_REQUESTS = "refs/heads/", "refs/merge-requests"
_DIFF_BASE = "CI_MERGE_REQUEST_DIFF_BASE_SHA"
_MAX_OPEN = 4


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a compilation besides files: variables, commit, user, merge request and addresses of the cell."""

    variables: tuple[ProjectVariable, ...]
    of_commit: Mapping[str, str]
    of_user: Mapping[str, str] = {}
    """Variables of the person who starts the pipeline."""
    of_merge_request: Mapping[str, str]
    """Predefined variables of the merge request's last pipeline; empty if there is none."""
    default_branch: str
    url: str
    """The cell's public address."""
    registry: str = ""
    """The registry's host, with which the names of the projects' images begin."""
    image_proxy: str = IMAGE_PROXY
    """The beginning of the names of images that come through the dependency proxy."""
    pages_domain: str = PAGES_DOMAIN
    """The domain in the addresses of the projects' sites."""
    needs_limit: int = DEFAULT_NEEDS_LIMIT
    """How many jobs of its pipeline a job may need."""
    now: float


def compile_request(
    request: PipelineRequest, facts: RequestFacts, reader: Reader, outside: Outside
) -> tuple[Pipeline, Compiled] | None:
    """Return the pipeline as it would be stored, and the compiled pipeline file; None if the commit does not have that
    file. `outside` finds and fetches included files of other projects and web servers. Raises PipelineError with the
    mistakes in the file; InvalidError if the file cannot be read, or does not have the jobs or stages that the request
    selects."""
    text = _text(request, reader)
    if text is None:
        return None
    pipeline = describe_pipeline(request, facts, reader)
    compiled = compile_pipeline(
        text,
        file=request.file,
        facts=_facts(request, facts, pipeline, reader),
        sources=CellSources(reader, request.project.repo_path, request.sha, outside),
        inputs=request.inputs,
    )
    choice = request.choice
    if choice is None or compiled.skipped is not None:
        return pipeline, compiled
    try:
        chosen = choose(compiled, jobs=choice.jobs, stages=choice.stages, with_needs=choice.with_needs)
    except ChoiceError as error:
        raise InvalidError(str(error)) from None
    return pipeline, chosen


def lint_request(request: PipelineRequest, facts: RequestFacts, reader: Reader, outside: Outside) -> Linted | None:
    """Compile the pipeline file of a request without creating a pipeline. Mistakes are listed in the result, not
    raised. `outside` finds and fetches included files of other projects and web servers. Returns None if the commit
    does not have the file. Raises InvalidError if the file cannot be read."""
    text = _text(request, reader)
    if text is None:
        return None
    return lint(
        text,
        file=request.file,
        facts=_facts(request, facts, describe_pipeline(request, facts, reader), reader),
        sources=CellSources(reader, request.project.repo_path, request.sha, outside),
        inputs=request.inputs,
    )


def read_form(request: PipelineRequest, facts: RequestFacts, reader: Reader, outside: Outside) -> StartForm | None:
    """Return what a user may set when starting the pipeline of a request: inputs and variables of its file. Returns
    None if the commit does not have the file. Raises InvalidError if the file cannot be read."""
    text = _text(request, reader)
    if text is None:
        return None
    return read_start_form(
        text,
        file=request.file,
        facts=_facts(request, facts, describe_pipeline(request, facts, reader), reader),
        sources=CellSources(reader, request.project.repo_path, request.sha, outside),
    )


def describe_pipeline(request: PipelineRequest, facts: RequestFacts, reader: Reader) -> Pipeline:
    """Return the pipeline of a request with predefined variables, but without jobs. The pipeline file is not read."""
    repo, variables = request.project.repo_path, {**facts.of_commit, **facts.of_user}
    variables["CI_DEFAULT_BRANCH"] = facts.default_branch
    pipeline = new_pipeline(request, default_branch=facts.default_branch, predefined={}, now=facts.now)
    if pipeline.merge_request_iid is not None:
        variables |= _merge_request(request, facts, reader, pipeline.merge_request_iid)
    elif pipeline.tag:
        variables |= of_tag(reader.tag_message(repo, pipeline.ref))
    elif pipeline.ref != facts.default_branch:
        heads = reader.refs_at(repo, request.sha, _MERGE_REQUESTS)
        numbers = sorted(int(ref.split("/")[2]) for ref in heads if merge_request_iid(ref) is not None)
        if numbers:
            names = [f"{request.project.path}!{number}" for number in numbers[:_MAX_OPEN]]
            variables[OPEN_MERGE_REQUESTS] = ",".join(names)
    variables |= of_image_proxy(facts.image_proxy)
    variables |= of_pages(facts.pages_domain, path=request.project.path, server=facts.url)
    if request.upstream is not None:
        variables |= _upstream(request.upstream)
    if request.schedule is not None:
        variables["CI_PIPELINE_SCHEDULE_DESCRIPTION"] = request.schedule.description
    # A request must not set these: in whose name the pipeline runs, the registry that gets its jobs' tokens, and which
    # branch is the protected one.
    variables = {**variables, **request.predefined, **facts.of_user, "CI_DEFAULT_BRANCH": facts.default_branch}
    variables.pop(REGISTRY, None)
    of_registry = {REGISTRY: facts.registry} if facts.registry else {}
    return msgspec.structs.replace(pipeline, predefined=variables | of_registry)


def _upstream(upstream: Upstream) -> dict[str, str]:
    """Return the variables about the trigger job that started the pipeline."""
    return {
        "CI_UPSTREAM_PROJECT_ID": str(upstream.pipeline.project_id),
        "CI_UPSTREAM_PIPELINE_ID": str(upstream.pipeline.id),
        "CI_UPSTREAM_JOB_ID": str(upstream.job.id),
    }


def _merge_request(request: PipelineRequest, facts: RequestFacts, reader: Reader, iid: int) -> dict[str, str]:
    if request.source == PARENT and request.upstream is not None:
        above = request.upstream.pipeline.predefined
        names = [name for name in above if name.startswith("CI_MERGE_REQUEST_")]
        return {name: above[name] for name in (*names, OPEN_MERGE_REQUESTS) if name in above}
    repo, default = request.project.repo_path, facts.default_branch
    variables = {**facts.of_merge_request, **request.predefined}
    target = variables.get(TARGET_BRANCH) or default
    target_sha = reader.commit(repo, _HEADS + target)
    branches = [ref.removeprefix(_HEADS) for ref in reader.refs_at(repo, request.sha, "refs/heads")]
    source = request.predefined.get(SOURCE_BRANCH) or next(
        (branch for branch in branches if branch not in (target, default)), variables.get(SOURCE_BRANCH)
    )
    title = variables.get(TITLE) or facts.of_commit.get("CI_COMMIT_TITLE", "")
    if DRAFT in request.predefined:
        title = mark_draft(title)
    others = {
        name: request.merge_request_lists.get(name, ListChange()).apply(variables.get(name, ""))
        for name in (LABELS, ASSIGNEES)
    }
    return of_merge_request(
        iid=iid,
        project=of_project(request.project, facts.url.rstrip("/")),
        source=source or request.ref,
        target=target,
        default_branch=default,
        base_sha=(reader.merge_base(repo, target_sha, request.sha) if target_sha else None) or "",
        title=title,
        others={**others, **{name: variables.get(name, "") for name in (DESCRIPTION, MILESTONE)}},
    )


def _facts(request: PipelineRequest, facts: RequestFacts, pipeline: Pipeline, reader: Reader) -> Facts:
    repo, sha = request.project.repo_path, request.sha
    own = of_pipeline(pipeline, request.project, facts.url)
    variables, raw = variables_for_expansion(pipeline, facts.variables)
    literal = {name for name, value in own.items() if is_literal(name, value)}
    return Facts(
        ref=own["CI_COMMIT_REF_NAME"],
        is_tag=pipeline.tag,
        default_branch=own["CI_DEFAULT_BRANCH"],
        source=request.source,
        sha=sha,
        predefined=own,
        variables=variables,
        raw=raw | literal,
        changed_files=changed_files(reader, repo, sha, _before(request, pipeline)),
        files=TreeFiles(reader, repo, sha),
        needs_limit=facts.needs_limit,
    )


def _before(request: PipelineRequest, pipeline: Pipeline) -> str | None:
    """Return the commit with which `rules:changes` compares: the one in the request, the merge base of a merge request,
    else the branch's commit before the push. None (all files count as changed) for a new branch, a tag, or a branch
    pipeline that neither a push nor a parent pipeline started."""
    if request.changes_since is not None:
        return request.changes_since
    if pipeline.merge_request_iid is not None:
        return pipeline.predefined.get(_DIFF_BASE) or None
    if request.source not in ("push", PARENT) or pipeline.tag or pipeline.before_sha == NO_SHA:
        return None
    return pipeline.before_sha


def _text(request: PipelineRequest, reader: Reader) -> str | None:
    if request.text is not None:
        if len(request.text.encode(errors="replace")) > FILE_LIMIT_BYTES:
            raise InvalidError(f"the pipeline file is larger than {FILE_LIMIT_BYTES} bytes; split it")
        return request.text
    path = normal_path(request.file)
    if not path:
        raise InvalidError(f"{request.file}: the pipeline file must be inside the repository; check its path")
    try:
        content = reader.file(request.project.repo_path, request.sha, path, limit_bytes=FILE_LIMIT_BYTES)
        return content.decode() if content is not None else None
    except TooLargeError as error:
        raise InvalidError(f"{error}; move parts of it into files that it includes") from None
    except UnicodeDecodeError as error:
        raise InvalidError(f"{request.file}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
