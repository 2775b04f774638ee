"""Builds the payload that a runner gets with a job: the body of the 201 response to `POST /jobs/request`. It says what
git fetches, which artifacts the job downloads and uploads, and which cache keys it uses."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec
from msgspec.structs import replace

from remuda.cell.core.access.deploy_tokens import PREFIX as DEPLOY_PREFIX
from remuda.cell.core.payload.job_inputs import fill_inputs
from remuda.cell.core.payload.predefined_variables import REGISTRY
from remuda.cell.core.payload.secrets import with_servers
from remuda.cell.core.payload.variables import JobContext, cell_variables, find_overridden, last_wins, user_variables
from remuda.cell.values import Artifact, Job, Pipeline, Project
from remuda.model.job import FailureReason
from remuda.pipeline import JobSpec
from remuda.wire import runner_api as api
from remuda.wire.job_token import PREFIX as JOB_TOKEN_PREFIX
from remuda.wire.routable_token import REGISTERED_RUNNER_PREFIX, RUNNER_PREFIX

TOKEN_PREFIXES = ("glpat-", DEPLOY_PREFIX, RUNNER_PREFIX, REGISTERED_RUNNER_PREFIX, JOB_TOKEN_PREFIX)
"""Prefixes of tokens that the runner masks in the log, whatever their source."""

_TOKEN_USER = "gitlab-ci-token"
_FEATURES = api.PayloadFeatures(
    trace_sections=True,
    failure_reasons=[reason.value for reason in FailureReason],
    token_mask_prefixes=list(TOKEN_PREFIXES),
)


class Source(NamedTuple):
    """A job with the archive of its artifacts. Another job downloads the archive before its script starts."""

    job: Job
    archive: Artifact


def build_payload(
    context: JobContext,
    *,
    dependencies: Sequence[Source],
    token: str,
    id_tokens: Mapping[str, str],
    deploy_token: tuple[str, str] | None = None,
) -> api.JobPayload:
    """Build the payload of a job. `deploy_token`: user name and token of the project's deploy token for jobs."""
    spec, pipeline = fill_inputs(context.spec, context.job.inputs), context.pipeline
    repo_url = _repo_url(context.public_url, context.project, token)
    registry = pipeline.predefined.get(REGISTRY)
    tokens = [api.Variable(key=name, value=value, masked=True, raw=True) for name, value in id_tokens.items()]
    own = user_variables(context)
    ours = [*cell_variables(context), *_secrets(token, repo_url, registry), *_deploy_variables(deploy_token)]
    settings = {variable.key: variable.value for variable in own}
    return api.JobPayload(
        id=context.job.id,
        token=token,
        allow_git_fetch=settings.get("GIT_STRATEGY", context.project.build_git_strategy) != "clone",
        job_info=_job_info(context.job, context.project, pipeline.user_id),
        git_info=_git_info(pipeline, repo_url, _depth(settings.get("GIT_DEPTH"), context.project)),
        runner_info=api.RunnerTimeout(timeout=context.timeout),
        variables=last_wins([*ours, *own, *tokens]),
        steps=[] if spec.run else _steps(spec, context.timeout),
        hooks=list(spec.hooks),
        image=spec.image,
        services=list(spec.services),
        artifacts=[api.Artifact(**upload) for upload in spec.artifacts.uploads()] if spec.artifacts else [],
        cache=[_cache(cache, pipeline, context.project) for cache in spec.cache],
        credentials=[_credentials(registry, token)] if registry else [],
        dependencies=[_dependency(source, token) for source in dependencies],
        features=_FEATURES,
        secrets=with_servers(spec, settings),
        run=msgspec.json.encode(spec.run).decode() if spec.run else msgspec.UNSET,
        remuda={"predefined": find_overridden(ours, [*own, *tokens])},
    )


def _job_info(job: Job, project: Project, user_id: int) -> api.JobInfo:
    return api.JobInfo(
        id=job.id,
        name=job.name,
        stage=job.stage,
        pipeline_id=job.pipeline_id,
        project_id=project.id,
        project_name=project.name,
        project_full_path=project.path,
        namespace_id=project.namespace_id,
        root_namespace_id=project.group_ids[-1] if project.group_ids else project.namespace_id,
        organization_id=project.organization_id,
        user_id=user_id,
        time_in_queue_seconds=max((job.leased_at or 0) - (job.pending_at or job.leased_at or 0), 0),
    )


