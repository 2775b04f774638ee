"""The configuration: gitlab-runner's `config.toml`, read once into frozen values before anything runs.

Decides in which order a file is read: which keys count (`keys`), then their types, then environment variables,
then what is wrong with the values (`config_checks`); every message has file, line and key. What is only worth a
warning: unknown keys with the nearest right name, known but unsupported ones with the effect. Nothing is opened or
called here except the file itself; certificates beside it are found. `register.py` writes the file; `service.py` uses
the values.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from remuda.manager.config.autoscaler import AutoscalerConfig, MachineConfig
from remuda.manager.config.cache import CacheConfig
from remuda.manager.config.certificates import with_certificates
from remuda.manager.config.checks import LOG_FORMATS, LOG_LEVELS, check_runner, check_whole
from remuda.manager.config.custom import CustomConfig
from remuda.manager.config.docker import DockerConfig
from remuda.manager.config.lines import find_lines, line_of_message
from remuda.manager.config.ssh import MachineEntry, SshConfig, with_defaults
from remuda.manager.config.values import (
    EXECUTORS,
    SECTIONS,
    WITH_MACHINES,
    CustomBuildDirConfig,
    EnvironmentConfig,
    Inspection,
    Loaded,
    ManagerConfig,
    OwnConfig,
    Remark,
    RemudaConfig,
    RunnerConfig,
    listen_address,
    short_token,
)
from remuda.manager.errors import ConfigError

__all__ = [
    "EXECUTORS",
    "LOG_FORMATS",
    "LOG_LEVELS",
    "AutoscalerConfig",
    "CacheConfig",
    "CustomBuildDirConfig",
    "CustomConfig",
    "DockerConfig",
    "EnvironmentConfig",
    "Inspection",
    "Loaded",
    "MachineConfig",
    "MachineEntry",
    "ManagerConfig",
    "OwnConfig",
    "Remark",
    "RemudaConfig",
    "RunnerConfig",
    "SshConfig",
    "inspect",
    "listen_address",
    "load",
    "parse",
    "read_regular",
    "short_token",
]

_MSGSPEC_PATH = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def load(path: Path, environment: Mapping[str, str] | None = None, *, may_be_idle: bool = False) -> Loaded:
    """Read a configuration file; ConfigError says what is wrong with it.

    With `may_be_idle` all runners may be gone from it; not everything, as for a moment when an editor writes it.
    """
    try:
        text = read_regular(path)
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there is no such file. "
            f"Make one with: remuda manager register --config {path} --url URL --token TOKEN"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    environment = os.environ if environment is None else environment
    loaded = parse(text, file=str(path), environment=environment, may_be_idle=may_be_idle and bool(text.strip()))
    runners = tuple(with_certificates(runner, path.parent / "certs") for runner in loaded.config.runners)
    return msgspec.structs.replace(loaded, config=msgspec.structs.replace(loaded.config, runners=runners))


def read_regular(path: Path) -> str:
    """The text of a file; a pipe or a terminal is not waited for, and could not be read again."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError("it is no regular file")
    return path.read_text(encoding="utf-8")


def parse(text: str, *, file: str, environment: Mapping[str, str], may_be_idle: bool = False) -> Loaded:
    """The same for the text of a file."""
    found = inspect(text, file=file, environment=environment, may_be_idle=may_be_idle)
    if found.problems:
        raise ConfigError(found.problems[0].in_file(file))
    assert found.config is not None  # or there would be a problem
    return Loaded(config=found.config, warnings=tuple(warning.in_file(file) for warning in found.warnings))


