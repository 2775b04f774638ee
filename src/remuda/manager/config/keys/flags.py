"""Facts about `[runners.feature_flags]`, gitlab-runner's switches. Pure.

Most flags choose between two behaviours of which Remuda has one; the fact says which. Flags of Kubernetes and
PowerShell are listed so that they are not reported as misspelt.
"""

from dataclasses import replace
from typing import Any

from remuda.manager.config.keys.fact import Fact, Facts, differs, ignored, works


def _always(about: str) -> Fact:
    """A behaviour that cannot be switched off."""

    def off(value: Any) -> Fact | None:
        return None if value else differs(f"cannot be switched off: {about}")

    return replace(works(f"always so: {about}"), unless=off)


def _never(about: str) -> Fact:
    def off(value: Any) -> Fact | None:
        return None if value else works("is off")

    return replace(ignored(about), unless=off)


_KUBERNETES = _never("there is no kubernetes executor")
_WINDOWS = _never("jobs run on Linux with bash")
_STEPS = _always("every job runs as steps")

FLAGS: Facts = {
    "FF_DISABLE_AUTOMATIC_TOKEN_ROTATION": works("the manager leaves the token alone, whenever it ends", "false"),
    "FF_USE_INIT_WITH_DOCKER_EXECUTOR": works("the engine's init collects what a job leaves in its container", "false"),
    "FF_NETWORK_PER_BUILD": _always("a job with services has a network of its own"),
    "FF_TIMESTAMPS": _always("lines of the log have their time"),
    "FF_USE_ADAPTIVE_REQUEST_CONCURRENCY": works(
        "more requests are open while jobs come, fewer while none do; else always `request_concurrency`", "true"
    ),
    "FF_USE_DYNAMIC_TRACE_FORCE_SEND_INTERVAL": _always("the server says how often it wants to hear from a job"),
    "FF_GIT_URLS_WITHOUT_TOKENS": _always("the token never stands in a repository's configuration"),
    "FF_MASK_ALL_DEFAULT_TOKENS": _always("tokens are masked by their prefixes"),
    "FF_SECRET_RESOLVING_FAILS_IF_MISSING": _always("a secret that is not there fails the job"),
    "FF_CLEAN_UP_FAILED_CACHE_EXTRACT": _always("a cache is unpacked whole or not at all"),
    "FF_USE_EXPONENTIAL_BACKOFF_STAGE_RETRY": _always("what is tried again is tried after growing waits"),
    "FF_SKIP_NOOP_BUILD_STAGES": _always("steps with nothing to do are left out"),
    "FF_ENABLE_BASH_EXIT_CODE_CHECK": _always("a command of a script that fails ends it"),
    "FF_USE_NEW_BASH_EVAL_STRATEGY": _always("scripts are read by one shell"),
    "FF_USE_NATIVE_STEPS": _STEPS,
    "FF_SCRIPT_TO_STEP_MIGRATION": _STEPS,
    "FF_CONCRETE": _STEPS,
    "FF_DISABLE_UMASK_FOR_DOCKER_EXECUTOR": _always(
        "files of a checkout have the rights that the container's user needs"
    ),
    "FF_ENABLE_JOB_CLEANUP": _never("the next checkout cleans the working directory up"),
    "FF_SET_PERMISSIONS_BEFORE_CLEANUP": _always("files that a job has made unwritable are removed too"),
    "FF_USE_DIRECT_DOWNLOAD": _never("artifacts come from the server's own address, or from where it sends the step"),
    "FF_USE_FASTZIP": _never("there is one way to pack archives"),
    "FF_HASH_CACHE_KEYS": _never("keys of caches are used as they are"),
    "FF_SCRIPT_SECTIONS": _never("a job's steps are sections of its log, its lines are not"),
    "FF_LOG_IMAGES_CONFIGURED_FOR_JOB": _always("the log names image and digest"),
    "FF_USE_GIT_BUNDLE_URIS": _never("`git_mirrors` of `[runners.remuda]` saves fetching"),
    "FF_USE_GIT_NATIVE_CLONE": _never("there is one way to get sources"),
    "FF_USE_GIT_PROACTIVE_AUTH": _always("git sends its credentials with the first request"),
    "FF_USE_GITALY_CORRELATION_ID": _never("git sends no name for its requests"),
    "FF_RESOLVE_FULL_TLS_CHAIN": _never("`CI_SERVER_TLS_CA_FILE` is what `tls-ca-file` names"),
    "FF_EXPORT_HIGH_CARDINALITY_METRICS": works(
        "`gitlab_runner_job_stage_duration_seconds` is among the metrics", "false"
    ),
    "FF_ENABLE_JOB_INPUTS_INTERPOLATION": _never("inputs are put in by the server"),
    "FF_USE_JOB_ROUTER": _never("jobs are asked for at the server itself"),
    "FF_POSIXLY_CORRECT_ESCAPES": _never("scripts are handed over as files, without escapes"),
    "FF_USE_FLEETING_ACQUIRE_HEARTBEATS": _never("machines of a list have no heartbeat of a plugin's"),
    "FF_USE_DOCKER_AUTOSCALER_DIAL_STDIO": _never("the engine is used by the agent on its machine"),
    "FF_USE_LEGACY_S3_CACHE_ADAPTER": _never("there is one way to use a bucket"),
    "FF_USE_LEGACY_GCS_CACHE_ADAPTER": _never("Google's storage is not supported"),
    "FF_USE_WINDOWS_LEGACY_PROCESS_STRATEGY": _WINDOWS,
    "FF_USE_WINDOWS_JOB_OBJECT": _WINDOWS,
    "FF_USE_POWERSHELL_PATH_RESOLVER": _WINDOWS,
    "FF_DISABLE_POWERSHELL_STDIN": _WINDOWS,
    **dict.fromkeys(
        (
            "FF_USE_LEGACY_KUBERNETES_EXECUTION_STRATEGY",
            "FF_KUBERNETES_HONOR_ENTRYPOINT",
            "FF_USE_POD_ACTIVE_DEADLINE_SECONDS",
            "FF_USE_ADVANCED_POD_SPEC_CONFIGURATION",
            "FF_PRINT_POD_EVENTS",
            "FF_USE_DUMB_INIT_WITH_KUBERNETES_EXECUTOR",
            "FF_DISABLE_UMASK_FOR_KUBERNETES_EXECUTOR",
            "FF_WAIT_FOR_POD_TO_BE_REACHABLE",
            "FF_RETRIEVE_POD_WARNING_EVENTS",
        ),
        _KUBERNETES,
    ),
}
