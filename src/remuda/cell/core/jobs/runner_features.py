"""Which features a job needs of the runner that gets it, and what a runner lacks that asks without them.

Decided here: what in a job asks for which feature, by GitLab's rules but for releases, which the cell makes itself and
no runner needs `multi_build_steps` for. A runner says with every request what it can do; one that lacks a feature would
quietly run the job wrongly, so the job fails with `runner_unsupported` instead. Pure;
`remuda.cell.dispatch.payload_inputs` calls it.
"""

from collections.abc import Mapping

from remuda.cell.core.payload.variables import JobContext


def features_of(context: JobContext) -> dict[str, str]:
    """Features, each with what the job has that needs it."""
    spec = context.spec
    artifacts = spec.artifacts
    asks = {
        "upload_multiple_artifacts": "artifacts:reports" if artifacts and artifacts.reports else "",
        "artifacts_exclude": "artifacts:exclude" if artifacts and artifacts.exclude else "",
        "refspecs": "the ref of a merge request" if context.pipeline.merge_request_iid is not None else "",
        "return_exit_code": "exit codes in retry or allow_failure"
        if spec.retry_exit_codes or spec.allow_failure_exit_codes
        else "",
        "fallback_cache_keys": "cache:fallback_keys" if any(one.get("fallback_keys") for one in spec.cache) else "",
        "vault_secrets": "secrets of a vault" if any("vault" in secret for secret in spec.secrets.values()) else "",
    }
    return {feature: why for feature, why in asks.items() if why}


def missing_features(context: JobContext, features: Mapping[str, bool]) -> str | None:
    """What the runner that asked cannot do for this job, in words; None when it can do everything."""
    missing = [f"{feature} (for {why})" for feature, why in features_of(context).items() if not features.get(feature)]
    if not missing:
        return None
    return f"the runner that got it does not have the feature {', '.join(missing)}; give the job to a newer one by tags"
