"""All jobs of this agent: accepts them, resumes them at a start, cancels and removes them.

An accepted job is kept until a client closes it or no client has connected for too long (`client_presence`), also if
the agent restarts. Accepting and closing do not await between check and change, so two calls for one id cannot
interfere. A closed job is removed when its processes have ended. Until then, calls that close it or start a job with
its id wait, and so does an agent that stops."""

import asyncio
import logging
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuda.lib.clock import Clock
from remuda.lib.killpoints import reach
from remuda.steps.engine.job_execution import Job
from remuda.steps.engine.job_request import secrets_of
from remuda.steps.engine.loading import Resolver
from remuda.steps.engine.process_execution import AgentContext
from remuda.steps.errors import BadRequestError, UnknownJobError
from remuda.steps.job_files.disk import Reserve
from remuda.steps.job_files.disk_usage import MEASURE_SECONDS, choose_filler, lacks_files, measure
from remuda.steps.job_files.journal import Journal, list_jobs
from remuda.steps.language.checking import check_inputs
from remuda.steps.language.reading import read_step
from remuda.steps.language.values import Reference
from remuda.steps.policy.job_user import parse_run_as
from remuda.steps.policy.rules import parse_policy
from remuda.steps.process.environment import check_variables
from remuda.steps.process.job_processes import find_members
from remuda.steps.process.kernel import become_subreaper
from remuda.steps.process.leftovers import Reaper
from remuda.steps.resolving.values import Resolved
from remuda.wire.proto.agent_pb2 import StartRequest

VERSION = 1
"""Version of the start request that this agent understands."""
LONGEST_ID = 200
_MEASUREMENTS = 5
"""How often the jobs' disk usage is measured until one that has filled the disk is found."""

logger = logging.getLogger(__name__)


