"""Shared by all parts of the compilation: the setting of a job, and the form of an entry in its list of steps. Pure.

`compile.py` puts the list together; `sources.py`, `stored_files.py` and `user_steps.py` each make a part of it.
"""

import posixpath
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from remuda.manager.compile.variables import Variables
from remuda.manager.config.values import RunnerConfig
from remuda.steps.language.escaping import escape
from remuda.wire.runner_api import JobPayload
from remuda.wire.runner_server import api_root

CONDITIONS = {"on_success": "success()", "on_failure": "failure()", "always": "always()"}
"""The agent's conditions for `when`."""

Entry = dict[str, Any]


class CompileError(Exception):
    """The job asks for something that cannot work; the message is for its author."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Where and for which runner a job is compiled."""

    key: str = ""
    """The agent's id of the job."""
    runner: RunnerConfig
    system_id: str
    slot: int
    work_dir: str
    builds_dir: str
    cache_dir: str
    """The folder of all caches."""
    clone_path: str = ""
    """The folder below builds_dir that the job chose with GIT_CLONE_PATH; empty: none."""
    cgroup: str = ""
    """The control group of the job; empty: none."""
    server_ca: str = ""
    """PEM text of the server's certificate authority; empty: the machine's own authorities."""
    now: float = 0.0
    """Seconds since the epoch; signed addresses are valid from here on."""
    host_environment: Mapping[str, str] = {}
    """The manager's environment, for the programs of a custom executor."""


def entry(name: str, step: str, inputs: dict[str, Any], *, origin: str = "compiled") -> Entry:
    """One step of the list. Inputs are literal: text that looks like an expression is escaped."""
    return {"name": name, "step": f"builtin://{step}", "inputs": literal(inputs), "origin": origin}


def literal(value: Any) -> Any:
    """Escape a value so that it contains no expression."""
    match value:
        case str():
            return escape(value)
        case list():
            return [literal(item) for item in value]
        case dict():
            return {literal(key): literal(item) for key, item in value.items()}
    return value


def number_name(name: str, number: int) -> str:
    """The name of the nth step of a kind: `name`, `name_2`, ..."""
    return name if number == 1 else f"{name}_{number}"


def lines(script: str) -> list[str]:
    """A configured script as a list; empty if there is none."""
    return [script] if script.strip() else []


def api_url(runner: RunnerConfig) -> str:
    """The address of the server's API."""
    return f"{api_root(runner.url)}/api/v4"


def expand_paths(paths: list[str] | None, variables: Variables, setting: Setting) -> list[str]:
    """Expand variables; paths below $CI_PROJECT_DIR become relative to the working directory."""
    expanded = [variables.expand(path) for path in paths or ()]
    return ["." if path == setting.work_dir else path.removeprefix(f"{setting.work_dir}/") for path in expanded]


def cache_folder(cache_dir: str, repo_url: str, *, is_protected: bool = False) -> str:
    """The cache folder of a project. Protected refs have another one, closed to jobs of other refs. No project path
    contains an `@`."""
    return posixpath.join(cache_dir, project_path(repo_url)) + ("@protected" if is_protected else "")


def project_path(repo_url: str) -> str:
    """The path in a repository's address, normalized; it never leads outside of a folder."""
    try:
        path = urlsplit(repo_url).path
    except ValueError:  # not an address: the checkout fails later
        path = ""
    path = posixpath.normpath("/" + path.removesuffix("/").removesuffix(".git")).lstrip("/")
    return path if path not in ("", ".") else "project"


def path_of_project(payload: JobPayload, runner: RunnerConfig) -> str:
    """The project's path on its server: as sent, or from the repository's address."""
    if path := payload.job_info.project_full_path:
        return path
    prefix = urlsplit(api_root(runner.url)).path.strip("/")
    return project_path(payload.git_info.repo_url).removeprefix(f"{prefix}/")
