"""Types and helpers that all modules of the compilation share: `Setting`, and entries of a job's list of steps."""

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
    """The job asks for something that cannot work, so it fails before it starts. The message is for its author."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The runner, folders and other values for which a job is compiled."""

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
    """Return an entry for the job's list of steps, which runs the builtin step `step`. Inputs are escaped, so that they
    are not evaluated as expressions. `origin` says who wrote the step: `compiled` (this package) or `user`."""
    return {"name": name, "step": f"builtin://{step}", "inputs": literal(inputs), "origin": origin}


def literal(value: Any) -> Any:
    """Escape all texts in a value, so that the agent does not evaluate expressions in them."""
    match value:
        case str():
            return escape(value)
        case list():
            return [literal(item) for item in value]
        case dict():
            return {literal(key): literal(item) for key, item in value.items()}
    return value


def number_name(name: str, number: int) -> str:
    """Return the name of the nth step of a kind: `name`, `name_2`, ..."""
    return name if number == 1 else f"{name}_{number}"


def lines(script: str) -> list[str]:
    """Return the script as a list with one element, or an empty list if the script is blank."""
    return [script] if script.strip() else []


def api_url(runner: RunnerConfig) -> str:
    return f"{api_root(runner.url)}/api/v4"


def expand_paths(paths: list[str] | None, variables: Variables, setting: Setting) -> list[str]:
    """Expand variables in paths, and make paths below the working directory relative to it."""
    expanded = [variables.expand(path) for path in paths or ()]
    return ["." if path == setting.work_dir else path.removeprefix(f"{setting.work_dir}/") for path in expanded]


def cache_folder(cache_dir: str, repo_url: str, *, is_protected: bool = False) -> str:
    """Return the folder for a project's caches in `cache_dir`. Protected refs have a separate folder, which jobs of
    other refs cannot use. Its suffix `@protected` is unambiguous, because no project path contains an `@`."""
    return posixpath.join(cache_dir, project_path(repo_url)) + ("@protected" if is_protected else "")


def project_path(repo_url: str) -> str:
    """Return the normalized path of `repo_url` without `.git` and `..`; `project` if the URL has no path."""
    try:
        path = urlsplit(repo_url).path
    except ValueError:  # not an address: the checkout fails later
        path = ""
    path = posixpath.normpath("/" + path.removesuffix("/").removesuffix(".git")).lstrip("/")
    return path if path not in ("", ".") else "project"


def path_of_project(payload: JobPayload, runner: RunnerConfig) -> str:
    """Return the project's full path at its server: from the payload, or else from the repository's URL, without
    the path under which the server itself is installed."""
    if path := payload.job_info.project_full_path:
        return path
    prefix = urlsplit(api_root(runner.url)).path.strip("/")
    return project_path(payload.git_info.repo_url).removeprefix(f"{prefix}/")
