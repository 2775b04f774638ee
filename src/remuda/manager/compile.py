"""From a server's payload to what the agent runs: a visible tree of steps, the variables, what to mask, the banner.

Pure. Checkout, artifact download, the job's scripts, after_script and artifact upload become entries of one list in
this order; the agent decides at run time which of them run. What the payload asks for and this version does not do
is said in the banner, so that the user reads it in the job's own log. `jobs.py` calls this once per job.
"""

import json
import platform
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from remuda import __version__
from remuda.lib.masking import TOKEN_PREFIXES
from remuda.manager.config import RunnerConfig
from remuda.manager.variables import Variables, variable_list
from remuda.wire.runner_api import Artifact, JobPayload, ScriptStep, Variable
from remuda.wire.runner_client import api_root

DEFAULT_TIMEOUT_SECONDS = 7200
AFTER_SCRIPT_SECONDS = 300
SHORTEST_SHA = 8
STRATEGIES = ("fetch", "clone", "empty", "none")

_CONDITIONS = {"on_failure": "failure()", "always": "always()"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class CompileError(Exception):
    """The job asks for something that cannot work; the message is for its author."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and for whom a job runs."""

    runner: RunnerConfig
    system_id: str
    slot: int
    work_dir: str
    builds_dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledJob:
    """What the agent gets, apart from the job's id and working directory."""

    steps: str
    variables: tuple[Variable, ...]
    masks: tuple[str, ...]
    mask_prefixes: tuple[str, ...]
    timeout_seconds: int
    log_limit_bytes: int
    banner: tuple[str, ...]


def compile_job(payload: JobPayload, setting: Setting) -> CompiledJob:
    """Everything the agent needs to run a job."""
    timeout = payload.runner_info.timeout if payload.runner_info.timeout > 0 else DEFAULT_TIMEOUT_SECONDS
    variables = Variables(_all_variables(payload, setting, timeout))
    entries = [
        *_sources(payload, setting.runner, variables),
        *_download(payload, setting.runner),
        *_scripts(payload, setting.runner, variables),
        *_uploads(payload, setting.runner, variables),
    ]
    expanded = variables.expanded()
    sendable = [variable for variable in expanded if _NAME.fullmatch(variable.key) and "\0" not in variable.value]
    return CompiledJob(
        steps=f"{json.dumps({'spec': {'remuda': 1}})}\n---\n{json.dumps({'run': entries})}",
        variables=tuple(sendable),
        masks=_masks(payload, expanded),
        mask_prefixes=tuple(dict.fromkeys([*TOKEN_PREFIXES, *_prefixes(payload)])),
        timeout_seconds=timeout,
        log_limit_bytes=setting.runner.output_limit * 1024,
        banner=(
            f"Running with remuda {__version__}",
            f"  on {setting.runner.name} {setting.runner.short_token}, system ID: {setting.system_id}",
            *(f"WARNING: {text}" for text in _remarks(payload, variables, len(expanded) - len(sendable))),
        ),
    )


def project_path(repo_url: str) -> str:
    """The part of a repository's address that names its working directory; never leads outside."""
    path = posixpath.normpath("/" + urlsplit(repo_url).path.removesuffix("/").removesuffix(".git")).lstrip("/")
    return path if path not in ("", ".") else "project"


def _all_variables(payload: JobPayload, setting: Setting, timeout: int) -> list[Variable]:
    """From the weakest to the strongest: the runner's environment, its defaults, the job's, what is always true."""
    environment = [Variable(key=key, value=value) for key, _, value in _pairs(setting.runner.environment)]
    defaults = {
        "CI_BUILDS_DIR": setting.builds_dir,
        "CI_PROJECT_DIR": setting.work_dir,
        "CI_CONCURRENT_ID": str(setting.slot),
        "CI_CONCURRENT_PROJECT_ID": str(setting.slot),
        "CI_SERVER": "yes",
        "CI_JOB_TIMEOUT": str(timeout),
        "CI_RUNNER_SHORT_TOKEN": setting.runner.short_token,
        "CI_SHARED_ENVIRONMENT": "true",
        "RUNNER_TEMP_PROJECT_DIR": f"{setting.work_dir}.tmp",
    }
    tail = {
        "CI_RUNNER_VERSION": __version__,
        "CI_RUNNER_REVISION": __version__,
        "CI_RUNNER_EXECUTABLE_ARCH": f"{platform.system().lower()}/{platform.machine()}",
    }
    return [*environment, *variable_list(defaults), *payload.variables, *variable_list(tail)]


def _pairs(environment: Iterable[str]) -> Iterable[tuple[str, str, str]]:
    return (entry.partition("=") for entry in environment)


def _sources(payload: JobPayload, runner: RunnerConfig, variables: Variables) -> list[dict[str, Any]]:
    strategy = variables["GIT_STRATEGY"] or ("fetch" if payload.allow_git_fetch else "clone")
    if strategy not in STRATEGIES:
        raise CompileError(f"GIT_STRATEGY: {strategy!r} is not supported; use one of {', '.join(STRATEGIES)}")
    if strategy == "none":
        return []
    git = payload.git_info
    if strategy != "empty" and len(git.sha) < SHORTEST_SHA:
        raise CompileError(f"the server sent {git.sha!r} as the commit, which is none")
    hooks = {hook.get("name"): list(hook.get("script") or ()) for hook in payload.hooks or ()}
    before = [*_lines(runner.pre_get_sources_script), *hooks.get("pre_get_sources_script", ())]
    after = [*_lines(runner.post_get_sources_script), *hooks.get("post_get_sources_script", ())]
    checkout = _entry(
        "get_sources",
        "checkout",
        {
            "repo_url": _repo_url(payload, runner, variables),
            "sha": git.sha,
            "ref": git.ref,
            "refspecs": git.refspecs,
            "depth": git.depth,
            "strategy": strategy,
        }
        | _clean_flags(variables),
    )
    return [
        *([_entry("pre_get_sources_script", "script", {"script": before})] if before else ()),
        checkout,
        *([_entry("post_get_sources_script", "script", {"script": after})] if after else ()),
    ]


def _clean_flags(variables: Variables) -> dict[str, list[str]]:
    """How `git clean` is called, where the job says so."""
    flags = variables["GIT_CLEAN_FLAGS"]
    return {"clean_flags": [] if flags == "none" else flags.split()} if flags else {}


def _repo_url(payload: JobPayload, runner: RunnerConfig, variables: Variables) -> str:
    """The repository's address; with `clone_url` the same project under the address that jobs can reach."""
    if not runner.clone_url:
        return payload.git_info.repo_url
    path = variables["CI_PROJECT_PATH"] or project_path(payload.git_info.repo_url)
    base = urlsplit(runner.clone_url)
    host = base.netloc.rpartition("@")[2]
    address = f"gitlab-ci-token:{quote(payload.token, safe='')}@{host}"
    return urlunsplit((base.scheme, address, f"{base.path.rstrip('/')}/{path}.git", "", ""))


def _download(payload: JobPayload, runner: RunnerConfig) -> list[dict[str, Any]]:
    wanted = [
        {"id": one.id, "name": one.name, "token": one.token or payload.token, "filename": one.artifacts_file.filename}
        for one in payload.dependencies or ()
        if one.artifacts_file is not None and one.artifacts_file.filename
    ]
    if not wanted:
        return []
    inputs = {"api_url": _api_url(runner), "dependencies": wanted}
    return [_entry("download_artifacts", "artifacts_download", inputs)]


def _scripts(payload: JobPayload, runner: RunnerConfig, variables: Variables) -> list[dict[str, Any]]:
    entries = []
    after: ScriptStep | None = None
    for step in payload.steps:
        if step.name == "after_script":
            after = step
            continue
        script = [*_lines(runner.pre_build_script), *step.script, *_lines(runner.post_build_script)]
        name = "step_" + re.sub(r"[^A-Za-z0-9_]", "_", step.name)
        entry = _entry(name, "script", {"script": script or [":"]}, origin="user")
        if step.when in _CONDITIONS:
            entry["if"] = _CONDITIONS[step.when]
        if step.allow_failure:
            entry["continue_on_error"] = True
        entries.append(entry)
    if not entries:
        entries.append(_entry("step_script", "script", {"script": [":"]}, origin="user"))
    if after is not None and after.script:
        entry = _entry("after_script", "script", {"script": after.script}, origin="user")
        ignores_errors = variables["AFTER_SCRIPT_IGNORE_ERRORS"].lower() not in ("false", "0")
        entries.append(entry | {"if": "always()", "continue_on_error": ignores_errors, "timeout": AFTER_SCRIPT_SECONDS})
    return entries


def _uploads(payload: JobPayload, runner: RunnerConfig, variables: Variables) -> list[dict[str, Any]]:
    entries = []
    for number, artifact in enumerate(payload.artifacts or (), start=1):
        name = "upload_artifacts" if number == 1 else f"upload_artifacts_{number}"
        entry = _entry(name, "artifacts_upload", _upload_inputs(payload, artifact, runner, variables))
        entries.append(entry | {"if": _CONDITIONS.get(artifact.when or "", "success()")})
    return entries


def _upload_inputs(
    payload: JobPayload, artifact: Artifact, runner: RunnerConfig, variables: Variables
) -> dict[str, Any]:
    return {
        "api_url": _api_url(runner),
        "job_id": payload.id,
        "token": payload.token,
        "paths": [variables.expand(path) for path in artifact.paths or ()],
        "exclude": [variables.expand(path) for path in artifact.exclude or ()],
        "untracked": bool(artifact.untracked),
        "name": variables.expand(artifact.name or ""),
        "expire_in": artifact.expire_in or "",
        "artifact_type": artifact.artifact_type or "archive",
        "artifact_format": artifact.artifact_format or "zip",
    }


def _entry(name: str, step: str, inputs: dict[str, Any], *, origin: str = "compiled") -> dict[str, Any]:
    return {"name": name, "step": f"builtin://{step}", "inputs": inputs, "origin": origin}


def _lines(script: str) -> list[str]:
    return [script] if script.strip() else []


def _api_url(runner: RunnerConfig) -> str:
    return f"{api_root(runner.url)}/api/v4"


def _masks(payload: JobPayload, expanded: Sequence[Variable]) -> tuple[str, ...]:
    """Secret texts; masked variables as written too, since a script may print a value before it is expanded."""
    secrets = [payload.token]
    secrets += [variable.value for variable in payload.variables if variable.masked]
    secrets += [variable.value for variable in expanded if variable.masked]
    secrets += [dependency.token for dependency in payload.dependencies or ()]
    secrets += [str(entry.get("password") or "") for entry in payload.credentials or ()]
    return tuple(dict.fromkeys(secret for secret in secrets if secret))


def _prefixes(payload: JobPayload) -> list[str]:
    return list(payload.features.token_mask_prefixes or ()) if payload.features else []


def _remarks(payload: JobPayload, variables: Variables, dropped: int) -> Iterable[str]:
    """What the job asks for and does not get."""
    if payload.image and payload.image.get("name"):
        yield "image: is ignored; this runner runs jobs on its own machine"
    if payload.services:
        yield "services: is ignored; this runner runs jobs on its own machine"
    if payload.cache:
        yield "cache: is not supported yet; the job runs without"
    if variables["GIT_SUBMODULE_STRATEGY"] not in ("", "none"):
        yield "GIT_SUBMODULE_STRATEGY is not supported yet; submodules are not fetched"
    if dropped:
        yield f"{dropped} variable(s) left out: a name has letters, digits and _, a value no NUL byte"
