"""What a runner gets with a job: the 201 of `POST /jobs/request`, from what the cell knows.

Decided here: which variables a job has and whose value wins, what git fetches, how long the job may take, whose
artifacts it downloads. `$NAME` in values is left alone, because expansion is the runner's work. Dispatch calls it
for every hand-out.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from msgspec.structs import replace

from remuda.cell.core.predefined import is_literal, of_job, of_pipeline
from remuda.cell.values import ORGANIZATION_ID, USER_ID, Artifact, Job, Pipeline, Project, ProjectVariable, Runner
from remuda.model.job import FailureReason
from remuda.pipeline import JobSpec
from remuda.wire import runner_api as api
from remuda.wire.job_token import PREFIX as JOB_TOKEN_PREFIX
from remuda.wire.routable import REGISTERED_RUNNER_PREFIX, RUNNER_PREFIX

DEFAULT_GIT_DEPTH = 20
TOKEN_PREFIXES = ("glpat-", RUNNER_PREFIX, REGISTERED_RUNNER_PREFIX, JOB_TOKEN_PREFIX)
"""Beginnings of tokens that the runner masks in the log wherever they come from."""

_TOKEN_USER = "gitlab-ci-token"


class Source(NamedTuple):
    """A job whose archive the new one downloads first."""

    job: Job
    archive: Artifact


def timeout_of(job: Job, project: Project, runner: Runner) -> int:
    """How many seconds the job may run: its own limit or the project's, within the runner's."""
    wanted = job.timeout_seconds or project.timeout_seconds
    return min(wanted, runner.maximum_timeout) if runner.maximum_timeout else wanted


def build_payload(
    *,
    job: Job,
    spec: JobSpec,
    pipeline: Pipeline,
    project: Project,
    variables: Sequence[ProjectVariable],
    runner: Runner,
    dependencies: Sequence[Source],
    public_url: str,
    token: str,
) -> api.JobPayload:
    """The whole message."""
    timeout = timeout_of(job, project, runner)
    repo_url = _repo_url(public_url, project, token)
    given = _own_variables(spec, variables, pipeline)
    settings = {variable.key: variable.value for variable in given}
    own = of_job(job=job, spec=spec, project=project, runner=runner, public_url=public_url, timeout=timeout)
    known = {**of_pipeline(pipeline, project, public_url), **own}
    predefined = [api.Variable(key=k, value=v, public=True, raw=is_literal(k, v)) for k, v in known.items()]
    return api.JobPayload(
        id=job.id,
        token=token,
        allow_git_fetch=settings.get("GIT_STRATEGY") != "clone",
        job_info=_job_info(job, project),
        git_info=_git_info(pipeline, repo_url, _depth(settings.get("GIT_DEPTH"))),
        runner_info=api.RunnerTimeout(timeout=timeout),
        variables=_last_wins(predefined + _secrets(token, repo_url) + given),
        steps=_steps(spec, timeout),
        artifacts=_artifacts(spec),
        dependencies=[_dependency(source, token) for source in dependencies],
        features=api.PayloadFeatures(
            trace_sections=True,
            failure_reasons=[reason.value for reason in FailureReason],
            token_mask_prefixes=list(TOKEN_PREFIXES),
        ),
    )


def _job_info(job: Job, project: Project) -> api.JobInfo:
    return api.JobInfo(
        id=job.id,
        name=job.name,
        stage=job.stage,
        pipeline_id=job.pipeline_id,
        project_id=project.id,
        project_name=project.name,
        project_full_path=project.path,
        namespace_id=ORGANIZATION_ID,
        root_namespace_id=ORGANIZATION_ID,
        organization_id=ORGANIZATION_ID,
        user_id=USER_ID,
        time_in_queue_seconds=max((job.leased_at or 0) - (job.pending_at or job.leased_at or 0), 0),
    )


def _git_info(pipeline: Pipeline, repo_url: str, depth: int) -> api.GitInfo:
    """The pipeline's own ref first, then its branch or tag; without a limit of depth all branches and tags."""
    own = f"refs/pipelines/{pipeline.id}"
    name = pipeline.ref if depth else "*"
    branch, tag = f"+refs/heads/{name}:refs/remotes/origin/{name}", f"+refs/tags/{name}:refs/tags/{name}"
    wanted = [branch, tag] if not depth else [tag] if pipeline.tag else [branch]
    if depth and pipeline.merge_request_iid is not None:
        wanted = []
    return api.GitInfo(
        repo_url=repo_url,
        ref=pipeline.ref,
        sha=pipeline.sha,
        before_sha=pipeline.before_sha,
        ref_type="tag" if pipeline.tag else "branch",
        refspecs=[f"+{own}:{own}", *wanted],
        depth=depth,
        protected=pipeline.protected,
    )


