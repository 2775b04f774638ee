"""The in-memory state of the dispatcher: waiting jobs, held job requests, jobs that runners have, caches and counters.
Its methods are synchronous, so the state is consistent between two awaits of a caller. All jobs in it can be read again
from the store (`store_sync`), so a crash or a lost notification may delay a job, but never loses it."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from remuda.cell.dispatch.held_polls import HeldPolls
from remuda.cell.dispatch.job_cache import JobCache
from remuda.cell.dispatch.stop_requests import StopRequests
from remuda.cell.events import ChangedJobs
from remuda.cell.pipelines.trigger_queue import TriggerQueue
from remuda.cell.values import Family, Job
from remuda.cell.values.changes import Applied
from remuda.lib.clock import Clock
from remuda.model.job import ASSIGNED, FINAL, OCCUPYING, JobId, JobState, ProjectId
from remuda.model.progress import OVER
from remuda.queue import WaitingJobs
from remuda.queue.pickups import PickUps
from remuda.wire.routable_token import to_base36

_MOST_RECENT = 1000


class DispatchMemory:
    def __init__(self, clock: Clock, *, cell_id: int) -> None:
        self.waiting_jobs = WaitingJobs()
        self.held_polls = HeldPolls(self.waiting_jobs, clock)
        self.trigger_jobs = TriggerQueue()
        self.changed_jobs = ChangedJobs()
        self.stops = StopRequests(clock)
        self.job_cache = JobCache(clock)
        self.pick_ups = PickUps()
        self.assigned_jobs: dict[JobId, Job] = {}
        """Jobs that runners have, each as it was at its hand-out or when the last sweep of `timeouts` read it."""
        self.assigned_per_project: Counter[ProjectId] = Counter()
        self.recent_jobs: OrderedDict[JobId, Job] = OrderedDict()
        """Jobs that were enqueued last, as they were then. Most are handed out without being read again."""
        self.has_new_delayed_job = asyncio.Event()
        """Set when a job got its start time, so that `timeouts` computes its next wake-up anew."""
        self.listening_since = clock.now()
        """Since when this process has been able to receive calls of runners without interruption."""
        self.ended_jobs: Counter[str] = Counter()
        """How many jobs this process ended, by state."""
        self.ended_pipelines: Counter[str] = Counter()
        """How many pipelines ended, by status. A pipeline that is retried ends more than once."""
        self._cell_id = cell_id
        self._enqueued = 0
        self._recorded: dict[JobId, Job] | None = None

    @property
    def cursor(self) -> str:
        """The text for X-GitLab-Last-Update: the cell, this process, and how many jobs were queued so far."""
        return f"c{self._cell_id}-{to_base36(int(self.listening_since * 1000))}-{to_base36(self._enqueued)}"

    def announce(self, jobs: Sequence[Job]) -> None:
        """Update the memory from jobs just stored or read: queue pending jobs and wake held job requests, remove other
        jobs from the queue, and put trigger jobs, which no runner gets, into their own queue."""
        enqueued = 0
        for job in jobs:
            self.job_cache.forget(job.id)
            self.stops.note(job)
            if job.is_trigger:
                if job.state in OCCUPYING:
                    self.trigger_jobs.put(job.id)
            elif job.state is not JobState.PENDING:
                self.waiting_jobs.discard(job.id)
            elif self._was_handed_out_since(job):
                continue
            elif job.id not in self.waiting_jobs:
                self.waiting_jobs.add(job.id, job.key(), priority=job.priority, since=job.pending_at or job.created_at)
                self.remember_recent(job)
                enqueued += 1
            else:
                self.waiting_jobs.prioritize(job.id, job.priority)
                continue
            self.track_assigned(job)
            self.changed_jobs.note(job.id)
            if job.state is JobState.SCHEDULED:
                self.has_new_delayed_job.set()
        self._enqueued += enqueued
        for _ in range(min(enqueued, len(self.held_polls))):
            # If no held poll fits a waiting job now, none fits for the remaining new jobs either.
            if not self.held_polls.wake():
                break

    def remember_recent(self, job: Job) -> None:
        self.recent_jobs[job.id] = job
        if len(self.recent_jobs) > _MOST_RECENT:
            self.recent_jobs.popitem(last=False)

    def _was_handed_out_since(self, job: Job) -> bool:
        assigned = self.assigned_jobs.get(job.id)
        return assigned is not None and assigned.epoch > job.epoch

    def track_assigned(self, job: Job) -> None:
        """Add the job to the assigned jobs (those that runners have) or remove it, depending on its state. Also update
        the number of assigned jobs of its project: the queue prefers projects with fewer of them."""
        if self._recorded is not None:
            self._recorded[job.id] = job
        is_assigned = _is_assigned(job)
        if is_assigned is (job.id in self.assigned_jobs):
            return
        if is_assigned:
            self.assigned_jobs[job.id] = job
            self.assigned_per_project[job.project_id] += 1
        else:
            del self.assigned_jobs[job.id]
            self.assigned_per_project[job.project_id] -= 1
        self.waiting_jobs.occupy(job.project_id, self.assigned_per_project[job.project_id])
        if not self.assigned_per_project[job.project_id]:
            del self.assigned_per_project[job.project_id]

    @contextmanager
    def record_changes(self) -> Iterator[dict[JobId, Job]]:
        """Context manager: yield a dictionary that collects the jobs which this process changes inside the block. A
        caller that reads jobs from the store in the block must prefer these, because what it reads may be older."""
        self._recorded = {}
        try:
            yield self._recorded
        finally:
            self._recorded = None

    def replace_assigned(self, jobs: Iterable[Job]) -> None:
        """Replace assigned jobs, their numbers per project and stop requests by those of `jobs` that runners have."""
        jobs = list(jobs)
        self.stops.note_all(jobs)
        before = set(self.assigned_per_project)
        self.assigned_jobs = {job.id: job for job in jobs if _is_assigned(job)}
        self.assigned_per_project = Counter(job.project_id for job in self.assigned_jobs.values())
        for project_id in before | set(self.assigned_per_project):
            self.waiting_jobs.occupy(project_id, self.assigned_per_project[project_id])

    def count_ends(self, before: Family | None, applied: Applied) -> None:
        """Count the jobs and pipelines that a change has ended. `before`: the pipeline before it; None if new."""
        were_over = {job.id for job in before.jobs if job.state in FINAL} if before else frozenset()
        self.ended_jobs.update(
            job.state.value for job in applied.jobs if job.state in FINAL and job.id not in were_over
        )
        was_over = before is not None and before.pipeline.status in OVER
        if applied.pipeline and applied.pipeline.status in OVER and not was_over:
            self.ended_pipelines[applied.pipeline.status] += 1


def _is_assigned(job: Job) -> bool:
    return job.state in ASSIGNED and not job.is_trigger
