"""A job for a driver of GitLab's custom executor: what the manager wrote down for it, and what its driver has said.

The manager's *order* is one JSON file that only the agent's user can read: the programs of the driver, the variables,
the runner's own scripts. `config_exec` may change where things are, so folders stand in the order as placeholders, and
are filled in here. What is known after that is kept in the driver's folder (TMPDIR of all its programs), which goes
with the job: `custom_open` makes it, `custom_exec` and `custom_close` find it again. Also here: the environment of the
driver's programs, and the text of a script that needs nothing but a shell.

Nothing here calls anybody; see `custom_driver`.
"""

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
"""Placeholders of folders that only the driver may know."""
HOSTNAME = "@remuda-hostname@"
BUILD_FAILURE, SYSTEM_FAILURE = 1, 2
"""Exit codes by which a driver says whose failure it is."""
SHELLS = {"": "bash", "bash": "bash", "sh": "sh"}
LARGEST_ENTRY_BYTES = 128 * 1024 - 1
"""Linux takes no longer `NAME=value`, its NUL included."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FOLDER = re.compile(r"/[A-Za-z0-9_./@%+=:, ~-]*")
_TRACE = ("TRACEPARENT",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What `config_exec` printed, as far as it counts."""

    driver: str = ""
    hostname: str = ""
    builds_dir: str = ""
    cache_dir: str = ""
    is_shared: bool | None = None
    shell: str = ""
    job_env: Mapping[str, str] = field(default_factory=dict)


def read_said(text: str) -> Said:
    """The driver's JSON; an empty text says nothing. PlatformError: it is the driver that is wrong, not the job."""
    if not text.strip():
        return Said()
    try:
        found = json.loads(text)
    except ValueError as error:
        raise PlatformError(f"config_exec printed no JSON: {error}; it began with {text[:200]!r}") from None
    if not isinstance(found, dict):
        raise PlatformError(f"config_exec printed no JSON object, but {text[:200]!r}")
    driver, job_env, shared = found.get("driver"), found.get("job_env"), found.get("builds_dir_is_shared")
    names = {key: found.get(key) for key in ("hostname", "builds_dir", "cache_dir", "shell")}
    for key, value in names.items():
        if not isinstance(value, str | None):
            raise PlatformError(f"config_exec: {key}: a text is needed, not {value!r}")
    if not isinstance(driver, dict | None) or not isinstance(shared, bool | None):
        raise PlatformError("config_exec: driver is an object, builds_dir_is_shared is true or false")
    if job_env is not None and not (
        isinstance(job_env, dict) and all(isinstance(value, str) for value in job_env.values())
    ):
        raise PlatformError("config_exec: job_env: an object of texts is needed")
    words = [str(driver[key]) for key in ("name", "version") if driver.get(key)] if driver else []
    return Said(
        driver=" ".join(words),
        is_shared=shared,
        job_env=job_env or {},
        **{key: value or "" for key, value in names.items()},
    )


