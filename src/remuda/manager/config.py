"""The configuration: gitlab-runner's `config.toml`, read once into frozen values before anything runs.

Decides in which order a file is read: which keys count (`config_keys`), then their types, then environment variables,
then what is wrong with the values (`config_checks`); every message has file, line and key. What is only worth a
warning: unknown keys with the nearest right name, known but unsupported ones with the effect. Nothing is opened or
called here except the file itself. `register.py` writes the file; `service.py` uses the values.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from remuda.manager.autoscaler_config import AutoscalerConfig, MachineConfig
from remuda.manager.cache_config import CacheConfig
from remuda.manager.config_checks import LOG_FORMATS, LOG_LEVELS, check_runner, check_whole
from remuda.manager.config_keys import (
    ACCEPTED_RUNNER,
    IGNORED_GLOBAL,
    IGNORED_RUNNER,
    OTHER_EXECUTORS,
    REFUSED_GLOBAL,
)
from remuda.manager.config_lines import with_line
from remuda.manager.config_values import (
    EXECUTORS,
    SECTIONS,
    EnvironmentConfig,
    Loaded,
    ManagerConfig,
    OwnConfig,
    RemudaConfig,
    RunnerConfig,
    listen_address,
    short_token,
)
from remuda.manager.custom_config import CustomConfig
from remuda.manager.docker_config import KEYS as DOCKER_KEYS
from remuda.manager.docker_config import DockerConfig
from remuda.manager.docker_config import remarks as docker_remarks
from remuda.manager.errors import ConfigError
from remuda.manager.ssh_config import MachineEntry, SshConfig, with_defaults

__all__ = [
    "EXECUTORS",
    "LOG_FORMATS",
    "LOG_LEVELS",
    "AutoscalerConfig",
    "CacheConfig",
    "CustomConfig",
    "DockerConfig",
    "EnvironmentConfig",
    "Loaded",
    "MachineConfig",
    "MachineEntry",
    "ManagerConfig",
    "OwnConfig",
    "RemudaConfig",
    "RunnerConfig",
    "SshConfig",
    "listen_address",
    "load",
    "parse",
    "short_token",
]

_GLOBAL_KEYS = {field.encode_name for field in msgspec.structs.fields(ManagerConfig)}
_RUNNER_KEYS = {field.encode_name for field in msgspec.structs.fields(RunnerConfig)}
_REMUDA_KEYS = {field.encode_name for field in msgspec.structs.fields(RemudaConfig)}
_MSGSPEC_PATH = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def load(path: Path, environment: Mapping[str, str] | None = None) -> Loaded:
    """Read a configuration file; ConfigError says what is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there is no such file. "
            f"Make one with: remuda manager register --config {path} --url URL --token TOKEN"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return parse(text, file=str(path), environment=os.environ if environment is None else environment)