class Jobs:
    def __init__(self, folder: Path, context: AgentContext, tasks: asyncio.TaskGroup) -> None:
        self._folder = folder
        self.context = context
        if context.resolver is None:
            self.context = replace(context, resolver=_Packages(folder.parent / "packages", context.clock))
        self._reaper = Reaper(context.clock)
        self._reserve = Reserve(folder.parent)
        self._group = tasks
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closing: dict[str, asyncio.Task[Exception | None]] = {}

    def adopt(self) -> None:
        """At the agent's start: allocate the disk reserve, and resume jobs of earlier agents in the data folder."""
        become_subreaper()
        self._reserve.hold()
        self.context.disk_space.relieve = self._relieve_disk
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for folder in list_jobs(self._folder):
            try:
                self._keep(Job(Journal(folder), self.context, self.all))
            except Exception:
                logger.exception(
                    "cannot read the job in folder %s at the start; it is not resumed, and its files stay", folder
                )

    async def start(self, request: StartRequest) -> None:
        """Store the request and start the job, unless its id exists. Raises BadRequestError for an invalid request."""
        await self._wait_until_closed(request.id)
        if not 1 <= len(request.id) <= LONGEST_ID:
            raise BadRequestError(f"id: 1 to {LONGEST_ID} characters are needed")
        if request.id in self._jobs:
            return
        if request.version != VERSION:
            raise BadRequestError(f"version: this agent knows {VERSION}, not {request.version}; use a newer agent")
        if request.timeout_seconds < 0 or request.log_limit_bytes < 0:
            raise BadRequestError("timeout_seconds and log_limit_bytes: 0 (no limit) or more is needed")
        try:
            check_variables(request)
            _check_places(request)
            # The request has no inputs for its own definition.
            check_inputs(read_step(request.steps, file="steps", job=True).spec, {})
            parse_policy(request.policy)
            if request.run_as:
                # The list of users may be on another machine.
                await asyncio.to_thread(parse_run_as, request.run_as)
        except BadRequestError as error:
            raise type(error)(secrets_of(request).mask(str(error))) from None
        if request.id in self._jobs:  # another call has started it meanwhile
            return
        # An agent that adopts the job may run in another directory.
        request.work_dir = os.path.abspath(request.work_dir)
        journal = Journal.create(self._folder, request, self.context.clock.now())
        reach("agent.accepted")
        self._keep(Job(journal, self.context, self.all))

    def find(self, job_id: str) -> Job | None:
        return self._jobs.get(job_id)

    def get(self, job_id: str) -> Job:
        """Return the job with this id. Raises UnknownJobError if there is none."""
        job = self.find(job_id)
        if job is None:
            raise UnknownJobError(job_id)
        return job

    def all(self) -> Iterable[Job]:
        return self._jobs.values()

    @property
    def is_any_running(self) -> bool:
        return bool(self._tasks or self._closing)

    @property
    def are_idle(self) -> bool:
        """True if no job runs and none waits for its client with a time limit, so that the agent may stop."""
        return not self.is_any_running and not any(job.presence.has_patience for job in self._jobs.values())

    async def watch_disk(self) -> None:
        """If the disk became full, stop the job that filled it and release the agent's disk reserve. If the disk has
        enough space, allocate the reserve again. Called regularly."""
        await self.context.disk_space.look(self._folder.parent, self.context.clock)
        self._reserve.hold()

    async def _relieve_disk(self) -> None:
        """Stop the job that filled the disk and release the agent's disk reserve. If no such job is found, measure
        again: a job that empties and refills its files may have had little on the disk at that moment. If none is found
        but there is space now, keep the reserve: a job that is stopped later needs it for steps that free space."""
        disk = self._folder.parent
        monotonic = self.context.clock.monotonic
        until = monotonic() + MEASURE_SECONDS
        try:
            for _ in range(_MEASUREMENTS):
                if await self._stop_filler(disk, until - monotonic()):
                    return
        except OSError as error:
            logger.warning(
                "disk full: cannot stop the job that filled it; deleting the agent's reserve file if still full: %s",
                error,
            )
        if not self.context.disk_space.has_room(disk):
            self._reserve.release()

    async def _stop_filler(self, disk: Path, seconds: float) -> bool:
        """Stop the job that filled the disk, and release the disk reserve. False if none was found in `seconds`."""
        filesystem = os.statvfs(disk)
        running = {job.id: job for job in self._jobs.values() if job.can_be_stopped_for_disk}
        users = {job.journal.key: job.footprint.uid for job in self._jobs.values()}
        members = await asyncio.to_thread(find_members, users)
        searches = {job.id: await job.footprint.search_disk(members[job.journal.key]) for job in running.values()}
        uses = await asyncio.to_thread(measure, searches, disk, seconds)
        filler = choose_filler(
            uses,
            disk_bytes=filesystem.f_blocks * filesystem.f_frsize,
            disk_files=filesystem.f_files,
            needs_files=lacks_files(disk),
        )
        if filler is None or not running[filler].can_be_stopped_for_disk:
            return False
        await running[filler].stop_for_disk(uses[filler], self._reserve.release)
        return True

    def clean_up(self) -> None:
        """Cancel running jobs, and remove ended ones, whose client was disconnected for too long. Called regularly."""
        self._reaper.look()
        now = self.context.clock.monotonic()
        for job in [job for job in self._jobs.values() if job.presence.is_expired(now)]:
            try:
                if job.end is None and not job.journal.cancelled:
                    logger.warning("job %s: no client has connected for too long; cancelling it", job.id)
                    job.cancel()
                elif job.end is not None:
                    logger.warning("job %s: ended, and no client has connected for too long; removing it", job.id)
                    self._close(job)
            except OSError as error:
                logger.warning("job %s: cannot cancel or remove the abandoned job, trying again: %s", job.id, error)

    async def close(self, job_id: str) -> None:
        """Kill the processes of a job and remove it with its files. If that fails, the client can repeat the call. A
        job that has to close environments first (`must_be_closed`) is only cancelled, and removed when they are
        closed."""
        job = self._jobs.get(job_id)
        if job is not None and job_id not in self._closing:
            self._close(job)
        await self._wait_until_closed(job_id)

    def _close(self, job: Job) -> None:
        if job.must_be_closed:
            job.leave()
            return
        if job.end is not None:
            self._forget(job)
            return
        job.kill()
        task = self._tasks.pop(job.id, None)
        if task is not None:
            task.cancel()
        closing = self._group.create_task(self._end(job, task), name=f"job {job.id}: close")
        self._closing[job.id] = closing

    async def _wait_until_closed(self, job_id: str) -> None:
        closing = self._closing.get(job_id)
        if closing is not None and (error := await asyncio.shield(closing)) is not None:
            raise error

    async def _end(self, job: Job, task: asyncio.Task[None] | None) -> Exception | None:
        """Wait for the `task` of a killed job to end, kill its remaining processes, and remove the job. Returns the
        error if that fails: raising it in this task would end all jobs."""
        try:
            if task is not None:
                await asyncio.wait({task})
            await job.footprint.kill_rest()
            self._forget(job)
        except OSError as error:
            logger.warning(
                "job %s: cannot kill its processes or remove its files; it stays in the list: %s", job.id, error
            )
            return error
        except Exception as error:
            logger.exception("job %s: unexpected error while removing the job; keeping it", job.id)
            return error
        finally:
            del self._closing[job.id]
        return None

    def _forget(self, job: Job) -> None:
        self._tasks.pop(job.id, None)
        job.destroy()
        del self._jobs[job.id]

    async def release(self, job_id: str) -> None:
        """If a failed job is kept for debugging, end that, and wait until its environments are closed."""
        job = self._jobs.get(job_id)
        if job is not None and job.hold.is_active and job_id in self._tasks:
            job.hold.release()
            await job.hold.has_ended.wait()

    def abandon(self) -> None:
        """When the agent stops: stop watching the jobs, whose processes continue, and release the disk reserve."""
        self._reserve.release()
        for task in self._tasks.values():
            task.cancel()

    def _keep(self, job: Job) -> None:
        if job.end is not None and job.is_unwanted and not job.hold.is_active:
            job.destroy()
            return
        self._jobs[job.id] = job
        if job.end is None or job.hold.is_active:
            task = self._group.create_task(job.run(), name=f"job {job.id}")
            self._tasks[job.id] = task
            task.add_done_callback(lambda done: self._forget_task(job.id, done))

    def _forget_task(self, job_id: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(job_id) is task:
            del self._tasks[job_id]
            job = self._jobs.get(job_id)
            if job is not None and job.end is not None and job.is_unwanted:
                self._close(job)
        self._reaper.look()


def _check_places(request: StartRequest) -> None:
    for place in request.writable:
        if not os.path.isabs(place) or ".." in place.split("/"):
            raise BadRequestError(f'writable: "{place}": an absolute path without .. is needed')
    if ".." in request.cgroup.split("/"):
        raise BadRequestError(f'cgroup: "{request.cgroup}": a path without .. is needed')


class _Packages:
    """A package resolver whose code is imported at the first use, because many agents never need it."""

    def __init__(self, cache: Path, clock: Clock) -> None:
        self._cache = cache
        self._clock = clock
        self._resolver: Resolver | None = None

    async def resolve(self, reference: Reference, **options: Any) -> Resolved:
        if self._resolver is None:
            from remuda.steps.resolving.resolver import Resolver as RealResolver

            self._resolver = RealResolver(self._cache, clock=self._clock)
        return await self._resolver.resolve(reference, **options)
