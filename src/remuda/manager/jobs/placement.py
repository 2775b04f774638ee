"""A job's place in its environment: what decides it, and how it is given back, with the operator's hook before that."""

import sqlite3
from contextlib import suppress

import msgspec

from remuda.manager.compile.clone_path import clone_path, with_clone_path
from remuda.manager.compile.custom import is_custom
from remuda.manager.compile.step_entries import CompileError, project_path
from remuda.manager.compile.step_policy import run_as
from remuda.manager.config.load import RunnerConfig
from remuda.manager.core.record import Record
from remuda.manager.environments.port import Environment, JobPlace
from remuda.manager.errors import EnvironmentLostError, EnvironmentTemporaryError
from remuda.manager.jobs.journal import JobRow, Journal
from remuda.telemetry.logs import Logger
from remuda.wire.runner_api import JobPayload


def place_of(row: JobRow, payload: JobPayload, runner: RunnerConfig, *, has_own_folder: bool) -> JobPlace:
    """What an environment has to know of a job; one that asks for a folder it may not have is told at its start."""
    place = JobPlace(
        key=row.key,
        runner=row.runner,
        slot=row.slot,
        project=project_path(payload.git_info.repo_url),
        builds_dir="" if is_custom(runner) else runner.builds_dir,
        cache_dir="" if is_custom(runner) else runner.cache_dir,
        job=row.job_id if has_own_folder else None,
        run_as=run_as(runner, row.slot),
        before_job=runner.remuda.before_job,
        after_job=runner.remuda.after_job,
        manager=row.manager,
        is_protected=bool(payload.git_info.protected),
    )
    wanted = ""
    if not is_custom(runner):
        with suppress(CompileError):
            wanted = clone_path(payload, runner, row.slot)
    is_apart = runner.has_containers or runner.remuda.sandbox or has_own_folder or bool(place.run_as)
    return with_clone_path(place, wanted, is_apart=is_apart)


def folders_of(runner: RunnerConfig) -> list[str]:
    """Where a runner's jobs write besides the environment's own folder, by its configuration."""
    return [] if is_custom(runner) else [folder for folder in (runner.builds_dir, runner.cache_dir) if folder]


async def in_slot(row: JobRow, number: int, record: Record, journal: Journal) -> JobRow:
    """A job that begins in the folder of this slot: stored before anything is made there, or a new process errs."""
    if row.slot == number:
        return row
    moved = msgspec.structs.replace(row, slot=number)
    try:
        await journal.add(moved, record)
    except sqlite3.Error as error:
        raise EnvironmentTemporaryError(f"the journal cannot be written: {error}") from error
    return moved


async def put_away(environment: Environment, place: JobPlace, machine: str, log: Logger) -> None:
    """Give the place back. What can never be done is logged: the job's end does not depend on it."""
    try:
        if place.after_job:
            log.info("after_job is done", output=await environment.after(place, machine))
    except EnvironmentLostError as error:
        log.error("after_job failed", cause=str(error))
    try:
        await environment.clean_up(place, machine)
    except EnvironmentLostError as error:
        log.error("the job's place cannot be cleaned up", cause=str(error))
