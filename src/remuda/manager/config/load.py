"""Loads gitlab-runner's `config.toml` into immutable objects (`values.py`).

Every message has file, line and key. Unknown keys and keys without effect cause warnings, for an unknown key with the
nearest known name. `load` and `inspect_file` also read the TLS files of runners, `parse` and `inspect` only the key
files for the login to machines."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from remuda.manager.config.certificates import find_tls_problems, with_certificates
from remuda.manager.config.lines import find_lines, line_of_message
from remuda.manager.config.ssh import with_defaults
from remuda.manager.config.value_checks import check_runner, check_whole
from remuda.manager.config.values import (
    WITH_MACHINES,
    Inspection,
    Loaded,
    ManagerConfig,
    Remark,
    RunnerConfig,
    uses_section,
)
from remuda.manager.errors import ConfigError

_MSGSPEC_PATH = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def load(path: Path, environment: Mapping[str, str] | None = None, *, may_be_idle: bool = False) -> Loaded:
    """Read a configuration file; `environment` has the variables for `$NAME` in it (None: those of the process). Raises
    ConfigError if the file is missing or invalid. With `may_be_idle` a file without runners is valid; an empty file is
    still an error, because an editor may be about to write it."""
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
    config = add_certificates(loaded.config, path)
    if problem := next(find_tls_problems(enumerate(config.runners)), ""):
        raise ConfigError(Remark(line=line_of_message(problem, find_lines(text)), text=problem).in_file(str(path)))
    return msgspec.structs.replace(loaded, config=config)


def add_certificates(config: ManagerConfig, path: Path) -> ManagerConfig:
    """Add the TLS files in the folder `certs` beside the configuration file to the runners that name none."""
    runners = tuple(with_certificates(runner, path.parent / "certs") for runner in config.runners)
    return msgspec.structs.replace(config, runners=runners)


def read_regular(path: Path) -> str:
    """Read a regular file. Raises OSError if it is a pipe or a device, which cannot be read again at a reload."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError("it is no regular file")
    return path.read_text(encoding="utf-8")


def parse(text: str, *, file: str, environment: Mapping[str, str], may_be_idle: bool = False) -> Loaded:
    """Parse and check a configuration text; `file` is its name for messages, `environment` has the variables for
    `$NAME`. With `may_be_idle` it may be without runners. Raises ConfigError with the first problem."""
    inspection = inspect(text, file=file, environment=environment, may_be_idle=may_be_idle)
    if inspection.problems:
        raise ConfigError(inspection.problems[0].in_file(file))
    assert inspection.config is not None
    return Loaded(config=inspection.config, warnings=tuple(warning.in_file(file) for warning in inspection.warnings))


