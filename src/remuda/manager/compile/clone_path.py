"""The folder that a job chooses for its sources, with GIT_CLONE_PATH: which one that is, and whether it may.

Pure. The folder of builds is known only where the job runs, so the path is found below it, from `$CI_BUILDS_DIR` on.
`placing` makes the job's place of it, and `starting` says why a job cannot have what it asks for.

Invariant: where a job must not touch what belongs to others (it is in a container or a sandbox, or runs as another
user), a chosen folder has a folder of builds around it that no other job ever writes to: not even another choice of the
same project, which could put a link into the way.
"""

import hashlib
import posixpath
import re

import msgspec

from remuda.manager.compile.compile import DEFAULT_TIMEOUT_SECONDS, all_variables
from remuda.manager.compile.custom import with_placeholders
from remuda.manager.compile.step_entries import CompileError, Setting
from remuda.manager.compile.variables import Variables
from remuda.manager.config.load import RunnerConfig
from remuda.manager.environments.port import JobPlace
from remuda.wire.runner_api import JobPayload

NAME = "GIT_CLONE_PATH"
_FORM = re.compile(r"[^\0-\x1f\x7f\"'$`\\]+")


def clone_path(payload: JobPayload, runner: RunnerConfig, slot: int) -> str:
    """What the job chooses, below the folder of builds; empty: nothing. CompileError: it may not."""
    if not _is_named(payload, runner):
        return ""
    configured = Setting(runner=runner, system_id="", slot=slot, work_dir="", builds_dir="", cache_dir="")
    setting = with_placeholders(configured)
    wanted = Variables(all_variables(payload, setting, DEFAULT_TIMEOUT_SECONDS))[NAME]
    if not wanted:
        return ""
    if not runner.has_custom_build_dir:
        raise CompileError(
            f"{NAME}: this runner does not let jobs choose their folder; remove the variable, or have the runner's "
            "operator set enabled = true in [runners.custom_build_dir]"
        )
    shown = wanted.replace(setting.builds_dir, "$CI_BUILDS_DIR")
    path = posixpath.normpath(wanted)
    for folder in filter(None, (setting.builds_dir, runner.builds_dir)):
        found = path.removeprefix(f"{posixpath.normpath(folder)}/")
        if found != path and _FORM.fullmatch(found):
            return found
    raise CompileError(f"{NAME}: {shown!r} is not a folder in $CI_BUILDS_DIR; write it as $CI_BUILDS_DIR/some/folder")


def with_clone_path(place: JobPlace, wanted: str, *, is_apart: bool) -> JobPlace:
    """The place with the folder that the job chose; apart from all others where it must be."""
    if wanted and is_apart:
        own = hashlib.sha256(f"{place.project}\0{wanted}".encode()).hexdigest()[:12]
        wanted = f"{place.own_folder}/@{own}/{wanted}"
    return msgspec.structs.replace(place, clone_path=wanted)


def _is_named(payload: JobPayload, runner: RunnerConfig) -> bool:
    return any(one.key == NAME for one in payload.variables) or any(
        one.startswith(f"{NAME}=") for one in runner.environment
    )
