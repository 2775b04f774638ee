"""What a job's identity token says: the claims that GitLab's have, so that trust set up for GitLab works with a cell.

Pure. `remuda.wire.id_token` signs them, the hand-out puts the token into the variable that the file names.
"""

from collections.abc import Sequence
from typing import Any

from remuda.cell.core.predefined import of_pipeline, tier
from remuda.cell.core.variables import Circumstances
from remuda.pipeline.predefined import SOURCE_BRANCH

_NOT_BEFORE_SECONDS = 5
"""A token is good a little before it was made, for clocks that are behind."""


def claims(
    of: Circumstances, *, audience: str | Sequence[str], token_id: str, now: float, access_level: str = "owner"
) -> dict[str, Any]:
    """All claims of one token. It is good as long as its job may run."""
    job, pipeline, project = of.job, of.pipeline, of.project
    known = of_pipeline(pipeline, project, of.public_url)
    namespace = known["CI_PROJECT_NAMESPACE"]
    issuer = of.public_url.rstrip("/")
    ref = pipeline.ref
    ref_type = "tag" if pipeline.tag else "branch"
    ref_path = f"refs/{'tags' if pipeline.tag else 'heads'}/{ref}"
    if pipeline.merge_request_iid is not None:
        # Whoever pushes a merge request says what its source is called. It cannot be the protected branch, which others
        # trust: the commit is none of that one's.
        source = pipeline.predefined.get(SOURCE_BRANCH, ref)
        ref = ref if source == known["CI_DEFAULT_BRANCH"] else source
        ref_path = ref if ref == pipeline.ref else f"refs/heads/{ref}"
    config = f"{issuer.partition('://')[2]}/{project.path}//{pipeline.file}@{ref_path}"
    found: dict[str, Any] = {
        "iss": issuer,
        "sub": f"project_path:{project.path}:ref_type:{ref_type}:ref:{ref}",
        "aud": audience if isinstance(audience, str) else list(audience),
        "iat": int(now),
        "nbf": int(now) - _NOT_BEFORE_SECONDS,
        "exp": int(now) + of.timeout,
        "jti": token_id,
        "namespace_id": str(project.namespace_id),
        "namespace_path": namespace,
        "project_id": str(project.id),
        "project_path": project.path,
        "project_visibility": known["CI_PROJECT_VISIBILITY"],
        "user_id": str(pipeline.user_id),
        "user_login": known["GITLAB_USER_LOGIN"],
        "user_email": known["GITLAB_USER_EMAIL"],
        "user_access_level": access_level,
        "pipeline_id": str(pipeline.id),
        "pipeline_source": pipeline.source,
        "job_id": str(job.id),
        "ref": ref,
        "ref_type": ref_type,
        "ref_path": ref_path,
        "ref_protected": "true" if pipeline.protected else "false",
        "runner_id": of.runner.id,
        "runner_environment": "self-hosted",
        "sha": pipeline.sha,
        # The file of a child may come from anywhere, even out of an artifact.
        "ci_config_ref_uri": None if pipeline.is_child else config,
        "ci_config_sha": None if pipeline.is_child else pipeline.sha,
    }
    if job.environment and of.spec.environment is not None:
        found["environment"] = job.environment
        found["environment_protected"] = "false"
        found["environment_action"] = of.spec.environment.action
        found["deployment_tier"] = of.spec.environment.deployment_tier or tier(job.environment)
    return found