class CustomJob:
    """One job, as its driver is to see it."""

    def __init__(self, order: Path, folder: Path, said: Said, secrets: Mapping[str, str]) -> None:
        try:
            self.order: dict[str, Any] = json.loads(order.read_bytes())
        except (OSError, ValueError) as error:
            raise PlatformError(f"the manager's order in {order} cannot be read: {error}") from None
        self.path = order
        self.folder = folder
        """The driver's own, TMPDIR of its programs."""
        self.said = said
        self._secrets = secrets

    @property
    def builds_dir(self) -> str:
        return self.said.builds_dir or str(self.order["builds_dir"])

    @property
    def cache_dir(self) -> str:
        return self.said.cache_dir or str(self.order["cache_dir"]) or posixpath.join(self.builds_dir, ".cache")

    @property
    def project_dir(self) -> str:
        """Where builds of several jobs lie beside each other, a folder for the job's slot is between.

        A job may have chosen another one.
        """
        if chosen := str(self.order.get("clone_path") or ""):
            return posixpath.join(self.builds_dir, chosen)
        is_shared = self.order["is_shared"] if self.said.is_shared is None else self.said.is_shared
        between = str(self.order["slot"]) if is_shared else ""
        return posixpath.join(self.builds_dir, between, str(self.order["project"]))

    @property
    def shell(self) -> str:
        wanted = self.said.shell or str(self.order["shell"])
        if wanted not in SHELLS:
            raise StepError(f"the shell {wanted!r} is not supported for scripts of a driver; only bash and sh are")
        return SHELLS[wanted]

    def check(self) -> None:
        """Everything that scripts need is known."""
        _ = self.shell
        if not self.builds_dir:
            raise StepError(
                "it is not known where builds go: set builds_dir of the runner in config.toml, or have config_exec "
                "print it"
            )
        for name in ("builds_dir", "cache_dir"):
            if not _FOLDER.fullmatch(path := getattr(self, name)):
                raise StepError(f"{name}: {path!r} cannot be used; give a whole path without quotes and $")

    def filled(self, text: str) -> str:
        """The text with the folders in it, as far as they are known."""
        for mark, value in (
            (PROJECT_DIR, self.project_dir if self.builds_dir else ""),
            (BUILDS_DIR, self.builds_dir),
            (CACHE_DIR, self.cache_dir if self.builds_dir else ""),
            (HOSTNAME, self.said.hostname or os.uname().nodename),
        ):
            text = text.replace(mark, value)
        return text

    def variables(self) -> list[tuple[str, str, bool]]:
        """Name, value, and whether a script wants the value in a file."""
        known = [(key, self.filled(value), is_file) for key, value, is_file in self.order["variables"]]
        return [*known, *self._fetched()]

    def _fetched(self) -> Iterable[tuple[str, str, bool]]:
        """Secrets, which a step before has fetched; those that are files lie on this machine."""
        for name, is_file in self.order["secrets"].items():
            value = self._secrets.get(name, "")
            if is_file and value:
                value = Path(value).read_bytes().decode("utf-8", "surrogateescape")
            yield name, value, is_file

    def driver_env(self) -> dict[str, str]:
        """Of every program of the driver. What is too large for a program to be given is left out."""
        env = dict(self.order["host"]) | {
            "TMPDIR": str(self.folder),
            "JOB_RESPONSE_FILE": str(self.folder / "response.json"),
            "BUILD_EXIT_CODE_FILE": str(self.exit_code_file),
            "BUILD_FAILURE_EXIT_CODE": str(BUILD_FAILURE),
            "SYSTEM_FAILURE_EXIT_CODE": str(SYSTEM_FAILURE),
        }
        env |= self.said.job_env
        env |= {f"CUSTOM_ENV_{key}": value for key, value, _ in self.variables()}
        env |= {"CUSTOM_ENV_CI_JOB_SERVICES": str(self.order["services"])}
        return {key: value for key, value in env.items() if _can_be_given(key, value)}

    @property
    def exit_code_file(self) -> Path:
        return self.folder / "build_exit_code"

    def script(self, text: str, *, goes_there: bool, more: Mapping[str, str], is_first: bool = False) -> str:
        """A script that needs nothing but a shell: the variables, their files, and the text.

        Links that an earlier job left in the place of the project's folders are removed by the first one of a job.

        A driver may hand it to a shell as its input. So the text is read whole before it runs, and what it runs
        reads nothing of it.
        """
        temporary = f"{self.project_dir}.tmp"
        links = [*(self._way() if is_first else ()), temporary]
        lines = [f"#!/usr/bin/env {self.shell}", "set -e", _without_links(links), f"mkdir -p {shlex.quote(temporary)}"]
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
        if goes_there:
            lines.append(f"cd {shlex.quote(self.project_dir)}")
        return "\n".join([*lines, f"eval {shlex.quote(self.filled(text))} </dev/null"]) + "\n"

    def _way(self) -> list[str]:
        """The project's folder and those between it and the folder of builds, the outermost first."""
        builds, found = posixpath.normpath(self.builds_dir), [posixpath.normpath(self.project_dir)]
        while posixpath.dirname(found[0]).startswith(f"{builds}/"):
            found.insert(0, posixpath.dirname(found[0]))
        return found

    def save(self) -> None:
        """For the programs that follow."""
        said = {name: getattr(self.said, name) for name in Said.__dataclass_fields__}
        state = {"order": str(self.path), "said": said, "secrets": dict(self._secrets)}
        write_whole(self.folder / "state.json", json.dumps(state).encode())


def begin(order: Path, secrets: Mapping[str, str]) -> CustomJob:
    """The job of this process's environment, of which the driver has not said anything yet."""
    folder = driver_folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    job = CustomJob(order, folder, Said(), secrets)
    write_whole(folder / "response.json", str(job.order["response"]).encode())
    return job


def load(folder: Path) -> CustomJob | None:
    """The job that was opened with this folder; None where that was not finished."""
    try:
        state = json.loads((folder / "state.json").read_bytes())
    except FileNotFoundError:
        return None
    return CustomJob(Path(state["order"]), folder, Said(**state["said"]), state["secrets"])


def driver_folder() -> Path:
    """Of the environment that this process opens or closes; the same for both."""
    exchange, environment = os.environ.get("REMUDA_EXCHANGE"), os.environ.get("REMUDA_ENVIRONMENT", "")
    if not exchange:
        raise StepError("REMUDA_EXCHANGE names no folder; standard steps are started by the step runner")
    return Path(exchange) / f"custom-{hashlib.sha256(environment.encode()).hexdigest()[:12]}"


def status_of(env: Mapping[str, str]) -> dict[str, str]:
    """What a script is told beside its variables."""
    return {name: env[name] for name in ("CI_JOB_STATUS", *_TRACE) if name in env}


def _without_links(paths: Iterable[str]) -> str:
    """A line of a script that removes what an earlier job has put in the place of a folder, if it is a link."""
    return "; ".join(f"[ ! -L {path} ] || rm -f {path}" for path in map(shlex.quote, paths))


def _assignment(key: str, value: str) -> str:
    """A variable of the script; what no program can be given is for the script's shell alone."""
    return f"{'export ' if _can_be_given(key, value) else ''}{key}={shlex.quote(value)}"


def _can_be_given(key: str, value: str) -> bool:
    return "\0" not in value and len(os.fsencode(f"{key}={value}")) <= LARGEST_ENTRY_BYTES
