"""Keys of gitlab-runner's `config.toml` that Remuda knows but does not (fully) honour, and what that means.

A key listed in `REFUSED` is refused, because ignoring it would run jobs with more rights than the operator asked for.
`config.py` reads these tables; `docs/reference/config-toml.md` shows them to people.
"""

from collections.abc import Mapping

IGNORED_GLOBAL: Mapping[str, str] = {
    "sentry_dsn": "errors are logged, not sent to Sentry",
    "connection_max_age": "idle connections are closed after 90 seconds",
    "session_server": "there is no web terminal",
    "machine": "Docker Machine is not supported yet",
    "experimental": "no experimental feature of gitlab-runner is supported yet",
    "labels": "global labels are not sent; set labels in [[runners]]",
}

IGNORED_RUNNER: Mapping[str, str] = {
    "safe_directory_checkout": "git's safe.directory is left as it is",
    "clean_git_config": "the git configuration of a checkout is left as it is",
    "unhealthy_requests_limit": "after a 403 the manager asks again with a short growing wait",
    "unhealthy_interval": "after a 403 the manager asks again with a short growing wait",
    "job_status_final_update_retry_limit": "the final state is sent again for up to a day",
    "prepare_timeout": "preparing is bounded by the job's timeout",
    "get_sources_timeout": "the checkout is bounded by the job's timeout",
    "feature_flags": "feature flags of gitlab-runner have no effect",
    "custom_build_dir": "GIT_CLONE_PATH has no effect",
    "artifact": "artifact uploads have no timeout of their own",
    "monitoring": "there is no metric for acceptable queuing durations yet",
    "use_slot_cgroups": "jobs share the manager's cgroup",
    "slot_cgroup_template": "jobs share the manager's cgroup",
}

ACCEPTED_RUNNER = frozenset({"token_obtained_at", "token_expires_at", "debug_trace_disabled"})
"""Nothing follows from these: the first two are for people, and there is no debug trace that could be disabled."""

OTHER_EXECUTORS = frozenset({"ssh", "machine", "autoscaler", "custom", "instance", "kubernetes", "parallels"})
"""Sections of executors; gitlab-runner ignores those of another executor too, so nothing is said about them."""

REFUSED_GLOBAL: Mapping[str, str] = {
    "user": "jobs would run as the manager's own user instead; start the manager as that user and remove the key",
}