def ref_of(payload: api.JobPayload) -> str | None:
    """The branch or tag that the job fetches by its name; None when it fetches all that there are."""
    info = payload.git_info
    return f"refs/{'tags' if info.ref_type == 'tag' else 'heads'}/{info.ref}" if info.depth else None


def without_ref(payload: api.JobPayload) -> api.JobPayload:
    """The same job without its branch or tag, which is gone; the pipeline's own ref, the first one, has the commit."""
    return replace(payload, git_info=replace(payload.git_info, refspecs=payload.git_info.refspecs[:1]))


def _depth(text: str | None) -> int:
    """The number of commits to fetch; 0 means all. A value that is no number is the runner's to complain about."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) else DEFAULT_GIT_DEPTH


def _steps(spec: JobSpec, timeout: int) -> list[api.ScriptStep]:
    steps = [api.ScriptStep(name="script", script=list(spec.script), timeout=timeout)]
    if spec.after_script:
        after = list(spec.after_script)
        steps.append(
            api.ScriptStep(name="after_script", script=after, timeout=timeout, when="always", allow_failure=True)
        )
    return steps


def _artifacts(spec: JobSpec) -> list[api.Artifact]:
    if spec.artifacts is None:
        return []
    return [
        api.Artifact(
            name=spec.artifacts.name or None,
            untracked=spec.artifacts.untracked,
            paths=list(spec.artifacts.paths),
            exclude=list(spec.artifacts.exclude) or None,
            when=spec.artifacts.when,
            expire_in=spec.artifacts.expire_in or None,
            artifact_type="archive",
            artifact_format="zip",
        )
    ]


def _dependency(source: Source, token: str) -> api.Dependency:
    file = api.ArtifactsFile(filename=source.archive.filename, size=source.archive.size)
    return api.Dependency(id=source.job.id, name=source.job.name, token=token, artifacts_file=file)


def _own_variables(spec: JobSpec, variables: Sequence[ProjectVariable], pipeline: Pipeline) -> list[api.Variable]:
    """What people gave: the file's, over it the project's, over it those the pipeline was started with."""
    return [
        *(api.Variable(key=key, value=value, public=True) for key, value in spec.variables.items()),
        *(
            api.Variable(key=each.key, value=each.value, masked=each.masked, file=each.file, raw=each.raw)
            for each in variables
            if pipeline.protected or not each.protected
        ),
        *(api.Variable(key=key, value=value) for key, value in pipeline.variables.items()),
    ]


def _last_wins(variables: list[api.Variable]) -> list[api.Variable]:
    return list({variable.key: variable for variable in variables}.values())


def _secrets(token: str, repo_url: str) -> list[api.Variable]:
    """Variables with the job token in them. The address is not masked as a whole: the token in it is."""
    return [
        api.Variable(key="CI_JOB_TOKEN", value=token, masked=True),
        api.Variable(key="CI_REGISTRY_USER", value=_TOKEN_USER, public=True),
        api.Variable(key="CI_REGISTRY_PASSWORD", value=token, masked=True),
        api.Variable(key="CI_REPOSITORY_URL", value=repo_url),
    ]


def _repo_url(public_url: str, project: Project, token: str) -> str:
    server = urlsplit(public_url.rstrip("/"))
    return f"{server.scheme}://{_TOKEN_USER}:{token}@{server.netloc}{server.path}/{quote(project.path)}.git"
