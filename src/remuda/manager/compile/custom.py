"""Compiles jobs of `executor = "custom"`, GitLab's custom-executor protocol, to steps of the local agent. Pure code.

The operator's programs (the driver) run a job's scripts and isolate jobs. A job becomes one `custom` step with a script
for every stage. All data for the driver is in one file variable, the *order*, so that it is not in the environment of
the agent's own steps. Folders are placeholders, because the builds folder is known only after the driver's
`config_exec`."""

import json
from collections.abc import Iterable, Sequence

import msgspec

from remuda.manager.compile import custom_scripts
from remuda.manager.compile.debug_trace import trace_scripts
from remuda.manager.compile.secrets import resolve_secrets
from remuda.manager.compile.sources import get_sources, read_attempts
from remuda.manager.compile.step_entries import CompileError, Entry, Setting, entry, project_path
from remuda.manager.compile.stored_files import download_artifacts, restore_caches, save_caches, upload_artifacts
from remuda.manager.compile.user_steps import user_steps
from remuda.manager.compile.variables import TRUE_WORDS, Variables
from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.port import project_folder
from remuda.stdsteps.custom.job import BUILDS_DIR, CACHE_DIR, PROJECT_DIR
from remuda.wire.runner_api import JobPayload, Variable

EXECUTOR = "custom"
NAME = "custom"
ORDER = "CUSTOM_EXECUTOR_ORDER"
"""The file variable with the order."""
OLD_STAGE = "REMUDA_CUSTOM_BUILD_SCRIPT"
"""Variable, usually in the runner's `environment`: if true, the stage of the job's script is called build_script, for
drivers older than GitLab 17."""
RETRY_SECONDS = 3
"""Pause between two attempts of `prepare_exec`."""
SPARE_SECONDS = 5


def is_custom(runner: RunnerConfig) -> bool:
    return runner.executor == EXECUTOR


def with_placeholders(setting: Setting) -> Setting:
    """Return a copy with placeholders for folders, and without the signing key, which the driver must not get."""
    runner = setting.runner
    own = msgspec.structs.replace(runner.remuda, signing_key="")
    return msgspec.structs.replace(
        setting,
        runner=msgspec.structs.replace(runner, remuda=own),
        work_dir=PROJECT_DIR,
        builds_dir=BUILDS_DIR,
        cache_dir=CACHE_DIR,
    )


def custom_steps(payload: JobPayload, setting: Setting, variables: Variables) -> tuple[list[Entry], dict[str, str]]:
    """Return the steps, and the scripts of the runner's stages, by stage. Raises CompileError if the job uses `run`."""
    if payload.run:
        raise CompileError("run: a driver of the custom executor is given scripts, and cannot run steps; use script")
    runner = setting.runner
    stages = _before(payload, setting, variables) | _after(payload, setting, variables)
    work = trace_scripts(user_steps(payload, runner, variables, stages), runner, variables)
    inner = [
        *(_stage(name, variables) for name in stages if not _comes_after(name)),
        *work,
        *(_stage(name, variables) for name in stages if _comes_after(name)),
    ]
    custom = runner.custom
    environment = entry(
        NAME,
        "custom",
        {
            "retry_seconds": RETRY_SECONDS,
            "grace_seconds": custom.graceful_seconds + custom.force_seconds + SPARE_SECONDS,
            "close_seconds": custom.cleanup_seconds + custom.graceful_seconds + custom.force_seconds + SPARE_SECONDS,
        },
    )
    environment["inputs"] |= {"order": _expression(f"vars.{ORDER}")}
    secrets = resolve_secrets(payload, variables)
    if secrets:
        environment["inputs"] |= {"secrets": {name: _expression(f"env.{name}") for name in payload.secrets or ()}}
    return [*secrets, environment | {"run": inner}], stages | {"clear_worktree": custom_scripts.CLEAR}


