"""What a runner's configuration asks of the scaler: its groups, limits and policies, in the scaler's own values.

Decided here: which runners have machines created for them, what missing keys mean, how a runner is called in what is
kept of its machines (the same after its token was renewed), and which settings cannot work. `config_checks` asks for
the last, the `autoscaled` environment for the rest. Nothing is opened but the file of a key.
"""

import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from remuda.lib.durations import in_seconds
from remuda.manager.autoscaler_config import AutoscalerConfig, ConnectorConfig, FallbackConfig, as_autoscaler
from remuda.manager.config_values import WITH_MACHINES, RunnerConfig
from remuda.manager.errors import ConfigError
from remuda.taskscaler.policy import PolicyRule, mistakes

if TYPE_CHECKING:
    from remuda.fleeting.port import Connector
    from remuda.taskscaler.loop import FleetSetup, GroupSetup
    from remuda.taskscaler.values import Limits

DOCKER_MACHINE = "docker+machine"
FAILURE_THRESHOLD = 3
ACQUIRE_SECONDS = 900.0
UPDATE_SECONDS = 60.0
EXPECTING_SECONDS = 2.0
DELETION_RETRY_SECONDS = 60.0
SHUTDOWN_RETRIES, SHUTDOWN_INTERVAL_SECONDS = 3, 10.0
MOST_SHUTDOWN_SECONDS = 25.0
"""The whole manager has 30 seconds to stop where nothing else is configured."""
_SPANS = (
    "instance_acquire_timeout",
    "update_interval",
    "update_interval_when_expecting",
    "deletion_retry_interval",
    "shutdown_deletion_interval",
)
_NUMBERS = ("capacity_per_instance", "max_use_count", "max_instances", "failure_threshold")


def is_autoscaled(runner: RunnerConfig) -> bool:
    """Whether machines are created for its jobs; those of a list are not."""
    return runner.executor in WITH_MACHINES and not runner.remuda.machines


def autoscaler_of(runner: RunnerConfig) -> AutoscalerConfig:
    """The section that counts, in the newer words."""
    if runner.executor == DOCKER_MACHINE:
        return as_autoscaler(runner.machine, limit=runner.limit)
    return runner.autoscaler


def runner_key(runner: RunnerConfig) -> str:
    """What a runner is called in files and tags: by its id or name at its server, so that a new token changes nothing.

    It stands for one server: another one may have a runner of the same number.
    """
    name = str(runner.id) if runner.id else runner.name or runner.short_token
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:40] or "runner"
    server = hashlib.sha256(f"{runner.url.rstrip('/')}\0{name}".encode()).hexdigest()[:6]
    return f"{plain}-{server}"


def owner_of(runner: RunnerConfig, system_id: str) -> str:
    """Whose its machines are, as their tags say."""
    return f"{system_id}/{runner_key(runner)}"


def rules_of(runner: RunnerConfig) -> tuple[PolicyRule, ...]:
    """Its policies."""
    return tuple(
        PolicyRule(
            periods=policy.periods,
            timezone=policy.timezone,
            idle_count=policy.idle_count,
            idle_seconds=None if policy.idle_time == "" else in_seconds(policy.idle_time),
            scale_factor=policy.scale_factor,
            scale_factor_limit=policy.scale_factor_limit,
            preemptive=policy.preemptive_mode,
            is_machine=runner.executor == DOCKER_MACHINE,
        )
        for policy in autoscaler_of(runner).policy
    )


def group_names(runner: RunnerConfig) -> tuple[str, ...]:
    """What its groups are called, in the order of their use: by their plugins, with a number where one comes again."""
    wanted = [_plugin_name(autoscaler_of(runner).plugin)]
    wanted += [one.name or _plugin_name(one.plugin) for one in runner.remuda.fallback]
    seen: Counter[str] = Counter()
    names = []
    for name in wanted:
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return tuple(names)


def plugins_of(runner: RunnerConfig) -> dict[str, str]:
    """The plugin of each group, as it is configured."""
    plugins = [autoscaler_of(runner).plugin, *(one.plugin for one in runner.remuda.fallback)]
    return dict(zip(group_names(runner), plugins, strict=True))


