"""One compilation in the cell, in a thread of its own: what the repository tells, the facts, the compiled file.

Decided here: what a merge request is called and compared with, which commit a push changed files since, and where the
pipeline file is found. Everything here blocks, so `remuda.cell.pipelines.creation`, the only caller, runs it beside the
loop.

Invariant: rules are judged with the same variables that jobs get later.
"""

from collections.abc import Mapping

import msgspec

from remuda.cell.core.payload.predefined_variables import REGISTRY, is_literal, of_pipeline, of_project
from remuda.cell.core.pipelines.creation import PARENT, merge_request_iid, new_pipeline, variables_for_expansion
from remuda.cell.errors import InvalidError, TooLargeError
from remuda.cell.git.port import Reader
from remuda.cell.pipelines.included_files import FILE_LIMIT_BYTES, CellSources, Outside, TreeFiles, changed_files
from remuda.cell.pipelines.lint import Linted, lint
from remuda.cell.values import Pipeline, ProjectVariable
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.pipeline import Facts, compile_pipeline
from remuda.pipeline import Pipeline as Compiled
from remuda.pipeline.facts import NO_SHA
from remuda.pipeline.job_selection import ChoiceError, choose
from remuda.pipeline.predefined_variables import (
    OPEN_MERGE_REQUESTS,
    SOURCE_BRANCH,
    TARGET_BRANCH,
    of_merge_request,
    of_tag,
)
from remuda.pipeline.rules.globs import normal_path

_HEADS, _MERGE_REQUESTS = "refs/heads/", "refs/merge-requests"
_DIFF_BASE = "CI_MERGE_REQUEST_DIFF_BASE_SHA"
_MAX_OPEN = 4


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the store and the commit say about a request, gathered before."""

    variables: tuple[ProjectVariable, ...]
    of_commit: Mapping[str, str]
    of_user: Mapping[str, str] = {}
    """Who wants the pipeline."""
    of_merge_request: Mapping[str, str]
    """What the last pipeline of the merge request was told about it."""
    default_branch: str
    url: str
    """The cell's public address."""
    registry: str = ""
    """Where images of the cell's projects are, as their names begin."""
    now: float


def compile_request(
    request: PipelineRequest, known: RequestFacts, reading: Reader, outside: Outside
) -> tuple[Pipeline, Compiled] | None:
    """The pipeline as it would be stored, and its compiled file; None when the commit has no such file.

    PipelineError with the file's mistakes, InvalidError when it cannot be read or lacks what was chosen.
    """
    text = _text(request, reading)
    if text is None:
        return None
    pipeline = describe_pipeline(request, known, reading)
    found = compile_pipeline(
        text,
        file=request.file,
        facts=_facts(request, known, pipeline, reading),
        sources=CellSources(reading, request.project.repo_path, request.sha, outside),
        inputs=request.inputs,
    )
    choice = request.choice
    if choice is None or found.skipped is not None:
        return pipeline, found
    try:
        chosen = choose(found, jobs=choice.jobs, stages=choice.stages, with_needs=choice.with_needs)
    except ChoiceError as error:
        raise InvalidError(str(error)) from None
    return pipeline, chosen


def lint_request(request: PipelineRequest, known: RequestFacts, reading: Reader, outside: Outside) -> Linted | None:
    """What would come of the file; None when the commit has no such file, InvalidError when it cannot be read."""
    text = _text(request, reading)
    if text is None:
        return None
    return lint(
        text,
        file=request.file,
        facts=_facts(request, known, describe_pipeline(request, known, reading), reading),
        sources=CellSources(reading, request.project.repo_path, request.sha, outside),
        inputs=request.inputs,
    )


