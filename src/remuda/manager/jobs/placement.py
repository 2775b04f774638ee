"""Computes where a job's files are (`JobPlace`), stores the job's slot number, and cleans up when the job is over."""

import sqlite3
from contextlib import suppress

import msgspec

from remuda.manager.compile.clone_path import clone_path, with_clone_path
from remuda.manager.compile.custom import is_custom
from remuda.manager.compile.step_entries import CompileError, project_path
from remuda.manager.compile.step_policy import run_as
from remuda.manager.config.values import RunnerConfig
from remuda.manager.core.record import JobRow, Record
from remuda.manager.environments.port import Environment, JobPlace
from remuda.manager.errors import EnvironmentLostError, EnvironmentTemporaryError
from remuda.manager.jobs.journal import Journal
from remuda.telemetry.logs import Logger
from remuda.wire.runner_api import JobPayload


def place_of(row: JobRow, payload: JobPayload, runner: RunnerConfig, *, has_own_folder: bool) -> JobPlace:
    """Return where a job's files are. `has_own_folder`: the job has a working directory that no later job uses. An
    invalid GIT_CLONE_PATH is ignored here, because later the start of the job fails with a message for its user."""
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
    path = ""
    if not is_custom(runner):
        with suppress(CompileError):
            path = clone_path(payload, runner, row.slot)
    is_apart = runner.has_containers or runner.remuda.sandbox or has_own_folder or bool(place.run_as)
    return with_clone_path(place, path, is_apart=is_apart)


async def store_slot(row: JobRow, number: int, record: Record, journal: Journal) -> JobRow:
    """Store `number` as the job's slot in the journal, and return the changed row. Called before the slot's folder
    exists, so that a new process knows it. Raises EnvironmentTemporaryError if the journal cannot be written."""
    if row.slot == number:
        return row
    moved = msgspec.structs.replace(row, slot=number)
    try:
        await journal.add(moved, record)
    except sqlite3.Error as error:
        raise EnvironmentTemporaryError(f"the journal cannot be written: {error}") from error
    return moved


async def release_place(environment: Environment, place: JobPlace, machine: str, log: Logger) -> None:
    """Run the `after_job` hook, then release the job's machine and remove its temporary files. Permanent failures are
    only logged, so that the job can end. EnvironmentTemporaryError is raised, and the caller tries again."""
    try:
        if place.after_job:
            log.info("after_job hook finished", output=await environment.run_hook("after_job", place, machine))
    except EnvironmentLostError as error:
        log.error("after_job hook failed; cleaning up without it", cause=str(error))
    try:
        await environment.clean_up(place, machine)
    except EnvironmentLostError as error:
        log.error("cannot clean up the job's folders; they stay on the machine", machine=machine, cause=str(error))
