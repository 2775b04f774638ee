"""What a runner gets with a job: the 201 of `POST /jobs/request`, from what the cell knows.

Decided here: which variables a job has and whose value wins, what git fetches, how long the job may take, whose
artifacts it downloads. `$NAME` in values is left alone, because expansion is the runner's work. Dispatch calls it
for every hand-out.
"""

import json
import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from msgspec.structs import replace

from remuda import __version__
from remuda.cell.values import ORGANIZATION_ID, USER_ID, Artifact, Job, Pipeline, Project, ProjectVariable, Runner
from remuda.lib.clock import rfc3339
from remuda.model.job import FailureReason
from remuda.model.progress import When
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
    predefined = _predefined(job, pipeline, project, runner, public_url, timeout) + _secrets(token, repo_url)
    return api.JobPayload(
        id=job.id,
        token=token,
        allow_git_fetch=settings.get("GIT_STRATEGY") != "clone",
        job_info=_job_info(job, project),
        git_info=_git_info(pipeline, repo_url, _depth(settings.get("GIT_DEPTH"))),
        runner_info=api.RunnerTimeout(timeout=timeout),
        variables=_last_wins(predefined + given),
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


def _predefined(
    job: Job, pipeline: Pipeline, project: Project, runner: Runner, public_url: str, timeout: int
) -> list[api.Variable]:
    server = urlsplit(public_url)
    scheme = server.scheme or "http"
    namespace, _, name = project.path.rpartition("/")
    base = public_url.rstrip("/")
    project_url = f"{base}/{project.path}"
    values = {
        "CI": "true",
        "GITLAB_CI": "true",
        "CI_JOB_ID": str(job.id),
        "CI_JOB_URL": f"{project_url}/-/jobs/{job.id}",
        "CI_JOB_NAME": job.name,
        "CI_JOB_NAME_SLUG": _slug(job.name),
        "CI_JOB_STAGE": job.stage,
        "CI_JOB_STARTED_AT": rfc3339(job.leased_at or job.created_at),
        "CI_JOB_TIMEOUT": str(timeout),
        "CI_NODE_TOTAL": "1",
        "CI_PIPELINE_ID": str(pipeline.id),
        "CI_PIPELINE_IID": str(pipeline.iid),
        "CI_PIPELINE_SOURCE": pipeline.source,
        "CI_PIPELINE_URL": f"{project_url}/-/pipelines/{pipeline.id}",
        "CI_PIPELINE_CREATED_AT": rfc3339(pipeline.created_at),
        "CI_PROJECT_ID": str(project.id),
        "CI_PROJECT_NAME": name,
        "CI_PROJECT_TITLE": project.name,
        "CI_PROJECT_PATH": project.path,
        "CI_PROJECT_PATH_SLUG": _slug(project.path),
        "CI_PROJECT_NAMESPACE": namespace,
        "CI_PROJECT_ROOT_NAMESPACE": namespace.partition("/")[0],
        "CI_PROJECT_URL": project_url,
        "CI_DEFAULT_BRANCH": project.default_branch,
        "CI_CONFIG_PATH": ".gitlab-ci.yml",
        "CI_COMMIT_SHA": pipeline.sha,
        "CI_COMMIT_SHORT_SHA": pipeline.sha[:8],
        "CI_COMMIT_BEFORE_SHA": pipeline.before_sha,
        "CI_COMMIT_REF_NAME": pipeline.ref,
        "CI_COMMIT_REF_SLUG": _slug(pipeline.ref),
        "CI_COMMIT_REF_PROTECTED": "true" if pipeline.protected else "false",
        "CI_COMMIT_TAG" if pipeline.tag else "CI_COMMIT_BRANCH": pipeline.ref,
        "CI_SERVER_URL": base,
        "CI_SERVER_HOST": server.hostname or "",
        "CI_SERVER_PORT": str(server.port or (443 if scheme == "https" else 80)),
        "CI_SERVER_PROTOCOL": scheme,
        "CI_SERVER_NAME": "Remuda",
        "CI_SERVER_VERSION": __version__,
        "CI_API_V4_URL": f"{base}/api/v4",
        "CI_RUNNER_ID": str(runner.id),
        "CI_RUNNER_DESCRIPTION": runner.description,
        "CI_RUNNER_TAGS": json.dumps(runner.tags),
        "GITLAB_USER_ID": str(USER_ID),
        "GITLAB_USER_LOGIN": "root",
        "GITLAB_USER_NAME": "Administrator",
        "GITLAB_USER_EMAIL": f"root@{server.hostname or 'localhost'}",
    }
    if job.when is When.MANUAL:
        values["CI_JOB_MANUAL"] = "true"
    return [api.Variable(key=key, value=value, public=True) for key, value in values.items()]


def _repo_url(public_url: str, project: Project, token: str) -> str:
    server = urlsplit(public_url.rstrip("/"))
    return f"{server.scheme}://{_TOKEN_USER}:{token}@{server.netloc}{server.path}/{quote(project.path)}.git"


def _slug(text: str) -> str:
    """Fit for host names: lower case, 63 characters at most, only letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]", "-", text.lower())[:63].strip("-")
