"""Runner features that a job needs, by GitLab's rules. Without a needed feature a runner would silently run the job
wrongly, so the job fails with `runner_unsupported` instead. The cell creates releases itself, so no runner needs
`multi_build_steps`. A separate module, because decisions in `core` are pure and the module that uses it does I/O."""

from collections.abc import Mapping

from remuda.cell.core.payload.variables import JobContext


def features_of(context: JobContext) -> dict[str, str]:
    """Return the runner features that a job needs, each with the reason for messages, such as `artifacts:exclude`."""
    spec = context.spec
    artifacts = spec.artifacts
    reasons = {
        "upload_multiple_artifacts": "artifacts:reports" if artifacts and artifacts.reports else "",
        "artifacts_exclude": "artifacts:exclude" if artifacts and artifacts.exclude else "",
        "refspecs": "the ref of a merge request" if context.pipeline.merge_request_iid is not None else "",
        "return_exit_code": "exit codes in retry or allow_failure"
        if spec.retry_exit_codes or spec.allow_failure_exit_codes
        else "",
        "fallback_cache_keys": "cache:fallback_keys" if any(cache.get("fallback_keys") for cache in spec.cache) else "",
        "vault_secrets": "secrets of a vault" if any("vault" in secret for secret in spec.secrets.values()) else "",
    }
    return {feature: reason for feature, reason in reasons.items() if reason}


def missing_features(context: JobContext, features: Mapping[str, bool]) -> str | None:
    """Return an error message that lists the features which the runner lacks for a job; None if it has all."""
    missing = [
        f"{feature} (for {reason})" for feature, reason in features_of(context).items() if not features.get(feature)
    ]
    if not missing:
        return None
    return f"the runner that got it does not have the feature {', '.join(missing)}; use tags that select a newer runner"
