"""Checks GIT_CLONE_PATH, the working directory that a job chooses, relative to the builds folder. Pure code.

Invariant: if jobs are isolated from each other (container, sandbox, other user), the chosen folder is inside a folder
that only jobs of the same project and GIT_CLONE_PATH use; otherwise another job could place a symbolic link there."""

import hashlib
import posixpath
import re

import msgspec

from remuda.manager.compile.compile import DEFAULT_TIMEOUT_SECONDS, all_variables
from remuda.manager.compile.custom import with_placeholders
from remuda.manager.compile.step_entries import CompileError, Setting
from remuda.manager.compile.variables import Variables
from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.port import JobPlace
from remuda.wire.runner_api import JobPayload

NAME = "GIT_CLONE_PATH"
_FORM = re.compile(r"[^\0-\x1f\x7f\"'$`\\]+")


def clone_path(payload: JobPayload, runner: RunnerConfig, slot: int) -> str:
    """Return the job's GIT_CLONE_PATH, relative to the builds folder; empty if it is not set. Raises CompileError if
    the runner does not allow it, or it is not in the builds folder."""
    if not _is_named(payload, runner):
        return ""
    configured = Setting(runner=runner, system_id="", slot=slot, work_dir="", builds_dir="", cache_dir="")
    setting = with_placeholders(configured)
    chosen = Variables(all_variables(payload, setting, DEFAULT_TIMEOUT_SECONDS))[NAME]
    if not chosen:
        return ""
    if not runner.has_custom_build_dir:
        raise CompileError(
            f"{NAME}: this runner does not let jobs choose their folder; remove the variable, or have the runner's "
            "operator set enabled = true in [runners.custom_build_dir]"
        )
    shown = chosen.replace(setting.builds_dir, "$CI_BUILDS_DIR")
    path = posixpath.normpath(chosen)
    for folder in filter(None, (setting.builds_dir, runner.builds_dir)):
        relative = path.removeprefix(f"{posixpath.normpath(folder)}/")
        if relative != path and _FORM.fullmatch(relative):
            return relative
    raise CompileError(f"{NAME}: {shown!r} is not a folder in $CI_BUILDS_DIR; write it as $CI_BUILDS_DIR/some/folder")


def with_clone_path(place: JobPlace, chosen: str, *, is_apart: bool) -> JobPlace:
    """Return `place`, the job's folders, with the working directory `chosen` (empty: the usual one). If jobs are
    isolated from each other (`is_apart`), it is in a folder that only jobs of this project with this path use."""
    if chosen and is_apart:
        own = hashlib.sha256(f"{place.project}\0{chosen}".encode()).hexdigest()[:12]
        chosen = f"{place.own_folder}/@{own}/{chosen}"
    return msgspec.structs.replace(place, clone_path=chosen)


def _is_named(payload: JobPayload, runner: RunnerConfig) -> bool:
    return any(variable.key == NAME for variable in payload.variables) or any(
        entry.startswith(f"{NAME}=") for entry in runner.environment
    )