def _git_info(pipeline: Pipeline, repo_url: str, depth: int) -> api.GitInfo:
    """Return what git fetches: the ref `refs/pipelines/<id>` and, except for a merge request, the branch or tag of the
    pipeline. With `depth` 0 (the whole history): `refs/pipelines/<id>`, and all branches and tags."""
    own = f"refs/pipelines/{pipeline.id}"
    name = pipeline.ref if depth else "*"
    branch, tag = f"+refs/heads/{name}:refs/remotes/origin/{name}", f"+refs/tags/{name}:refs/tags/{name}"
    refspecs = [branch, tag] if not depth else [tag] if pipeline.tag else [branch]
    if depth and pipeline.merge_request_iid is not None:
        refspecs = []
    return api.GitInfo(
        repo_url=repo_url,
        ref=pipeline.ref,
        sha=pipeline.sha,
        before_sha=pipeline.before_sha,
        ref_type="tag" if pipeline.tag else "branch",
        refspecs=[f"+{own}:{own}", *refspecs],
        depth=depth,
        protected=pipeline.protected,
    )


def ref_of(payload: api.JobPayload) -> str | None:
    """Return the full ref name that a job fetches; None if all branches and tags, a name that no ref has if none."""
    info = payload.git_info
    return f"refs/{'tags' if info.ref_type == 'tag' else 'heads'}/{info.ref}" if info.depth else None


def without_ref(payload: api.JobPayload) -> api.JobPayload:
    """Return the payload for a pipeline whose branch or tag was deleted: git fetches only `refs/pipelines/<id>`."""
    return replace(payload, git_info=replace(payload.git_info, refspecs=payload.git_info.refspecs[:1]))


def for_other_runners(payload: api.JobPayload) -> api.JobPayload:
    """Return the payload for runners such as gitlab-runner: without `predefined`, which only Remuda's manager reads."""
    remuda = payload.remuda if isinstance(payload.remuda, dict) else {}
    rest = {key: value for key, value in remuda.items() if key != "predefined"}
    return replace(payload, remuda=rest or msgspec.UNSET)


def _depth(text: str | None, project: Project) -> int:
    """Parse GIT_DEPTH; 0 means the whole history. Without it, or if it is invalid (the runner then prints an error),
    the project's setting counts."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) else project.ci_default_git_depth


def _steps(spec: JobSpec, timeout: int) -> list[api.ScriptStep]:
    steps = [api.ScriptStep(name="script", script=list(spec.script), timeout=timeout)]
    if spec.after_script:
        after = list(spec.after_script)
        steps.append(
            api.ScriptStep(name="after_script", script=after, timeout=timeout, when="always", allow_failure=True)
        )
    return steps


def _cache(cache: Mapping[str, Any], pipeline: Pipeline, project: Project) -> dict[str, Any]:
    """Return the cache settings with a suffix on the keys: `protected` for a protected ref (unless the cache has
    `unprotect`), else `non_protected`. So users who may not push to protected refs cannot change their caches. There
    is no suffix if the project's setting `ci_separated_caches` is off."""
    if not project.ci_separated_caches:
        return {key: value for key, value in cache.items() if key != "unprotect"}
    suffix = "protected" if pipeline.protected and not cache.get("unprotect") else "non_protected"
    sent = {key: value for key, value in cache.items() if key != "unprotect"}
    fallbacks = [f"{key}-{suffix}" for key in cache.get("fallback_keys", ())]
    return {**sent, "key": f"{cache['key']}-{suffix}", "fallback_keys": fallbacks}


def _dependency(source: Source, token: str) -> api.Dependency:
    file = api.ArtifactsFile(filename=source.archive.filename, size=source.archive.size)
    return api.Dependency(id=source.job.id, name=source.job.name, token=token, artifacts_file=file)


def _credentials(registry: str, token: str) -> dict[str, Any]:
    return {"type": "registry", "url": registry, "username": _TOKEN_USER, "password": token}


def _secrets(token: str, repo_url: str, registry: str | None) -> list[api.Variable]:
    """Return the variables that contain the job token and, if there is a `registry`, the user name and password to log
    in to it. In CI_REPOSITORY_URL only the token is masked, not the whole value."""
    of_registry = [
        api.Variable(key="CI_REGISTRY_USER", value=_TOKEN_USER, public=True),
        api.Variable(key="CI_REGISTRY_PASSWORD", value=token, masked=True),
    ]
    return [
        api.Variable(key="CI_JOB_TOKEN", value=token, masked=True),
        api.Variable(key="CI_REPOSITORY_URL", value=repo_url),
        *(of_registry if registry else ()),
    ]


def _deploy_variables(deploy_token: tuple[str, str] | None) -> list[api.Variable]:
    if deploy_token is None:
        return []
    username, token = deploy_token
    return [
        api.Variable(key="CI_DEPLOY_USER", value=username, public=True, raw=True),
        api.Variable(key="CI_DEPLOY_PASSWORD", value=token, masked=True, raw=True),
    ]


def _repo_url(public_url: str, project: Project, token: str) -> str:
    server = urlsplit(public_url.rstrip("/"))
    return f"{server.scheme}://{_TOKEN_USER}:{token}@{server.netloc}{server.path}/{quote(project.path)}.git"
