"""Caches the jobs that runners have, as this process last read or stored them, because a runner calls every few seconds
about the same job. Changes by other processes may be missed, so an entry may be stale for `CACHE_SECONDS`. Callers use
it only where that is harmless: the store refuses a change that was computed from a stale job, and before a request is
refused, the job is read from the store."""

from collections import OrderedDict

import msgspec

from remuda.cell.values import Job, Pipeline
from remuda.lib.clock import Clock
from remuda.model.job import ASSIGNED, JobId, PipelineId

CACHE_SECONDS = 5.0
"""Maximum delay until a cancel or an end by another process is noticed, if its notification was lost."""
MAX_ENTRIES = 10_000


class _Entry(msgspec.Struct):
    job: Job
    until: float
    in_running: bool
    """The pipeline ran when the job was handed out, and so runs as long as a runner has the job."""
    moment: int
    """The value of `JobCache.next_moment` when this hand-out was cached first."""


class JobCache:
    """Caches a bounded number of jobs that runners have. The entry that was updated longest ago is dropped first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: OrderedDict[JobId, _Entry] = OrderedDict()
        self._running: OrderedDict[PipelineId, int] = OrderedDict()
        """Pipelines that were read as running, each with a moment before the read."""
        self._moments = 0

    def note(self, job: Job, *, in_running: bool = False) -> None:
        """Cache a job that was just read from or written to the store. Only jobs that a runner has are cached; any
        other is removed. `in_running`: its pipeline is known to be running."""
        before = self._entries.pop(job.id, None)
        if job.state not in ASSIGNED:
            return
        until = self._clock.monotonic() + CACHE_SECONDS
        if before is not None and before.job.epoch == job.epoch:
            self._entries[job.id] = _Entry(job, until, in_running or before.in_running, before.moment)
        else:
            self._entries[job.id] = _Entry(job, until, in_running, self.next_moment())
        if len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)

    def next_moment(self) -> int:
        """Return the next number of a counter, which tells which jobs were cached before a pipeline was read."""
        self._moments += 1
        return self._moments

    def note_running(self, pipeline_id: PipelineId, *, since: int) -> None:
        """Record that a pipeline has the status running. It was read from the store after `next_moment` returned
        `since`. From now on `is_in_running` is true for jobs of the pipeline that were cached before `since`: their
        runners had them when the pipeline was read, and a pipeline does not end while a runner has one of its jobs."""
        self._running[pipeline_id] = since
        self._running.move_to_end(pipeline_id)
        if len(self._running) > MAX_ENTRIES:
            self._running.popitem(last=False)

    def get(self, job_id: JobId) -> Job | None:
        """Return the cached job; None if there is no entry, or only a stale one."""
        entry = self._entries.get(job_id)
        return entry.job if entry is not None and entry.until > self._clock.monotonic() else None

    def is_in_running(self, job: Job) -> bool:
        """Return whether the cache knows that the pipeline of an assigned job is running. False means unknown."""
        entry = self._entries.get(job.id)
        if entry is None or entry.job.epoch != job.epoch:
            return False
        return entry.in_running or entry.moment < self._running.get(job.pipeline_id, 0)

    def forget(self, *job_ids: JobId) -> None:
        """Drop the entries of these jobs, because the jobs may have changed; without arguments, drop all entries."""
        if not job_ids:
            self._entries.clear()
        for job_id in job_ids:
            self._entries.pop(job_id, None)


def has_begun(pipeline: Pipeline) -> bool:
    """True if the pipeline runs and has a start time: then the start of a further job does not change its row."""
    return pipeline.status == "running" and pipeline.started_at is not None
