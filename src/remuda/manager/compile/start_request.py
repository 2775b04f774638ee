"""What an agent is told when a job starts: the payload, compiled for the place that the job has. `jobs.py` sends it."""

import os
from collections.abc import Sequence

import msgspec

from remuda.manager.compile.clone_path import clone_path
from remuda.manager.compile.compile import compile_job
from remuda.manager.compile.custom import is_custom
from remuda.manager.compile.step_entries import Setting, cache_folder
from remuda.manager.compile.step_policy import has_own_user
from remuda.manager.config.load import RunnerConfig
from remuda.manager.environments.port import JobPlace, PreparedPlace
from remuda.manager.jobs.hold_on_failure import hold_of
from remuda.manager.registration.authority import authority_of
from remuda.wire.agent_client import GroupLimits, JobStart, JobVariable
from remuda.wire.runner_api import JobPayload, Variable


class Starting(msgspec.Struct, frozen=True, kw_only=True):
    """What counts besides the payload."""

    runner: RunnerConfig
    place: JobPlace
    prepared: PreparedPlace
    system_id: str
    now: float
    may_shell: bool
    """Whether somebody could open a shell in the job."""
    is_held: bool
    """Whether it may be held when it fails."""


def start_of(payload: JobPayload, starting: Starting) -> tuple[JobStart, Sequence[Variable]]:
    """The request, and the job's variables as they came. CompileError: the job cannot be run here."""
    runner, prepared = starting.runner, starting.prepared
    chosen = clone_path(payload, runner, starting.place.slot)
    builds_dir = prepared.work_dir.removesuffix(f"/{chosen}") if starting.place.clone_path else prepared.builds_dir
    cgroup = runner.slot_cgroup(starting.place.slot if prepared.slot is None else prepared.slot)
    setting = Setting(
        runner=runner,
        system_id=starting.system_id,
        slot=starting.place.slot,
        work_dir=prepared.work_dir,
        builds_dir=builds_dir,
        clone_path=chosen,
        cgroup=cgroup,
        cache_dir=prepared.cache_dir,
        now=starting.now,
        server_ca=authority_of(runner),
        host_environment=dict(os.environ) if is_custom(runner) else {},
    )
    compiled = compile_job(payload, setting)
    hold = hold_of(runner.remuda, compiled.variables, payload.id, may_shell=starting.may_shell)
    start = JobStart(
        id=starting.place.key,
        work_dir=prepared.work_dir,
        steps=compiled.steps,
        variables=[
            JobVariable(key=variable.key, value=variable.value, file=variable.file, masked=variable.masked)
            for variable in compiled.variables
        ],
        masks=compiled.masks,
        mask_prefixes=compiled.mask_prefixes,
        timeout_seconds=compiled.timeout_seconds,
        log_limit_bytes=compiled.log_limit_bytes,
        banner=(*compiled.banner, *prepared.notes, *hold.remarks),
        policy=compiled.policy,
        hold_failed_seconds=hold.seconds if starting.is_held else 0,
        hold_note=hold.note,
        run_as=starting.place.run_as,
        log_waiting_limit_bytes=runner.remuda.log_waiting_limit_bytes,
        sandbox=runner.remuda.sandbox or bool(prepared.hidden),
        hidden=prepared.hidden,
        writable=_cache_folders(payload, prepared.cache_dir) if prepared.cache_dir else (),
        cgroup=cgroup,
        cgroup_limits=GroupLimits(
            memory_bytes=runner.remuda.slot_memory_bytes,
            cpus=runner.remuda.slot_cpus,
            pids=runner.remuda.slot_pids,
        ),
        own_user=has_own_user(runner),
    )
    return start, compiled.variables


def _cache_folders(payload: JobPayload, cache_dir: str) -> tuple[str, ...]:
    """Those that the job may write to. A protected ref has both: `cache:unprotect` shares caches with other refs."""
    repo_url = payload.git_info.repo_url
    kinds = (False, True) if payload.git_info.protected else (False,)
    return tuple(cache_folder(cache_dir, repo_url, is_protected=kind) for kind in kinds)
