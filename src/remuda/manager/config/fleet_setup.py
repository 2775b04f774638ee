"""Converts a runner's autoscaling configuration to the types of the scaler (`remuda.taskscaler`, which creates and
removes machines): groups, limits and policies, with defaults. The only I/O is reading login key files."""

import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.lib.durations import parse_duration
from remuda.manager.config.autoscaler import AutoscalerConfig, ConnectorConfig, FallbackConfig, as_autoscaler
from remuda.manager.config.values import WITH_MACHINES, RunnerConfig
from remuda.manager.errors import ConfigError
from remuda.taskscaler.core.policy import PolicyRule

if TYPE_CHECKING:
    from remuda.fleeting.port import Connector
    from remuda.taskscaler.core.values import Limits
    from remuda.taskscaler.fleet.setup import FleetSetup, GroupSetup

DOCKER_MACHINE_EXECUTOR = "docker+machine"
FAILURE_THRESHOLD = 3
ACQUIRE_SECONDS = 900.0
UPDATE_SECONDS = 60.0
EXPECTING_SECONDS = 2.0
DELETION_RETRY_SECONDS = 60.0
SHUTDOWN_RETRIES, SHUTDOWN_INTERVAL_SECONDS = 3, 10.0
MOST_SHUTDOWN_SECONDS = 25.0
"""Below the default shutdown_timeout of the manager, 30 seconds."""


def is_autoscaled(runner: RunnerConfig) -> bool:
    """True if machines are created for the runner's jobs: its executor uses machines, and no list of them is
    configured."""
    return runner.executor in WITH_MACHINES and not runner.remuda.machines


def autoscaler_of(runner: RunnerConfig) -> AutoscalerConfig:
    """Return the runner's `[runners.autoscaler]` section, or its `[runners.machine]` section converted to that form."""
    if runner.executor == DOCKER_MACHINE_EXECUTOR:
        return as_autoscaler(runner.machine, limit=runner.limit)
    return runner.autoscaler


def sections_of(runner: RunnerConfig) -> list[AutoscalerConfig | FallbackConfig]:
    """Return the sections of the runner's instance groups in order of use: the main section, then the fallbacks."""
    return [autoscaler_of(runner), *runner.remuda.fallback]


def login_of(runner: RunnerConfig, section: AutoscalerConfig | FallbackConfig) -> ConnectorConfig:
    """Return the login for a group's machines. A fallback group without its own login uses that of the first group."""
    return section.connector_config or autoscaler_of(runner).connector_config


def runner_key(runner: RunnerConfig) -> str:
    """Return a runner's name in state files and in the tags of its machines at the provider. A new token changes it
    only if the runner has neither id nor name. It has a digest of the server: ids of two servers may be equal."""
    name = str(runner.id) if runner.id else runner.name or runner.short_token
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:40] or "runner"
    server = hashlib.sha256(f"{runner.url.rstrip('/')}\0{name}".encode()).hexdigest()[:6]
    return f"{plain}-{server}"


def host_key_path(folder: Path, instance: str) -> Path:
    return folder / "host-keys" / hashlib.sha256(instance.encode()).hexdigest()[:32]


def owner_of(runner: RunnerConfig, system_id: str) -> str:
    """Return the tag that marks a runner's machines at the provider. `system_id` is the manager's id."""
    return f"{system_id}/{runner_key(runner)}"


def rules_of(runner: RunnerConfig) -> tuple[PolicyRule, ...]:
    return tuple(
        PolicyRule(
            periods=policy.periods,
            timezone=policy.timezone,
            idle_count=policy.idle_count,
            idle_seconds=None if policy.idle_time == "" else parse_duration(policy.idle_time),
            scale_factor=policy.scale_factor,
            scale_factor_limit=policy.scale_factor_limit,
            preemptive=policy.preemptive_mode,
            is_machine=runner.executor == DOCKER_MACHINE_EXECUTOR,
        )
        for policy in autoscaler_of(runner).policy
    )


def group_names(runner: RunnerConfig) -> tuple[str, ...]:
    """Return the instance groups' names in order of use: by default the plugin's name, with a number if it repeats."""
    bases = [_plugin_name(autoscaler_of(runner).plugin)]
    bases += [fallback.name or _plugin_name(fallback.plugin) for fallback in runner.remuda.fallback]
    seen: Counter[str] = Counter()
    names = []
    for name in bases:
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return tuple(names)


