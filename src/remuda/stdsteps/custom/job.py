"""The data of a job for a custom executor's driver: folders, variables, environment and scripts. The runner manager
writes the *order*: a JSON file, readable only by the agent's user, with the driver's programs, the job's variables, and
the scripts of the runner's own stages. `config_exec` may change folders, so the order contains placeholders for them.
The state is in the driver's folder (TMPDIR of its programs), which is deleted with the job: `custom_open` creates it,
`custom_exec` and `custom_close` load it."""

import hashlib
import json
import os
import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from remuda.lib.dataclass import dataclass
from remuda.lib.files import write_whole
from remuda.stdsteps.common.errors import PlatformError, StepError

BUILDS_DIR, PROJECT_DIR, CACHE_DIR = "/@remuda-builds@", "/@remuda-project@", "/@remuda-cache@"
"""Placeholders for folders that the driver may choose."""
HOSTNAME = "@remuda-hostname@"
BUILD_FAILURE, SYSTEM_FAILURE = 1, 2
"""Exit codes of a driver: the job failed, or the system."""
SHELLS = {"": "bash", "bash": "bash", "sh": "sh"}
LARGEST_ENTRY_BYTES = 128 * 1024 - 1
"""Linux does not start a program with a longer `NAME=value`; its NUL is the 128 KiB's last byte."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FOLDER = re.compile(r"/[A-Za-z0-9_./@%+=:, ~-]*")
_TRACE = ("TRACEPARENT",)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverConfig:
    """The values of the JSON that `config_exec` prints, as far as they are used."""

    driver: str = ""
    hostname: str = ""
    builds_dir: str = ""
    cache_dir: str = ""
    is_shared: bool | None = None
    shell: str = ""
    job_env: Mapping[str, str] = field(default_factory=dict)


def parse_config(text: str) -> DriverConfig:
    """Parse the output of `config_exec`; '' gives the defaults. Raises PlatformError if it is invalid."""
    if not text.strip():
        return DriverConfig()
    try:
        config = json.loads(text)
    except ValueError as error:
        raise PlatformError(f"config_exec did not print JSON: {error}; its output begins with {text[:200]!r}") from None
    if not isinstance(config, dict):
        raise PlatformError(f"config_exec must print a JSON object, not {text[:200]!r}")
    driver, job_env, shared = config.get("driver"), config.get("job_env"), config.get("builds_dir_is_shared")
    names = {key: config.get(key) for key in ("hostname", "builds_dir", "cache_dir", "shell")}
    for key, value in names.items():
        if not isinstance(value, str | None):
            raise PlatformError(f"config_exec: {key}: must be a string, not {value!r}")
    if not isinstance(driver, dict | None) or not isinstance(shared, bool | None):
        raise PlatformError("config_exec: driver must be an object, and builds_dir_is_shared true or false")
    if job_env is not None and not (
        isinstance(job_env, dict) and all(isinstance(value, str) for value in job_env.values())
    ):
        raise PlatformError("config_exec: job_env: must be an object with strings as values")
    words = [str(driver[key]) for key in ("name", "version") if driver.get(key)] if driver else []
    return DriverConfig(
        driver=" ".join(words),
        is_shared=shared,
        job_env=job_env or {},
        **{key: value or "" for key, value in names.items()},
    )


class CustomJob:
    def __init__(self, order: Path, folder: Path, config: DriverConfig, secrets: Mapping[str, str]) -> None:
        try:
            self.order: dict[str, Any] = json.loads(order.read_bytes())
        except (OSError, ValueError) as error:
            raise PlatformError(f"cannot read the manager's order in {order}: {error}") from None
        self.path = order
        self.folder = folder
        """The driver's folder, TMPDIR of its programs."""
        self.config = config
        self._secrets = secrets

    @property
    def builds_dir(self) -> str:
        return self.config.builds_dir or str(self.order["builds_dir"])

    @property
    def cache_dir(self) -> str:
        return self.config.cache_dir or str(self.order["cache_dir"]) or posixpath.join(self.builds_dir, ".cache")

    @property
    def project_dir(self) -> str:
        """The project's folder: GIT_CLONE_PATH if the job sets it, else one below `builds_dir`. If jobs share
        `builds_dir`, the path also contains the number of the concurrency slot."""
        if chosen := str(self.order.get("clone_path") or ""):
            return posixpath.join(self.builds_dir, chosen)
        is_shared = self.order["is_shared"] if self.config.is_shared is None else self.config.is_shared
        between = str(self.order["slot"]) if is_shared else ""
        return posixpath.join(self.builds_dir, between, str(self.order["project"]))

    @property
    def shell(self) -> str:
        name = self.config.shell or str(self.order["shell"])
        if name not in SHELLS:
            raise StepError(f"the shell {name!r} is not supported for scripts of a driver; only bash and sh are")
        return SHELLS[name]

    def check(self) -> None:
        """Raise StepError if the shell is not supported, or `builds_dir` or `cache_dir` is missing or invalid."""
        _ = self.shell
        if not self.builds_dir:
            raise StepError(
                "builds_dir is not set: set it for the runner in config.toml, or print it with the program config_exec"
            )
        for name in ("builds_dir", "cache_dir"):
            if not _FOLDER.fullmatch(path := getattr(self, name)):
                raise StepError(f"{name}: {path!r} is invalid; use an absolute path without quotes and $")

    def fill_in(self, text: str) -> str:
        """Replace the placeholders for folders and host name in a text. Without `builds_dir` the folders become ''."""
        for mark, value in (
            (PROJECT_DIR, self.project_dir if self.builds_dir else ""),
            (BUILDS_DIR, self.builds_dir),
            (CACHE_DIR, self.cache_dir if self.builds_dir else ""),
            (HOSTNAME, self.config.hostname or os.uname().nodename),
        ):
            text = text.replace(mark, value)
        return text

    def variables(self) -> list[tuple[str, str, bool]]:
        """Return the job's variables and secrets as (name, value, is_file). `is_file`: scripts get a file with the
        value, and the file's path in the variable."""
        variables = [(key, self.fill_in(value), is_file) for key, value, is_file in self.order["variables"]]
        return [*variables, *self._secret_variables()]

    def _secret_variables(self) -> Iterable[tuple[str, str, bool]]:
        """Yield the secrets that an earlier step fetched, as (name, value, is_file). The value of a file secret is read
        from the file on this machine."""
        for name, is_file in self.order["secrets"].items():
            value = self._secrets.get(name, "")
            if is_file and value:
                value = Path(value).read_bytes().decode("utf-8", "surrogateescape")
            yield name, value, is_file

    def driver_env(self) -> dict[str, str]:
        """Return the environment of the driver's programs, without variables that Linux does not accept (too large, or
        with a NUL)."""
        env = dict(self.order["host"]) | {
            "TMPDIR": str(self.folder),
            "JOB_RESPONSE_FILE": str(self.folder / "response.json"),
            "BUILD_EXIT_CODE_FILE": str(self.exit_code_file),
            "BUILD_FAILURE_EXIT_CODE": str(BUILD_FAILURE),
            "SYSTEM_FAILURE_EXIT_CODE": str(SYSTEM_FAILURE),
        }
        env |= self.config.job_env
        env |= {f"CUSTOM_ENV_{key}": value for key, value, _ in self.variables()}
        env |= {"CUSTOM_ENV_CI_JOB_SERVICES": str(self.order["services"])}
        return {key: value for key, value in env.items() if _fits_environment(key, value)}

    @property
    def exit_code_file(self) -> Path:
        return self.folder / "build_exit_code"

    def script(self, text: str, *, changes_dir: bool, more: Mapping[str, str], is_first: bool = False) -> str:
        """Return a self-contained shell script that sets the variables of the job and `more`, writes the files of file
        variables, and runs `text`. `changes_dir`: run it in the project's folder. `is_first`: first remove symbolic
        links that an earlier job left in place of the project's folders. A driver may pipe the script into a shell, so
        commands could consume the rest of the script from stdin: therefore `eval` runs the text, after the shell has
        read all of it, with an empty stdin."""
        temporary = f"{self.project_dir}.tmp"
        links = [*(self._list_folders() if is_first else ()), temporary]
        lines = [
            f"#!/usr/bin/env {self.shell}",
            "set -e",
            _remove_links_line(links),
            f"mkdir -p {shlex.quote(temporary)}",
        ]
        for key, value, is_file in self.variables():
            if not _NAME.fullmatch(key) or "\0" in value:
                continue
            if is_file:
                path = shlex.quote(f"{temporary}/{key}")
                # An earlier job may have put a link there.
                lines += [f"rm -rf {path}; (umask 077; printf %s {shlex.quote(value)} >{path})", f"export {key}={path}"]
            else:
                lines.append(_assignment(key, value))
        lines += [_assignment(key, value) for key, value in more.items()]
        if changes_dir:
            lines.append(f"cd {shlex.quote(self.project_dir)}")
        return "\n".join([*lines, f"eval {shlex.quote(self.fill_in(text))} </dev/null"]) + "\n"

    def _list_folders(self) -> list[str]:
        """Return the project's folder and its parent folders that are below `builds_dir`, the outermost first."""
        builds, folders = posixpath.normpath(self.builds_dir), [posixpath.normpath(self.project_dir)]
        while posixpath.dirname(folders[0]).startswith(f"{builds}/"):
            folders.insert(0, posixpath.dirname(folders[0]))
        return folders

    def save(self) -> None:
        config = {name: getattr(self.config, name) for name in DriverConfig.__dataclass_fields__}
        state = {"order": str(self.path), "said": config, "secrets": dict(self._secrets)}
        write_whole(self.folder / "state.json", json.dumps(state).encode())


