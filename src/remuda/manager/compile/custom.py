"""Jobs of a runner with `executor = "custom"`: GitLab's custom-executor protocol, as steps of the local agent.

Pure. A job becomes one `custom` environment with a script for every stage, in gitlab-runner's order and with its
names; `stdsteps/custom_*` call the driver. Everything that the driver may see goes with the job as one file, the
*order*, and nothing of it stands in the environment of the agent's own steps: drivers see the job's variables as
CUSTOM_ENV_NAME only, scripts set them themselves. Where builds are is not known before `config_exec` has run, so the
job is compiled with placeholders in place of folders.

How well jobs are kept apart is the driver's business; nothing is claimed about it.
"""

import json
import re
from collections.abc import Iterable, Sequence

import msgspec

from remuda.manager.compile import custom_scripts
from remuda.manager.compile.secrets import resolve_secrets
from remuda.manager.compile.sources import get_sources
from remuda.manager.compile.step_entries import CompileError, Entry, Setting, entry, project_path
from remuda.manager.compile.stored_files import download_artifacts, restore_caches, save_caches, upload_artifacts
from remuda.manager.compile.user_steps import user_steps
from remuda.manager.compile.variables import Variables
from remuda.manager.config.load import RunnerConfig
from remuda.manager.environments.port import project_folder
from remuda.stdsteps.custom.job import BUILDS_DIR, CACHE_DIR, PROJECT_DIR
from remuda.wire.runner_api import JobPayload, Variable

EXECUTOR = "custom"
NAME = "custom"
ORDER = "CUSTOM_EXECUTOR_ORDER"
"""The file variable with which the order gets to the agent."""
OLD_STAGE = "REMUDA_CUSTOM_BUILD_SCRIPT"
"""Variable of the runner: the job's script is the stage build_script, as drivers from before GitLab 17 want it."""
RETRY_SECONDS = 3
"""Between two tries of preparing."""
SPARE_SECONDS = 5
ATTEMPTS = 10
"""More of them gitlab-runner refuses, too."""
_TRUE = ("true", "t", "1")


def is_custom(runner: RunnerConfig) -> bool:
    """Whether a driver runs this runner's jobs."""
    return runner.executor == EXECUTOR


def with_placeholders(setting: Setting) -> Setting:
    """Where the job will be; its artifacts are out of the reach of the runner's signing key."""
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
    """The steps, and the texts of the runner's own stages."""
    if payload.run:
        raise CompileError("run: a driver of the custom executor is given scripts, and cannot run steps; use script")
    runner = setting.runner
    stages = _before(payload, setting, variables) | _after(payload, setting, variables)
    work = user_steps(payload, runner, variables, stages)
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


def order_of(
    payload: JobPayload, configured: Setting, variables: Sequence[Variable], scripts: dict[str, str]
) -> Variable:
    """What the driver's steps read, as the one variable of the job that the agent gets."""
    runner = configured.runner
    custom = runner.custom
    services = [
        {key: one.get(key) for key in ("name", "alias", "entrypoint", "command")} for one in payload.services or ()
    ]
    is_old = any(one.key == OLD_STAGE and one.value.lower() in _TRUE for one in variables)
    order = {
        "config": {"exec": custom.config_exec, "args": custom.config_args, "seconds": custom.config_seconds},
        "prepare": {"exec": custom.prepare_exec, "args": custom.prepare_args, "seconds": custom.prepare_seconds},
        "run": {"exec": custom.run_exec, "args": custom.run_args},
        "cleanup": {"exec": custom.cleanup_exec, "args": custom.cleanup_args, "seconds": custom.cleanup_seconds},
        "graceful_seconds": custom.graceful_seconds,
        "force_seconds": custom.force_seconds,
        "host": dict(configured.host_environment),
        "variables": [(one.key, one.value, one.file) for one in variables],
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
    """What the runner is configured to do and a driver's job does not get."""
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
        if chosen := _wanted(caches, condition):
            texts[f"archive_cache{ending}"] = custom_scripts.archive_script(chosen)
    for ending, condition in (("_on_success", "success()"), ("_on_failure", "failure()")):
        if chosen := _wanted(artifacts, condition):
            texts[f"upload_artifacts{ending}"] = custom_scripts.upload_script(chosen, setting.runner.url)
    names = [variable.key for variable in variables.expanded() if variable.file]
    texts["cleanup_file_variables"] = custom_scripts.cleanup_script([*names, *(payload.secrets or ())])
    return texts


def _wanted(entries: Iterable[Entry], condition: str) -> list[Entry]:
    return [one for one in entries if one["if"] in (condition, "always()")]


def _comes_after(stage: str) -> bool:
    return stage.startswith(("archive_", "upload_", "cleanup_"))


def _stage(name: str, variables: Variables) -> Entry:
    made = entry(name, "script", {"script": f"# the runner's own stage {name}"})
    if name.endswith("_on_failure"):
        made["if"] = "failure()"
    elif name == "cleanup_file_variables":
        made |= {"if": "always()", "continue_on_error": True}
    if name.startswith("archive_"):
        made["continue_on_error"] = True
    if times := _attempts(name, variables) - 1:
        made["retry"] = times
    return made


def _expression(path: str) -> str:
    return "${{ " + path + " }}"


def _attempts(stage: str, variables: Variables) -> int:
    names = {
        "get_sources": "GET_SOURCES_ATTEMPTS",
        "restore_cache": "RESTORE_CACHE_ATTEMPTS",
        "download_artifacts": "ARTIFACT_DOWNLOAD_ATTEMPTS",
    }
    text = variables[names[stage]] if stage in names else ""
    if not text:
        return 1
    if not re.fullmatch(r"[0-9]{1,3}", text) or not 1 <= int(text) <= ATTEMPTS:
        raise CompileError(f"{names[stage]}: {text!r} is no number from 1 to {ATTEMPTS}")
    return int(text)
