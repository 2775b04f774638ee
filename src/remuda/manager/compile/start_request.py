"""Creates the request that starts a job at an agent: the compiled payload, with options of its machine and folders."""

import os

import msgspec

from remuda.manager.compile.clone_path import clone_path
from remuda.manager.compile.compile import compile_job
from remuda.manager.compile.custom import is_custom
from remuda.manager.compile.hold_on_failure import hold_of
from remuda.manager.compile.step_entries import Setting, cache_folder
from remuda.manager.compile.step_policy import has_own_user
from remuda.manager.config.certificates import authority_of
from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.port import JobPlace, PreparedPlace
from remuda.wire.agent_client import GroupLimits, JobStart
from remuda.wire.runner_api import JobPayload


class StartContext(msgspec.Struct, frozen=True, kw_only=True):
    runner: RunnerConfig
    place: JobPlace
    prepared: PreparedPlace
    system_id: str
    now: float
    may_shell: bool
    """Whether a shell can be opened in the job."""
    may_hold: bool
    """Whether it may go on hold when it fails."""


def start_request(payload: JobPayload, context: StartContext) -> JobStart:
    """Return the request that starts a job at an agent. Raises CompileError with a message for the job's author."""
    runner, prepared = context.runner, context.prepared
    chosen = clone_path(payload, runner, context.place.slot)
    builds_dir = prepared.work_dir.removesuffix(f"/{chosen}") if context.place.clone_path else prepared.builds_dir
    cgroup = runner.slot_cgroup(context.place.slot if prepared.slot is None else prepared.slot)
    setting = Setting(
        key=context.place.key,
        runner=runner,
        system_id=context.system_id,
        slot=context.place.slot,
        work_dir=prepared.work_dir,
        builds_dir=builds_dir,
        clone_path=chosen,
        cgroup=cgroup,
        cache_dir=prepared.cache_dir,
        now=context.now,
        server_ca=authority_of(runner),
        host_environment=dict(os.environ) if is_custom(runner) else {},
    )
    start = compile_job(payload, setting)
    hold = hold_of(runner.remuda, start.variables, payload.id, may_shell=context.may_shell)
    return msgspec.structs.replace(
        start,
        banner=(*start.banner, *prepared.notes, *hold.remarks),
        hold_failed_seconds=hold.seconds if context.may_hold else 0,
        hold_note=hold.note,
        run_as=context.place.run_as,
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


def _cache_folders(payload: JobPayload, cache_dir: str) -> tuple[str, ...]:
    """Return the cache folders that the job may write to: that for unprotected refs, and on a protected ref also the
    protected one. Jobs of protected refs need both because of `cache:unprotect`."""
    repo_url = payload.git_info.repo_url
    kinds = (False, True) if payload.git_info.protected else (False,)
    return tuple(cache_folder(cache_dir, repo_url, is_protected=kind) for kind in kinds)
