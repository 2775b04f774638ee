"""Checks the values of a configuration: each runner by itself, then all together. Every error is a ConfigError that
begins with the key. The only I/O is reading key files for the login to created machines."""

import re
from itertools import pairwise
from urllib.parse import urlsplit

from remuda.lib.durations import parse_duration
from remuda.manager.config.custom import check as check_custom
from remuda.manager.config.docker import check as check_docker
from remuda.manager.config.ssh import check_machines, check_ssh
from remuda.manager.config.values import BY_JOB, EXECUTORS, WITH_MACHINES, ManagerConfig, RunnerConfig, listen_address
from remuda.manager.errors import ConfigError
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.sizes import parse_size
from remuda.steps.errors import PolicyError

LEAST_UID = 1000
"""Lower numbers are system users."""
LEAST_SLOT_BYTES = 16 << 20
MOST_SLOTS = 1_000_000
"""A larger number is a typing error."""
LOG_LEVELS = {"debug": "debug", "info": "info", "warn": "warning", "warning": "warning", "error": "error"}
LOG_LEVELS |= {"fatal": "error", "panic": "error"}
LOG_FORMATS = {"runner": "auto", "text": "text", "json": "json"}


def check_runner(runner: RunnerConfig, where: str) -> None:
    """Raise ConfigError if a value is invalid. `where` is the runner's key, such as `runners[0]`."""
    if not runner.url:
        raise ConfigError(f"{where}.url: is missing; give the server's address, for example https://gitlab.example.com")
    address = urlsplit(runner.url)
    if address.scheme not in ("http", "https") or not address.netloc:
        raise ConfigError(f"{where}.url: {runner.url!r} is no http or https address")
    if not runner.token:
        raise ConfigError(f"{where}.token: is missing; create a runner on the server and put its glrt- token here")
    _check_executor(runner, where)
    for key in ("limit", "request_concurrency", "output_limit"):
        if getattr(runner, key) < 0:
            raise ConfigError(f"{where}.{key}: {getattr(runner, key)} is below 0")
    if bool(runner.tls_cert_file) != bool(runner.tls_key_file):
        raise ConfigError(f"{where}: tls-cert-file and tls-key-file go together; one of them is missing")
    for entry in runner.environment:
        if not re.match(r"[A-Za-z_][A-Za-z0-9_]*=", entry):
            raise ConfigError(f"{where}.environment: {entry!r} is not of the form NAME=value")
    for key in ("prepare_timeout", "get_sources_timeout"):
        check_duration(getattr(runner, key), f"{where}.{key}")
    check_duration(runner.artifact.upload_timeout, f"{where}.artifact.upload_timeout")
    for number, duration in enumerate(runner.monitoring.job_queuing_durations):
        check_duration(duration.threshold, f"{where}.monitoring.job_queuing_durations[{number}].threshold")
    _check_own(runner, where)
    if runner.has_slot_cgroups and runner.slot_cgroup_template and "${slot}" not in runner.slot_cgroup_template:
        raise ConfigError(f"{where}.slot_cgroup_template: has no ${{slot}} in it, so all slots would share one")
    if ".." in runner.slot_cgroup_template.split("/"):
        raise ConfigError(f"{where}.slot_cgroup_template: leads out of the machine's control groups")


def check_whole(config: ManagerConfig) -> None:
    """Raise ConfigError if a global key is invalid or two runners conflict."""
    if config.concurrent < 1:
        raise ConfigError(f"concurrent: {config.concurrent} would never run a job; give at least 1")
    if config.concurrent > MOST_SLOTS:
        raise ConfigError(f"concurrent: {config.concurrent} is more than any machine runs; give at most {MOST_SLOTS}")
    for key in ("check_interval", "shutdown_timeout"):
        if getattr(config, key) < 0:
            raise ConfigError(f"{key}: {getattr(config, key)} is below 0")
    check_duration(config.remuda.drain_timeout, "remuda.drain_timeout")
    if config.log_level not in LOG_LEVELS:
        raise ConfigError(f"log_level: {config.log_level!r} is none of {', '.join(LOG_LEVELS)}")
    if config.log_format not in LOG_FORMATS:
        raise ConfigError(f"log_format: {config.log_format!r} is none of {', '.join(LOG_FORMATS)}")
    _check_tokens(config)
    _check_uids(config)
    _check_fleet_keys(config)
    if config.listen_address:
        try:
            listen_address(config.listen_address)
        except ValueError as error:
            raise ConfigError(f"listen_address: {error}") from None