def parse(text: str, *, file: str, environment: Mapping[str, str]) -> Loaded:
    """The same for the text of a file."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise ConfigError(f"{file}{f':{line[1]}' if line else ''}: not valid TOML: {error}") from None
    try:
        loaded = _checked(document, file, environment)
    except ConfigError as error:
        raise ConfigError(with_line(str(error), file=file, text=text)) from None
    return Loaded(
        config=loaded.config,
        warnings=tuple(with_line(warning, file=file, text=text) for warning in loaded.warnings),
    )


def _checked(document: Mapping[str, Any], file: str, environment: Mapping[str, str]) -> Loaded:
    warnings = _review(document, file)
    try:
        config = msgspec.convert(_what_counts(document), ManagerConfig)
    except msgspec.ValidationError as error:
        match = _MSGSPEC_PATH.match(str(error))
        assert match is not None
        what, where = match["what"], match["path"]
        raise ConfigError(f"{file}: {where or 'the file'}: {what[:1].lower()}{what[1:]}".replace("`", "")) from None
    runners = []
    for index, runner in enumerate(config.runners):
        where = f"{file}: runners[{index}]"
        runner = msgspec.structs.replace(
            runner,
            url=_expand(runner.url, f"{where}.url", environment),
            token=_expand(runner.token, f"{where}.token", environment),
            labels=config.labels | runner.labels,
        )
        check_runner(runner, where)
        if problem := runner.cache.problem:
            warnings.append(f"{where}.cache: {problem}; caches are kept in cache_dir on this machine instead")
        runners.append(runner)
    config = msgspec.structs.replace(config, runners=tuple(runners))
    check_whole(config, file)
    return Loaded(config=config, warnings=tuple(warnings))


def _review(document: Mapping[str, Any], file: str) -> list[str]:
    """What to say about keys before their values count; refuses those that must not be ignored."""
    warnings: list[str] = []
    for key in document:
        if key in REFUSED_GLOBAL:
            raise ConfigError(f"{file}: {key}: not supported, and ignoring it would not be safe: {REFUSED_GLOBAL[key]}")
        if key in IGNORED_GLOBAL:
            warnings.append(f"{file}: {key} is not supported: {IGNORED_GLOBAL[key]}")
        elif key not in _GLOBAL_KEYS:
            warnings.append(f"{file}: {key} is unknown and ignored{_nearest(key, _GLOBAL_KEYS | set(IGNORED_GLOBAL))}")
    runners = document.get("runners")
    known = _RUNNER_KEYS | set(IGNORED_RUNNER) | ACCEPTED_RUNNER | OTHER_EXECUTORS
    for index, runner in enumerate(runners if isinstance(runners, list) else ()):
        for key in runner if isinstance(runner, dict) else ():
            if key in IGNORED_RUNNER:
                warnings.append(f"{file}: runners[{index}].{key} is not supported: {IGNORED_RUNNER[key]}")
            elif key not in known:
                warnings.append(f"{file}: runners[{index}].{key} is unknown and ignored{_nearest(key, known)}")
        own = runner.get("remuda") if isinstance(runner, dict) else None
        for key in own if isinstance(own, dict) else ():
            # Ignoring a misspelt one could run jobs with more rights than they were to have.
            if key not in _REMUDA_KEYS:
                raise ConfigError(f"{file}: runners[{index}].remuda.{key}: unknown{_nearest(key, _REMUDA_KEYS)}")
        for key, effect in docker_remarks(_docker_section(runner)):
            what = (
                f"is not supported: {effect}" if effect else f"is unknown and ignored{_nearest(key, set(DOCKER_KEYS))}"
            )
            warnings.append(f"{file}: runners[{index}].docker.{key} {what}")
    return warnings


def _docker_section(runner: Any) -> Mapping[str, Any]:
    """`[runners.docker]` where it counts."""
    section = _counting(runner).get("docker", {}) if isinstance(runner, dict) else {}
    return section if isinstance(section, dict) else {}


def _what_counts(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without sections that nobody looks at, and with what one section says for another."""
    runners = document.get("runners")
    if not isinstance(runners, list):
        return dict(document)
    return {**document, "runners": [_counting(one) if isinstance(one, dict) else one for one in runners]}


def _counting(runner: Mapping[str, Any]) -> dict[str, Any]:
    """A runner without the sections of executors that it does not have: gitlab-runner does not look at them either."""
    executor = runner.get("executor")
    counting = {key: value for key, value in runner.items() if executor in SECTIONS.get(key, (executor,))}
    own = counting.get("remuda")
    if isinstance(own, dict) and isinstance(own.get("machines"), list):
        machines = [with_defaults(one, counting) if isinstance(one, dict) else one for one in own["machines"]]
        counting["remuda"] = {**own, "machines": machines}
    return counting


def _nearest(key: str, known: set[str]) -> str:
    close = difflib.get_close_matches(key, sorted(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _expand(text: str, where: str, environment: Mapping[str, str]) -> str:
    """`$NAME` and `${NAME}` from the manager's environment; an unset one is an error, not an empty token."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in environment:
            raise ConfigError(f"{where}: the environment variable {name} is not set")
        return environment[name]

    return _REFERENCE.sub(value, text)