def begin(order: Path, secrets: Mapping[str, str]) -> CustomJob:
    """Create the folder of the custom executor's driver and return the new job. `order`: the file with the driver's
    settings, written by the manager. `secrets`: values by variable; of a file secret, the path of the file."""
    folder = driver_folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    job = CustomJob(order, folder, DriverConfig(), secrets)
    write_whole(folder / "response.json", str(job.order["response"]).encode())
    return job


def load(folder: Path) -> CustomJob | None:
    """Load the job from the driver's folder; None if `custom_open` failed before it saved the job, which it does after
    `config_exec` and before `prepare_exec`."""
    try:
        state = json.loads((folder / "state.json").read_bytes())
    except FileNotFoundError:
        return None
    return CustomJob(Path(state["order"]), folder, DriverConfig(**state["said"]), state["secrets"])


def driver_folder() -> Path:
    """Return the driver's folder, derived from the step's environment, so that open and close steps find the same."""
    exchange, environment = os.environ.get("REMUDA_EXCHANGE"), os.environ.get("REMUDA_ENVIRONMENT", "")
    if not exchange:
        raise StepError("REMUDA_EXCHANGE is not set; only the step runner can start standard steps")
    return Path(exchange) / f"custom-{hashlib.sha256(environment.encode()).hexdigest()[:12]}"


def select_status(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a step that its script gets in addition to the job's: job status and trace context."""
    return {name: env[name] for name in ("CI_JOB_STATUS", *_TRACE) if name in env}


def _remove_links_line(paths: Iterable[str]) -> str:
    return "; ".join(f"[ ! -L {path} ] || rm -f {path}" for path in map(shlex.quote, paths))


def _assignment(key: str, value: str) -> str:
    """Return shell code that sets a variable, exported unless it is too large for an environment on Linux."""
    return f"{'export ' if _fits_environment(key, value) else ''}{key}={shlex.quote(value)}"


def _fits_environment(key: str, value: str) -> bool:
    return "\0" not in value and len(os.fsencode(f"{key}={value}")) <= LARGEST_ENTRY_BYTES
