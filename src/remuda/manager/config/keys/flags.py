"""Says how Remuda treats each of gitlab-runner's switches in `[runners.feature_flags]`. Most choose between two
behaviours, of which Remuda has only one. Flags without effect are listed so that they are not reported as unknown."""

from dataclasses import replace
from typing import Any

from remuda.manager.config.keys.fact import Fact, Facts, differs, ignored, works


def _always(about: str) -> Fact:
    def off(value: Any) -> Fact | None:
        return None if value else differs(f"cannot be switched off: {about}", there="it can")

    return replace(works(f"always on: {about}"), unless=off)


def _never(about: str) -> Fact:
    def off(value: Any) -> Fact | None:
        return None if value else works("is off")

    return replace(ignored(about), unless=off)


_KUBERNETES = _never("there is no kubernetes executor")
_WINDOWS = _never("jobs run on Linux with bash")
_STEPS = _always("every job runs as steps")

FLAGS: Facts = {
    "FF_DISABLE_AUTOMATIC_TOKEN_ROTATION": works("the manager does not renew the token of the runner", "false"),
    "FF_USE_INIT_WITH_DOCKER_EXECUTOR": works(
        "containers of jobs have the engine's init, which collects orphaned processes", "false"
    ),
    "FF_NETWORK_PER_BUILD": _always("a job with services has a network of its own"),
    "FF_TIMESTAMPS": _always("lines of the log have timestamps"),
    "FF_USE_ADAPTIVE_REQUEST_CONCURRENCY": works(
        "the number of open job requests grows while jobs arrive; if off, it is always `request_concurrency`", "true"
    ),
    "FF_USE_DYNAMIC_TRACE_FORCE_SEND_INTERVAL": _always("the server sets the interval of updates"),
    "FF_GIT_URLS_WITHOUT_TOKENS": _always("the git configuration of a repository never has the token"),
    "FF_MASK_ALL_DEFAULT_TOKENS": _always("tokens are masked by their prefixes"),
    "FF_SECRET_RESOLVING_FAILS_IF_MISSING": _always("a missing secret fails the job"),
    "FF_CLEAN_UP_FAILED_CACHE_EXTRACT": _always("a cache is extracted completely or not at all"),
    "FF_USE_EXPONENTIAL_BACKOFF_STAGE_RETRY": _always("the waits between retries grow"),
    "FF_SKIP_NOOP_BUILD_STAGES": _always("steps with nothing to do are left out"),
    "FF_ENABLE_BASH_EXIT_CODE_CHECK": _always("a failing command ends its script"),
    "FF_USE_NEW_BASH_EVAL_STRATEGY": _always("one shell reads the whole script"),
    "FF_USE_NATIVE_STEPS": _STEPS,
    "FF_SCRIPT_TO_STEP_MIGRATION": _STEPS,
    "FF_CONCRETE": _STEPS,
    "FF_DISABLE_UMASK_FOR_DOCKER_EXECUTOR": _always(
        "the user in the container has access to the files of the checkout"
    ),
    "FF_ENABLE_JOB_CLEANUP": _never("the next checkout cleans the working directory"),
    "FF_SET_PERMISSIONS_BEFORE_CLEANUP": _always("read-only files of a job are removed, too"),
    "FF_USE_DIRECT_DOWNLOAD": _never("artifacts are downloaded from the server, or from where it redirects to"),
    "FF_USE_FASTZIP": _never("there is only one archiver"),
    "FF_HASH_CACHE_KEYS": _never("cache keys are used unchanged"),
    "FF_SCRIPT_SECTIONS": _never("each step is a section of the log; script lines are not"),
    "FF_LOG_IMAGES_CONFIGURED_FOR_JOB": _always("the log shows the image and its digest"),
    "FF_USE_GIT_BUNDLE_URIS": _never("use `git_mirrors` of `[runners.remuda]` to fetch less"),
    "FF_USE_GIT_NATIVE_CLONE": _never("there is only one way to get sources"),
    "FF_USE_GIT_PROACTIVE_AUTH": _always("git sends its credentials with the first request"),
    "FF_USE_GITALY_CORRELATION_ID": _never("git sends no correlation id"),
    "FF_RESOLVE_FULL_TLS_CHAIN": _never("`CI_SERVER_TLS_CA_FILE` is the file of `tls-ca-file`"),
    "FF_EXPORT_HIGH_CARDINALITY_METRICS": works("serve the metric `gitlab_runner_job_stage_duration_seconds`", "false"),
    "FF_ENABLE_JOB_INPUTS_INTERPOLATION": _never("the server interpolates inputs"),
    "FF_USE_JOB_ROUTER": _never("jobs are requested from the server directly"),
    "FF_POSIXLY_CORRECT_ESCAPES": _never("scripts are files, without escapes"),
    "FF_USE_FLEETING_ACQUIRE_HEARTBEATS": _never("machines are checked every minute, not when a job gets one"),
    "FF_USE_DOCKER_AUTOSCALER_DIAL_STDIO": _never("the agent uses the engine on its own machine"),
    "FF_USE_LEGACY_S3_CACHE_ADAPTER": _never("there is only one S3 client"),
    "FF_USE_LEGACY_GCS_CACHE_ADAPTER": _never("Google Cloud Storage is not supported"),
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
