"""Checks the settings of runners with autoscaling. The only I/O is reading login key files.

Settings with which no machine could be created are errors; settings that may not do what their author expects cause
warnings. Each message begins with its key."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from remuda.manager.config.autoscaler import ConnectorConfig
from remuda.manager.config.docker import DockerConfig
from remuda.manager.config.fleet_setup import (
    DOCKER_MACHINE_EXECUTOR,
    autoscaler_of,
    limits_of,
    read_key,
    rules_of,
    sections_of,
)
from remuda.manager.config.value_checks import check_duration
from remuda.manager.config.values import RunnerConfig
from remuda.manager.errors import ConfigError
from remuda.taskscaler.core.periods import period
from remuda.taskscaler.core.policy import Mistake, mistakes

_SPANS = (
    "instance_acquire_timeout",
    "update_interval",
    "update_interval_when_expecting",
    "deletion_retry_interval",
    "shutdown_deletion_interval",
)
_NUMBERS = ("capacity_per_instance", "max_use_count", "max_instances", "failure_threshold")


def check_scaling(runner: RunnerConfig, where: str) -> None:
    """Raise ConfigError if no machine could be created with the settings of the runner (key `where`)."""
    scaling = autoscaler_of(runner)
    section = _section(runner, where)
    if runner.executor == DOCKER_MACHINE_EXECUTOR:
        _check_machine(runner, section)
    elif not scaling.plugin:
        raise ConfigError(
            f'{section}.plugin: is missing; name the plugin that creates machines, for example plugin = "aws". '
            "Machines that exist already are listed in [[runners.remuda.machines]] with host, user and identity_file"
        )
    for key in _SPANS:
        check_duration(getattr(scaling, key), f"{section}.{key}")
    for key in _NUMBERS:
        if getattr(scaling, key) < 0:
            raise ConfigError(f"{section}.{key}: {getattr(scaling, key)} is below 0")
    _check_login(scaling.connector_config, f"{section}.connector_config")
    for index, policy in enumerate(scaling.policy):
        check_duration(policy.idle_time, policy_key(runner, where, index, "idle_time"))
        if policy.idle_count < 0:
            raise ConfigError(f"{policy_key(runner, where, index, 'idle_count')}: {policy.idle_count} is below 0")
    for mistake in mistakes(rules_of(runner), has_demand=True):
        raise ConfigError(f"{policy_key(runner, where, mistake.policy, mistake.key)}: {mistake.text}")
    if runner.remuda.plugin_scales and runner.remuda.fallback:
        raise ConfigError(
            f"{where}.remuda.plugin_scales: a plugin that scales by itself has no groups to fall back to; remove "
            f"{where}.remuda.fallback, or plugin_scales"
        )
    _check_fallback(runner, f"{where}.remuda.fallback")


def find_doubts(runner: RunnerConfig, where: str, *, concurrent: int) -> list[str]:
    """Return warnings about valid settings that may surprise their author. `where` is the runner's key, such as
    `runners[0]`; `concurrent` is the manager's limit of jobs."""
    warnings = [*_policy_doubts(runner, where), *_runner_doubts(runner, where)]
    # 1 is the default of a new file; a higher number was chosen on purpose.
    if concurrent == 1 and (most := most_jobs(runner) or 0) > 1:
        warnings.append(f"concurrent: one job runs at a time, while machines of {where} could take {most}; raise it")
    return warnings


def policy_key(runner: RunnerConfig, where: str, index: int, key: str) -> str:
    """Return how the file names a key of a scaling policy, such as `runners[0].autoscaler.policy[1].idle_count`."""
    if runner.executor != DOCKER_MACHINE_EXECUTOR:
        return f"{where}.autoscaler.policy[{index}].{key}"
    # In the order of `as_autoscaler`: the section itself, its off-peak keys if there are any, then its list.
    off_peak = bool(runner.machine.off_peak_periods)
    has_factor = autoscaler_of(runner).policy[index].scale_factor > 0
    others = {
        "scale_factor": "IdleScaleFactor",
        "scale_factor_limit": "IdleCount",
        "idle_count": "IdleCountMin" if has_factor else "IdleCount",
    }
    name = others.get(key) or "".join(part.capitalize() for part in key.split("_"))
    if index == 0:
        return f"{where}.machine.{name}"
    if index == 1 and off_peak:
        return f"{where}.machine.OffPeak{name}"
    return f"{where}.machine.autoscaling[{index - 1 - off_peak}].{name}"