def inspect(text: str, *, file: str, environment: Mapping[str, str], may_be_idle: bool = False) -> Inspection:
    """Everything that is to be said about the text of a file; there is a configuration only where nothing is wrong."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        return Inspection(problems=(Remark(line=int(line[1]) if line else None, text=f"not valid TOML: {error}"),))
    warnings, problems = _review(document)
    config, wrong = _checked(document, environment)
    if config is not None and not config.runners and not may_be_idle:
        wrong.append("there is no [[runners]] section; add one with: remuda manager register")
    lines = find_lines(text)
    for index, runner in enumerate(config.runners if config is not None else ()):
        where = f"runners[{index}].cache"
        if (problem := runner.cache.problem) and not any(warning.startswith(where) for warning in warnings):
            warnings.append(f"{where}: {problem}; caches are kept in cache_dir on this machine instead")
        if runner.executor in WITH_MACHINES and runner.remuda.machines:
            at = "machine.MachineDriver" if runner.executor == "docker+machine" else "autoscaler.plugin"
            if runner.autoscaler.plugin or runner.machine.machine_driver:
                warnings.append(f"runners[{index}].{at} is not used: [[runners.remuda.machines]] lists the machines")
        elif not wrong and runner.executor in WITH_MACHINES:
            from remuda.manager.config.scaling_checks import doubts  # only here: most have none

            warnings += doubts(runner, f"runners[{index}]", concurrent=config.concurrent if config is not None else 0)
    # What one look says of a key, the other need not say again.
    problems += [one for one in wrong if not any(one.startswith(f"{known.partition(':')[0]}:") for known in problems)]
    return Inspection(
        config=None if problems else config,
        problems=tuple(Remark(line=line_of_message(one, lines), text=one) for one in problems),
        warnings=tuple(Remark(line=line_of_message(one, lines), text=one) for one in warnings),
    )


def _checked(document: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[ManagerConfig | None, list[str]]:
    """The values, and what is wrong with them: one problem of each runner, and one of the whole."""
    counting = _what_counts(document)
    try:
        config = msgspec.convert(counting, ManagerConfig)
    except msgspec.ValidationError as error:
        return None, [_in_words(error)]
    runners, problems = [], []
    for index, runner in enumerate(config.runners):
        where = f"runners[{index}]"
        try:
            runner = msgspec.structs.replace(
                runner,
                url=_expand(runner.url, f"{where}.url", environment),
                token=_expand(runner.token, f"{where}.token", environment),
                labels=config.labels | runner.labels,
            )
            check_runner(runner, where)
        except ConfigError as error:
            problems.append(str(error))
        runners.append(runner)
    config = msgspec.structs.replace(config, runners=tuple(runners))
    try:
        check_whole(config)
    except ConfigError as error:
        problems.append(str(error))
    return config, problems


def _in_words(error: msgspec.ValidationError) -> str:
    match = _MSGSPEC_PATH.match(str(error))
    assert match is not None
    what, where = match["what"], (match["path"] or "").replace("[...]", "")
    return f"{where or 'the file'}: {what[:1].lower()}{what[1:]}".replace("`", "")


def _review(document: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What to say about keys before their values count: warnings, and refusals of what must not be ignored."""
    # Only here: whoever makes the values itself need not wait for the table.
    from remuda.manager.config.keys.fact import Verdict
    from remuda.manager.config.keys.table import walk

    warnings: list[str] = []
    problems: list[str] = []
    without_effect: dict[tuple[str, str], list[str]] = {}
    for finding in walk(document):
        if finding.fact.verdict is Verdict.REFUSED:
            problems.append(f"{finding.where}: {finding.about}")
        elif finding.fact.verdict is Verdict.UNKNOWN:
            warnings.append(f"{finding.where} {finding.about}")
        elif finding.fact.verdict is Verdict.IGNORED and not finding.is_below and not finding.is_foreign:
            section = finding.where.rpartition(".")[0]
            without_effect.setdefault((section, finding.about), []).append(finding.where)
    for (section, about), (first, *others) in without_effect.items():
        more = f" (nor are {', '.join(one[len(section) + 1 :] for one in others)})" if others else ""
        warnings.append(f"{first} is not supported{more}: {about}")
    return warnings, problems


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


def _expand(text: str, where: str, environment: Mapping[str, str]) -> str:
    """`$NAME` and `${NAME}` from the manager's environment; an unset one is an error, not an empty token."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in environment:
            raise ConfigError(f"{where}: the environment variable {name} is not set")
        return environment[name]

    return _REFERENCE.sub(value, text)