def driver_order(
    payload: JobPayload, configured: Setting, variables: Sequence[Variable], scripts: dict[str, str]
) -> Variable:
    """Return the only variable that the agent gets: a file with all data for the driver (the operator's programs).
    `configured` has the real folders, not placeholders; `scripts` come from `custom_steps`."""
    runner = configured.runner
    custom = runner.custom
    services = [
        {key: service.get(key) for key in ("name", "alias", "entrypoint", "command")}
        for service in payload.services or ()
    ]
    is_old = any(variable.key == OLD_STAGE and variable.value.lower() in TRUE_WORDS for variable in variables)
    order = {
        "config": {"exec": custom.config_exec, "args": custom.config_args, "seconds": custom.config_seconds},
        "prepare": {"exec": custom.prepare_exec, "args": custom.prepare_args, "seconds": custom.prepare_seconds},
        "run": {"exec": custom.run_exec, "args": custom.run_args},
        "cleanup": {"exec": custom.cleanup_exec, "args": custom.cleanup_args, "seconds": custom.cleanup_seconds},
        "graceful_seconds": custom.graceful_seconds,
        "force_seconds": custom.force_seconds,
        "host": dict(configured.host_environment),
        "variables": [(variable.key, variable.value, variable.file) for variable in variables],
        "secrets": {name: secret.get("file") is not False for name, secret in (payload.secrets or {}).items()},
        "services": json.dumps(services) if services else "",
        "response": msgspec.json.encode(payload).decode(),
        "scripts": scripts,
        "stages": {"step_script": "build_script"} if is_old else {},
        "shell": runner.shell,
        "builds_dir": runner.builds_dir,
        "cache_dir": runner.cache_dir,
        "is_shared": False,
        "slot": f"{runner.short_token}/{configured.slot}",
        "project": project_folder(project_path(payload.git_info.repo_url)),
        "clone_path": configured.clone_path,
    }
    return Variable(key=ORDER, value=json.dumps(order), file=True, raw=True)


def custom_remarks(setting: Setting) -> Iterable[str]:
    if setting.runner.remuda.signing_key:
        yield "artifacts are not signed: they are where the driver runs jobs, out of reach of the runner's key"


def _before(payload: JobPayload, setting: Setting, variables: Variables) -> dict[str, str]:
    runner = setting.runner
    texts = {
        "prepare_script": custom_scripts.PREPARE,
        "get_sources": custom_scripts.sources_script(get_sources(payload, runner, variables)),
    }
    if caches := restore_caches(payload, setting, variables):
        texts["restore_cache"] = custom_scripts.restore_script(caches)
    if artifacts := download_artifacts(payload, runner):
        texts["download_artifacts"] = custom_scripts.download_script(artifacts, runner.url)
    return texts


def _after(payload: JobPayload, setting: Setting, variables: Variables) -> dict[str, str]:
    texts: dict[str, str] = {}
    caches = save_caches(payload, setting, variables)
    artifacts = upload_artifacts(payload, setting, variables)
    for ending, condition in (("", "success()"), ("_on_failure", "failure()")):
        if steps := _with_condition(caches, condition):
            texts[f"archive_cache{ending}"] = custom_scripts.archive_script(steps)
    for ending, condition in (("_on_success", "success()"), ("_on_failure", "failure()")):
        if steps := _with_condition(artifacts, condition):
            texts[f"upload_artifacts{ending}"] = custom_scripts.upload_script(steps, setting.runner.url)
    names = [variable.key for variable in variables.expand_all() if variable.file]
    texts["cleanup_file_variables"] = custom_scripts.cleanup_script([*names, *(payload.secrets or ())])
    return texts


def _with_condition(entries: Iterable[Entry], condition: str) -> list[Entry]:
    return [step for step in entries if step["if"] in (condition, "always()")]


def _comes_after(stage: str) -> bool:
    return stage.startswith(("archive_", "upload_", "cleanup_"))


def _stage(name: str, variables: Variables) -> Entry:
    stage = entry(name, "script", {"script": f"# the runner's own stage {name}"})
    if name.endswith("_on_failure"):
        stage["if"] = "failure()"
    elif name == "cleanup_file_variables":
        stage |= {"if": "always()", "continue_on_error": True}
    if name.startswith("archive_"):
        stage["continue_on_error"] = True
    if times := _attempts(name, variables) - 1:
        stage["retry"] = times
    return stage


def _expression(path: str) -> str:
    return "${{ " + path + " }}"


def _attempts(stage: str, variables: Variables) -> int:
    names = {
        "get_sources": "GET_SOURCES_ATTEMPTS",
        "restore_cache": "RESTORE_CACHE_ATTEMPTS",
        "download_artifacts": "ARTIFACT_DOWNLOAD_ATTEMPTS",
    }
    return read_attempts(variables[names[stage]] if stage in names else "") or 1
