"""What the parts of a job's compilation share: where the job runs, and the form of an entry in its list of steps.

Pure. `compile` leads and puts the list together; `sources`, `stored_files` and `user_steps` each make a part of it.
"""

import posixpath
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from remuda.manager.compile.variables import Variables
from remuda.manager.config.load import RunnerConfig
from remuda.steps.language.escaping import escape
from remuda.wire.runner_api import JobPayload
from remuda.wire.runner_server import api_root

CONDITIONS = {"on_success": "success()", "on_failure": "failure()", "always": "always()"}
"""The agent's words for `when`."""

Entry = dict[str, Any]


class CompileError(Exception):
    """The job asks for something that cannot work; the message is for its author."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Where and for whom a job runs."""

    runner: RunnerConfig
    system_id: str
    slot: int
    work_dir: str
    builds_dir: str
    cache_dir: str
    """Where caches of all projects lie."""
    clone_path: str = ""
    """The folder below that of builds which the job chose; empty: none."""
    cgroup: str = ""
    """The control group around all of the job; empty: none."""
    server_ca: str = ""
    """Certificates by which jobs know the server, as text; empty: those of the machine they run on."""
    now: float = 0.0
    """Seconds since the epoch: addresses are signed for a time from here on."""
    host_environment: Mapping[str, str] = {}
    """Of the manager: what the programs of a custom executor's driver find in theirs."""


def entry(name: str, step: str, inputs: dict[str, Any], *, origin: str = "compiled") -> Entry:
    """One step of the list. What a classic job says is no expression, whatever it looks like."""
    return {"name": name, "step": f"builtin://{step}", "inputs": literal(inputs), "origin": origin}


def literal(value: Any) -> Any:
    """The value such that no expression is found in it."""
    match value:
        case str():
            return escape(value)
        case list():
            return [literal(item) for item in value]
        case dict():
            return {literal(key): literal(item) for key, item in value.items()}
    return value


def numbered(name: str, number: int) -> str:
    """Names of several steps of one kind."""
    return name if number == 1 else f"{name}_{number}"


def lines(script: str) -> list[str]:
    """A script of the configuration, where there is one."""
    return [script] if script.strip() else []


def api_url(runner: RunnerConfig) -> str:
    """Where steps reach the server's API."""
    return f"{api_root(runner.url)}/api/v4"


def expanded_paths(paths: list[str] | None, variables: Variables, setting: Setting) -> list[str]:
    """Paths relative to the working directory, also those written with $CI_PROJECT_DIR."""
    whole = [variables.expand(path) for path in paths or ()]
    return ["." if path == setting.work_dir else path.removeprefix(f"{setting.work_dir}/") for path in whole]


def cache_folder(cache_dir: str, repo_url: str, *, is_protected: bool = False) -> str:
    """Where the caches of a project lie; those of its protected refs where no job of another ref can write. No project
    has an `@` in its path."""
    return posixpath.join(cache_dir, project_path(repo_url)) + ("@protected" if is_protected else "")


def project_path(repo_url: str) -> str:
    """The part of a repository's address that names its folders; never leads outside."""
    try:
        path = urlsplit(repo_url).path
    except ValueError:  # no address at all: the checkout fails then, where there is one
        path = ""
    path = posixpath.normpath("/" + path.removesuffix("/").removesuffix(".git")).lstrip("/")
    return path if path not in ("", ".") else "project"


def path_of_project(payload: JobPayload, runner: RunnerConfig) -> str:
    """The project's path on its server, whatever the job says. Not every server sends it."""
    if path := payload.job_info.project_full_path:
        return path
    prefix = urlsplit(api_root(runner.url)).path.strip("/")
    return project_path(payload.git_info.repo_url).removeprefix(f"{prefix}/")