def fleet_setup(runner: RunnerConfig, *, system_id: str) -> "FleetSetup":
    """All of it. ConfigError: a key cannot be read."""
    from remuda.taskscaler.loop import FleetSetup

    scaling = autoscaler_of(runner)
    return FleetSetup(
        name=runner_key(runner),
        owner=owner_of(runner, system_id),
        groups=_groups(runner, scaling, owner_of(runner, system_id)),
        rules=rules_of(runner),
        acquire_seconds=in_seconds(scaling.instance_acquire_timeout) or ACQUIRE_SECONDS,
        update_seconds=in_seconds(scaling.update_interval) or UPDATE_SECONDS,
        expecting_seconds=in_seconds(scaling.update_interval_when_expecting) or EXPECTING_SECONDS,
        delete_on_shutdown=scaling.delete_instances_on_shutdown,
        shutdown_deletion_seconds=in_seconds(scaling.shutdown_deletion_interval) or SHUTDOWN_INTERVAL_SECONDS,
        shutdown_deletion_retries=scaling.shutdown_deletion_retries or SHUTDOWN_RETRIES,
        shutdown_seconds=MOST_SHUTDOWN_SECONDS,
    )


def _groups(runner: RunnerConfig, scaling: AutoscalerConfig, owner: str) -> "tuple[GroupSetup, ...]":
    from remuda.fleeting.port import Settings
    from remuda.taskscaler.loop import GroupSetup

    first, *others = group_names(runner)
    made = [
        GroupSetup(
            name=first,
            config=scaling.plugin_config,
            settings=Settings(connector=_connector(scaling.connector_config), owner=owner),
            limits=_limits(runner, scaling, None),
            use_external_addr=scaling.connector_config.use_external_addr,
        )
    ]
    for name, fallback in zip(others, runner.remuda.fallback, strict=True):
        login = fallback.connector_config or scaling.connector_config
        made.append(
            GroupSetup(
                name=name,
                config=fallback.plugin_config,
                settings=Settings(connector=_connector(login), owner=owner),
                limits=_limits(runner, scaling, fallback),
                use_external_addr=login.use_external_addr,
            )
        )
    return tuple(made)


def _limits(runner: RunnerConfig, scaling: AutoscalerConfig, fallback: FallbackConfig | None) -> "Limits":
    from remuda.taskscaler.values import Limits

    own = fallback or scaling
    is_machine = runner.executor == DOCKER_MACHINE
    return Limits(
        max_instances=own.max_instances,
        capacity_per_instance=own.capacity_per_instance or scaling.capacity_per_instance or 1,
        max_use_count=own.max_use_count or scaling.max_use_count,
        max_creating=runner.machine.max_growth_rate if is_machine and fallback is None else 0,
        throttle_limit=own.scale_throttle.limit,
        throttle_burst=own.scale_throttle.burst,
        failure_threshold=own.failure_threshold or scaling.failure_threshold or FAILURE_THRESHOLD,
        deletion_retry_seconds=in_seconds(scaling.deletion_retry_interval) or DELETION_RETRY_SECONDS,
    )


def _connector(login: ConnectorConfig) -> "Connector":
    from remuda.fleeting.port import KEEPALIVE_SECONDS, TIMEOUT_SECONDS, Connector

    try:
        key = _key(login)
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
        keepalive_seconds=in_seconds(login.keepalive) or KEEPALIVE_SECONDS,
        timeout_seconds=in_seconds(login.timeout) or TIMEOUT_SECONDS,
    )


def _key(login: ConnectorConfig) -> bytes:
    return Path(login.key_path).expanduser().read_bytes() if login.key_path else b""


