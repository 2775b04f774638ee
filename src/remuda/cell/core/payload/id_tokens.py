"""Claims of a job's identity token (keyword `id_tokens`). They have GitLab's names, so that services that trust
GitLab's tokens accept a cell's with the same rules. Invariant: no claim comes from a variable or another value that a
caller set, except for the environment's name and the source branch of a merge request, which is never protected."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from remuda.cell.core.payload.predefined_variables import of_pipeline, of_user, tier
from remuda.cell.core.payload.variables import JobContext
from remuda.cell.values.people import User
from remuda.pipeline.predefined_variables import SOURCE_BRANCH

_NOT_BEFORE_SECONDS = 5
"""A token is valid a little before its creation, for verifiers whose clock is behind."""


def build_claims(
    context: JobContext,
    *,
    audience: str | Sequence[str],
    token_id: str,
    now: float,
    access_level: str = "owner",
    user: User | None = None,
) -> dict[str, Any]:
    """Return all claims of an identity token. `user`, who started the pipeline, has `access_level` in the project."""
    job, pipeline, project = context.job, context.pipeline, context.project
    values = of_pipeline(replace(pipeline, predefined={}), project, context.public_url)
    values |= of_user(user) if user else {}
    issuer = context.public_url.rstrip("/")
    ref = pipeline.ref
    ref_type = "tag" if pipeline.tag else "branch"
    ref_path = f"refs/{'tags' if pipeline.tag else 'heads'}/{ref}"
    if pipeline.merge_request_iid is not None:
        # The user who pushes a merge request chooses the name of its source branch. The name of the protected branch is
        # refused, because others trust it and the commit is not on that branch.
        source = pipeline.predefined.get(SOURCE_BRANCH, ref)
        protected = {project.default_branch, pipeline.predefined.get("CI_DEFAULT_BRANCH")}
        ref = ref if source in protected else source
        ref_path = ref if ref == pipeline.ref else f"refs/heads/{ref}"
    # The file of a child pipeline may come from anywhere, even from an artifact.
    is_from_repository = not pipeline.is_child and not pipeline.is_text_given
    config = f"{issuer.partition('://')[2]}/{project.path}//{pipeline.file}@{ref_path}"
    claims: dict[str, Any] = {
        "iss": issuer,
        "sub": f"project_path:{project.path}:ref_type:{ref_type}:ref:{ref}",
        "aud": audience if isinstance(audience, str) else list(audience),
        "iat": int(now),
        "nbf": int(now) - _NOT_BEFORE_SECONDS,
        "exp": int(now) + context.timeout,
        "jti": token_id,
        "namespace_id": str(project.namespace_id),
        "namespace_path": values["CI_PROJECT_NAMESPACE"],
        "project_id": str(project.id),
        "project_path": project.path,
        "project_visibility": values["CI_PROJECT_VISIBILITY"],
        "user_id": str(pipeline.user_id),
        "user_login": values["GITLAB_USER_LOGIN"],
        "user_email": values["GITLAB_USER_EMAIL"],
        "user_access_level": access_level,
        "pipeline_id": str(pipeline.id),
        "pipeline_source": pipeline.origin or pipeline.source,
        "job_id": str(job.id),
        "ref": ref,
        "ref_type": ref_type,
        "ref_path": ref_path,
        "ref_protected": "true" if pipeline.protected else "false",
        "runner_id": context.runner.id,
        "runner_environment": "self-hosted",
        "sha": pipeline.sha,
        "ci_config_ref_uri": config if is_from_repository else None,
        "ci_config_sha": pipeline.sha if is_from_repository else None,
    }
    if job.environment and context.spec.environment is not None:
        claims["environment"] = job.environment
        claims["environment_protected"] = "false"
        claims["environment_action"] = context.spec.environment.action
        claims["deployment_tier"] = context.spec.environment.deployment_tier or tier(job.environment)
    return claims