def _check_executor(runner: RunnerConfig, where: str) -> None:
    if runner.executor not in EXECUTORS:
        problem = repr(runner.executor) if runner.executor else "is missing"
        raise ConfigError(f"{where}.executor: {problem}; write one of {', '.join(EXECUTORS)}")
    choice = runner.remuda.containers
    if choice not in ("", BY_JOB):
        raise ConfigError(f"{where}.remuda.containers: {choice!r}; write {BY_JOB!r}, or remove the key")
    if choice and runner.executor != "shell":
        raise ConfigError(
            f'{where}.remuda.containers: is for executor = "shell" only, this is {runner.executor!r}; remove the key'
        )
    if runner.may_use_containers:
        check_docker(runner.docker, f"{where}.docker")
    if runner.executor == "ssh":
        check_ssh(runner.ssh, f"{where}.ssh")
    if runner.executor == "custom":
        check_custom(runner.custom, f"{where}.custom")
    if runner.executor == "plugin" and not runner.remuda.environment.plugin:
        raise ConfigError(f"{where}.remuda.environment.plugin: is missing; name the plugin of the environment")
    if runner.executor in WITH_MACHINES:
        if runner.remuda.machines:
            check_machines(runner.remuda.machines, f"{where}.remuda.machines")
        else:
            from remuda.manager.config.scaling_checks import (
                check_scaling,  # imported here because most runners have none
            )

            check_scaling(runner, where)


def _check_own(runner: RunnerConfig, where: str) -> None:
    own = runner.remuda
    for key in ("run_as", "first_uid", "sandbox", "slot_memory", "slot_cpus", "slot_pids"):
        if runner.executor == "custom" and getattr(own, key):
            raise ConfigError(
                f"{where}.remuda.{key}: a driver of the custom executor runs as the manager's user, and keeps jobs "
                "apart itself; remove this key"
            )
    if own.run_as and own.first_uid:
        raise ConfigError(f"{where}.remuda: run_as and first_uid exclude each other; keep one")
    if own.first_uid < 0 or 0 < own.first_uid < LEAST_UID:
        raise ConfigError(
            f"{where}.remuda.first_uid: {own.first_uid} is below {LEAST_UID}, where system users are; give a higher one"
        )
    if own.signing_key and not own.signing_key.startswith("/"):
        raise ConfigError(f"{where}.remuda.signing_key: {own.signing_key!r}: give the whole path, from / on")
    for key in ("hold_failed", "hold_by_job", "agent_patience"):
        check_duration(getattr(own, key), f"{where}.remuda.{key}")
    try:
        for key in ("git_mirrors", "log_waiting_limit", "least_disk", "slot_memory"):
            parse_size(getattr(own, key), f"{where}.remuda.{key}")
    except StepError as error:
        raise ConfigError(str(error)) from None
    if 0 < own.slot_memory_bytes < LEAST_SLOT_BYTES:
        raise ConfigError(
            f"{where}.remuda.slot_memory: {own.slot_memory!r} is too little for any job; give 16m or more"
        )
    for key, least in (("slot_cpus", 0.01), ("slot_pids", 10)):
        if (value := getattr(own, key)) and value < least:
            raise ConfigError(f"{where}.remuda.{key}: {value} is too little for any job; give {least} or more")
    if own.policy:
        from remuda.steps.policy.document import (
            parse_layer,  # imported here because it is slow, and most runners have none
        )

        try:
            parse_layer(own.policy, author=f"runner {runner.name}".strip())
        except PolicyError as error:
            raise ConfigError(f"{where}.remuda.policy: {error}") from None


def check_duration(value: str | float, where: str) -> None:
    """Raise ConfigError if the value of the key `where` is not a duration."""
    try:
        parse_duration(value)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _check_tokens(config: ManagerConfig) -> None:
    """Raise ConfigError if two runners have the same server and token."""
    first: dict[tuple[str, str], int] = {}
    for index, runner in enumerate(config.runners):
        other = first.setdefault((runner.url, runner.token), index)
        if other != index:
            raise ConfigError(
                f"runners[{index}].token: the same url and token stand in runners[{other}]; "
                "use one of them, with a higher limit"
            )


def _check_uids(config: ManagerConfig) -> None:
    """Raise ConfigError if the user ids of two runners' slots (`first_uid` and following) overlap."""
    ranges = sorted(
        (runner.remuda.first_uid, runner.remuda.first_uid + (runner.limit or config.concurrent), index)
        for index, runner in enumerate(config.runners)
        if runner.remuda.first_uid
    )
    for (_, end, _), (start, _, index) in pairwise(ranges):
        if start < end:
            raise ConfigError(
                f"runners[{index}].remuda.first_uid: {start} is in use by the slots of another runner; "
                f"give {end} or more"
            )


def _check_fleet_keys(config: ManagerConfig) -> None:
    """Raise ConfigError if two runners that create machines have the same server and the same id or name."""
    keys = set()
    for index, runner in enumerate(config.runners):
        if runner.executor not in WITH_MACHINES or runner.remuda.machines:
            continue
        key = (runner.url, runner.id or runner.name or runner.token)
        if key in keys:
            raise ConfigError(
                f"runners[{index}].name: two [[runners]] that create machines are called {runner.name!r} at the same "
                "server; give each a name of its own, or the id that it has at the server"
            )
        keys.add(key)