def plugins_of(runner: RunnerConfig) -> dict[str, str]:
    plugins = [section.plugin for section in sections_of(runner)]
    return dict(zip(group_names(runner), plugins, strict=True))


def fleet_setup(runner: RunnerConfig, *, system_id: str) -> "FleetSetup":
    """Return the setup of a runner's scaler, such as limits. Raises ConfigError if a login key file is unreadable."""
    from remuda.taskscaler.fleet.setup import FleetSetup

    scaling = autoscaler_of(runner)
    return FleetSetup(
        name=runner_key(runner),
        owner=owner_of(runner, system_id),
        groups=_groups(runner, owner_of(runner, system_id)),
        rules=rules_of(runner),
        acquire_seconds=parse_duration(scaling.instance_acquire_timeout) or ACQUIRE_SECONDS,
        update_seconds=parse_duration(scaling.update_interval) or UPDATE_SECONDS,
        expecting_seconds=parse_duration(scaling.update_interval_when_expecting) or EXPECTING_SECONDS,
        delete_on_shutdown=scaling.delete_instances_on_shutdown,
        shutdown_deletion_seconds=parse_duration(scaling.shutdown_deletion_interval) or SHUTDOWN_INTERVAL_SECONDS,
        shutdown_deletion_retries=scaling.shutdown_deletion_retries or SHUTDOWN_RETRIES,
        shutdown_seconds=MOST_SHUTDOWN_SECONDS,
    )


def _groups(runner: RunnerConfig, owner: str) -> "tuple[GroupSetup, ...]":
    from remuda.fleeting.port import Settings
    from remuda.taskscaler.fleet.setup import GroupSetup

    groups = []
    for name, section in zip(group_names(runner), sections_of(runner), strict=True):
        login = login_of(runner, section)
        groups.append(
            GroupSetup(
                name=name,
                config=section.plugin_config,
                settings=Settings(connector=as_connector(login), owner=owner),
                limits=limits_of(runner, section),
                use_external_addr=login.use_external_addr,
            )
        )
    return tuple(groups)


def limits_of(runner: RunnerConfig, section: AutoscalerConfig | FallbackConfig) -> "Limits":
    from remuda.taskscaler.core.values import Limits

    scaling = autoscaler_of(runner)
    is_machine = runner.executor == DOCKER_MACHINE_EXECUTOR and isinstance(section, AutoscalerConfig)
    return Limits(
        max_instances=section.max_instances,
        capacity_per_instance=section.capacity_per_instance or scaling.capacity_per_instance or 1,
        max_use_count=section.max_use_count or scaling.max_use_count,
        max_creating=runner.machine.max_growth_rate if is_machine else 0,
        throttle_limit=section.scale_throttle.limit,
        throttle_burst=section.scale_throttle.burst,
        failure_threshold=section.failure_threshold or scaling.failure_threshold or FAILURE_THRESHOLD,
        deletion_retry_seconds=parse_duration(scaling.deletion_retry_interval) or DELETION_RETRY_SECONDS,
    )


def as_connector(login: ConnectorConfig) -> "Connector":
    """Convert login data for a plugin. Raises ConfigError for an unreadable key file, ValueError for a bad duration."""
    from remuda.fleeting.port import KEEPALIVE_SECONDS, TIMEOUT_SECONDS, Connector

    try:
        key = read_key(login)
    except OSError as error:
        raise ConfigError(f"connector_config.key_path: {login.key_path} cannot be read: {error.strerror}") from None
    return Connector(
        os=login.os,
        arch=login.arch,
        protocol=login.protocol,
        port=login.protocol_port,
        username=login.username,
        password=login.password,
        key=key,
        use_static_credentials=login.use_static_credentials,
        keepalive_seconds=parse_duration(login.keepalive) or KEEPALIVE_SECONDS,
        timeout_seconds=parse_duration(login.timeout) or TIMEOUT_SECONDS,
    )


def read_key(login: ConnectorConfig) -> bytes:
    """Return the private key for machines; empty if none is configured. Raises OSError if its file cannot be read."""
    return Path(login.key_path).expanduser().read_bytes() if login.key_path else b""


def _plugin_name(plugin: str) -> str:
    """Return a plugin's short name: `aws` for `/opt/bin/fleeting-plugin-aws` and for `registry/group/aws:1.2`."""
    return Path(plugin).name.partition(":")[0].removeprefix("fleeting-plugin-") or "group"
