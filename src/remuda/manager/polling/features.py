"""Creates the `info` object that the manager sends to servers: its version, platform and supported features.

A feature is reported as supported only if it is implemented and tested, because a server assigns only jobs that need no
other features."""

import platform
from collections.abc import Mapping

from remuda import __version__
from remuda.manager.config.values import WITH_CONTAINERS
from remuda.wire.runner_api import FEATURES, MANAGER_NAME, RunnerInfo

IMPLEMENTED = frozenset(
    {
        "variables",
        "shared",
        "artifacts",
        "cache",
        "fallback_cache_keys",
        "upload_multiple_artifacts",
        "upload_raw_artifacts",
        "refspecs",
        "masking",
        "raw_variables",
        "artifacts_exclude",
        "multi_build_steps",
        "trace_reset",
        "trace_checksum",
        "trace_size",
        "vault_secrets",
        "cancelable",
        "return_exit_code",
        "cancel_gracefully",
        "two_phase_job_commit",
    }
)

OF_CONTAINERS = frozenset(
    {
        "image",
        "services",
        "service_variables",
        "service_multiple_aliases",
        "image_executor_opts",
        "service_executor_opts",
    }
)
"""Features of runners with containers only."""
OF_DRIVERS = frozenset({"image", "services"})
"""Features that a driver of the custom executor gets."""
OF_STEPS = frozenset({"native_steps_integration"})
"""Features of runners that run the steps of `run` themselves: all but those of the custom executor, whose driver gets
scripts only."""

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "i686": "386"}


def runner_info(
    *,
    executor: str,
    has_containers: bool = False,
    labels: Mapping[str, str] | None = None,
    capacity: int | None = None,
) -> RunnerInfo:
    """Return the `info` object for the server; `labels` are those of the configuration. A cell divides its demand for
    machines among managers in proportion to `capacity`, the number of jobs that the manager can run at a time.
    `has_containers`: jobs may run in containers, although the executor is another one."""
    return RunnerInfo(
        name=MANAGER_NAME,
        version=__version__,
        revision=__version__,
        platform=platform.system().lower(),
        architecture=_ARCHITECTURES.get(platform.machine(), platform.machine()),
        executor=executor,
        shell="bash",
        features={
            feature: feature in IMPLEMENTED
            or ((has_containers or executor in WITH_CONTAINERS) and feature in OF_CONTAINERS)
            or feature in (OF_DRIVERS if executor == "custom" else OF_STEPS)
            for feature in FEATURES
        },
        config=None if capacity is None else {"capacity": capacity},
        labels=dict(labels) if labels else None,
    )
