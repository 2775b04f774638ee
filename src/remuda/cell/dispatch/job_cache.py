"""Cache of the jobs that runners have, as this process last read or stored them.

A runner calls every few seconds about the same job, and its first calls follow each other at once; the cache saves most
of the reads. This process notes its own changes, other processes send hints, which may be lost. So an entry may be
stale for `CACHE_SECONDS`, and callers use it only where that is harmless: a change is stored only if the row is still
the one it was computed from, and no request is refused without reading the row. `runner_calls` reads the cache.
"""

from collections import OrderedDict

import msgspec

from remuda.cell.values import Job, Pipeline
from remuda.lib.clock import Clock
from remuda.model.job import ASSIGNED, JobId, PipelineId

CACHE_SECONDS = 5.0
"""Delay until a cancel or an end by another process is noticed, if its hint was lost."""
MAX_ENTRIES = 10_000


class _Entry(msgspec.Struct):
    job: Job
    until: float
    in_running: bool
    """Its pipeline ran when the job was handed out, and so runs as long as a runner has the job."""
    moment: int
    """When the hand-out was noted, by `JobCache.next_moment`."""


class JobCache:
    """A bounded number of assigned jobs. The one that was noted longest ago is dropped first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: OrderedDict[JobId, _Entry] = OrderedDict()
        self._running: OrderedDict[PipelineId, int] = OrderedDict()
        """Pipelines that were read as running, each with a moment before the read."""
        self._moments = 0

    def note(self, job: Job, *, in_running: bool = False) -> None:
        """Remember a job as it was just read or stored."""
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
        """A number that is higher than those of all entries that were noted before."""
        self._moments += 1
        return self._moments

    def note_running(self, pipeline_id: PipelineId, *, since: int) -> None:
        """Remember that a pipeline was read as running after the moment `since`.

        It then runs as long as runners have jobs of it that were noted before that moment.
        """
        self._running[pipeline_id] = since
        self._running.move_to_end(pipeline_id)
        if len(self._running) > MAX_ENTRIES:
            self._running.popitem(last=False)

    def get(self, job_id: JobId) -> Job | None:
        """The cached job; None if there is no entry, or a stale one."""
        entry = self._entries.get(job_id)
        return entry.job if entry is not None and entry.until > self._clock.monotonic() else None

    def is_in_running(self, job: Job) -> bool:
        """True if the pipeline of an assigned job is known to run."""
        entry = self._entries.get(job.id)
        if entry is None or entry.job.epoch != job.epoch:
            return False
        return entry.in_running or entry.moment < self._running.get(job.pipeline_id, 0)

    def forget(self, *job_ids: JobId) -> None:
        """Drop jobs that may have changed; without arguments all of them."""
        if not job_ids:
            self._entries.clear()
        for job_id in job_ids:
            self._entries.pop(job_id, None)


def has_begun(pipeline: Pipeline) -> bool:
    """True if the pipeline runs and its start is stored. The start of a further job then changes nothing about it."""
    return pipeline.status == "running" and pipeline.started_at is not None
