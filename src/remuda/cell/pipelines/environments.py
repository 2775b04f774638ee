"""Stops environments: when a user asks for it, when their time is over (`auto_stop_in`), and when their branch is
deleted. Stopping runs the job that `on_stop` names; its success makes the environment stopped, in the transaction that
ends the job.

The job is started before the environment is marked as stopping. If the process dies in between, the environment is
still due, and the next round finds the job started."""

import asyncio

from msgspec.structs import replace

from remuda.cell.core.jobs.environments import find_stop_job
from remuda.cell.dispatch.user_commands import UserCommands
from remuda.cell.errors import InvalidError, NotFoundError, StoreError
from remuda.cell.store.ports import Store
from remuda.cell.values import Job, Page, Project
from remuda.cell.values.deployments import AVAILABLE, STOPPED, STOPPING, Environment, EnvironmentFilter
from remuda.lib.clock import Clock
from remuda.lib.waiting import wait_for_any_event
from remuda.model.job import OCCUPYING, JobState
from remuda.telemetry.logs import logger

LOOK_SECONDS = 30.0
"""How late an environment is stopped at most."""
_BATCH = 100

_log = logger("cell")


class Environments:
    def __init__(self, *, store: Store, commands: UserCommands, clock: Clock) -> None:
        self._store = store
        self._commands = commands
        self._clock = clock
        self._changed = asyncio.Event()

    def look_again(self) -> None:
        """Make `watch` look for environments that are due now. Call this when one was made due."""
        self._changed.set()

    async def watch(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, stop the environments whose time is over."""
        while not stop.is_set():
            self._changed.clear()
            try:
                pause = 0.0 if await self.stop_due() == _BATCH else LOOK_SECONDS
            except StoreError as error:
                _log.warning("cannot stop environments that are due; trying again", error=str(error))
                pause = float(error.retry_after_seconds)
            await wait_for_any_event(
                self._clock, stop, self._changed, within_seconds=pause, name="environments that are due"
            )

    async def stop_due(self) -> int:
        """Stop the environments whose time is over. Returns how many. One that cannot be stopped is logged, and is not
        tried again before a job sets a new time."""
        due = await self._store.deployments.list_due_environments(self._clock.now(), limit=_BATCH)
        for environment in due:
            try:
                await self._stop_due(environment)
                _log.info("stopped an environment whose time was over", environment=environment.id)
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - one environment must not keep the others from being stopped
                _log.error("cannot stop an environment whose time is over", environment=environment.id, exc_info=error)
                await self._store.deployments.change_environment(
                    environment.id, lambda row: replace(row, auto_stop_at=None)
                )
        return len(due)

    async def _stop_due(self, environment: Environment) -> None:
        project = await self._store.projects.load_project(environment.project_id)
        is_gone = project is None or project.removed_at is not None
        needs_job = environment.auto_stop_setting == "with_action"
        if is_gone or environment.state == STOPPED or (needs_job and await self.find_stop_job(environment) is None):
            await self._store.deployments.change_environment(
                environment.id, lambda row: replace(row, auto_stop_at=None)
            )
            return
        await self.stop(environment)

    async def find_stop_job(self, environment: Environment) -> Job | None:
        """Return the job that stops an environment: the `on_stop` of its last successful deployment, in the same
        pipeline. None if there is none, or it cannot be started."""
        last = await self._store.deployments.find_last_deployment(environment)
        deployed = await self._store.jobs.load_job(last.job_id) if last and last.job_id is not None else None
        family = await self._store.pipelines.load_family(deployed.pipeline_id) if deployed else None
        return find_stop_job(deployed, family.jobs) if family else None

    async def stop_of_branch(self, project: Project, branch: str) -> None:
        """Stop the environments that have a stop job and whose last deployment was of a branch, which was deleted."""
        page = Page(size=_BATCH, ascending=True, counted=False)
        selection = EnvironmentFilter(project_id=project.id, states=(AVAILABLE,))
        while rows := (await self._store.deployments.list_environments(page, selection))[0]:
            for environment in rows:
                last = await self._store.deployments.find_last_deployment(environment)
                is_of_branch = last is not None and (last.ref, last.tag) == (branch, False)
                if is_of_branch and await self.find_stop_job(environment) is not None:
                    await self.stop(environment)
            page = replace(page, after=rows[-1].id)

    async def stop(self, environment: Environment, *, force: bool = False) -> Environment:
        """Stop an environment and return it: `stopping` while its stop job runs; `stopped` if it has none, or with
        `force`. One that is stopped already is not changed."""
        if environment.state == STOPPED:
            return environment
        job = None if force else await self.find_stop_job(environment)
        if job is not None:
            await self._start(job)
        now = self._clock.now()

        def decide(row: Environment) -> Environment | None:
            # A stop job that was quick has stopped it meanwhile.
            if row.state == STOPPED:
                return None
            return replace(row, state=STOPPING if job else STOPPED, auto_stop_at=None, updated_at=now)

        changed = await self._store.deployments.change_environment(environment.id, decide)
        if job is not None and changed is not None:
            changed = await self._check_job(changed, job) or changed
        return changed or await self._store.deployments.load_environment(environment.id) or environment

    async def _start(self, job: Job) -> None:
        """Start the stop job; nothing if it waits or runs already. Also if two processes do so at the same time."""
        try:
            if job.state in (JobState.MANUAL, JobState.SCHEDULED):
                await self._commands.play_job(job.id)
            elif job.state not in OCCUPYING and job.state is not JobState.WAITING_FOR_RESOURCE:
                await self._commands.retry_job(job.id)
        except (InvalidError, NotFoundError) as error:
            _log.info("the stop job of an environment was started already", job=job.id, reason=str(error))

    async def _check_job(self, environment: Environment, job: Job) -> Environment | None:
        """Make the environment available again if its stop job has failed before the environment was stopping."""
        family = await self._store.pipelines.load_family(job.pipeline_id)
        newest = next((row for row in family.jobs if row.name == job.name), None) if family else None
        if newest is not None and newest.state not in (JobState.FAILED, JobState.CANCELED):
            return None
        return await self._store.deployments.change_environment(
            environment.id, lambda row: replace(row, state=AVAILABLE) if row.state == STOPPING else None
        )