def _policy_doubts(runner: RunnerConfig, where: str) -> Iterator[str]:
    def key_of(index: int, key: str) -> str:
        return policy_key(runner, where, index, key)

    rules = rules_of(runner)
    errors: list[Mistake] = mistakes(rules, has_demand=True)
    for mistake in mistakes(rules, has_demand=False):
        if mistake not in errors:
            yield f"{key_of(mistake.policy, mistake.key)}: on a plain GitLab, {mistake.text}"
    most = most_jobs(runner)
    for index, rule in enumerate(rules):
        if most is not None and rule.idle_count > most:
            yield (
                f"{key_of(index, 'idle_count')}: there can never be room for {rule.idle_count} idle jobs: all machines "
                f"together take {most} (max_instances times capacity_per_instance); lower it, or raise those"
            )
        for line in rule.periods:
            if period(line, machine=rule.is_machine).is_never:
                yield f"{key_of(index, 'periods')}: {line!r} never comes: there is no such day"


def most_jobs(runner: RunnerConfig) -> int | None:
    """Return how many jobs can run on all machines of a runner at the same time; None: no limit."""
    limits = [limits_of(runner, section) for section in sections_of(runner)]
    if runner.remuda.plugin_scales or not all(group.max_instances for group in limits):
        return None
    return sum(group.max_instances * group.fresh for group in limits)


def _runner_doubts(runner: RunnerConfig, where: str) -> Iterator[str]:
    if (host := urlsplit(runner.url).hostname or "") in ("localhost", "::1") or host.startswith("127."):
        yield (
            f"{where}.url: {host} is the machine itself for the machines that are created, so jobs there reach no "
            "artifacts and no sources; give an address that they can reach"
        )
    if not runner.id and not runner.name:
        yield (
            f"{where}.name: is missing, and so is the id: machines belong to a runner by these, so with a new token "
            "all of them would be replaced; give it a name"
        )
    if runner.has_containers and runner.docker == DockerConfig():
        yield (
            f"{where}.executor: {runner.executor} runs jobs in containers, and there is no [runners.docker]: a job "
            "that names no image fails. Name an image for such jobs there, or use the executor instance"
        )


def _check_machine(runner: RunnerConfig, section: str) -> None:
    for key, value in (("MachineDriver", runner.machine.machine_driver), ("MachineName", runner.machine.machine_name)):
        if not value:
            raise ConfigError(
                f"{section}.{key}: is missing; Docker Machine creates nothing without it. Machines that exist already "
                "are listed in [[runners.remuda.machines]]"
            )
    if "%s" not in runner.machine.machine_name:
        raise ConfigError(f"{section}.MachineName: has no %s in it, so all machines would have one name; add it")


def _check_fallback(runner: RunnerConfig, where: str) -> None:
    for index, fallback in enumerate(runner.remuda.fallback):
        place = f"{where}[{index}]"
        if not fallback.plugin:
            raise ConfigError(f"{place}.plugin: is missing; name the plugin that creates machines for this group")
        if "/" in fallback.name:
            raise ConfigError(f"{place}.name: {fallback.name!r} has a / in it; use letters, digits and dashes")
        for key in _NUMBERS:
            if getattr(fallback, key) < 0:
                raise ConfigError(f"{place}.{key}: {getattr(fallback, key)} is below 0")
        if fallback.connector_config is not None:
            _check_login(fallback.connector_config, f"{place}.connector_config")


def _check_login(login: ConnectorConfig, where: str) -> None:
    if login.protocol not in ("", "ssh"):
        raise ConfigError(f"{where}.protocol: {login.protocol!r} is not supported; machines are reached by ssh")
    if not 0 <= login.protocol_port < 65536:
        raise ConfigError(f"{where}.protocol_port: {login.protocol_port} is no port")
    for key in ("keepalive", "timeout"):
        check_duration(getattr(login, key), f"{where}.{key}")
    if login.use_static_credentials and not login.username:
        raise ConfigError(f"{where}.username: is missing; use_static_credentials needs to know who logs in")
    try:
        read_key(login)
    except OSError as error:
        raise ConfigError(
            f"{where}.key_path: {login.key_path} cannot be read: {error.strerror}; name the file of a private key that "
            "the manager's user may read, or remove key_path if the plugin has keys of its own"
        ) from None


def _section(runner: RunnerConfig, where: str) -> str:
    return f"{where}.machine" if runner.executor == DOCKER_MACHINE_EXECUTOR else f"{where}.autoscaler"