def inspect(text: str, *, file: str, environment: Mapping[str, str], may_be_idle: bool = False) -> Inspection:
    """Parse and check the text of a configuration file, as `parse`, but return all problems and warnings."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        return Inspection(problems=(Remark(line=int(line[1]) if line else None, text=f"not valid TOML: {error}"),))
    warnings, problems = _review(document)
    config, value_problems = _check_values(document, environment)
    if config is not None:
        if not config.runners and not may_be_idle:
            value_problems.append("there is no [[runners]] section; add one with: remuda manager register")
        for index in range(len(config.runners)):
            warnings += _warn_of_runner(config, index, warnings, is_valid=not value_problems)
    # A key that already has a problem gets no second one.
    reported = [problem.partition(":")[0] for problem in problems]
    problems += [text for text in value_problems if not any(text.startswith(f"{key}:") for key in reported)]
    lines = find_lines(text)
    return Inspection(
        config=None if problems else config,
        sound=tuple(_find_sound_runners(config, problems)) if config is not None else (),
        problems=tuple(Remark(line=line_of_message(text, lines), text=text) for text in problems),
        warnings=tuple(Remark(line=line_of_message(text, lines), text=text) for text in warnings),
    )


def inspect_file(text: str, path: Path, *, environment: Mapping[str, str]) -> Inspection:
    """Check the text of the configuration file `path` as `inspect`, and the TLS files that it names."""
    inspection, lines = inspect(text, file=str(path), environment=environment), find_lines(text)
    sound = tuple((index, with_certificates(runner, path.parent / "certs")) for index, runner in inspection.sound)
    found = [Remark(line=line_of_message(problem, lines), text=problem) for problem in find_tls_problems(sound)]
    problems = (*inspection.problems, *found)
    config = None if problems or inspection.config is None else add_certificates(inspection.config, path)
    return msgspec.structs.replace(inspection, config=config, sound=sound, problems=problems)


def _find_sound_runners(config: ManagerConfig, problems: Sequence[str]) -> Iterator[tuple[int, RunnerConfig]]:
    for index, runner in enumerate(config.runners):
        if not any(problem.startswith(f"runners[{index}]") for problem in problems):
            yield index, runner


def _warn_of_runner(config: ManagerConfig, index: int, warnings: Sequence[str], *, is_valid: bool) -> Iterator[str]:
    """Yield warnings about the runner with this index. `warnings` are those found before: a cache that is mentioned
    there gets no second one. Autoscaling is checked only if no value of the configuration is invalid (`is_valid`)."""
    runner, where = config.runners[index], f"runners[{index}]"
    if (problem := runner.cache.problem) and not any(warning.startswith(f"{where}.cache") for warning in warnings):
        yield f"{where}.cache: {problem}; caches are kept in cache_dir on this machine instead"
    if runner.executor not in WITH_MACHINES:
        return
    if runner.remuda.machines:
        if runner.autoscaler.plugin or runner.machine.machine_driver:
            key = "machine.MachineDriver" if runner.executor == "docker+machine" else "autoscaler.plugin"
            yield f"{where}.{key} is not used: [[runners.remuda.machines]] lists the machines"
    elif is_valid:
        from remuda.manager.config.scaling_checks import find_doubts  # imported here because most runners have none

        yield from find_doubts(runner, where, concurrent=config.concurrent)


def _check_values(
    document: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[ManagerConfig | None, list[str]]:
    """Return the configuration (None if a type is wrong), and at most one problem per runner and one for the rest."""
    relevant = _relevant_sections(document)
    try:
        config = msgspec.convert(relevant, ManagerConfig)
    except msgspec.ValidationError as error:
        return None, [_describe(error)]
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


def _describe(error: msgspec.ValidationError) -> str:
    match = _MSGSPEC_PATH.match(str(error))
    assert match is not None
    what, where = match["what"], (match["path"] or "").replace("[...]", "")
    return f"{where or 'the file'}: {what[:1].lower()}{what[1:]}".replace("`", "")


def _review(document: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return warnings about unknown and ignored keys, and problems with keys that Remuda refuses."""
    # Imported here because callers that make the values themselves do not need the table.
    from remuda.manager.config.keys.fact import Verdict
    from remuda.manager.config.keys.lookup import walk

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
        more = f" (nor are {', '.join(where[len(section) + 1 :] for where in others)})" if others else ""
        warnings.append(f"{first} is not supported{more}: {about}")
    return warnings, problems


def _relevant_sections(document: Mapping[str, Any]) -> dict[str, Any]:
    runners = document.get("runners")
    if not isinstance(runners, list):
        return dict(document)
    return {
        **document,
        "runners": [_relevant_keys(runner) if isinstance(runner, dict) else runner for runner in runners],
    }


def _relevant_keys(runner: Mapping[str, Any]) -> dict[str, Any]:
    """Return a runner's section without those of unused executors, and with defaults for `remuda.machines`."""
    relevant = {key: value for key, value in runner.items() if uses_section(runner, key)}
    own = relevant.get("remuda")
    if isinstance(own, dict) and isinstance(own.get("machines"), list):
        machines = [
            with_defaults(machine, relevant) if isinstance(machine, dict) else machine for machine in own["machines"]
        ]
        relevant["remuda"] = {**own, "machines": machines}
    return relevant


def _expand(text: str, where: str, environment: Mapping[str, str]) -> str:
    """Replace `$NAME` and `${NAME}` by environment variables. Raises ConfigError if one is not set."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in environment:
            raise ConfigError(f"{where}: the environment variable {name} is not set")
        return environment[name]

    return _REFERENCE.sub(value, text)