def check_scaling(runner: RunnerConfig, where: str) -> None:
    """Refuse what could never create a machine, or nothing could be told of."""
    scaling = autoscaler_of(runner)
    at = f"{where}.machine" if runner.executor == DOCKER_MACHINE else f"{where}.autoscaler"
    if runner.executor == DOCKER_MACHINE:
        for key, value in (
            ("MachineDriver", runner.machine.machine_driver),
            ("MachineName", runner.machine.machine_name),
        ):
            if not value:
                raise ConfigError(
                    f"{at}.{key}: is missing; Docker Machine creates nothing without it. Machines that exist already "
                    "are listed in [[runners.remuda.machines]]"
                )
        if "%s" not in runner.machine.machine_name:
            raise ConfigError(f"{at}.MachineName: has no %s in it, so all machines would have one name; add it")
    elif not scaling.plugin:
        raise ConfigError(
            f'{at}.plugin: is missing; name the plugin that creates machines, for example plugin = "aws". Machines '
            "that exist already are listed in [[runners.remuda.machines]] with host, user and identity_file"
        )
    for key in _SPANS:
        _span(getattr(scaling, key), f"{at}.{key}")
    for key in _NUMBERS:
        if getattr(scaling, key) < 0:
            raise ConfigError(f"{at}.{key}: {getattr(scaling, key)} is below 0")
    _check_login(scaling.connector_config, f"{at}.connector_config")
    for index, policy in enumerate(scaling.policy):
        _span(policy.idle_time, f"{at}.policy[{index}].idle_time")
        if policy.idle_count < 0:
            raise ConfigError(f"{at}.policy[{index}].idle_count: {policy.idle_count} is below 0")
    if found := mistakes(rules_of(runner), has_demand=True):
        raise ConfigError(f"{at}: {found[0]}")
    if runner.remuda.plugin_scales and runner.remuda.fallback:
        raise ConfigError(
            f"{where}.remuda.plugin_scales: a plugin that scales by itself has no groups to fall back to; remove "
            f"{where}.remuda.fallback, or plugin_scales"
        )
    for index, fallback in enumerate(runner.remuda.fallback):
        place = f"{where}.remuda.fallback[{index}]"
        if not fallback.plugin:
            raise ConfigError(f"{place}.plugin: is missing; name the plugin that creates machines for this group")
        if "/" in fallback.name:
            raise ConfigError(f"{place}.name: {fallback.name!r} has a / in it; use letters, digits and dashes")
        for key in _NUMBERS:
            if getattr(fallback, key) < 0:
                raise ConfigError(f"{place}.{key}: {getattr(fallback, key)} is below 0")
        if fallback.connector_config is not None:
            _check_login(fallback.connector_config, f"{place}.connector_config")


def doubts(runner: RunnerConfig, where: str) -> list[str]:
    """What works only with a Remuda cell, which tells how many jobs wait; a server that no machine can reach."""
    at = f"{where}.machine" if runner.executor == DOCKER_MACHINE else f"{where}.autoscaler"
    known = mistakes(rules_of(runner), has_demand=True)
    found = [
        f"{at}: on a plain GitLab, {one}" for one in mistakes(rules_of(runner), has_demand=False) if one not in known
    ]
    if (host := urlsplit(runner.url).hostname or "") in ("localhost", "::1") or host.startswith("127."):
        found.append(
            f"{where}.url: {host} is the machine itself for the machines that are created, so jobs there reach no "
            "artifacts and no sources; give an address that they can reach"
        )
    return found


def _check_login(login: ConnectorConfig, where: str) -> None:
    if login.protocol not in ("", "ssh"):
        raise ConfigError(f"{where}.protocol: {login.protocol!r} is not supported; machines are reached by ssh")
    if not 0 <= login.protocol_port < 65536:
        raise ConfigError(f"{where}.protocol_port: {login.protocol_port} is no port")
    for key in ("keepalive", "timeout"):
        _span(getattr(login, key), f"{where}.{key}")
    if login.use_static_credentials and not login.username:
        raise ConfigError(f"{where}.username: is missing; use_static_credentials needs to know who logs in")
    try:
        _key(login)
    except OSError as error:
        raise ConfigError(
            f"{where}.key_path: {login.key_path} cannot be read: {error.strerror}; name the file of a private key that "
            "the manager's user may read, or remove key_path if the plugin has keys of its own"
        ) from None


def _span(given: str | float, where: str) -> None:
    try:
        in_seconds(given)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _plugin_name(plugin: str) -> str:
    """`aws` of `fleeting-plugin-aws`, `/opt/bin/fleeting-plugin-aws` and `registry/group/aws:1.2`."""
    return Path(plugin).name.partition(":")[0].removeprefix("fleeting-plugin-") or "group"
