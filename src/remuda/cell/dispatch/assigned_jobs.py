"""The jobs that runners have, as this process last saw them.

Decided here: for how long a row that was read or stored counts as known. A runner calls every few seconds about the
same job, and its first calls come at once one after the other. What other processes change they tell (a hint, which may
be lost); what this one changes it notes itself. So what is known is nearly always what is stored, and what may rest on
it is only what does no harm if it is not: a change is stored only where the row is still what the change was made on,
and nobody is refused anything without a look at the row. `remuda.cell.dispatch.runner_calls` asks.
"""

from collections import OrderedDict

import msgspec

from remuda.cell.values import Job
from remuda.lib.clock import Clock
from remuda.model.job import HELD, JobId, PipelineId

KNOWN_SECONDS = 5.0
"""How late it may be noticed that another process canceled or ended a job, where its hint was lost."""
MOST = 10_000


class _Known(msgspec.Struct):
    job: Job
    until: float
    in_running: bool
    """Its pipeline was known to run when the job was handed out, and does so as long as a runner has the job."""
    moment: int
    """When its hand-out was noted."""


class KnownJobs:
    """A bounded number of jobs, those that were not seen for longest go first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: OrderedDict[JobId, _Known] = OrderedDict()
        self._running: OrderedDict[PipelineId, int] = OrderedDict()
        """Pipelines that were read as running after a moment."""
        self._moments = 0

    def note(self, job: Job, *, in_running: bool = False) -> None:
        """It was just read or stored like this."""
        before = self._jobs.pop(job.id, None)
        if job.state not in HELD:
            return
        until = self._clock.monotonic() + KNOWN_SECONDS
        if before is not None and before.job.epoch == job.epoch:
            self._jobs[job.id] = _Known(job, until, in_running or before.in_running, before.moment)
        else:
            self._jobs[job.id] = _Known(job, until, in_running, self.moment())
        if len(self._jobs) > MOST:
            self._jobs.popitem(last=False)

    def moment(self) -> int:
        """Now, in terms of what was noted before and what after it."""
        self._moments += 1
        return self._moments

    def note_running(self, pipeline_id: PipelineId, *, since: int) -> None:
        """A pipeline was read after that moment, and runs: so it does as long as runners have jobs of it that were
        noted before the moment."""
        self._running[pipeline_id] = since
        self._running.move_to_end(pipeline_id)
        if len(self._running) > MOST:
            self._running.popitem(last=False)

    def get(self, job_id: JobId) -> Job | None:
        """The job, if a runner has it and it is known well enough."""
        known = self._jobs.get(job_id)
        return known.job if known is not None and known.until > self._clock.monotonic() else None

    def is_in_running(self, job: Job) -> bool:
        """Whether the pipeline of a job that a runner has is known to run."""
        known = self._jobs.get(job.id)
        if known is None or known.job.epoch != job.epoch:
            return False
        return known.in_running or known.moment < self._running.get(job.pipeline_id, 0)

    def forget(self, *job_ids: JobId) -> None:
        """They may have changed; none at all: any of them."""
        if not job_ids:
            self._jobs.clear()
        for job_id in job_ids:
            self._jobs.pop(job_id, None)
