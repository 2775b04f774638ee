"""The configuration: gitlab-runner's `config.toml`, read once into frozen values before anything runs.

Decides which keys count, what is wrong with a file (with file, line and key), and what is only worth a warning:
unknown keys with the nearest right name, known but unsupported ones with the effect. Nothing is opened or called here
except the file itself. `register.py` writes the file; `service.py` uses the values.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from remuda.manager.cache_config import CacheConfig
from remuda.manager.config_keys import (
    ACCEPTED_RUNNER,
    EXECUTORS,
    IGNORED_GLOBAL,
    IGNORED_RUNNER,
    OTHER_EXECUTORS,
    REFUSED_GLOBAL,
)
from remuda.manager.config_lines import with_line
from remuda.manager.docker_config import KEYS as DOCKER_KEYS
from remuda.manager.docker_config import DockerConfig
from remuda.manager.docker_config import check as check_docker
from remuda.manager.docker_config import remarks as docker_remarks
from remuda.manager.errors import ConfigError
from remuda.stdsteps.errors import StepError
from remuda.stdsteps.sizes import in_bytes
from remuda.steps.errors import PolicyError

DEFAULT_CHECK_INTERVAL_SECONDS = 3
DEFAULT_DRAIN_SECONDS = 7200
LEAST_UID = 1000
"""Below it are the users of the system."""
LOG_LEVELS = {"debug": "debug", "info": "info", "warn": "warning", "warning": "warning", "error": "error"}
LOG_LEVELS |= {"fatal": "error", "panic": "error"}
LOG_FORMATS = {"runner": "auto", "text": "text", "json": "json"}


class RemudaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[runners.remuda]`: what gitlab-runner has no keys for."""

    run_as: str = ""
    """Whom all jobs run as: a user's name, UID or UID:GID. Needs a manager that is root."""
    first_uid: int = 0
    """A user for each slot instead: this number and the slot's."""
    policy: dict[str, Any] = {}
    """What steps may do, see docs/reference/step-policy.md."""
    signing_key: str = ""
    """File with the Ed25519 key, on the machine that jobs run on, that signs the artifacts of all jobs."""
    git_mirrors: str = ""
    """Room for copies of repositories in the cache folder that all checkouts fetch from, such as `20g`; empty: none."""


class RunnerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[runners]]`: a runner of one server."""

    name: str = ""
    url: str = ""
    token: str = ""
    id: int = 0
    executor: str = ""
    shell: str = ""
    builds_dir: str = ""
    """Where working directories are made; relative to the data folder. Default: `builds` there."""
    cache_dir: str = ""
    """Where caches are kept; relative to the data folder. Default: `cache` there."""
    cache: CacheConfig = CacheConfig()
    clone_url: str = ""
    """Address of the server as jobs reach it, in place of the one in the repository's address. A file:// one is a
    folder of repositories on this machine."""
    environment: tuple[str, ...] = ()
    """`NAME=value` for every job; the job's own variables win."""
    limit: int = 0
    """Jobs of this runner at the same time; 0 is no limit of its own."""
    request_concurrency: int = 1
    """Requests for jobs that may be open at the same time."""
    strict_check_interval: bool = False
    """Wait the check interval after a job came in, too."""
    output_limit: int = 4096
    """Largest log of a job, in kilobytes."""
    pre_get_sources_script: str = ""
    post_get_sources_script: str = ""
    pre_build_script: str = ""
    post_build_script: str = ""
    labels: dict[str, str] = {}
    docker: DockerConfig = DockerConfig()
    remuda: RemudaConfig = RemudaConfig()
    tls_ca_file: str = msgspec.field(default="", name="tls-ca-file")
    tls_cert_file: str = msgspec.field(default="", name="tls-cert-file")
    tls_key_file: str = msgspec.field(default="", name="tls-key-file")

    @property
    def short_token(self) -> str:
        return short_token(self.token)


class ManagerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    concurrent: int = 1
    """Jobs of all runners at the same time."""
    check_interval: float = 0
    """Seconds between two requests that were answered at once; 0 is the default of 3."""
    log_level: str = "info"
    log_format: str = "runner"
    listen_address: str = ""
    """Where metrics are served; empty: nowhere."""
    shutdown_timeout: int = 0
    """Seconds that SIGQUIT waits for running jobs; 0 is the default of 7200."""
    runners: tuple[RunnerConfig, ...] = ()

    @property
    def check_interval_seconds(self) -> float:
        return self.check_interval or DEFAULT_CHECK_INTERVAL_SECONDS

    @property
    def drain_seconds(self) -> float:
        return self.shutdown_timeout or DEFAULT_DRAIN_SECONDS


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration and what its author should know about it."""

    config: ManagerConfig
    warnings: tuple[str, ...] = ()


_GLOBAL_KEYS = {field.encode_name for field in msgspec.structs.fields(ManagerConfig)}
_RUNNER_KEYS = {field.encode_name for field in msgspec.structs.fields(RunnerConfig)}
_REMUDA_KEYS = {field.encode_name for field in msgspec.structs.fields(RemudaConfig)}
_PREFIX = re.compile(r"^(?:[a-z0-9_]+-)*?gl[a-z]+-(?:t[123]_)?|^t[123]_|^GR1348941")
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
        )
        _check_runner(runner, where)
        if problem := runner.cache.problem:
            warnings.append(f"{where}.cache: {problem}; caches are kept in cache_dir on this machine instead")
        runners.append(runner)
    config = msgspec.structs.replace(config, runners=tuple(runners))
    _check(config, file)
    return Loaded(config=config, warnings=tuple(warnings))


def short_token(token: str) -> str:
    """The part of a runner token that may be shown: it names the runner in folders, logs and metrics."""
    return _PREFIX.sub("", token, count=1)[:9]


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `:port` or `[v6]:port`."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is no address; write host:port, for example 127.0.0.1:9252")
    return host.strip("[]") or "0.0.0.0", int(port)


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
    """`[runners.docker]` where it counts: gitlab-runner does not look at the section of another executor."""
    if not isinstance(runner, dict) or runner.get("executor") != "docker":
        return {}
    section = runner.get("docker", {})
    return section if isinstance(section, dict) else {}


def _what_counts(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without sections that nobody looks at."""
    runners = document.get("runners")
    if not isinstance(runners, list):
        return dict(document)
    counting = [
        {key: value for key, value in runner.items() if key != "docker" or runner.get("executor") == "docker"}
        if isinstance(runner, dict)
        else runner
        for runner in runners
    ]
    return {**document, "runners": counting}


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


def _check_runner(runner: RunnerConfig, where: str) -> None:
    if not runner.url:
        raise ConfigError(f"{where}.url: is missing; give the server's address, for example https://gitlab.example.com")
    address = urlsplit(runner.url)
    if address.scheme not in ("http", "https") or not address.netloc:
        raise ConfigError(f"{where}.url: {runner.url!r} is no http or https address")
    if not runner.token:
        raise ConfigError(f"{where}.token: is missing; create a runner on the server and put its glrt- token here")
    if runner.executor in EXECUTORS:
        raise ConfigError(f"{where}.executor: {runner.executor!r} is not supported yet; only shell and docker are")
    if runner.executor not in ("shell", "docker"):
        given = repr(runner.executor) if runner.executor else "is missing"
        raise ConfigError(f'{where}.executor: {given}; write executor = "shell" or executor = "docker"')
    if runner.executor == "docker":
        check_docker(runner.docker, f"{where}.docker")
    if runner.shell not in ("", "bash"):
        raise ConfigError(f"{where}.shell: {runner.shell!r} is not supported yet; only bash is")
    for key, least in (("limit", 0), ("request_concurrency", 0), ("output_limit", 0)):
        if getattr(runner, key) < least:
            raise ConfigError(f"{where}.{key}: {getattr(runner, key)} is below {least}")
    if bool(runner.tls_cert_file) != bool(runner.tls_key_file):
        raise ConfigError(f"{where}: tls-cert-file and tls-key-file go together; one of them is missing")
    for entry in runner.environment:
        if not re.match(r"[A-Za-z_][A-Za-z0-9_]*=", entry):
            raise ConfigError(f"{where}.environment: {entry!r} is not of the form NAME=value")
    _check_own(runner, where)


def _check_own(runner: RunnerConfig, where: str) -> None:
    own = runner.remuda
    if own.run_as and own.first_uid:
        raise ConfigError(f"{where}.remuda: run_as and first_uid exclude each other; keep one")
    if own.first_uid < 0 or 0 < own.first_uid < LEAST_UID:
        raise ConfigError(
            f"{where}.remuda.first_uid: {own.first_uid} is below {LEAST_UID}, where users of the system are"
        )
    if own.signing_key and not own.signing_key.startswith("/"):
        raise ConfigError(f"{where}.remuda.signing_key: {own.signing_key!r}: give the whole path, from / on")
    try:
        in_bytes(own.git_mirrors, f"{where}.remuda.git_mirrors")
    except StepError as error:
        raise ConfigError(str(error)) from None
    if own.policy:
        from remuda.steps.policy.document import parse_layer  # only here: most have none, and it takes time to import

        try:
            parse_layer(own.policy, author=f"runner {runner.name}".strip())
        except PolicyError as error:
            raise ConfigError(f"{where}.remuda.policy: {error}") from None


def _check(config: ManagerConfig, file: str) -> None:
    if config.concurrent < 1:
        raise ConfigError(f"{file}: concurrent: {config.concurrent} would never run a job; give at least 1")
    if config.check_interval < 0 or config.shutdown_timeout < 0:
        raise ConfigError(f"{file}: check_interval and shutdown_timeout cannot be negative")
    if config.log_level not in LOG_LEVELS:
        raise ConfigError(f"{file}: log_level: {config.log_level!r} is none of {', '.join(LOG_LEVELS)}")
    if config.log_format not in LOG_FORMATS:
        raise ConfigError(f"{file}: log_format: {config.log_format!r} is none of {', '.join(LOG_FORMATS)}")
    if not config.runners:
        raise ConfigError(f"{file}: there is no [[runners]] section; add one with: remuda manager register")
    tokens = [(runner.url, runner.token) for runner in config.runners]
    if len(set(tokens)) < len(tokens):
        raise ConfigError(f"{file}: the same url and token stand in two [[runners]]; use one with a higher limit")
    _check_uids(config, file)
    if config.listen_address:
        try:
            listen_address(config.listen_address)
        except ValueError as error:
            raise ConfigError(f"{file}: listen_address: {error}") from None


def _check_uids(config: ManagerConfig, file: str) -> None:
    """Slots of different runners must not share a user."""
    ranges = sorted(
        (runner.remuda.first_uid, runner.remuda.first_uid + (runner.limit or config.concurrent), index)
        for index, runner in enumerate(config.runners)
        if runner.remuda.first_uid
    )
    for (_, end, _), (start, _, index) in pairwise(ranges):
        if start < end:
            raise ConfigError(
                f"{file}: runners[{index}].remuda.first_uid: {start} is in use by the slots of another runner; "
                f"give {end} or more"
            )