def describe_pipeline(request: PipelineRequest, known: RequestFacts, reading: Reader) -> Pipeline:
    """The pipeline with everything that the repository tells about it."""
    repo, told = request.project.repo_path, {**known.of_commit, **known.of_user}
    told["CI_DEFAULT_BRANCH"] = known.default_branch
    pipeline = new_pipeline(request, default_branch=known.default_branch, predefined={}, now=known.now)
    if pipeline.merge_request_iid is not None:
        told |= _merge_request(request, known, reading, pipeline.merge_request_iid)
    elif pipeline.tag:
        told |= of_tag(reading.tag_message(repo, pipeline.ref))
    elif pipeline.ref != known.default_branch:
        heads = reading.refs_at(repo, request.sha, _MERGE_REQUESTS)
        numbers = sorted(int(ref.split("/")[2]) for ref in heads if merge_request_iid(ref) is not None)
        if numbers:
            names = [f"{request.project.path}!{number}" for number in numbers[:_MAX_OPEN]]
            told[OPEN_MERGE_REQUESTS] = ",".join(names)
    if request.schedule is not None:
        told["CI_PIPELINE_SCHEDULE_DESCRIPTION"] = request.schedule.description
    # Nobody runs a pipeline in another one's name, has its jobs' tokens sent to another registry, or says which branch
    # is the protected one.
    told = {**told, **request.predefined, **known.of_user, "CI_DEFAULT_BRANCH": known.default_branch}
    told.pop(REGISTRY, None)
    of_registry = {REGISTRY: known.registry} if known.registry else {}
    return msgspec.structs.replace(pipeline, predefined=told | of_registry)


def _merge_request(request: PipelineRequest, known: RequestFacts, reading: Reader, iid: int) -> dict[str, str]:
    if request.source == PARENT and request.upstream is not None:
        above = request.upstream.pipeline.predefined
        names = [name for name in above if name.startswith("CI_MERGE_REQUEST_")]
        return {name: above[name] for name in (*names, OPEN_MERGE_REQUESTS) if name in above}
    repo, default = request.project.repo_path, known.default_branch
    told = {**known.of_merge_request, **request.predefined}
    target = told.get(TARGET_BRANCH) or default
    target_sha = reading.commit(repo, _HEADS + target)
    branches = [ref.removeprefix(_HEADS) for ref in reading.refs_at(repo, request.sha, "refs/heads")]
    source = request.predefined.get(SOURCE_BRANCH) or next(
        (branch for branch in branches if branch not in (target, default)), told.get(SOURCE_BRANCH)
    )
    return of_merge_request(
        iid=iid,
        project=of_project(request.project, known.url.rstrip("/")),
        source=source or request.ref,
        target=target,
        default_branch=default,
        base_sha=(reading.merge_base(repo, target_sha, request.sha) if target_sha else None) or "",
        title=told.get("CI_MERGE_REQUEST_TITLE") or known.of_commit.get("CI_COMMIT_TITLE", ""),
        description=told.get("CI_MERGE_REQUEST_DESCRIPTION", ""),
    )


def _facts(request: PipelineRequest, known: RequestFacts, pipeline: Pipeline, reading: Reader) -> Facts:
    repo, sha = request.project.repo_path, request.sha
    own = of_pipeline(pipeline, request.project, known.url)
    variables, raw = variables_for_expansion(pipeline, known.variables)
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
        changed_files=changed_files(reading, repo, sha, _before(request, pipeline)),
        files=TreeFiles(reading, repo, sha),
    )


def _before(request: PipelineRequest, pipeline: Pipeline) -> str | None:
    """The commit since which files changed; None where GitLab takes everything as changed."""
    if request.changes_since is not None:
        return request.changes_since
    if pipeline.merge_request_iid is not None:
        return pipeline.predefined.get(_DIFF_BASE) or None
    if request.source not in ("push", PARENT) or pipeline.tag or pipeline.before_sha == NO_SHA:
        return None
    return pipeline.before_sha


def _text(request: PipelineRequest, reading: Reader) -> str | None:
    if request.text is not None:
        if len(request.text.encode(errors="replace")) > FILE_LIMIT_BYTES:
            raise InvalidError(f"the pipeline file is larger than {FILE_LIMIT_BYTES} bytes; split it")
        return request.text
    path = normal_path(request.file)
    if not path:
        raise InvalidError(f"{request.file}: the pipeline file must be inside the repository; check its path")
    try:
        content = reading.file(request.project.repo_path, request.sha, path, limit_bytes=FILE_LIMIT_BYTES)
        return content.decode() if content is not None else None
    except TooLargeError as error:
        raise InvalidError(f"{error}; move parts of it into files that it includes") from None
    except UnicodeDecodeError as error:
        raise InvalidError(f"{request.file}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
